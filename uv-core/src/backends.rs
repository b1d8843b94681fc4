//! The backends that Cargo features bring in, and which of them is the default.
//!
//! | feature | type | where |
//! |---|---|---|
//! | `epoll` | `Epoll` | Linux, Android |
//! | `kqueue` | `Kqueue` | FreeBSD, NetBSD, OpenBSD, DragonFly, macOS, iOS |
//! | `iocp` | `Iocp` | Windows |
//! | `uring` | `Uring` | Linux 5.11 and later |
//! | `poll` | `Poll` | every Unix, Windows |
//! | `select` | `Select` | every Unix, Windows |
//!
//! Features add up: all that are enabled and that the target has can be used side by
//! side, by name. [`DefaultBackend`] is the first of them in the order of the table, and
//! so the platform's own readiness poller unless that is left out:
//!
//! ```toml
//! uv-core = { version = "0.1", default-features = false, features = ["poll"] }
//! ```
//!
//! ```
//! use uv_core::{Loop, backends::DefaultBackend};
//!
//! // What `Loop::with_default_backend` does.
//! let lp: Loop<DefaultBackend> = Loop::new(DefaultBackend::new()?);
//! # std::io::Result::Ok(())
//! ```
//!
//! Without any feature there is no default, and [`Loop::new`](crate::Loop::new) takes a
//! backend of your own. [`Auto`] chooses when the program runs.

use cfg_if::cfg_if;

pub use crate::auto::{Auto, AutoWaker};

#[cfg(has_epoll)]
pub use poll_epoll::Epoll;
#[cfg(has_iocp)]
pub use poll_iocp::Iocp;
#[cfg(has_kqueue)]
pub use poll_kqueue::Kqueue;
#[cfg(has_poll)]
pub use poll_poll::Poll;
#[cfg(has_select)]
pub use poll_select::Select;
#[cfg(has_uring)]
pub use poll_uring::Uring;

cfg_if! {
    if #[cfg(lacks_enabled_backends)] {
        compile_error!(
            "none of the enabled backends exists on this target: enable the feature `poll`, \
             which every Unix and Windows have, or this platform's own (`epoll` on Linux and \
             Android, `kqueue` on the BSDs and Apple's systems, `iocp` on Windows)"
        );
    }
}

cfg_if! {
    if #[cfg(has_epoll)] {
        /// The backend of loops that name none.
        pub type DefaultBackend = Epoll;
    } else if #[cfg(has_kqueue)] {
        /// The backend of loops that name none.
        pub type DefaultBackend = Kqueue;
    } else if #[cfg(has_iocp)] {
        /// The backend of loops that name none.
        pub type DefaultBackend = Iocp;
    } else if #[cfg(has_uring)] {
        /// The backend of loops that name none.
        pub type DefaultBackend = Uring;
    } else if #[cfg(has_poll)] {
        /// The backend of loops that name none.
        pub type DefaultBackend = Poll;
    } else if #[cfg(has_select)] {
        /// The backend of loops that name none.
        pub type DefaultBackend = Select;
    } else {
        /// There is none: no backend feature is enabled, and [`Auto::new`] says so.
        pub type DefaultBackend = Auto;
    }
}
