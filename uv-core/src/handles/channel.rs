//! Channels: values sent to a loop by other threads.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use poll_core::Backend;

use crate::Loop;
use crate::handles::base::Sealed;
use crate::handles::{AnyHandle, Async, AsyncSender, Handle};
use crate::storage::contain;

/// Receives values in the loop's thread.
///
/// Every value is delivered once, in the order it was sent; one wake-up delivers all queued
/// values. A channel is a [`Handle`] and exists until it is closed;
/// values that are not delivered by then are dropped.
///
/// When the last [`Sender`] is dropped, the channel delivers the queued values. Then it becomes
/// inactive and no longer keeps the loop alive, and its callback is dropped.
/// [`Channel::with_disconnect`] selects another behaviour.
///
/// ```
/// use uv_core::{Channel, Loop, RunMode};
///
/// let mut lp = Loop::with_default_backend()?;
/// let (_, sender) = Channel::new(&mut lp, |_, _, number: u32| println!("got {number}"));
/// let thread = std::thread::spawn(move || {
///     (0..100).for_each(|number| sender.send(number).unwrap());
/// });
/// lp.run(RunMode::Default)?; // Returns when the thread has dropped the sender.
/// thread.join().unwrap();
/// # std::io::Result::Ok(())
/// ```
pub struct Channel<T> {
    handle: Async,
    values: PhantomData<fn(T)>,
}

/// The sender of a [`Channel`], for any thread.
///
/// ```
/// use uv_core::{Channel, Handle, Loop, RunMode, Sender};
///
/// fn count(sender: &Sender<u32>) {
///     (1..=3).for_each(|number| sender.send(number).unwrap());
/// }
///
/// let (mut lp, mut sum) = (Loop::with_default_backend()?, 0);
/// let (_, sender) = Channel::new(&mut lp, move |lp, channel, number| {
///     sum += number;
///     if sum == 12 {
///         channel.close(lp).unwrap();
///     }
/// });
/// let another = sender.clone();
/// let threads = [sender, another].map(|sender| std::thread::spawn(move || count(&sender)));
/// lp.run(RunMode::Default)?;
/// threads.map(|thread| thread.join().unwrap());
/// # std::io::Result::Ok(())
/// ```
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
    sender: AsyncSender,
}

/// The action of a [`Channel`] after its last [`Sender`] was dropped and all values were
/// delivered.
///
/// ```
/// use uv_core::{Channel, Disconnect, Handle, Loop, RunMode};
///
/// let mut lp = Loop::with_default_backend()?;
/// let callback = |_: &mut Loop, _, number: u32| println!("got {number}");
/// let (channel, sender) = Channel::with_disconnect(&mut lp, Disconnect::Close, callback);
/// sender.send(1).unwrap();
/// drop(sender);
/// lp.run(RunMode::Default)?;
/// assert!(lp.walk().is_empty(), "the handle is closed");
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Disconnect {
    /// The handle becomes inactive, and stays open until it is closed.
    #[default]
    Stop,
    /// The handle is closed.
    Close,
    /// The handle stays active and keeps the loop alive until it is closed.
    Stay,
}

/// The state that a channel shares with its senders.
struct Shared<T> {
    queue: Mutex<VecDeque<T>>,
    senders: AtomicUsize,
}

/// The channel is closed. Contains the value that was not sent.
///
/// ```
/// use uv_core::{Channel, SendError, Handle, Loop};
///
/// let mut lp = Loop::with_default_backend()?;
/// let (channel, sender) = Channel::new(&mut lp, |_, _, text: String| println!("{text}"));
/// channel.close(&mut lp)?;
/// let SendError(text) = sender.send("too late".to_string()).unwrap_err();
/// assert_eq!(text, "too late");
/// # std::io::Result::Ok(())
/// ```
pub struct SendError<T>(pub T);

