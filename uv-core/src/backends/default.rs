//! The default backend: an opaque type over the platform's own poller.

#![allow(unsafe_code)]

use std::fmt;
use std::io;

use cfg_if::cfg_if;
#[cfg(any(has_epoll, has_kqueue, has_iocp, has_uring, has_poll, has_select))]
use poll_core::Open;
use poll_core::{Backend, Wake, delegate_backend};

use crate::Loop;

cfg_if! {
    if #[cfg(has_epoll)] {
        use poll_epoll::Epoll as Inner;
        const NAME: &str = "epoll";
    } else if #[cfg(has_kqueue)] {
        use poll_kqueue::Kqueue as Inner;
        const NAME: &str = "kqueue";
    } else if #[cfg(has_iocp)] {
        use poll_iocp::Iocp as Inner;
        const NAME: &str = "iocp";
    } else if #[cfg(has_uring)] {
        use poll_uring::Uring as Inner;
        const NAME: &str = "uring";
    } else if #[cfg(has_poll)] {
        use poll_poll::Poll as Inner;
        const NAME: &str = "poll";
    } else if #[cfg(has_select)] {
        use poll_select::Select as Inner;
        const NAME: &str = "select";
    } else {
        // Without a backend this enum is empty: no value of `DefaultBackend` exists.
        use super::Auto as Inner;
        const NAME: &str = "none";
    }
}

/// The backend of a [`Loop`] that names none.
///
/// It is the first backend of the [table](crate::backends) that a Cargo feature enables and the
/// target has: the platform's own poller unless its feature is disabled. The type is opaque and
/// the same whatever the features are. A dependency that enables another feature therefore cannot
/// change the type of a program's loops.
///
/// ```
/// use uv_core::{Loop, backends::DefaultBackend};
///
/// let lp: Loop = Loop::new(DefaultBackend::new()?);
/// println!("running on {}", lp.backend_name());
/// # std::io::Result::Ok(())
/// ```
#[repr(transparent)]
pub struct DefaultBackend(Inner);

/// Wakes a [`DefaultBackend`].
///
/// ```
/// use uv_core::backends::{DefaultBackend, DefaultWaker};
/// use uv_core::poll_core::{Backend, Wake};
///
/// let mut backend = DefaultBackend::new()?;
/// let waker: DefaultWaker = backend.waker();
/// let thread = std::thread::spawn(move || waker.wake());
/// backend.wait(None, &mut Vec::new())?; // Until it is woken.
/// thread.join().unwrap()?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone)]
#[repr(transparent)]
pub struct DefaultWaker(<Inner as Backend>::Waker);

cfg_if! {
    if #[cfg(any(has_epoll, has_kqueue, has_iocp, has_uring, has_poll, has_select))] {
        impl DefaultBackend {
            /// Creates the backend.
            ///
            /// # Errors
            ///
            /// Those of creating the backend inside, such as too many open descriptors.
            pub fn new() -> io::Result<DefaultBackend> {
                Inner::new().map(DefaultBackend)
            }
        }

        impl Open for DefaultBackend {
            /// As [`DefaultBackend::new`].
            fn open() -> io::Result<DefaultBackend> {
                DefaultBackend::new()
            }
        }

        impl Loop<DefaultBackend> {
            /// A loop over the [default backend](DefaultBackend).
            ///
            /// ```
            /// let mut lp = uv_core::Loop::with_default_backend()?;
            /// assert!(!lp.run(uv_core::RunMode::Default)?, "no active handle is left");
            /// # std::io::Result::Ok(())
            /// ```
            ///
            /// # Errors
            ///
            /// Those of [`DefaultBackend::new`].
            #[doc(alias = "uv_loop_init")]
            #[doc(alias = "uv_loop_new")]
            #[doc(alias = "uv_default_loop")]
            pub fn with_default_backend() -> io::Result<Loop<DefaultBackend>> {
                DefaultBackend::new().map(Loop::new)
            }
        }
    } else {
        /// Implemented by [`DefaultBackend`] if a backend feature is enabled. None is.
        #[diagnostic::on_unimplemented(
            message = "`uv-core` has no default backend: none of its backend features is enabled",
            label = "this needs a backend feature of `uv-core`",
            note = "enable one in Cargo.toml: `uv-core = {{ version = \"0.1\", features = [\"poll\"] }}`",
            note = "or pass a backend of your own to `Loop::new`"
        )]
        #[doc(hidden)]
        pub trait EnabledByFeature {}

        impl DefaultBackend {
            /// Unavailable: no backend feature is enabled, and each call is a compile error.
            ///
            /// # Errors
            ///
            /// None: it cannot be called.
            // A bound without parameters that does not hold is an error where it is written,
            // unless it has a binder: then it is an error where the function is called.
            pub fn new() -> io::Result<DefaultBackend>
            where
                for<'a> DefaultBackend: EnabledByFeature,
            {
                Inner::new().map(DefaultBackend)
            }
        }

        impl Loop<DefaultBackend> {
            /// Unavailable: no backend feature is enabled, and each call is a compile error.
            ///
            /// # Errors
            ///
            /// None: it cannot be called.
            pub fn with_default_backend() -> io::Result<Loop<DefaultBackend>>
            where
                for<'a> DefaultBackend: EnabledByFeature,
            {
                DefaultBackend::new().map(Loop::new)
            }
        }
    }
}

impl DefaultBackend {
    /// The name of the backend inside, as [`Auto::NAMES`](super::Auto::NAMES) has it.
    ///
    /// ```
    /// use uv_core::backends::{Auto, DefaultBackend};
    ///
    /// assert_eq!(DefaultBackend::new()?.name(), Auto::NAMES[0]);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn name(&self) -> &'static str {
        NAME
    }
}

// SAFETY: every call is forwarded unchanged to the backend inside, which keeps the contract of
// `Backend`; events and leases are that backend's own. Its waker is only wrapped.
unsafe impl Backend for DefaultBackend {
    delegate_backend! { self => self.0, Waker = DefaultWaker, except { waker } }

    #[inline]
    fn waker(&self) -> DefaultWaker {
        DefaultWaker(self.0.waker())
    }
}

impl Wake for DefaultWaker {
    #[inline]
    fn wake(&self) -> io::Result<()> {
        self.0.wake()
    }
}

impl fmt::Debug for DefaultBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DefaultBackend").field(&self.0).finish()
    }
}

impl fmt::Debug for DefaultWaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DefaultWaker")
    }
}
