//! Console control events, delivered as signals.
//!
//! Windows calls the control handler on a separate thread, so it can take an ordinary lock. Windows
//! reports a change of the window size only to a reader of the console's input, which a signal
//! watcher must not consume: so a thread polls the size while `SIGWINCH` is watched.

use std::io;
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use windows_sys::Win32::System::Console::{
    CONSOLE_SCREEN_BUFFER_INFO, CTRL_BREAK_EVENT, CTRL_C_EVENT, CTRL_CLOSE_EVENT,
    GetConsoleScreenBufferInfo, GetStdHandle, STD_ERROR_HANDLE, STD_OUTPUT_HANDLE,
    SetConsoleCtrlHandler,
};

use crate::handles::{Kind, PendingSignals, check_number};
use crate::signum::{SIGBREAK, SIGHUP, SIGINT, SIGWINCH};

/// The interval at which the window size is polled.
const SIZE_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A subscription of a loop to a signal, one for each of its watchers.
#[derive(Debug)]
struct Subscriber {
    mailbox: Arc<PendingSignals>,
    signum: i32,
}

#[derive(Debug)]
struct Console {
    subscribers: Vec<Subscriber>,
    handler_installed: bool,
    size_watched: bool,
}

static CONSOLE: Mutex<Console> =
    Mutex::new(Console { subscribers: Vec::new(), handler_installed: false, size_watched: false });

fn console() -> MutexGuard<'static, Console> {
    CONSOLE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Console {
    /// Notifies all loops that watch the signal. False if no loop does.
    fn notify(&self, signum: i32) -> bool {
        let mut notified = false;
        let mut last: Option<&Arc<PendingSignals>> = None;
        // The subscriptions of one loop are adjacent: it is notified once.
        for subscriber in self.subscribers.iter().filter(|it| it.signum == signum) {
            if !last.is_some_and(|last| Arc::ptr_eq(last, &subscriber.mailbox)) {
                subscriber.mailbox.post(signum as usize);
            }
            last = Some(&subscriber.mailbox);
            notified = true;
        }
        notified
    }

    fn watches(&self, signum: i32) -> bool {
        self.subscribers.iter().any(|subscriber| subscriber.signum == signum)
    }
}

/// The control handler. Windows calls it on a separate thread.
unsafe extern "system" fn on_console_event(event: u32) -> i32 {
    let signum = match event {
        CTRL_C_EVENT => SIGINT,
        CTRL_BREAK_EVENT => SIGBREAK,
        CTRL_CLOSE_EVENT => SIGHUP,
        _ => return 0,
    };
    let notified = console().notify(signum);
    if notified && signum == SIGHUP {
        // Windows ends the process when the handler returns: leave the loop the whole grace period.
        loop {
            thread::park();
        }
    }
    i32::from(notified)
}

/// Subscribes `mailbox` to a signal, for one more watcher.
pub(crate) fn subscribe(mailbox: &Arc<PendingSignals>, signum: i32, _kind: Kind) -> io::Result<()> {
    check_number(signum)?;
    let mut console = console();
    if !console.handler_installed {
        // SAFETY: the handler is a function with the required signature, valid for the whole
        // process.
        if unsafe { SetConsoleCtrlHandler(Some(on_console_event), 1) } == 0 {
            return Err(io::Error::last_os_error());
        }
        console.handler_installed = true;
    }
    if signum == SIGWINCH && !console.size_watched {
        // Read before the thread starts, so that a change in between is reported.
        let size = console_size();
        let name = "uv-console-size".into();
        thread::Builder::new().name(name).spawn(move || watch_size(size))?;
        console.size_watched = true;
    }
    let of_loop = |it: &Subscriber| Arc::ptr_eq(&it.mailbox, mailbox) && it.signum == signum;
    let at = console.subscribers.iter().position(of_loop).unwrap_or(console.subscribers.len());
    console.subscribers.insert(at, Subscriber { mailbox: Arc::clone(mailbox), signum });
    Ok(())
}

/// Ends one watcher's subscription.
pub(crate) fn unsubscribe(
    mailbox: &Arc<PendingSignals>,
    signum: i32,
    _kind: Kind,
) -> io::Result<()> {
    let mut console = console();
    let of_loop = |it: &Subscriber| Arc::ptr_eq(&it.mailbox, mailbox) && it.signum == signum;
    if let Some(at) = console.subscribers.iter().position(of_loop) {
        console.subscribers.remove(at);
    }
    if console.subscribers.is_empty() && console.handler_installed {
        // SAFETY: no memory is passed; the handler was installed by `subscribe`.
        unsafe { SetConsoleCtrlHandler(Some(on_console_event), 0) };
        console.handler_installed = false;
    }
    Ok(())
}

fn watch_size(mut size: Option<(i16, i16)>) {
    loop {
        thread::sleep(SIZE_POLL_INTERVAL);
        let now = console_size();
        let mut console = console();
        if !console.watches(SIGWINCH) {
            console.size_watched = false;
            return;
        }
        if now != size {
            size = now;
            console.notify(SIGWINCH);
        }
    }
}

/// Columns and rows of the window, or `None` without a console.
fn console_size() -> Option<(i16, i16)> {
    [STD_OUTPUT_HANDLE, STD_ERROR_HANDLE].into_iter().find_map(|which| {
        // SAFETY: no memory is passed.
        let handle = unsafe { GetStdHandle(which) };
        let mut info = MaybeUninit::<CONSOLE_SCREEN_BUFFER_INFO>::uninit();
        // SAFETY: the call validates the handle, and writes only the structure.
        if unsafe { GetConsoleScreenBufferInfo(handle, info.as_mut_ptr()) } == 0 {
            return None;
        }
        // SAFETY: the successful call has written the structure.
        let window = unsafe { info.assume_init() }.srWindow;
        Some((window.Right - window.Left + 1, window.Bottom - window.Top + 1))
    })
}
