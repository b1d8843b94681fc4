//! Modes of terminals, and the way back.
//!
//! A terminal keeps its mode when the program ends, so every mode that was changed has to be
//! changed back: when the stream is closed, at `exit`, and by [`reset_mode`], which signal
//! handlers and panic hooks may call. So what is to be restored is in a list that only grows
//! and whose nodes are used again; it is guarded by a lock that is held for a moment, with all
//! signals blocked, so that no handler waits for the thread that it interrupts.

use std::cell::UnsafeCell;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::super::signals::{AllBlocked, errno, set_errno};
use crate::handles::TtyMode;

/// What a terminal was like before its mode was changed. Dropped, it is so again.
#[derive(Debug)]
pub(crate) struct Saved(&'static Node);

/// A terminal to be restored, or a place for one.
#[derive(Debug)]
struct Node {
    /// Written by the holder of the lock only.
    content: UnsafeCell<Option<Before>>,
    next: *const Node,
}

#[derive(Clone, Copy, Debug)]
struct Before {
    fd: RawFd,
    /// Which terminal it is, as several descriptors may be of one.
    device: libc::dev_t,
    mode: libc::termios,
    /// Who changed the mode: a forked child must not restore it behind its parent's back.
    process: libc::pid_t,
}

// SAFETY: `next` is never changed, and `content` is looked at and changed under the lock.
unsafe impl Sync for Node {}

static FIRST: AtomicPtr<Node> = AtomicPtr::new(ptr::null_mut());
static LOCKED: AtomicBool = AtomicBool::new(false);

/// The lock, until this is dropped.
struct Locked(#[expect(dead_code, reason = "kept until the lock is open")] AllBlocked);

impl Locked {
    fn new() -> Locked {
        let blocked = AllBlocked::new();
        while LOCKED.swap(true, Ordering::Acquire) {
            // Another thread has it, for a few instructions.
            std::hint::spin_loop();
        }
        Locked(blocked)
    }

    fn nodes(&self) -> impl Iterator<Item = &'static Node> + use<> {
        // SAFETY: null, or a node, which lives for ever.
        let first = unsafe { FIRST.load(Ordering::Acquire).as_ref() };
        std::iter::successors(first, |node| {
            // SAFETY: null, or a node, which lives for ever.
            unsafe { node.next.as_ref() }
        })
    }

    /// What the node holds.
    fn content(&mut self, node: &'static Node) -> &mut Option<Before> {
        // SAFETY: the lock is held, and borrowed for as long as the reference lives.
        unsafe { &mut *node.content.get() }
    }

    /// What a terminal was like before any stream of this process changed it.
    fn first_mode(&mut self, device: libc::dev_t) -> Option<libc::termios> {
        let mut nodes = self.nodes();
        nodes
            .find_map(|node| self.content(node).filter(|it| it.device == device))
            .map(|before| before.mode)
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        LOCKED.store(false, Ordering::Release);
    }
}

impl Saved {
    /// Remembers what the terminal `fd` is like now, or was before another stream changed it.
    fn new(fd: RawFd, device: libc::dev_t) -> io::Result<Saved> {
        restore_at_exit();
        let mode = current_mode(fd)?;
        // SAFETY: it has no preconditions.
        let process = unsafe { libc::getpid() };
        let spare = Box::new(Node { content: UnsafeCell::new(None), next: ptr::null() });
        let mut locked = Locked::new();
        let mode = locked.first_mode(device).unwrap_or(mode);
        let before = Before { fd, device, mode, process };
        let mut nodes = locked.nodes();
        if let Some(free) = nodes.find(|node| locked.content(node).is_none()) {
            *locked.content(free) = Some(before);
            drop(locked);
            return Ok(Saved(free));
        }
        let node = Box::leak(spare);
        node.next = FIRST.load(Ordering::Acquire);
        *node.content.get_mut() = Some(before);
        FIRST.store(node, Ordering::Release);
        Ok(Saved(node))
    }

    fn mode(&self) -> Option<libc::termios> {
        let mut locked = Locked::new();
        locked.content(self.0).map(|before| before.mode)
    }
}

impl Drop for Saved {
    fn drop(&mut self) {
        let mut locked = Locked::new();
        let Some(before) = locked.content(self.0).take() else { return };
        let shared = locked.first_mode(before.device).is_some();
        drop(locked);
        if !shared {
            // The terminal may be gone: then there is nothing to restore.
            let _ = set_current_mode(before.fd, &before.mode);
        }
    }
}

/// Sets the mode of a terminal; `saved` is how it was before, once that was changed.
pub(crate) fn set_mode(
    fd: RawFd,
    device: libc::dev_t,
    saved: &mut Option<Saved>,
    mode: TtyMode,
) -> io::Result<()> {
    if mode == TtyMode::Normal {
        let Some(before) = saved.as_ref().and_then(Saved::mode) else { return Ok(()) };
        set_current_mode(fd, &before)?;
        drop(saved.take());
        return Ok(());
    }
    let before = match saved {
        Some(saved) => saved,
        None => saved.insert(Saved::new(fd, device)?),
    };
    let mut changed = before.mode().map_or_else(|| current_mode(fd), Ok)?;
    match mode {
        // SAFETY: changes the structure, which is valid.
        TtyMode::Io => unsafe { libc::cfmakeraw(&raw mut changed) },
        _ => make_raw(&mut changed),
    }
    set_current_mode(fd, &changed)
}

/// Keys come one by one, as they are, without an echo. Output is still made of lines.
fn make_raw(mode: &mut libc::termios) {
    mode.c_iflag &= !(libc::BRKINT | libc::ICRNL | libc::INPCK | libc::ISTRIP | libc::IXON);
    mode.c_oflag |= libc::ONLCR;
    mode.c_cflag |= libc::CS8;
    mode.c_lflag &= !(libc::ECHO | libc::ICANON | libc::IEXTEN | libc::ISIG);
    mode.c_cc[libc::VMIN] = 1;
    mode.c_cc[libc::VTIME] = 0;
}

/// Restores all terminals whose mode was changed. For signal handlers too: it takes no memory,
/// waits for nobody who waits, and leaves `errno` alone.
pub(crate) fn reset_mode() -> io::Result<()> {
    reset(|_| true)
}

fn reset(which: impl Fn(&Before) -> bool) -> io::Result<()> {
    let errno = errno();
    let mut result = Ok(());
    let mut locked = Locked::new();
    for node in locked.nodes() {
        let Some(before) = locked.content(node).filter(&which) else { continue };
        if let Err(error) = set_current_mode(before.fd, &before.mode) {
            result = Err(error);
        }
    }
    drop(locked);
    set_errno(errno);
    result
}

/// Has `exit` restore what is not restored by then.
fn restore_at_exit() {
    extern "C" fn at_exit() {
        // SAFETY: it has no preconditions.
        let process = unsafe { libc::getpid() };
        let _ = reset(|before| before.process == process);
    }
    unsafe extern "C" fn in_child() {
        // Who held it is not here.
        LOCKED.store(false, Ordering::Release);
    }
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        // SAFETY: the function may be called at any time, and is there for ever.
        unsafe { libc::atexit(at_exit) };
        // SAFETY: the handler touches an atomic only, which is safe in a forked child.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

fn current_mode(fd: RawFd) -> io::Result<libc::termios> {
    let mut mode = MaybeUninit::uninit();
    // SAFETY: writes one `termios`.
    match unsafe { libc::tcgetattr(fd, mode.as_mut_ptr()) } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: written by the call.
        _ => Ok(unsafe { mode.assume_init() }),
    }
}

/// At once: to wait for output would be to wait for whoever reads it.
fn set_current_mode(fd: RawFd, mode: &libc::termios) -> io::Result<()> {
    loop {
        // SAFETY: reads one `termios`.
        if unsafe { libc::tcsetattr(fd, libc::TCSANOW, mode) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
