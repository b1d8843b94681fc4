//! `Auto`: a backend that is chosen at run time.

#![allow(unsafe_code)]
// Without any backend the enum is empty, and no method uses its arguments.
#![cfg_attr(
    not(any(has_epoll, has_kqueue, has_iocp, has_uring, has_poll, has_select)),
    allow(unused_variables)
)]

use std::io;
use std::ptr::NonNull;
use std::time::Duration;

use poll_core::{
    Backend, BufferLease, Event, Interest, Mode, Op, OpKind, Open, RawSource, Token, Wake,
};

/// The environment variable with the names of backends, separated by commas.
const VARIABLE: &str = "UV_BACKEND";

/// The names of all backends, in this program or not.
const ALL_NAMES: [&str; 6] = ["epoll", "kqueue", "iocp", "uring", "poll", "select"];

macro_rules! auto {
    ($($(#[$cfg:meta])* $kind:ident $name:literal $path:path, $waker:ty;)*) => {
        /// The first backend that works, of all or of those that `UV_BACKEND` lists.
        ///
        /// The candidates are those that Cargo features enable and the target has, in the
        /// order of the [table](crate::backends). A backend that cannot be created, such as
        /// io_uring where it is forbidden or where `RLIMIT_MEMLOCK` is exhausted, is skipped.
        ///
        /// ```
        /// use uv_core::{Loop, backends::Auto};
        ///
        /// let lp = Loop::<Auto>::open()?;
        /// println!("running on {}", lp.backend_name());
        /// # std::io::Result::Ok(())
        /// ```
        // A program has few of them, and a box would cost an indirection in each wait.
        #[allow(clippy::large_enum_variant)]
        // A byte as the tag: the niche of another field takes eight instructions more to read.
        #[cfg_attr(
            any(has_epoll, has_kqueue, has_iocp, has_uring, has_poll, has_select),
            repr(u8)
        )]
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
            /// The names of the candidates, in the order in which they are tried.
            pub const NAMES: &'static [&'static str] = &[$( $(#[$cfg])* $name, )*];

            /// Creates the backend called `name`.
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
            /// assert!(Auto::named("devpoll").is_err());
            /// ```
            ///
            /// # Errors
            ///
            /// `InvalidInput`, with the valid names, if this program has no backend of that
            /// name; otherwise those of creating it.
            pub fn named(name: &str) -> io::Result<Auto> {
                match name {
                    $( $(#[$cfg])* $name => <$path>::new().map(Auto::$kind), )*
                    _ => Err(unknown(name)),
                }
            }

            /// The name of the backend in use.
            pub fn name(&self) -> &'static str {
                match *self { $( $(#[$cfg])* Auto::$kind(_) => $name, )* }
            }
        }

        impl Wake for AutoWaker {
            fn wake(&self) -> io::Result<()> {
                match *self { $( $(#[$cfg])* AutoWaker::$kind(ref waker) => waker.wake(), )* }
            }
        }

        /// Evaluates an expression for the backend in use.
        macro_rules! each {
            ($auto:expr, $backend:ident => $do:expr) => {
                match *$auto { $( $(#[$cfg])* Auto::$kind(ref $backend) => $do, )* }
            };
            (mut $auto:expr, $backend:ident => $do:expr) => {
                match *$auto { $( $(#[$cfg])* Auto::$kind(ref mut $backend) => $do, )* }
            };
        }

        // SAFETY: calls and events are those of the backend inside, which keeps the promises.
        unsafe impl Backend for Auto {
            type Waker = AutoWaker;

            fn name(&self) -> &'static str {
                Auto::name(self)
            }

            fn waker(&self) -> AutoWaker {
                match *self {
                    $( $(#[$cfg])* Auto::$kind(ref backend) => AutoWaker::$kind(backend.waker()), )*
                }
            }

            unsafe fn register(
                &mut self,
                token: Token,
                source: RawSource,
                interest: Interest,
                mode: Mode,
            ) -> io::Result<()> {
                // SAFETY: the caller keeps the promises of this method, which are the backend's.
                each!(mut self, backend => unsafe { backend.register(token, source, interest, mode) })
            }

            fn modify(&mut self, token: Token, interest: Interest, mode: Mode) -> io::Result<()> {
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
                // SAFETY: the caller keeps the promises of this method, which are the backend's.
                each!(mut self, backend => unsafe { backend.submit(token, op) })
            }

            fn cancel(&mut self, token: Token) -> io::Result<()> {
                each!(mut self, backend => backend.cancel(token))
            }

            unsafe fn register_buffers(
                &mut self,
                group: u16,
                memory: NonNull<u8>,
                size: u32,
                count: u16,
            ) -> io::Result<()> {
                // SAFETY: the caller keeps the promises of this method, which are the backend's.
                each!(mut self, backend => unsafe { backend.register_buffers(group, memory, size, count) })
            }

            fn release_buffer(&mut self, lease: BufferLease) {
                each!(mut self, backend => backend.release_buffer(lease))
            }

            fn unregister_buffers(&mut self, group: u16) -> io::Result<()> {
                each!(mut self, backend => backend.unregister_buffers(group))
            }

            fn now(&self) -> Duration {
                each!(self, backend => backend.now())
            }

            fn raw_source(&self) -> Option<RawSource> {
                each!(self, backend => backend.raw_source())
            }

            fn has_unflushed_changes(&self) -> bool {
                each!(self, backend => backend.has_unflushed_changes())
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
    /// Creates the first backend that works, of those that the environment variable `UV_BACKEND`
    /// lists, or of all if it is not set.
    ///
    /// The names in `UV_BACKEND` are separated by commas: `UV_BACKEND=uring,epoll` tries io_uring
    /// and then epoll. Names of backends that are not in this program are skipped.
    ///
    /// # Errors
    ///
    /// As for [`Auto::first_of`]: a backend that is not listed never replaces those that are.
    pub fn new() -> io::Result<Auto> {
        let Some(names) = std::env::var_os(VARIABLE) else {
            return Auto::first_of(Auto::NAMES);
        };
        let names = names.to_string_lossy();
        let listed: Vec<&str> = names.split(',').map(str::trim).collect();
        Auto::first_of(&listed)
            .map_err(|error| io::Error::new(error.kind(), format!("{VARIABLE}={names}: {error}")))
    }

    /// Creates the first backend of a list that works.
    ///
    /// ```
    /// use uv_core::backends::Auto;
    ///
    /// // Operations where the kernel performs them and allows it, and readiness elsewhere.
    /// let backend = Auto::first_of(&["uring", "iocp"]).or_else(|_| Auto::new())?;
    /// // A misspelt name is an error, even if another backend of the list works.
    /// assert!(Auto::first_of(&["iouring", "poll", "epoll"]).is_err());
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// - `InvalidInput`, with the valid names: a name is that of no backend.
    /// - If no backend of the list works: the last error's kind, and the messages of all.
    pub fn first_of(names: &[&str]) -> io::Result<Auto> {
        if let Some(name) = names.iter().find(|name| !ALL_NAMES.contains(name)) {
            return Err(unknown(name));
        }
        let mut failed: Vec<(&str, io::Error)> = Vec::new();
        for name in names {
            let created = if Auto::NAMES.contains(name) {
                Auto::named(name)
            } else {
                let why = "not in this program: enable its feature, on a target that has it";
                Err(io::Error::new(io::ErrorKind::Unsupported, why))
            };
            match created {
                Ok(backend) => return Ok(backend),
                Err(error) => failed.push((name, error)),
            }
        }
        Err(none_works(&failed))
    }
}

impl Open for Auto {
    /// As [`Auto::new`].
    fn open() -> io::Result<Auto> {
        Auto::new()
    }
}

/// The error for a name that no backend of this program has.
fn unknown(name: &str) -> io::Error {
    let names = Auto::NAMES.join(", ");
    let why = format!("no backend {name:?}: the backends of this program are {names}");
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// The error for a list of backends none of which works.
fn none_works(failed: &[(&str, io::Error)]) -> io::Error {
    let Some((_, last)) = failed.last() else {
        let why = "this program has no backend: enable a feature of uv-core, such as `poll`";
        return io::Error::new(io::ErrorKind::Unsupported, why);
    };
    let messages: Vec<String> =
        failed.iter().map(|(name, error)| format!("{name}: {error}")).collect();
    io::Error::new(last.kind(), messages.join("; "))
}
