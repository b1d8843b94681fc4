//! Signal numbers for [`Signal`](crate::Signal) and [`kill`](crate::kill).
//!
//! ```
//! use uv_core::{Loop, Signal, signum};
//!
//! // Stop the loop on every signal that asks a program to end.
//! let mut lp = Loop::with_default_backend()?;
//! let termination = [
//!     signum::SIGHUP,
//!     signum::SIGINT,
//!     signum::SIGTERM,
//!     #[cfg(windows)]
//!     signum::SIGBREAK,
//! ];
//! for number in termination {
//!     let signal = Signal::new(&mut lp);
//!     signal.start(&mut lp, number, |lp, _, _| lp.stop())?;
//! }
//! # std::io::Result::Ok(())
//! ```

#[cfg(unix)]
pub use libc::{
    SIGABRT, SIGALRM, SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGIO, SIGKILL, SIGPIPE, SIGPROF, SIGQUIT,
    SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGUSR1, SIGUSR2, SIGVTALRM, SIGWINCH,
};

/// The console window is closed.
#[cfg(windows)]
pub const SIGHUP: i32 = 1;
/// Ctrl-C.
#[cfg(windows)]
pub const SIGINT: i32 = 2;
/// For [`kill`](crate::kill). A watcher can be started, but Windows never raises it.
#[cfg(windows)]
pub const SIGKILL: i32 = 9;
/// For [`kill`](crate::kill). A watcher can be started, but Windows never raises it.
#[cfg(windows)]
pub const SIGTERM: i32 = 15;
/// Ctrl-Break.
#[cfg(windows)]
pub const SIGBREAK: i32 = 21;
/// The console window was resized.
#[cfg(windows)]
pub const SIGWINCH: i32 = 28;
