//! Backends that can be made from nothing.

use std::io;

use crate::Backend;

/// A backend that can be made without arguments.
///
/// A program that makes its loop by this trait names its backend in one place. All backends of
/// this project implement it; one of your own does so by a line. `Loop::open` of `uv-core` uses
/// it.
///
/// ```
/// # use std::{io, time::Duration};
/// # use poll_core::{Event, Interest, Mode, RawSource, SocketWaker, Token};
/// use poll_core::{Backend, Open};
///
/// struct Mine {
///     // …
/// #   waker: SocketWaker,
/// }
/// # // SAFETY: it watches nothing, keeps nothing and reports nothing.
/// # unsafe impl Backend for Mine {
/// #     type Waker = SocketWaker;
/// #     fn waker(&self) -> SocketWaker { self.waker.clone() }
/// #     unsafe fn register(&mut self, _: Token, _: RawSource, _: Interest, _: Mode)
/// #         -> io::Result<()> { Ok(()) }
/// #     fn modify(&mut self, _: Token, _: Interest, _: Mode) -> io::Result<()> { Ok(()) }
/// #     fn deregister(&mut self, _: Token) -> io::Result<()> { Ok(()) }
/// #     fn wait(&mut self, _: Option<Duration>, _: &mut Vec<Event>) -> io::Result<()> { Ok(()) }
/// # }
///
/// impl Open for Mine {
///     fn open() -> io::Result<Mine> {
/// #       Ok(Mine { waker: SocketWaker::new()? })
///         // …
///     }
/// }
///
/// /// Works with any of them.
/// fn name<B: Open>() -> io::Result<&'static str> {
///     Ok(B::open()?.name())
/// }
/// println!("{}", name::<Mine>()?);
/// # io::Result::Ok(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be made without arguments",
    label = "this backend does not implement `poll_core::Open`",
    note = "make the backend and pass it to `Loop::new`, or write `impl Open for` it",
    note = "the default backend exists if a backend feature of `uv-core` is enabled"
)]
pub trait Open: Backend {
    /// Makes the backend.
    ///
    /// # Errors
    ///
    /// Those of making it, such as too many open descriptors.
    fn open() -> io::Result<Self>
    where
        Self: Sized;
}
