//! Signals to one thread: to interrupt its system call, or to run code in a handler.

use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, Once};
use std::{io, ptr};

/// Interrupts a system call and does nothing else.
const INTERRUPT: libc::c_int = libc::SIGUSR1;
/// Runs the function given to [`Handler::new`].
const CALL: libc::c_int = libc::SIGUSR2;

/// A running thread that signals can be sent to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Thread(libc::pthread_t);

// SAFETY: `pthread_t` is only passed to `pthread_kill`, which any thread may call.
unsafe impl Send for Thread {}
// SAFETY: as above.
unsafe impl Sync for Thread {}

impl Thread {
    /// The calling thread, with a handler installed for [`Thread::interrupt`].
    pub(crate) fn current() -> Thread {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(|| install(INTERRUPT, do_nothing));
        Thread::as_it_is()
    }

    /// The calling thread, for signals that the case handles itself.
    pub(crate) fn as_it_is() -> Thread {
        // SAFETY: `pthread_self` has no preconditions.
        Thread(unsafe { libc::pthread_self() })
    }

    /// Makes the thread's system call return `EINTR`.
    pub(crate) fn interrupt(self) {
        self.send(INTERRUPT);
    }

    /// Makes the thread run the function of the current [`Handler`].
    pub(crate) fn call_handler(self) {
        self.send(CALL);
    }

    pub(crate) fn send(self, signal: libc::c_int) {
        // SAFETY: cases send signals only to threads that are not joined yet.
        let error = unsafe { libc::pthread_kill(self.0, signal) };
        assert_eq!(error, 0, "pthread_kill: {}", io::Error::from_raw_os_error(error));
    }
}

type Function = Box<dyn Fn() + Sync>;

static FUNCTION: AtomicPtr<Function> = AtomicPtr::new(ptr::null_mut());
/// All functions so far, so that a leak checker finds them.
static KEPT: Mutex<Vec<&Function>> = Mutex::new(Vec::new());
static CALLS: AtomicUsize = AtomicUsize::new(0);
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A function that runs in a signal handler of the thread that [`Thread::call_handler`] names. One
/// exists at a time.
pub(crate) struct Handler {
    _only: MutexGuard<'static, ()>,
}

impl Handler {
    /// Runs `function`, which must be async-signal-safe, at each [`Thread::call_handler`].
    pub(crate) fn new(function: impl Fn() + Sync + 'static) -> Handler {
        let _only = ONE_AT_A_TIME.lock().unwrap_or_else(|poison| poison.into_inner());
        CALLS.store(0, Ordering::SeqCst);
        // Leaked, since a handler may run on another thread at any time; it is a few bytes, in a
        // test.
        let function: &'static mut Function = Box::leak(Box::new(Box::new(function)));
        FUNCTION.store(function, Ordering::SeqCst);
        KEPT.lock().unwrap_or_else(|poison| poison.into_inner()).push(function);
        install(CALL, call_function);
        Handler { _only }
    }

    /// The number of calls of the function that have returned.
    pub(crate) fn calls(&self) -> usize {
        CALLS.load(Ordering::SeqCst)
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        FUNCTION.store(ptr::null_mut(), Ordering::SeqCst);
    }
}

extern "C" fn do_nothing(_: libc::c_int) {}

extern "C" fn call_function(_: libc::c_int) {
    let function = FUNCTION.load(Ordering::SeqCst);
    // SAFETY: the pointer is null or from a function that is leaked and thus never freed.
    if let Some(function) = unsafe { function.as_ref() } {
        function();
        CALLS.fetch_add(1, Ordering::SeqCst);
    }
}

/// Installs a handler without `SA_RESTART`: interrupted calls return `EINTR`.
fn install(signal: libc::c_int, handler: extern "C" fn(libc::c_int)) {
    // SAFETY: `sigaction` is plain data; all zeros mean no flags and an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as libc::sighandler_t;
    // SAFETY: `action` is valid, and its handler is async-signal-safe.
    let result = unsafe { libc::sigaction(signal, &action, ptr::null_mut()) };
    assert_eq!(result, 0, "sigaction: {}", io::Error::last_os_error());
}

/// Keeps a `SIGPIPE` of this thread pending, also if the signal is ignored, so that a case can
/// see it. (Systems other than Linux may discard ignored signals: there it sees none.)
pub(crate) struct BrokenPipes {
    mask: libc::sigset_t,
}

impl BrokenPipes {
    pub(crate) fn watch() -> BrokenPipes {
        // SAFETY: `sigset_t` is plain data, for which all zeros are valid.
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: writes one set, a local.
        unsafe { libc::sigemptyset(&raw mut set) };
        // SAFETY: changes one set, a local.
        unsafe { libc::sigaddset(&raw mut set, libc::SIGPIPE) };
        // SAFETY: `sigset_t` is plain data, for which all zeros are valid.
        let mut mask: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: reads one set and writes one, both locals.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut mask) };
        BrokenPipes { mask }
    }

    /// True if this thread has raised the signal.
    pub(crate) fn seen(&self) -> bool {
        // SAFETY: `sigset_t` is plain data, for which all zeros are valid.
        let mut pending: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: writes one set, a local.
        unsafe { libc::sigpending(&raw mut pending) };
        // SAFETY: reads one set, a local.
        unsafe { libc::sigismember(&raw const pending, libc::SIGPIPE) == 1 }
    }
}

impl Drop for BrokenPipes {
    fn drop(&mut self) {
        // SAFETY: reads one set, which `pthread_sigmask` has written.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.mask, ptr::null_mut()) };
    }
}
