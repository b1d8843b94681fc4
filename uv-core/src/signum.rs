//! The numbers of signals, as [`Signal`](crate::Signal) and [`kill`](crate::kill) take them.
//!
//! ```
//! use uv_core::{Loop, Signal, signum};
//!
//! // In all the ways in which people and systems ask a program to end.
//! let mut lp = Loop::with_default_backend()?;
//! let asking = [
//!     signum::SIGHUP,
//!     signum::SIGINT,
//!     signum::SIGTERM,
//!     #[cfg(windows)]
//!     signum::SIGBREAK,
//! ];
//! for number in asking {
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

/// The console window closes.
#[cfg(windows)]
pub const SIGHUP: i32 = 1;
/// Ctrl-C.
#[cfg(windows)]
pub const SIGINT: i32 = 2;
/// Can be watched and never comes: for [`kill`](crate::kill).
#[cfg(windows)]
pub const SIGKILL: i32 = 9;
/// Can be watched and never comes.
#[cfg(windows)]
pub const SIGTERM: i32 = 15;
/// Ctrl-Break.
#[cfg(windows)]
pub const SIGBREAK: i32 = 21;
/// The console window changes size.
#[cfg(windows)]
pub const SIGWINCH: i32 = 28;
