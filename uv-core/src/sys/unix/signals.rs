//! The signal handler of the process: one for all loops, installed while a loop watches the signal.
//!
//! The handler may neither lock nor allocate. Each signal therefore has an immutable list of
//! subscribers: a change publishes a new list by swapping the pointer, and frees the old list once
//! no handler runs that could still read it. To notify a loop, the handler counts the signal in the
//! loop's mailbox and wakes the loop.

use std::cell::Cell;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use crate::handles::{Kind, PendingSignals, SIGNALS, check_number};

/// A loop that watches a signal, and its number of watchers of each kind.
#[derive(Clone, Debug)]
struct Subscriber {
    mailbox: Arc<PendingSignals>,
    regular: usize,
    oneshot: usize,
}

/// The subscribers of each signal, as the handler reads them.
static LISTS: [AtomicPtr<Vec<Subscriber>>; SIGNALS] =
    [const { AtomicPtr::new(ptr::null_mut()) }; SIGNALS];
/// The number of handlers that are running, in all threads.
static HANDLERS: AtomicUsize = AtomicUsize::new(0);
/// The action of each signal before its first subscription. Its lock guards every change of
/// [`LISTS`].
static BEFORE: Mutex<Actions> = Mutex::new([None; SIGNALS]);

type Actions = [Option<libc::sigaction>; SIGNALS];

extern "C" fn handler(signum: libc::c_int) {
    // A handler must not change the `errno` of the code that it interrupts.
    let errno = errno();
    HANDLERS.fetch_add(1, Ordering::SeqCst);
    let list = LISTS[signum as usize].load(Ordering::SeqCst);
    // SAFETY: null or a list from `change`. `change` frees a list only after it has unpublished it
    // and has then read `HANDLERS` as 0; this handler counted itself before it loaded the pointer.
    if let Some(list) = unsafe { list.as_ref() } {
        list.iter().for_each(|subscriber| subscriber.mailbox.post(signum as usize));
    }
    HANDLERS.fetch_sub(1, Ordering::SeqCst);
    set_errno(errno);
}

/// Subscribes `mailbox` to a signal, for one more watcher.
pub(crate) fn subscribe(mailbox: &Arc<PendingSignals>, signum: i32, kind: Kind) -> io::Result<()> {
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

/// Ends the subscription of one watcher. The last one restores the signal's former action.
pub(crate) fn unsubscribe(
    mailbox: &Arc<PendingSignals>,
    signum: i32,
    kind: Kind,
) -> io::Result<()> {
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

/// Installs fork handlers so that a forked child finds the lock free and no handler counted,
/// whatever the other threads of the parent were doing.
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
        // SAFETY: the handlers are functions, so they live as long as the process. The thread that
        // forks locks the mutex and unlocks it again, in the parent and in the child.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
    });
}

fn change(signum: i32, change: impl FnOnce(&mut Vec<Subscriber>)) -> io::Result<()> {
    let index = check_number(signum)?;
    survive_forks();
    // A handler in this thread would wait forever: this thread waits below for handlers to end.
    let _blocked = AllBlocked::new();
    let mut before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
    let old = LISTS[index].load(Ordering::SeqCst);
    // SAFETY: null or the current list of this signal. Only the holder of `BEFORE`, which is this
    // thread, replaces and frees lists.
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
        // SAFETY: `Box::into_raw` made the pointer. `LISTS` does not hold it any more, and the loop
        // above has seen that no handler runs that could have loaded it before.
        drop(unsafe { Box::from_raw(unused) });
    }
    result
}

/// Installs the handler, or restores the former action if `oneshots` is `None`. `Some(true)` means
/// that all watchers are one-shot.
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
    // SAFETY: a C structure of integers and pointers; zero is valid for each field and means the
    // default action, no flags and an empty mask.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = handler as *const () as libc::sighandler_t;
    // Interrupted system calls of other threads restart, as they do without a handler.
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: writes one set, to a field of a local.
    unsafe { libc::sigfillset(&raw mut action.sa_mask) };
    let first = before.is_none();
    if first {
        *before = Some(sigaction(signum, None)?);
    }
    // If all watchers are one-shot, a second signal before the loop has seen the first takes the
    // former action. The kernel can restore the default action only (`SA_RESETHAND`).
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

/// Sets the action of a signal unless `action` is `None`; returns the former action.
fn sigaction(signum: i32, action: Option<&libc::sigaction>) -> io::Result<libc::sigaction> {
    let mut previous = MaybeUninit::uninit();
    let action = action.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: `action` is null or borrowed for the call, and the former action is written to a
    // local. The only handler that is installed is `handler`, which is async-signal-safe; a former
    // action is restored as `sigaction` returned it.
    match unsafe { libc::sigaction(signum, action, previous.as_mut_ptr()) } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the call has succeeded, so it has written the action.
        _ => Ok(unsafe { previous.assume_init() }),
    }
}

/// Blocks all signals in this thread until it is dropped.
pub(super) struct AllBlocked(libc::sigset_t);

impl AllBlocked {
    pub(super) fn new() -> AllBlocked {
        let mut all = MaybeUninit::uninit();
        // SAFETY: writes one set, to a local.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        let mut before = MaybeUninit::uninit();
        // SAFETY: reads the set that is initialised above, and writes one to a local.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
        // SAFETY: `pthread_sigmask` has written it: the call fails only if `how` is invalid.
        AllBlocked(unsafe { before.assume_init() })
    }
}

impl Drop for AllBlocked {
    fn drop(&mut self) {
        // SAFETY: reads one initialised set and writes none (null).
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, ptr::null_mut()) };
    }
}

fn errno_location() -> *mut libc::c_int {
    cfg_if::cfg_if! {
        if #[cfg(any(target_vendor = "apple", target_os = "freebsd"))] {
            // SAFETY: takes no pointer; returns the address of this thread's `errno`.
            unsafe { libc::__error() }
        } else if #[cfg(any(target_os = "netbsd", target_os = "openbsd", target_os = "android"))] {
            // SAFETY: takes no pointer; returns the address of this thread's `errno`.
            unsafe { libc::__errno() }
        } else {
            // SAFETY: takes no pointer; returns the address of this thread's `errno`.
            unsafe { libc::__errno_location() }
        }
    }
}

pub(super) fn errno() -> libc::c_int {
    // SAFETY: the address of this thread's `errno`, which only this thread reads and writes.
    unsafe { *errno_location() }
}

pub(super) fn set_errno(errno: libc::c_int) {
    // SAFETY: the address of this thread's `errno`, which only this thread reads and writes.
    unsafe { *errno_location() = errno }
}
