//! Sources of events: signals, file changes, messages of other threads, children, foreign
//! descriptors.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use uv_core::poll_core::Backend;
use uv_core::{
    Channel, Command, DefaultBackend, Disconnect, Exit, FsEvent, FsEventFlags, FsEventKind, Handle,
    Loop, PollEvents, Process, Sender,
};

use crate::Rt;
use crate::op::Op;

/// Events between a callback and a future.
struct Queue<T> {
    events: RefCell<VecDeque<T>>,
    /// No more events follow.
    ended: Cell<bool>,
    waker: Cell<Option<Waker>>,
}

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        Queue { events: RefCell::default(), ended: Cell::new(false), waker: Cell::new(None) }
    }
}

impl<T> Queue<T> {
    fn push<B: Backend>(&self, rt: &Rt<B>, lp: &mut Loop<B>, event: T) {
        self.events.borrow_mut().push_back(event);
        if let Some(waker) = self.waker.take() {
            rt.enter(lp, || waker.wake());
        }
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        if let Some(event) = self.events.borrow_mut().pop_front() {
            return Poll::Ready(Some(event));
        }
        if self.ended.get() {
            return Poll::Ready(None);
        }
        self.waker.set(Some(cx.waker().clone()));
        Poll::Pending
    }
}

impl<T: 'static> Queue<T> {
    /// A call that stops the source, unless the program has given it another callback by then.
    fn stop<B: Backend>(
        self: &Rc<Self>,
        stop: impl FnOnce(&mut Loop<B>) -> io::Result<()> + 'static,
    ) -> impl FnOnce(&mut Loop<B>) + 'static {
        let queue = Rc::clone(self);
        move |lp| {
            if !queue.ended.get() {
                // Fails only if the program has closed the handle.
                drop(stop(lp));
            }
        }
    }
}

/// The callback's share of a queue: its drop ends the queue.
struct Feed<T>(Rc<Queue<T>>);

impl<T> Drop for Feed<T> {
    fn drop(&mut self) {
        self.0.ended.set(true);
        if let Some(waker) = self.0.waker.take() {
            waker.wake();
        }
    }
}

/// Received signals of one number.
///
#[cfg_attr(unix, doc = "```")]
#[cfg_attr(not(unix), doc = "```ignore")]
/// use uv_async::{LoopExt, Signal};
/// use uv_core::{Loop, kill, signum};
///
/// let mut lp = Loop::with_default_backend()?;
/// lp.block_on(async |rt| {
///     let mut signal = Signal::new(&rt, signum::SIGUSR1)?;
///     kill(std::process::id(), signum::SIGUSR1)?;
///     signal.recv().await;
///     std::io::Result::Ok(())
/// })??;
/// # std::io::Result::Ok(())
/// ```
pub struct Signal<B: Backend = DefaultBackend> {
    rt: Rt<B>,
    key: Option<uv_core::Signal>,
    queue: Rc<Queue<()>>,
}

impl<B: Backend> Signal<B> {
    /// Watches a signal from here on.
    ///
    /// # Errors
    ///
    /// As [`uv_core::Signal::start`].
    ///
    /// # Panics
    ///
    /// Outside of tasks, as [`Rt::with`].
    pub fn new(rt: &Rt<B>, signum: i32) -> io::Result<Signal<B>> {
        Signal::from_key(rt, rt.with(uv_core::Signal::new), signum)
    }

