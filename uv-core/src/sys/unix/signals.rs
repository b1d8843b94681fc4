//! The process's signal handler: one for all loops, installed while anybody watches.
//!
//! The handler may take no lock and no memory. So who is to be told of a signal is a list
//! that is never changed, only replaced: a change makes a new list, swaps the pointer, and
//! frees the old list once no handler runs that could still be reading it. To tell a loop
//! is to count the signal in an array of the loop's and to leave a note.

use std::cell::Cell;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use crate::mailbox::{Kind, Mailbox, SIGNALS, check_number};

/// A loop that watches a signal, and for how many watchers of each kind.
#[derive(Clone, Debug)]
struct Subscriber {
    mailbox: Arc<Mailbox>,
    regular: usize,
    oneshot: usize,
}

/// Who watches each signal, as the handler reads it.
static LISTS: [AtomicPtr<Vec<Subscriber>>; SIGNALS] =
    [const { AtomicPtr::new(ptr::null_mut()) }; SIGNALS];
/// How many handlers run at this moment, in all threads.
static HANDLERS: AtomicUsize = AtomicUsize::new(0);
/// Held to change any of it: what each signal did before anybody watched it.
static BEFORE: Mutex<Actions> = Mutex::new([None; SIGNALS]);

type Actions = [Option<libc::sigaction>; SIGNALS];

extern "C" fn handler(signum: libc::c_int) {
    // What interrupts must leave no trace.
    let errno = errno();
    HANDLERS.fetch_add(1, Ordering::SeqCst);
    let list = LISTS[signum as usize].load(Ordering::SeqCst);
    // SAFETY: null, or a list that is freed only when no handler runs that has seen it.
    if let Some(list) = unsafe { list.as_ref() } {
        list.iter().for_each(|subscriber| subscriber.mailbox.post(signum as usize));
    }
    HANDLERS.fetch_sub(1, Ordering::SeqCst);
    set_errno(errno);
}

/// Starts telling `mailbox` of a signal, for one more watcher.
pub(crate) fn subscribe(mailbox: &Arc<Mailbox>, signum: i32, kind: Kind) -> io::Result<()> {
    change(signum, |list| {
        let at = list.iter().position(|subscriber| Arc::ptr_eq(&subscriber.mailbox, mailbox));
        let at = at.unwrap_or_else(|| {
            list.push(Subscriber { mailbox: Arc::clone(mailbox), regular: 0, oneshot: 0 });
            list.len() - 1
        });
        match kind {
            Kind::Regular => list[at].regular += 1,
            Kind::Oneshot => list[at].oneshot += 1,
        }
    })
}

/// Ends one watcher's subscription. The last one's restores what the signal did before.
pub(crate) fn unsubscribe(mailbox: &Arc<Mailbox>, signum: i32, kind: Kind) -> io::Result<()> {
    change(signum, |list| {
        for subscriber in list.iter_mut().filter(|it| Arc::ptr_eq(&it.mailbox, mailbox)) {
            match kind {
                Kind::Regular => subscriber.regular -= 1,
                Kind::Oneshot => subscriber.oneshot -= 1,
            }
        }
        list.retain(|subscriber| subscriber.regular + subscriber.oneshot > 0);
    })
}

/// Sees to it that a forked child finds the lock free and no handler running, whatever the
/// parent's other threads were at.
fn survive_forks() {
    thread_local! {
        static HELD: Cell<Option<MutexGuard<'static, Actions>>> = const { Cell::new(None) };
    }
    unsafe extern "C" fn before_fork() {
        HELD.set(Some(BEFORE.lock().unwrap_or_else(PoisonError::into_inner)));
    }
    unsafe extern "C" fn in_parent() {
        drop(HELD.take());
    }
    unsafe extern "C" fn in_child() {
        HANDLERS.store(0, Ordering::SeqCst);
        drop(HELD.take());
    }
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        // SAFETY: the handlers take and release one lock, in the thread that forks.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
    });
}

