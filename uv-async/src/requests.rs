//! Requests of the loop: files, blocking work, name lookups, random bytes.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use uv_core::dns::{AddrInfo, Hints, NameFlags, NameInfo};
use uv_core::fs::{Action, FsRequest, Operation};
use uv_core::poll_core::Backend;
use uv_core::{DefaultBackend, IoBufMut, WorkError, WorkRequest};

use crate::Rt;
use crate::op::{Op, OrLost};

/// An output that may be lost with the loop.
struct Output<T>(Option<T>);

impl<T: 'static> OrLost for Output<T> {
    fn lost() -> Output<T> {
        Output(None)
    }
}

/// The future of [`Rt::fs`].
///
/// # Cancel safety
///
/// Dropping it cancels the operation if it has not started or if the backend can. An operation
/// that is performed anyway has its effect; a file that it opens is closed, and its buffer is freed
/// when it is complete.
#[must_use = "futures do nothing until they are awaited"]
pub struct FsFuture<A: Action, B: Backend = DefaultBackend> {
    rt: Rt<B>,
    state: FsState<A, B>,
}

enum FsState<A: Action, B: Backend> {
    New(Operation<A>),
    Started(Op<B, Output<A::Output>>, FsRequest),
    Done,
}

// The operation is moved into the loop before it runs: nothing in the future is pinned.
impl<A: Action, B: Backend> Unpin for FsFuture<A, B> {}

impl<A: Action, B: Backend> Future for FsFuture<A, B> {
    type Output = A::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<A::Output> {
        if let FsState::New(_) = self.state
            && let FsState::New(operation) = std::mem::replace(&mut self.state, FsState::Done)
        {
            let (completer, op) = self.rt.op();
            let started = self.rt.with(|lp| {
                operation.start_or_output(lp, move |lp, output| {
                    drop(completer.complete(lp, Output(Some(output))));
                })
            });
            match started {
                Ok(request) => self.state = FsState::Started(op, request),
                Err(output) => return Poll::Ready(output),
            }
        }
        let FsState::Started(op, _) = &mut self.state else {
            panic!("the future was polled after it was ready");
        };
        let Output(output) = std::task::ready!(Pin::new(op).poll(cx));
        match output {
            Some(output) => {
                self.state = FsState::Done;
                Poll::Ready(output)
            }
            None => Poll::Pending, // The loop is gone, and with it what could poll this.
        }
    }
}

impl<A: Action, B: Backend> Drop for FsFuture<A, B> {
    fn drop(&mut self) {
        if let FsState::Started(op, request) = &self.state
            && op.is_pending()
        {
            let request = *request;
            self.rt.with_or_defer(move |lp| drop(request.cancel(lp)));
        }
    }
}

impl<A: Action, B: Backend> fmt::Debug for FsFuture<A, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FsFuture").finish_non_exhaustive()
    }
}

/// Methods of [file operations](uv_core::fs::Operation) for futures.
pub trait OperationExt<A: Action> {
    /// Runs the operation on a loop: the same as [`Rt::fs`], at the end of an expression.
    ///
    /// Without it, `fs::stat(path).await` works too, and gives the same result: the process's
    /// [pool](uv_core::Pool::global) performs the operation, on whatever executor the task runs. On the
    /// loop
    ///
    /// - the backend performs the operation if it can, as io_uring does, without a thread;
    /// - otherwise the pool of the loop does, if the program has [set](uv_core::Loop::set_pool) one;
    /// - it is one of the loop's active requests: a dropped future does not end that, and the loop
    ///   runs until the operation is complete;
    /// - a request allocates nothing once the loop has had as many at a time.
    ///
    /// ```
    /// use uv_async::{LoopExt, OperationExt};
    /// use uv_core::{Loop, fs};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.block_on(async |rt| {
    ///     let file = fs::open("Cargo.toml", fs::OpenOptions::new().read(true)).on(&rt).await?;
    ///     let (count, bytes) = fs::read_at(&file, vec![0; 9], 0).on(&rt).await;
    ///     assert_eq!(&bytes[..count?], b"[package]");
    ///     std::io::Result::Ok(())
    /// })??;
    /// # std::io::Result::Ok(())
    /// ```
    fn on<B: Backend>(self, rt: &Rt<B>) -> FsFuture<A, B>;
}

impl<A: Action> OperationExt<A> for Operation<A> {
    fn on<B: Backend>(self, rt: &Rt<B>) -> FsFuture<A, B> {
        rt.fs(self)
    }
}

/// Cancels a request if it is dropped before its completion.
struct CancelOnDrop<'a, B: Backend, T: OrLost> {
    rt: &'a Rt<B>,
    op: Op<B, T>,
    request: WorkRequest,
}

impl<B: Backend, T: OrLost> Future for CancelOnDrop<'_, B, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        Pin::new(&mut self.op).poll(cx)
    }
}

impl<B: Backend, T: OrLost> Drop for CancelOnDrop<'_, B, T> {
    fn drop(&mut self) {
        if self.op.is_pending() {
            let request = self.request;
            self.rt.with_or_defer(move |lp| drop(request.cancel(lp)));
        }
    }
}