    /// Watches a signal by a handle, which it owns from here on. A callback of the handle is
    /// replaced.
    ///
    #[cfg_attr(unix, doc = "```")]
    #[cfg_attr(not(unix), doc = "```ignore")]
    /// use uv_async::{LoopExt, Signal};
    /// use uv_core::{Handle, Loop, kill, signum};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.block_on(async |rt| {
    ///     let key = rt.with(uv_core::Signal::new);
    ///     let mut signal = Signal::from_key(&rt, key, signum::SIGUSR2)?;
    ///     kill(std::process::id(), signum::SIGUSR2)?;
    ///     signal.recv().await;
    ///     let (key, unread) = signal.into_key(); // For callbacks.
    ///     assert_eq!(unread, 0);
    ///     rt.with(|lp| key.close(lp))
    /// })??;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`uv_core::Signal::start`].
    ///
    /// # Panics
    ///
    /// Outside of tasks, as [`Rt::with`].
    pub fn from_key(rt: &Rt<B>, key: uv_core::Signal, signum: i32) -> io::Result<Signal<B>> {
        let signal = Signal { rt: rt.clone(), key: Some(key), queue: Rc::default() };
        let (feed, inside) = (Feed(Rc::clone(&signal.queue)), rt.clone());
        rt.with(|lp| key.start(lp, signum, move |lp, _, _| feed.0.push(&inside, lp, ())))?;
        Ok(signal)
    }

    /// Gives the handle up, stopped, with the number of signals that were received and not taken.
    pub fn into_key(mut self) -> (uv_core::Signal, usize) {
        let key = self.take_key();
        self.rt.with_or_defer(self.queue.stop(move |lp| key.stop(lp)));
        (key, self.queue.events.borrow().len())
    }

    /// Waits for the next signal. Signals that arrive between two calls are queued.
    ///
    /// # Cancel safety
    ///
    /// No signal is lost.
    pub async fn recv(&mut self) {
        poll_fn(|cx| self.poll_recv(cx)).await;
    }

    /// As [`recv`](Signal::recv), for implementations of futures.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self.queue.poll(cx) {
            Poll::Ready(Some(())) => Poll::Ready(()),
            _ => Poll::Pending,
        }
    }
}

/// Changes of a file or of the entries of a directory.
///
/// ```
/// use uv_async::{FsChange, FsEvents, LoopExt};
/// use uv_core::{FsEventFlags, Loop};
///
/// # let directory = std::env::temp_dir().join(format!("uv-async-fs-{}", std::process::id()));
/// # std::fs::create_dir(&directory)?;
/// let mut lp = Loop::with_default_backend()?;
/// lp.block_on(async |rt| {
///     let mut events = FsEvents::new(&rt, &directory, FsEventFlags::empty())?;
///     std::fs::write(directory.join("new.txt"), "hello")?;
///     match events.next().await? {
///         FsChange::Rename(path) => println!("{} has appeared", path.display()),
///         other => println!("{other:?}"),
///     }
///     std::io::Result::Ok(())
/// })??;
/// # std::fs::remove_dir_all(&directory)?;
/// # std::io::Result::Ok(())
/// ```
pub struct FsEvents<B: Backend = DefaultBackend> {
    rt: Rt<B>,
    key: Option<FsEvent>,
    queue: Rc<Queue<io::Result<FsChange>>>,
}

/// An event of [`FsEvents`]: an [`FsEventKind`] that owns its path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FsChange {
    /// An entry was created, removed or renamed.
    Rename(PathBuf),
    /// The content or the attributes of an entry have changed.
    Change(PathBuf),
    /// Events were lost: rescan the directory.
    Overflow,
}

impl From<FsEventKind<'_>> for FsChange {
    fn from(kind: FsEventKind<'_>) -> FsChange {
        match kind {
            FsEventKind::Rename(path) => FsChange::Rename(path.into()),
            FsEventKind::Change(path) => FsChange::Change(path.into()),
            FsEventKind::Overflow => FsChange::Overflow,
        }
    }
}

impl<B: Backend> FsEvents<B> {
    /// Watches a path from here on.
    ///
    /// # Errors
    ///
    /// As [`FsEvent::start`].
    ///
    /// # Panics
    ///
    /// Outside of tasks, as [`Rt::with`].
    pub fn new(rt: &Rt<B>, path: impl AsRef<Path>, flags: FsEventFlags) -> io::Result<FsEvents<B>> {
        FsEvents::from_key(rt, rt.with(FsEvent::new), path, flags)
    }

