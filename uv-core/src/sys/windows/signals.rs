//! The console's events, as signals.
//!
//! Windows calls the handler on a thread of its own, so an ordinary lock will do. It does
//! not tell of a change of the window's size unless somebody reads the console's input,
//! which is not for a signal watcher to do: so a thread looks at the size now and then,
//! while anybody watches.

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

use crate::mailbox::{Kind, Mailbox, check_number};
use crate::signum::{SIGBREAK, SIGHUP, SIGINT, SIGWINCH};

/// How often the size of the window is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A loop that watches a signal, once for each of its watchers.
#[derive(Debug)]
struct Subscriber {
    mailbox: Arc<Mailbox>,
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
    /// Tells all who watch. True if there is anybody.
    fn tell(&self, signum: i32) -> bool {
        let mut told = false;
        let mut last: Option<&Arc<Mailbox>> = None;
        // The subscriptions of one loop stand together: it is told once.
        for subscriber in self.subscribers.iter().filter(|it| it.signum == signum) {
            if !last.is_some_and(|last| Arc::ptr_eq(last, &subscriber.mailbox)) {
                subscriber.mailbox.post(signum as usize);
            }
            last = Some(&subscriber.mailbox);
            told = true;
        }
        told
    }

    fn watches(&self, signum: i32) -> bool {
        self.subscribers.iter().any(|subscriber| subscriber.signum == signum)
    }
}

/// Windows calls this on a thread of its own.
unsafe extern "system" fn on_console_event(event: u32) -> i32 {
    let signum = match event {
        CTRL_C_EVENT => SIGINT,
        CTRL_BREAK_EVENT => SIGBREAK,
        CTRL_CLOSE_EVENT => SIGHUP,
        _ => return 0,
    };
    let told = console().tell(signum);
    if told && signum == SIGHUP {
        // Windows ends the process when this returns: give the loop all the time there is.
        loop {
            thread::park();
        }
    }
    i32::from(told)
}

/// Starts telling `mailbox` of a signal, for one more watcher.
pub(crate) fn subscribe(mailbox: &Arc<Mailbox>, signum: i32, _kind: Kind) -> io::Result<()> {
    check_number(signum)?;
    let mut console = console();
    if !console.handler_installed {
        // SAFETY: the handler has the right signature and is there for ever.
        if unsafe { SetConsoleCtrlHandler(Some(on_console_event), 1) } == 0 {
            return Err(io::Error::last_os_error());
        }
        console.handler_installed = true;
    }
    if signum == SIGWINCH && !console.size_watched {
        // Looked at now: the thread may be slow to start.
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
pub(crate) fn unsubscribe(mailbox: &Arc<Mailbox>, signum: i32, _kind: Kind) -> io::Result<()> {
    let mut console = console();
    let of_loop = |it: &Subscriber| Arc::ptr_eq(&it.mailbox, mailbox) && it.signum == signum;
    if let Some(at) = console.subscribers.iter().position(of_loop) {
        console.subscribers.remove(at);
    }
    if console.subscribers.is_empty() && console.handler_installed {
        // SAFETY: removes the handler that was installed.
        unsafe { SetConsoleCtrlHandler(Some(on_console_event), 0) };
        console.handler_installed = false;
    }
    Ok(())
}

fn watch_size(mut size: Option<(i16, i16)>) {
    loop {
        thread::sleep(LOOK_EVERY);
        let now = console_size();
        let mut console = console();
        if !console.watches(SIGWINCH) {
            console.size_watched = false;
            return;
        }
        if now != size {
            size = now;
            console.tell(SIGWINCH);
        }
    }
}

/// Columns and rows of the window, or `None` if there is no console.
fn console_size() -> Option<(i16, i16)> {
    [STD_OUTPUT_HANDLE, STD_ERROR_HANDLE].into_iter().find_map(|which| {
        // SAFETY: no memory is passed.
        let handle = unsafe { GetStdHandle(which) };
        let mut info = MaybeUninit::<CONSOLE_SCREEN_BUFFER_INFO>::uninit();
        // SAFETY: a wrong handle is an error; the structure is written otherwise.
        if unsafe { GetConsoleScreenBufferInfo(handle, info.as_mut_ptr()) } == 0 {
            return None;
        }
        // SAFETY: written by the call.
        let window = unsafe { info.assume_init() }.srWindow;
        Some((window.Right - window.Left + 1, window.Bottom - window.Top + 1))
    })
}
