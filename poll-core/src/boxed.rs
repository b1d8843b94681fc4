//! Type erasure for backends: a box with a vtable.

use std::any::{Any, type_name};
use std::fmt;
use std::io;
use std::sync::Arc;

use crate::{Backend, Wake, delegate_backend};

/// Any backend, behind one type: a box with a vtable.
///
/// Code that is generic over [`Backend`] is compiled once for each backend it is used with. Code
/// over a `BoxedBackend` is compiled once: a program that chooses its backend at run time has
/// one loop in it, not one for each backend. The price is an indirect call for each method. No
/// method allocates or makes a system call of its own, except that [`waker`](Backend::waker)
/// allocates: cloning a [`BoxedWaker`] does not.
///
/// ```
/// use poll_core::{Backend, BoxedBackend, MaskOps};
///
/// fn choose<B: Backend>(backend: B, readiness_only: bool) -> BoxedBackend {
///     if readiness_only {
///         BoxedBackend::new(MaskOps::to_readiness(backend))
///     } else {
///         BoxedBackend::new(backend)
///     }
/// }
/// # struct Idle;
/// # #[derive(Clone)]
/// # struct NoWaker;
/// # impl poll_core::Wake for NoWaker {
/// #     fn wake(&self) -> std::io::Result<()> { Ok(()) }
/// # }
/// # use poll_core::{Event, Mode, RawSource, Interest, Token};
/// # use std::{io, time::Duration};
/// # // SAFETY: it watches nothing, keeps nothing and reports nothing.
/// # unsafe impl Backend for Idle {
/// #     type Waker = NoWaker;
/// #     fn waker(&self) -> NoWaker { NoWaker }
/// #     unsafe fn register(&mut self, _: Token, _: RawSource, _: Interest, _: Mode)
/// #         -> io::Result<()> { Ok(()) }
/// #     fn modify(&mut self, _: Token, _: Interest, _: Mode) -> io::Result<()> { Ok(()) }
/// #     fn deregister(&mut self, _: Token) -> io::Result<()> { Ok(()) }
/// #     fn wait(&mut self, _: Option<Duration>, _: &mut Vec<Event>) -> io::Result<()> { Ok(()) }
/// # }
///
/// let mut backend = choose(Idle, false);
/// backend.wait(Some(Duration::ZERO), &mut Vec::new())?;
/// assert!(backend.downcast_ref::<MaskOps<Idle>>().is_none());
/// let _: Idle = backend.downcast().expect("it was made from one");
/// # io::Result::Ok(())
/// ```
pub struct BoxedBackend(Box<dyn Object>);

/// The waker of a [`BoxedBackend`]. Its clones share the waker of the inner backend.
#[derive(Clone)]
pub struct BoxedWaker(Arc<dyn Fn() -> io::Result<()> + Send + Sync>);

impl BoxedBackend {
    /// Moves `backend` into a box.
    pub fn new<B: Backend>(backend: B) -> BoxedBackend {
        BoxedBackend(Box::new(WithBoxedWaker(backend)))
    }

    /// Returns the inner backend, if it is a `B`.
    pub fn downcast_ref<B: Backend>(&self) -> Option<&B> {
        let any: &dyn Any = &*self.0;
        any.downcast_ref::<WithBoxedWaker<B>>().map(|with| &with.0)
    }

    /// Returns the inner backend, if it is a `B`.
    pub fn downcast_mut<B: Backend>(&mut self) -> Option<&mut B> {
        let any: &mut dyn Any = &mut *self.0;
        any.downcast_mut::<WithBoxedWaker<B>>().map(|with| &mut with.0)
    }

    /// Takes the backend out of its box.
    ///
    /// # Errors
    ///
    /// The box, if the inner backend is not a `B`.
    pub fn downcast<B: Backend>(self) -> Result<B, BoxedBackend> {
        if self.downcast_ref::<B>().is_none() {
            return Err(self);
        }
        let any: Box<dyn Any> = self.0;
        let with: Box<WithBoxedWaker<B>> = any.downcast().expect("its type was compared above");
        Ok(with.0)
    }
}

impl fmt::Debug for BoxedBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BoxedBackend").field(&self.0.type_name()).finish()
    }
}

impl fmt::Debug for BoxedWaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BoxedWaker").finish_non_exhaustive()
    }
}

impl Wake for BoxedWaker {
    fn wake(&self) -> io::Result<()> {
        (self.0)()
    }
}

/// A backend with a boxed waker: a vtable of [`Backend`] needs one waker type.
struct WithBoxedWaker<B>(B);

/// The methods of the vtable beyond those of [`Backend`].
trait Object: Backend<Waker = BoxedWaker> + Any {
    fn type_name(&self) -> &'static str;
}

impl<B: Backend> Object for WithBoxedWaker<B> {
    fn type_name(&self) -> &'static str {
        type_name::<B>()
    }
}

// SAFETY: every method forwards to the inner backend, which keeps the guarantees.
unsafe impl<B: Backend> Backend for WithBoxedWaker<B> {
    delegate_backend! { self => self.0, Waker = BoxedWaker, except { waker } }

    fn waker(&self) -> BoxedWaker {
        let waker = self.0.waker();
        BoxedWaker(Arc::new(move || waker.wake()))
    }
}

// SAFETY: every method forwards to the inner backend, which keeps the guarantees.
unsafe impl Backend for BoxedBackend {
    delegate_backend! { self => self.0, Waker = BoxedWaker }
}