impl<T: 'static> OrLost for Result<T, WorkError> {
    fn lost() -> Result<T, WorkError> {
        Err(WorkError::Cancelled)
    }
}

impl<B: Backend> Rt<B> {
    /// Runs a file operation on the loop: one of the values that the functions of [`uv_core::fs`] make.
    ///
    /// They can be awaited without the loop as well: [`OperationExt::on`] compares both.
    ///
    /// ```
    /// use uv_async::LoopExt;
    /// use uv_core::{Loop, fs};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.block_on(async |rt| {
    ///     let stat = rt.fs(fs::stat(".")).await?;
    ///     assert!(stat.is_dir());
    ///     std::io::Result::Ok(())
    /// })??;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn fs<A: Action>(&self, operation: Operation<A>) -> FsFuture<A, B> {
        FsFuture { rt: self.clone(), state: FsState::New(operation) }
    }

    /// Runs blocking code on the loop's thread pool.
    ///
    /// ```
    /// use uv_async::LoopExt;
    /// use uv_core::Loop;
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let product = lp.block_on(async |rt| rt.queue_work(|| (1..=20_u64).product::<u64>()).await)?;
    /// assert_eq!(product.unwrap(), 2_432_902_008_176_640_000);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`WorkError::Panicked`] if it has panicked; [`WorkError::Cancelled`] if no thread could be
    /// started.
    ///
    /// # Cancel safety
    ///
    /// Dropping it cancels the work unless a thread has started it. Then it runs to its end, and
    /// its result is dropped.
    pub async fn queue_work<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, WorkError> {
        let (completer, op) = self.op();
        let request = self
            .with(|lp| lp.queue_work(work, move |lp, result| drop(completer.complete(lp, result))));
        match request {
            Ok(request) => CancelOnDrop { rt: self, op, request }.await,
            Err(_) => Err(WorkError::Cancelled),
        }
    }

    /// Looks up the addresses of a host and a service.
    ///
    /// ```
    /// use uv_async::LoopExt;
    /// use uv_core::Loop;
    /// use uv_core::dns::Hints;
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.block_on(async |rt| {
    ///     let found = rt.getaddrinfo(Some("127.0.0.1"), Some("80"), Hints::default()).await?;
    ///     assert!(found.iter().all(|one| one.address == "127.0.0.1:80".parse().unwrap()));
    ///     std::io::Result::Ok(())
    /// })??;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`dns::getaddrinfo`](uv_core::dns::getaddrinfo).
    ///
    /// # Cancel safety
    ///
    /// Dropping it cancels the lookup unless a thread has started it.
    pub async fn getaddrinfo(
        &self,
        host: Option<&str>,
        service: Option<&str>,
        hints: Hints,
    ) -> io::Result<Vec<AddrInfo>> {
        let (completer, op) = self.op();
        let request = self.with(|lp| {
            let done = move |lp: &mut _, found| drop(completer.complete(lp, found));
            lp.getaddrinfo(host, service, hints, done)
        })?;
        CancelOnDrop { rt: self, op, request }.await
    }

    /// Looks up the names of an address.
    ///
    /// ```
    /// use uv_async::LoopExt;
    /// use uv_core::Loop;
    /// use uv_core::dns::NameFlags;
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.block_on(async |rt| {
    ///     let address = "127.0.0.1:80".parse().unwrap();
    ///     let names = rt.getnameinfo(address, NameFlags::NUMERICHOST).await?;
    ///     assert_eq!(names.host, "127.0.0.1");
    ///     std::io::Result::Ok(())
    /// })??;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`dns::getnameinfo`](uv_core::dns::getnameinfo).
    ///
    /// # Cancel safety
    ///
    /// Dropping it cancels the lookup unless a thread has started it.
    pub async fn getnameinfo(
        &self,
        address: std::net::SocketAddr,
        flags: NameFlags,
    ) -> io::Result<NameInfo> {
        let (completer, op) = self.op();
        let request = self.with(|lp| {
            lp.getnameinfo(address, flags, move |lp, found| drop(completer.complete(lp, found)))
        })?;
        CancelOnDrop { rt: self, op, request }.await
    }

    /// Fills a buffer with random bytes.
    ///
    /// ```
    /// use uv_async::LoopExt;
    /// use uv_core::Loop;
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.block_on(async |rt| {
    ///     let key = rt.random(vec![0; 32]).await?;
    ///     assert_ne!(key, [0; 32]);
    ///     std::io::Result::Ok(())
    /// })??;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// The system's, and `InvalidInput` for 2 GiB or more. The buffer is dropped then.
    ///
    /// # Cancel safety
    ///
    /// Dropping it cancels the request unless a thread has started it.
    pub async fn random<T: IoBufMut + Send>(&self, buffer: T) -> io::Result<T> {
        let (completer, op) = self.op();
        let request = self
            .with(|lp| lp.random(buffer, move |lp, filled| drop(completer.complete(lp, filled))))?;
        CancelOnDrop { rt: self, op, request }.await
    }
}