    /// Watches a path by a handle that is not started, which it owns from here on.
    ///
    /// ```
    /// use uv_async::{FsEvents, LoopExt};
    /// use uv_core::{FsEvent, FsEventFlags, Handle, Loop};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.block_on(async |rt| {
    ///     let (key, path) = (rt.with(FsEvent::new), std::env::temp_dir());
    ///     let events = FsEvents::from_key(&rt, key, path, FsEventFlags::empty())?;
    ///     let (key, _unread) = events.into_key(); // For callbacks.
    ///     rt.with(|lp| key.close(lp))
    /// })??;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`FsEvent::start`].
    ///
    /// # Panics
    ///
    /// Outside of tasks, as [`Rt::with`].
    pub fn from_key(
        rt: &Rt<B>,
        key: FsEvent,
        path: impl AsRef<Path>,
        flags: FsEventFlags,
    ) -> io::Result<FsEvents<B>> {
        let events = FsEvents { rt: rt.clone(), key: Some(key), queue: Rc::default() };
        let (feed, inside) = (Feed(Rc::clone(&events.queue)), rt.clone());
        rt.with(|lp| {
            key.start(lp, path, flags, move |lp, _, event| {
                feed.0.push(&inside, lp, event.map(FsChange::from));
            })
        })?;
        Ok(events)
    }

    /// Gives the handle up, stopped, with the changes that were received and not taken.
    pub fn into_key(mut self) -> (FsEvent, Vec<io::Result<FsChange>>) {
        let key = self.take_key();
        self.rt.with_or_defer(self.queue.stop(move |lp| key.stop(lp)));
        (key, self.queue.events.take().into())
    }

    /// Waits for the next change. Changes between two calls are queued.
    ///
    /// # Errors
    ///
    /// If a part of the tree cannot be watched any more; the rest is.
    ///
    /// # Cancel safety
    ///
    /// No event is lost.
    pub async fn next(&mut self) -> io::Result<FsChange> {
        poll_fn(|cx| self.poll_next_change(cx)).await
    }

    /// As [`next`](FsEvents::next), for implementations of futures.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn poll_next_change(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<FsChange>> {
        match self.queue.poll(cx) {
            Poll::Ready(Some(event)) => Poll::Ready(event),
            _ => Poll::Pending,
        }
    }
}

/// The receiver of a [`channel`]. Its handle calls this receiver only: callbacks have
/// [`uv_core::Channel`] instead.
pub struct Receiver<T, B: Backend = DefaultBackend> {
    rt: Rt<B>,
    key: Option<uv_core::Async>,
    queue: Rc<Queue<T>>,
}

/// A channel from any thread to tasks of this loop. The sender is that of [`uv_core::Channel`].
///
/// ```
/// use uv_async::{LoopExt, channel};
/// use uv_core::Loop;
///
/// let mut lp = Loop::with_default_backend()?;
/// lp.block_on(async |rt| {
///     let (sender, mut receiver) = channel(&rt);
///     let thread = std::thread::spawn(move || (0..3).for_each(|n| sender.send(n).unwrap()));
///     let mut sum = 0;
///     while let Some(number) = receiver.recv().await {
///         sum += number;
///     }
///     assert_eq!(sum, 3);
///     thread.join().unwrap();
/// })?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Panics
///
/// Outside of tasks, as [`Rt::with`].
pub fn channel<T: Send + 'static, B: Backend>(rt: &Rt<B>) -> (Sender<T>, Receiver<T, B>) {
    let queue = Rc::<Queue<T>>::default();
    let (feed, inside) = (Feed(Rc::clone(&queue)), rt.clone());
    let (channel, sender) = rt.with(|lp| {
        Channel::with_disconnect(lp, Disconnect::Stop, move |lp, _, value| {
            feed.0.push(&inside, lp, value);
        })
    });
    (sender, Receiver { rt: rt.clone(), key: Some(channel.handle()), queue })
}

