//! A backend that is chosen when the program runs.

#![allow(unsafe_code)]
// Without any backend the enum is empty, and no method has a use for its arguments.
#![cfg_attr(
    not(any(has_epoll, has_kqueue, has_iocp, has_uring, has_poll, has_select)),
    allow(unused_variables)
)]

use std::io;
use std::ptr::NonNull;
use std::time::Duration;

use poll_core::{Backend, Event, Lent, Mode, Op, OpKind, RawSource, Ready, Token, Wake};

/// The environment variable that names a backend.
const VARIABLE: &str = "UV_BACKEND";

macro_rules! auto {
    ($($(#[$cfg:meta])* $kind:ident $name:literal $path:path, $waker:ty;)*) => {
        /// Whichever backend works here, or the one that `UV_BACKEND` names.
        ///
        /// The candidates are those that Cargo features enable and the target has, in the
        /// order of the [table](crate::backends). A backend that cannot be made (io_uring
        /// where it is forbidden, say) is passed over.
        ///
        /// ```
        /// use uv_core::{Loop, backends::Auto};
        ///
        /// let lp = Loop::new(Auto::new()?);
        /// println!("running on {}", lp.backend().name());
        /// # std::io::Result::Ok(())
        /// ```
        // A program has few of them, and a box would cost each wait.
        #[allow(clippy::large_enum_variant)]
        #[derive(Debug)]
        #[non_exhaustive]
        pub enum Auto {
            $(
                $(#[$cfg])*
                #[doc = concat!("Running on ", $name, ".")]
                $kind($path),
            )*
        }

        /// Wakes an [`Auto`].
        ///
        /// ```
        /// use uv_core::backends::{Auto, AutoWaker};
        /// use uv_core::poll_core::{Backend, Wake};
        ///
        /// let mut backend = Auto::new()?;
        /// let waker: AutoWaker = backend.waker();
        /// let thread = std::thread::spawn(move || waker.wake());
        /// backend.wait(None, &mut Vec::new())?; // Until it is woken.
        /// thread.join().unwrap()?;
        /// # std::io::Result::Ok(())
        /// ```
        #[derive(Clone, Debug)]
        #[non_exhaustive]
        pub enum AutoWaker {
            $(
                $(#[$cfg])*
                #[doc = concat!("Wakes ", $name, ".")]
                $kind($waker),
            )*
        }

        impl Auto {
            /// The names of the candidates, in the order they are tried.
            pub const NAMES: &'static [&'static str] = &[$( $(#[$cfg])* $name, )*];

            /// The backend called `name`.
            ///
            /// ```
            /// use uv_core::backends::Auto;
            ///
            /// for name in Auto::NAMES {
            ///     match Auto::named(name) {
            ///         Ok(backend) => assert_eq!(backend.name(), *name),
            ///         Err(error) => println!("{name} does not work here: {error}"),
            ///     }
            /// }
            /// assert!(Auto::named("crystal ball").is_err());
            /// ```
            ///
            /// # Errors
            ///
            /// `InvalidInput` if there is none of that name in this program; otherwise
            /// those of making it.
            pub fn named(name: &str) -> io::Result<Auto> {
                match name {
                    $( $(#[$cfg])* $name => <$path>::new().map(Auto::$kind), )*
                    _ => Err(io::Error::new(io::ErrorKind::InvalidInput, format!(
                        "no backend {name:?} in this program: it has {}", Auto::NAMES.join(", "),
                    ))),
                }
            }

            /// Which backend it is.
            pub fn name(&self) -> &'static str {
                match *self { $( $(#[$cfg])* Auto::$kind(_) => $name, )* }
            }
        }

        impl Wake for AutoWaker {
            fn wake(&self) -> io::Result<()> {
                match *self { $( $(#[$cfg])* AutoWaker::$kind(ref waker) => waker.wake(), )* }
            }
        }

        /// Does the same to whichever backend it is.
        macro_rules! each {
            ($auto:expr, $backend:ident => $do:expr) => {
                match *$auto { $( $(#[$cfg])* Auto::$kind(ref $backend) => $do, )* }
            };
            (mut $auto:expr, $backend:ident => $do:expr) => {
                match *$auto { $( $(#[$cfg])* Auto::$kind(ref mut $backend) => $do, )* }
            };
        }

        impl Backend for Auto {
            type Waker = AutoWaker;

            fn waker(&self) -> AutoWaker {
                match *self {
                    $( $(#[$cfg])* Auto::$kind(ref backend) => AutoWaker::$kind(backend.waker()), )*
                }
            }

            unsafe fn register(
                &mut self,
                token: Token,
                source: RawSource,
                interest: Ready,
                mode: Mode,
            ) -> io::Result<()> {
                // SAFETY: the caller's promise is handed on.
                each!(mut self, backend => unsafe { backend.register(token, source, interest, mode) })
            }

            fn modify(&mut self, token: Token, interest: Ready, mode: Mode) -> io::Result<()> {
                each!(mut self, backend => backend.modify(token, interest, mode))
            }

            fn deregister(&mut self, token: Token) -> io::Result<()> {
                each!(mut self, backend => backend.deregister(token))
            }

            fn wait(
                &mut self,
                timeout: Option<Duration>,
                events: &mut Vec<Event>,
            ) -> io::Result<()> {
                each!(mut self, backend => backend.wait(timeout, events))
            }

            fn supports(&self, kind: OpKind) -> bool {
                each!(self, backend => backend.supports(kind))
            }

            unsafe fn submit(&mut self, token: Token, op: Op) -> io::Result<()> {
                // SAFETY: the caller's promise is handed on.
                each!(mut self, backend => unsafe { backend.submit(token, op) })
            }

            fn cancel(&mut self, token: Token) -> io::Result<()> {
                each!(mut self, backend => backend.cancel(token))
            }

            unsafe fn provide(
                &mut self,
                group: u16,
                memory: NonNull<u8>,
                size: u32,
                count: u16,
            ) -> io::Result<()> {
                // SAFETY: the caller's promise is handed on.
                each!(mut self, backend => unsafe { backend.provide(group, memory, size, count) })
            }

            fn recycle(&mut self, lent: Lent) {
                each!(mut self, backend => backend.recycle(lent))
            }

            fn withdraw(&mut self, group: u16) -> io::Result<()> {
                each!(mut self, backend => backend.withdraw(group))
            }

            fn now(&self) -> Duration {
                each!(self, backend => backend.now())
            }

            fn raw_fd(&self) -> Option<RawSource> {
                each!(self, backend => backend.raw_fd())
            }

            fn has_changes(&self) -> bool {
                each!(self, backend => backend.has_changes())
            }

            fn after_fork(&mut self) -> io::Result<()> {
                each!(mut self, backend => backend.after_fork())
            }
        }
    };
}

auto! {
    #[cfg(has_epoll)]
    Epoll "epoll" poll_epoll::Epoll, <poll_epoll::Epoll as Backend>::Waker;
    #[cfg(has_kqueue)]
    Kqueue "kqueue" poll_kqueue::Kqueue, <poll_kqueue::Kqueue as Backend>::Waker;
    #[cfg(has_iocp)]
    Iocp "iocp" poll_iocp::Iocp, <poll_iocp::Iocp as Backend>::Waker;
    #[cfg(has_uring)]
    Uring "uring" poll_uring::Uring, <poll_uring::Uring as Backend>::Waker;
    #[cfg(has_poll)]
    Poll "poll" poll_poll::Poll, <poll_poll::Poll as Backend>::Waker;
    #[cfg(has_select)]
    Select "select" poll_select::Select, <poll_select::Select as Backend>::Waker;
}

impl Auto {
    /// The backend that `UV_BACKEND` names, or the first that works of several, with commas
    /// between; if it is not set, the first that works of all.
    ///
    /// # Errors
    ///
    /// If `UV_BACKEND` names no backend of this program or none that works here: what was
    /// asked for is not replaced in silence. Otherwise, if none works, the last one's error.
    pub fn new() -> io::Result<Auto> {
        if let Some(names) = std::env::var_os(VARIABLE) {
            let names = names.to_string_lossy();
            let listed: Vec<&str> = names.split(',').map(str::trim).collect();
            return Auto::first_of(&listed).map_err(|error| {
                io::Error::new(error.kind(), format!("{VARIABLE}={names}: {error}"))
            });
        }
        Auto::first_of(Auto::NAMES)
    }

    /// The first backend of these that works.
    ///
    /// ```
    /// use uv_core::backends::Auto;
    ///
    /// // Operations where the kernel performs them and lets us, and else whatever there is.
    /// let backend = Auto::first_of(&["uring", "iocp"]).or_else(|_| Auto::new())?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// The last one's, if none works. Names that this program does not know count as
    /// backends that do not work.
    pub fn first_of(names: &[&str]) -> io::Result<Auto> {
        let mut last = io::Error::new(
            io::ErrorKind::Unsupported,
            "this program has no backend: enable a feature of uv-core, such as `poll`",
        );
        for name in names {
            match Auto::named(name) {
                Ok(backend) => return Ok(backend),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}