impl<T: Send + 'static> Channel<T> {
    /// An active channel and its sender.
    #[cfg_attr(feature = "origins", track_caller)]
    pub fn new<B: Backend>(
        lp: &mut Loop<B>,
        callback: impl FnMut(&mut Loop<B>, Channel<T>, T) + 'static,
    ) -> (Channel<T>, Sender<T>) {
        Channel::with_disconnect(lp, Disconnect::default(), callback)
    }

    /// As [`new`](Channel::new), with the action after the last sender was dropped.
    #[cfg_attr(feature = "origins", track_caller)]
    pub fn with_disconnect<B: Backend>(
        lp: &mut Loop<B>,
        disconnect: Disconnect,
        mut callback: impl FnMut(&mut Loop<B>, Channel<T>, T) + 'static,
    ) -> (Channel<T>, Sender<T>) {
        let queue = Mutex::new(VecDeque::new());
        let shared = Arc::new(Shared { queue, senders: AtomicUsize::new(1) });
        let source = Source(Arc::clone(&shared));
        // Swapped with the queue: senders wait for the lock only during a swap, and neither
        // queue allocates in a steady state.
        let mut batch = VecDeque::new();
        let (handle, sender) = Async::new(lp, move |lp: &mut Loop<B>, handle| {
            // Loaded before the queue is taken: the values of the last sender are queued by then.
            let disconnected = source.0.senders.load(Ordering::Acquire) == 0;
            std::mem::swap(&mut batch, &mut *lock(&source.0.queue));
            while let Some(value) = batch.pop_front() {
                callback(lp, Channel::of(handle), value);
                if handle.is_closing(lp) {
                    return drop_each(&mut batch);
                }
            }
            match disconnect {
                Disconnect::Stop if disconnected => lp.asyncs.stop(&mut lp.active_handles, handle),
                Disconnect::Close if disconnected => drop(handle.close(lp)),
                _ => {}
            }
        });
        (Channel::of(handle), Sender { shared, sender })
    }
}

/// The receiving end of the queue. Dropped with the callback; no send succeeds after that.
struct Source<T>(Arc<Shared<T>>);

impl<T> Drop for Source<T> {
    fn drop(&mut self) {
        // Senders may outlive the channel, but queued values must not. Dropped without the lock:
        // destructors of values may do anything.
        let mut undelivered = std::mem::take(&mut *lock(&self.0.queue));
        drop_each(&mut undelivered);
    }
}

/// Drops values one by one, so that a panicking destructor does not leak the others.
fn drop_each<T>(values: &mut VecDeque<T>) {
    values.drain(..).for_each(|value| contain(|| drop(value)));
}

impl<T> Channel<T> {
    fn of(handle: Async) -> Channel<T> {
        Channel { handle, values: PhantomData }
    }

    /// The async handle that the channel contains.
    pub fn handle(self) -> Async {
        self.handle
    }
}

impl<T> From<Channel<T>> for AnyHandle {
    fn from(channel: Channel<T>) -> AnyHandle {
        channel.handle.into()
    }
}

impl<T> Sealed for Channel<T> {
    fn from_any(any: AnyHandle) -> Channel<T> {
        Channel::of(Async::from_any(any))
    }
}

/// A channel is closed, referenced and counted as its async handle is.
///
/// ```
/// use uv_core::{Channel, Handle, Loop, RunMode};
///
/// let mut lp = Loop::with_default_backend()?;
/// let (_, sender) = Channel::new(&mut lp, |lp, channel, text: &str| {
///     println!("{text}");
///     channel.close(lp).unwrap();
/// });
/// sender.send("only this one")?;
/// lp.run(RunMode::Default)?;
/// # std::io::Result::Ok(())
/// ```
impl<T: 'static> Handle for Channel<T> {}

impl<T> Sender<T> {
    /// Sends a value.
    ///
    /// # Errors
    ///
    /// [`SendError`] with the value if the channel was closed, its callback has panicked, or its
    /// loop was dropped.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        let mut queue = lock(&self.shared.queue);
        queue.push_back(value);
        // The lock is held, so the last value is the one that was pushed above.
        match self.sender.send() {
            Ok(()) => Ok(()),
            Err(_) => Err(SendError(queue.pop_back().expect("a value was pushed above"))),
        }
    }
}

/// Ignores poisoning: a sender that panicked has pushed its value or not, and both are valid.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Clone for Channel<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Channel<T> {}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.shared.senders.fetch_add(1, Ordering::Relaxed);
        Sender { shared: Arc::clone(&self.shared), sender: self.sender.clone() }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.shared.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            // The callback finds that there are no senders. A closed channel needs no wake-up.
            let _ = self.sender.send();
        }
    }
}

impl<T> fmt::Debug for Channel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Channel").field(&self.handle).finish()
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender")
            .field("queued", &lock(&self.shared.queue).len())
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SendError(..)")
    }
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the channel is closed")
    }
}

impl<T> std::error::Error for SendError<T> {}

impl<T> From<SendError<T>> for io::Error {
    fn from(closed: SendError<T>) -> io::Error {
        io::Error::new(io::ErrorKind::BrokenPipe, closed.to_string())
    }
}