impl<T, B: Backend> Receiver<T, B> {
    /// Waits for the next value; `None` when all senders are gone and all values were received.
    ///
    /// # Cancel safety
    ///
    /// No value is lost.
    pub async fn recv(&mut self) -> Option<T> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// As [`recv`](Receiver::recv), for implementations of futures.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        self.queue.poll(cx)
    }
}

/// A child process.
///
/// Dropping it does not end the child: [`kill`](Child::kill) does. A thread reaps a child whose
/// handle is gone.
///
/// ```
/// use uv_async::{Child, LoopExt};
/// use uv_core::{Command, Loop};
///
/// let mut lp = Loop::with_default_backend()?;
/// lp.block_on(async |rt| {
///     let mut child = Child::spawn(&rt, &Command::new("rustc").arg("--version"))?;
///     assert!(child.wait().await?.success());
///     std::io::Result::Ok(())
/// })??;
/// # std::io::Result::Ok(())
/// ```
pub struct Child<B: Backend = DefaultBackend> {
    rt: Rt<B>,
    key: Option<Process>,
    exit: Op<B, io::Result<Exit>>,
    /// The result, once it is known.
    status: Option<Exit>,
}

impl<B: Backend> Child<B> {
    /// Runs a program.
    ///
    /// # Errors
    ///
    /// As [`Process::spawn`].
    ///
    /// # Panics
    ///
    /// Outside of tasks, as [`Rt::with`].
    pub fn spawn(rt: &Rt<B>, command: &Command<'_>) -> io::Result<Child<B>> {
        let (completer, exit) = rt.op();
        let key = rt.with(|lp| {
            Process::spawn(lp, command, move |lp, _, exit| drop(completer.complete(lp, exit)))
        })?;
        Ok(Child { rt: rt.clone(), key: Some(key), exit, status: None })
    }

    /// The process id.
    ///
    /// # Errors
    ///
    /// `NotFound` if the program has closed the handle.
    pub fn id(&self) -> io::Result<u32> {
        let key = self.key();
        self.rt.with(|lp| key.pid(lp))
    }

    /// Sends a signal.
    ///
    /// # Errors
    ///
    /// As [`Process::kill`].
    pub fn kill(&mut self, signum: i32) -> io::Result<()> {
        let key = self.key();
        self.rt.with(|lp| key.kill(lp, signum))
    }

    /// Waits for the end of the child.
    ///
    /// # Errors
    ///
    /// `ECHILD` if other code has reaped the child; `NotFound` in later calls.
    ///
    /// # Cancel safety
    ///
    /// The exit status is kept for the next call.
    pub async fn wait(&mut self) -> io::Result<Exit> {
        if let Some(status) = self.status {
            return Ok(status);
        }
        if !self.exit.is_pending() {
            let why = "an earlier wait for this child has failed";
            return Err(io::Error::new(io::ErrorKind::NotFound, why));
        }
        let status = poll_fn(|cx| Pin::new(&mut self.exit).poll(cx)).await?;
        self.status = Some(status);
        Ok(status)
    }

    /// Gives the handle up: the child is not awaited any more, and a callback has to close the
    /// handle. There is no way back, because a handle gets its callback when the child is spawned.
    ///
    /// ```
    /// use uv_async::{Child, LoopExt};
    /// use uv_core::{Command, Handle, Loop};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.block_on(async |rt| {
    ///     let child = Child::spawn(&rt, &Command::new("rustc").arg("--version"))?;
    ///     let key = child.into_key();
    ///     rt.with(|lp| key.close(lp))
    /// })??;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn into_key(mut self) -> Process {
        self.take_key()
    }
}

