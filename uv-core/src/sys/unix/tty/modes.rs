//! Terminal modes, and how they are restored.
//!
//! A terminal keeps its mode when the program ends, so every change has to be undone: when the
//! stream is closed, at `exit`, and by [`reset_mode`], which signal handlers and panic hooks may
//! call. The modes to restore are therefore in a list that never frees a node but reuses it. A spin
//! lock guards the list. It is held for a few system calls at most, with all signals blocked: no
//! handler can wait for the thread that it interrupts.

use std::cell::UnsafeCell;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::super::signals::{AllBlocked, errno, set_errno};
use crate::handles::TtyMode;

/// The mode of a terminal before it was changed. Dropping it restores the mode.
#[derive(Debug)]
pub(crate) struct Saved(&'static Node);

/// A terminal to be restored, or a free node.
#[derive(Debug)]
struct Node {
    /// Accessed by the holder of the lock only.
    content: UnsafeCell<Option<Before>>,
    next: *const Node,
}

#[derive(Clone, Copy, Debug)]
struct Before {
    fd: RawFd,
    /// Identifies the terminal: several descriptors may be of one.
    device: libc::dev_t,
    mode: libc::termios,
    /// The process that changed the mode: a forked child must not restore it while the parent uses
    /// the terminal.
    process: libc::pid_t,
}

// SAFETY: `next` never changes after the node is published, and `content` is reached through
// `Locked::content` only, which requires the lock.
unsafe impl Sync for Node {}

static FIRST: AtomicPtr<Node> = AtomicPtr::new(ptr::null_mut());
static LOCKED: AtomicBool = AtomicBool::new(false);

/// Holds the lock until it is dropped.
struct Locked(#[expect(dead_code, reason = "kept until the lock is open")] AllBlocked);

impl Locked {
    fn new() -> Locked {
        let blocked = AllBlocked::new();
        while LOCKED.swap(true, Ordering::Acquire) {
            // Another thread holds the lock, with its signals blocked, and releases it soon.
            std::hint::spin_loop();
        }
        Locked(blocked)
    }

    fn nodes(&self) -> impl Iterator<Item = &'static Node> + use<> {
        // SAFETY: null or a node that `Saved::new` has leaked, so it lives forever.
        let first = unsafe { FIRST.load(Ordering::Acquire).as_ref() };
        std::iter::successors(first, |node| {
            // SAFETY: null or a node that `Saved::new` has leaked, so it lives forever.
            unsafe { node.next.as_ref() }
        })
    }

    /// The content of a node.
    fn content(&mut self, node: &'static Node) -> &mut Option<Before> {
        // SAFETY: `self` holds the lock, and there is one `Locked` at a time. The exclusive borrow
        // of `self` lasts as long as the reference, so no other reference to a content exists.
        unsafe { &mut *node.content.get() }
    }

    /// The mode of a terminal before any stream of this process changed it.
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
    /// Saves the current mode of the terminal `fd`, or the mode before another stream changed it.
    fn new(fd: RawFd, device: libc::dev_t) -> io::Result<Saved> {
        restore_at_exit();
        let mode = current_mode(fd)?;
        // SAFETY: takes no pointer.
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
            // A terminal that was closed or unplugged has no mode to restore.
            let _ = set_current_mode(before.fd, &before.mode);
        }
    }
}

/// Sets the mode of a terminal. `saved` holds the former mode while it is changed.
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
        // SAFETY: changes one initialised `termios`, a local.
        TtyMode::Io => unsafe { libc::cfmakeraw(&raw mut changed) },
        _ => make_raw(&mut changed),
    }
    set_current_mode(fd, &changed)
}

/// Raw input: each key is delivered unprocessed and without echo. Output still maps LF to CR LF.
fn make_raw(mode: &mut libc::termios) {
    mode.c_iflag &= !(libc::BRKINT | libc::ICRNL | libc::INPCK | libc::ISTRIP | libc::IXON);
    mode.c_oflag |= libc::ONLCR;
    mode.c_cflag |= libc::CS8;
    mode.c_lflag &= !(libc::ECHO | libc::ICANON | libc::IEXTEN | libc::ISIG);
    mode.c_cc[libc::VMIN] = 1;
    mode.c_cc[libc::VTIME] = 0;
}

/// Restores all terminals whose mode was changed. It is async-signal-safe: it does not allocate,
/// the holder of the lock cannot be interrupted, and `errno` is preserved.
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

/// Makes `exit` restore the modes that are still changed.
fn restore_at_exit() {
    extern "C" fn at_exit() {
        // SAFETY: takes no pointer.
        let process = unsafe { libc::getpid() };
        let _ = reset(|before| before.process == process);
    }
    unsafe extern "C" fn in_child() {
        // The child does not have the thread that may have held the lock.
        LOCKED.store(false, Ordering::Release);
    }
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        // SAFETY: `at_exit` is a function, so it lives as long as the process, and it may run in
        // any thread: it takes the lock itself.
        unsafe { libc::atexit(at_exit) };
        // SAFETY: the handler is a function, so it lives as long as the process, and it only stores
        // to an atomic, which is async-signal-safe.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

fn current_mode(fd: RawFd) -> io::Result<libc::termios> {
    let mut mode = MaybeUninit::uninit();
    // SAFETY: writes one `termios`, to a local.
    match unsafe { libc::tcgetattr(fd, mode.as_mut_ptr()) } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the call has succeeded, so it has written the value.
        _ => Ok(unsafe { mode.assume_init() }),
    }
}

/// Sets the mode immediately (`TCSANOW`): waiting for output would wait for its reader.
fn set_current_mode(fd: RawFd, mode: &libc::termios) -> io::Result<()> {
    loop {
        // SAFETY: reads one `termios`, which is borrowed for the call.
        if unsafe { libc::tcsetattr(fd, libc::TCSANOW, mode) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