fn change(signum: i32, change: impl FnOnce(&mut Vec<Subscriber>)) -> io::Result<()> {
    let index = check_number(signum)?;
    survive_forks();
    // A handler must not interrupt this thread while it waits below for handlers to end.
    let _blocked = AllBlocked::new();
    let mut before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
    let old = LISTS[index].load(Ordering::SeqCst);
    // SAFETY: null, or the list of this signal, which only the holder of the lock replaces.
    let mut list = unsafe { old.as_ref() }.cloned().unwrap_or_default();
    change(&mut list);

    let only_oneshots = list.iter().all(|subscriber| subscriber.regular == 0);
    let watched = !list.is_empty();
    let new = if watched { Box::into_raw(Box::new(list)) } else { ptr::null_mut() };
    if watched {
        LISTS[index].store(new, Ordering::SeqCst);
    }
    let result = set_action(signum, watched.then_some(only_oneshots), &mut before[index]);
    let unused = match result {
        Ok(()) => {
            LISTS[index].store(new, Ordering::SeqCst);
            old
        }
        Err(_) => {
            LISTS[index].store(old, Ordering::SeqCst);
            new
        }
    };
    while HANDLERS.load(Ordering::SeqCst) != 0 {
        std::thread::yield_now();
    }
    if !unused.is_null() {
        // SAFETY: made by `Box::into_raw`, in no place any more, and no handler that could
        // have seen it runs.
        drop(unsafe { Box::from_raw(unused) });
    }
    result
}

/// Installs the handler, for one-shots alone or for others too, or removes it.
fn set_action(
    signum: i32,
    oneshots: Option<bool>,
    before: &mut Option<libc::sigaction>,
) -> io::Result<()> {
    let Some(only_oneshots) = oneshots else {
        if let Some(action) = before.take() {
            return sigaction(signum, Some(&action)).map(drop);
        }
        return Ok(());
    };
    // SAFETY: all zeroes is a valid `sigaction`: the default action, no flags, no mask.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = handler as *const () as libc::sighandler_t;
    // As in a program that does not watch, system calls of other threads go on.
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: initialises the mask.
    unsafe { libc::sigfillset(&raw mut action.sa_mask) };
    let first = before.is_none();
    if first {
        *before = Some(sigaction(signum, None)?);
    }
    // With one-shots alone, a second signal before the loop has seen the first does what
    // it did before, if the kernel can do that: it knows how to go back to the default.
    let default = before.is_some_and(|before| before.sa_sigaction == libc::SIG_DFL);
    if only_oneshots && default {
        action.sa_flags |= libc::SA_RESETHAND;
    }
    let installed = sigaction(signum, Some(&action));
    if installed.is_err() && first {
        *before = None;
    }
    installed.map(drop)
}

/// Sets what a signal does, unless `None`; returns what it did before.
fn sigaction(signum: i32, action: Option<&libc::sigaction>) -> io::Result<libc::sigaction> {
    let mut previous = MaybeUninit::uninit();
    let action = action.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: reads one action, or none, and writes the other.
    match unsafe { libc::sigaction(signum, action, previous.as_mut_ptr()) } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: written by the call.
        _ => Ok(unsafe { previous.assume_init() }),
    }
}

/// All signals are blocked in this thread until this is dropped.
pub(super) struct AllBlocked(libc::sigset_t);

impl AllBlocked {
    pub(super) fn new() -> AllBlocked {
        let mut all = MaybeUninit::uninit();
        // SAFETY: initialises the set.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        let mut before = MaybeUninit::uninit();
        // SAFETY: reads one set and writes the other; `how` is valid, so it does not fail.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
        // SAFETY: written by the call above.
        AllBlocked(unsafe { before.assume_init() })
    }
}

impl Drop for AllBlocked {
    fn drop(&mut self) {
        // SAFETY: reads a set that is valid.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, ptr::null_mut()) };
    }
}

fn errno_location() -> *mut libc::c_int {
    cfg_if::cfg_if! {
        if #[cfg(any(target_vendor = "apple", target_os = "freebsd"))] {
            // SAFETY: returns this thread's own, which lives as long as the thread.
            unsafe { libc::__error() }
        } else if #[cfg(any(target_os = "netbsd", target_os = "openbsd", target_os = "android"))] {
            // SAFETY: returns this thread's own, which lives as long as the thread.
            unsafe { libc::__errno() }
        } else {
            // SAFETY: returns this thread's own, which lives as long as the thread.
            unsafe { libc::__errno_location() }
        }
    }
}

pub(super) fn errno() -> libc::c_int {
    // SAFETY: valid for this thread, see `errno_location`.
    unsafe { *errno_location() }
}

pub(super) fn set_errno(errno: libc::c_int) {
    // SAFETY: valid for this thread, see `errno_location`.
    unsafe { *errno_location() = errno }
}