/// Readiness of a descriptor that other code reads and writes: of a library, for example.
///
#[cfg_attr(unix, doc = "```")]
#[cfg_attr(not(unix), doc = "```ignore")]
/// use std::io::{Read, Write};
/// use std::os::unix::net::UnixStream;
/// use uv_async::{AsyncPoll, LoopExt};
/// use uv_core::{Loop, PollEvents};
///
/// let (mut ours, theirs) = UnixStream::pair()?;
/// let mut lp = Loop::with_default_backend()?;
/// lp.block_on(async |rt| {
///     let poll = AsyncPoll::from_key(&rt, rt.with(|lp| uv_core::Poll::new(lp, theirs))?);
///     ours.write_all(b"hello")?;
///     let ready = poll.readiness(PollEvents::READABLE).await?;
///     assert!(ready.contains(PollEvents::READABLE));
///     std::io::Result::Ok(())
/// })??;
/// # std::io::Result::Ok(())
/// ```
pub struct AsyncPoll<B: Backend = DefaultBackend> {
    rt: Rt<B>,
    key: Option<uv_core::Poll>,
}

impl<B: Backend> AsyncPoll<B> {
    /// Owns a poll handle from here on, and with it the owner of the descriptor that
    /// [`Poll::new`](uv_core::Poll::new) was given.
    pub fn from_key(rt: &Rt<B>, key: uv_core::Poll) -> AsyncPoll<B> {
        AsyncPoll { rt: rt.clone(), key: Some(key) }
    }

    /// Gives the handle up. It is stopped, because no future waits.
    pub fn into_key(mut self) -> uv_core::Poll {
        self.take_key()
    }

    /// Waits until one of `events` is ready; returns those that are. One task at a time waits: a
    /// later call replaces an earlier one, which fails.
    ///
    /// # Errors
    ///
    /// As [`Poll::start`](uv_core::Poll::start) and its callback.
    ///
    /// # Cancel safety
    ///
    /// Readiness is a state of the descriptor: it is not lost.
    pub async fn readiness(&self, events: PollEvents) -> io::Result<PollEvents> {
        let ((completer, op), key) = (self.rt.op(), self.key());
        let mut completer = Some(completer);
        self.rt.with(|lp| {
            key.start(lp, events, move |lp, poll, result| {
                // Fails only if the program has closed the handle.
                let _ = poll.stop(lp);
                if let Some(completer) = completer.take() {
                    drop(completer.complete(lp, result));
                }
            })
        })?;
        let mut waiting = Waiting { rt: &self.rt, key, op };
        poll_fn(|cx| Pin::new(&mut waiting.op).poll(cx)).await
    }
}

/// Stops a poll if it is dropped before an event.
struct Waiting<'a, B: Backend> {
    rt: &'a Rt<B>,
    key: uv_core::Poll,
    op: Op<B, io::Result<PollEvents>>,
}

impl<B: Backend> Drop for Waiting<'_, B> {
    fn drop(&mut self) {
        if self.op.is_pending() {
            let (key, mut op) = (self.key, self.op.detach());
            self.rt.with_or_defer(move |lp| {
                // With a result the handle has stopped, or it waits for another call by now.
                if op.take().is_none() {
                    drop(key.stop(lp));
                }
            });
        }
    }
}

macro_rules! closes_on_drop {
    ($($name:ident $(<$t:ident>)?, $key:ty;)*) => {$(
        impl<$($t,)? B: Backend> $name<$($t,)? B> {
            /// The handle.
            pub fn key(&self) -> $key {
                let Some(key) = self.key else { unreachable!("the key is there until a drop") };
                key
            }

            /// The handle, which is not closed any more.
            #[allow(dead_code, reason = "not every handle can be given up")]
            fn take_key(&mut self) -> $key {
                let key = self.key();
                self.key = None;
                key
            }
        }

        impl<$($t,)? B: Backend> Drop for $name<$($t,)? B> {
            fn drop(&mut self) {
                if let Some(key) = self.key {
                    // Fails only if the program has closed the handle.
                    self.rt.with_or_defer(move |lp| drop(key.close(lp)));
                }
            }
        }

        impl<$($t,)? B: Backend> fmt::Debug for $name<$($t,)? B> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).field("key", &self.key).finish_non_exhaustive()
            }
        }
    )*};
}

closes_on_drop! {
    Signal, uv_core::Signal;
    FsEvents, FsEvent;
    Receiver<T>, uv_core::Async;
    Child, Process;
    AsyncPoll, uv_core::Poll;
}
