//! A macro that forwards a backend's methods to another backend.

/// Writes the methods of [`Backend`](crate::Backend) that forward to another backend.
///
/// It is used inside an `unsafe impl Backend`, which writes the methods that differ itself. A
/// decorator that leaves out a provided method takes the trait's default and hides what the inner
/// backend supports; with this macro a method that is added to the trait is forwarded too.
///
/// `delegate_backend!(self => self.inner, Waker = B::Waker)` forwards every method; `Waker` is the
/// type of the waker. `except { … }` names the methods that the
/// implementation writes itself. The expression is borrowed shared and mutably, so it must be a
/// place.
///
/// A decorator that counts the waits of any backend:
///
#[cfg_attr(unix, doc = "```")]
#[cfg_attr(not(unix), doc = "```ignore")]
/// use std::{io, time::Duration};
/// use poll_core::{Backend, Event, Interest, Mode, RawSource, Token, Wake, delegate_backend};
///
/// struct CountWaits<B> {
///     inner: B,
///     waits: u64,
/// }
///
/// // SAFETY: calls and events are those of `inner`, which keeps the guarantees.
/// unsafe impl<B: Backend> Backend for CountWaits<B> {
///     delegate_backend! { self => self.inner, Waker = B::Waker, except { wait } }
///
///     fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
///         self.waits += 1;
///         self.inner.wait(timeout, events)
///     }
/// }
///
/// # #[derive(Clone)]
/// # struct NoWaker;
/// # impl Wake for NoWaker {
/// #     fn wake(&self) -> io::Result<()> { Ok(()) }
/// # }
/// # struct Nothing;
/// # // SAFETY: it reports nothing and keeps nothing.
/// # unsafe impl Backend for Nothing {
/// #     type Waker = NoWaker;
/// #     fn waker(&self) -> NoWaker { NoWaker }
/// #     unsafe fn register(&mut self, _: Token, _: RawSource, _: Interest, _: Mode)
/// #         -> io::Result<()> { Ok(()) }
/// #     fn modify(&mut self, _: Token, _: Interest, _: Mode) -> io::Result<()> { Ok(()) }
/// #     fn deregister(&mut self, _: Token) -> io::Result<()> { Ok(()) }
/// #     fn wait(&mut self, _: Option<Duration>, _: &mut Vec<Event>) -> io::Result<()> { Ok(()) }
/// #     fn now(&self) -> Duration { Duration::from_secs(7) }
/// # }
/// # let backend = Nothing;
/// let mut backend = CountWaits { inner: backend, waits: 0 };
/// backend.wait(Some(Duration::ZERO), &mut Vec::new())?;
/// assert_eq!(backend.waits, 1);
/// # assert_eq!(backend.now(), Duration::from_secs(7), "provided methods are forwarded");
/// # std::io::Result::Ok(())
/// ```
#[macro_export]
macro_rules! delegate_backend {
    ($self:ident => $inner:expr, Waker = $waker:ty $(, except { $($method:ident),* $(,)? })? $(,)?) => {
        type Waker = $waker;

        $crate::delegate_backend! { @each ($self, $inner) [$($($method)*)?]
            name waker register modify deregister wait supports submit cancel register_buffers release_buffer unregister_buffers
            now raw_source has_unflushed_changes after_fork
        }
    };
    (@each ($self:ident, $inner:expr) $except:tt $($method:ident)*) => {
        $( $crate::delegate_backend! { @skip $method $except ($self, $inner) } )*
    };

    // Compares a method's name with those that the implementation writes itself.
    (@skip name [name $($rest:ident)*] $to:tt) => {};
    (@skip waker [waker $($rest:ident)*] $to:tt) => {};
    (@skip register [register $($rest:ident)*] $to:tt) => {};
    (@skip modify [modify $($rest:ident)*] $to:tt) => {};
    (@skip deregister [deregister $($rest:ident)*] $to:tt) => {};
    (@skip wait [wait $($rest:ident)*] $to:tt) => {};
    (@skip supports [supports $($rest:ident)*] $to:tt) => {};
    (@skip submit [submit $($rest:ident)*] $to:tt) => {};
    (@skip cancel [cancel $($rest:ident)*] $to:tt) => {};
    (@skip register_buffers [register_buffers $($rest:ident)*] $to:tt) => {};
    (@skip release_buffer [release_buffer $($rest:ident)*] $to:tt) => {};
    (@skip unregister_buffers [unregister_buffers $($rest:ident)*] $to:tt) => {};
    (@skip now [now $($rest:ident)*] $to:tt) => {};
    (@skip raw_source [raw_source $($rest:ident)*] $to:tt) => {};
    (@skip has_unflushed_changes [has_unflushed_changes $($rest:ident)*] $to:tt) => {};
    (@skip after_fork [after_fork $($rest:ident)*] $to:tt) => {};
    (@skip $method:ident [$other:ident $($rest:ident)*] $to:tt) => {
        $crate::delegate_backend! { @skip $method [$($rest)*] $to }
    };
    (@skip $method:ident [] ($self:ident, $inner:expr)) => {
        $crate::delegate_backend! { @forward $method $self $inner }
    };

    (@forward name $self:ident $inner:expr) => {
        #[inline]
        fn name(&$self) -> &'static str {
            $inner.name()
        }
    };
    (@forward waker $self:ident $inner:expr) => {
        #[inline]
        fn waker(&$self) -> Self::Waker {
            $inner.waker()
        }
    };
    (@forward register $self:ident $inner:expr) => {
        #[inline]
        unsafe fn register(
            &mut $self,
            token: $crate::Token,
            source: $crate::RawSource,
            interest: $crate::Interest,
            mode: $crate::Mode,
        ) -> ::std::io::Result<()> {
            // SAFETY: the caller keeps the conditions of the inner call.
            unsafe { $inner.register(token, source, interest, mode) }
        }
    };
    (@forward modify $self:ident $inner:expr) => {
        #[inline]
        fn modify(
            &mut $self,
            token: $crate::Token,
            interest: $crate::Interest,
            mode: $crate::Mode,
        ) -> ::std::io::Result<()> {
            $inner.modify(token, interest, mode)
        }
    };
    (@forward deregister $self:ident $inner:expr) => {
        #[inline]
        fn deregister(&mut $self, token: $crate::Token) -> ::std::io::Result<()> {
            $inner.deregister(token)
        }
    };
    (@forward wait $self:ident $inner:expr) => {
        #[inline]
        fn wait(
            &mut $self,
            timeout: ::core::option::Option<::core::time::Duration>,
            events: &mut ::std::vec::Vec<$crate::Event>,
        ) -> ::std::io::Result<()> {
            $inner.wait(timeout, events)
        }
    };
    (@forward supports $self:ident $inner:expr) => {
        #[inline]
        fn supports(&$self, kind: $crate::OpKind) -> bool {
            $inner.supports(kind)
        }
    };
    (@forward submit $self:ident $inner:expr) => {
        #[inline]
        unsafe fn submit(
            &mut $self,
            token: $crate::Token,
            op: $crate::Op,
        ) -> ::std::io::Result<()> {
            // SAFETY: the caller keeps the conditions of the inner call.
            unsafe { $inner.submit(token, op) }
        }
    };
    (@forward cancel $self:ident $inner:expr) => {
        #[inline]
        fn cancel(&mut $self, token: $crate::Token) -> ::std::io::Result<()> {
            $inner.cancel(token)
        }
    };
    (@forward register_buffers $self:ident $inner:expr) => {
        #[inline]
        unsafe fn register_buffers(
            &mut $self,
            group: u16,
            memory: ::core::ptr::NonNull<u8>,
            size: u32,
            count: u16,
        ) -> ::std::io::Result<()> {
            // SAFETY: the caller keeps the conditions of the inner call.
            unsafe { $inner.register_buffers(group, memory, size, count) }
        }
    };
    (@forward release_buffer $self:ident $inner:expr) => {
        #[inline]
        fn release_buffer(&mut $self, lease: $crate::BufferLease) {
            $inner.release_buffer(lease);
        }
    };
    (@forward unregister_buffers $self:ident $inner:expr) => {
        #[inline]
        fn unregister_buffers(&mut $self, group: u16) -> ::std::io::Result<()> {
            $inner.unregister_buffers(group)
        }
    };
    (@forward now $self:ident $inner:expr) => {
        #[inline]
        fn now(&$self) -> ::core::time::Duration {
            $inner.now()
        }
    };
    (@forward raw_source $self:ident $inner:expr) => {
        #[inline]
        fn raw_source(&$self) -> ::core::option::Option<$crate::RawSource> {
            $inner.raw_source()
        }
    };
    (@forward has_unflushed_changes $self:ident $inner:expr) => {
        #[inline]
        fn has_unflushed_changes(&$self) -> bool {
            $inner.has_unflushed_changes()
        }
    };
    (@forward after_fork $self:ident $inner:expr) => {
        #[inline]
        fn after_fork(&mut $self) -> ::std::io::Result<()> {
            $inner.after_fork()
        }
    };
}
