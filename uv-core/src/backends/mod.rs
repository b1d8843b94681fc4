//! The backends that Cargo features enable, and the default among them.
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
//! Features only add names: every enabled backend that the target has can be used, side by side
//! with the others. They never change a type. A [`Loop`](crate::Loop) without a parameter runs on
//! [`DefaultBackend`], an opaque type over the platform's own poller, or over the next enabled
//! backend of the table if the poller's feature is disabled:
//!
//! ```toml
//! uv-core = { version = "0.1", default-features = false, features = ["poll"] }
//! ```
//!
//! Another crate of the program may enable `epoll` too, and the default then runs on epoll. A
//! program that needs a certain backend names it:
//!
#![cfg_attr(has_poll, doc = "```")]
#![cfg_attr(not(has_poll), doc = "```ignore")]
//! use uv_core::backends::Poll;
//!
//! type Loop = uv_core::Loop<Poll>;
//!
//! let lp = Loop::open()?;
//! # std::io::Result::Ok(())
//! ```
//!
//! [`Loop::open`](crate::Loop::open) is the same call for all of them. Without any feature there is
//! no default: [`Loop::new`](crate::Loop::new) takes a backend of
//! your own, and a call of [`DefaultBackend::new`] is a compile error that names the remedy.
//! [`Auto`] chooses when the program runs.

mod auto;
mod default;

pub use auto::{Auto, AutoWaker};
#[cfg(not(any(has_epoll, has_kqueue, has_iocp, has_uring, has_poll, has_select)))]
pub use default::EnabledByFeature;
pub use default::{DefaultBackend, DefaultWaker};

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

#[cfg(lacks_enabled_backends)]
compile_error!(
    "none of the enabled backends exists on this target: enable the feature `poll`, \
     which every Unix and Windows have, or this platform's own (`epoll` on Linux and \
     Android, `kqueue` on the BSDs and Apple's systems, `iocp` on Windows)"
);
