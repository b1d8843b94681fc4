//! Channels: values sent to the loop from other threads.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use poll_core::Backend;

use crate::Loop;
use crate::handles::{Async, AsyncSender, Handle};

/// Receives values in the loop's thread.
///
/// Every value is delivered once, in the order it was sent; the loop is woken once for
/// all that have gathered. The channel is an [`Async`] inside ([`Channel::handle`]) and
/// lives until that is closed; what has not been delivered by then is dropped.
///
/// ```
/// use uv_core::{Channel, Handle, Loop, RunMode};
///
/// let mut lp = Loop::with_default_backend()?;
/// let (channel, sender) = Channel::new(&mut lp, |lp, channel, number: Option<u32>| {
///     match number {
///         Some(number) => println!("got {number}"),
///         None => channel.handle().close(lp).unwrap(),
///     }
/// });
/// let thread = std::thread::spawn(move || {
///     (0..100).for_each(|number| sender.send(Some(number)).unwrap());
///     sender.send(None).unwrap();
/// });
/// lp.run(RunMode::Default)?;
/// thread.join().unwrap();
/// # std::io::Result::Ok(())
/// ```
pub struct Channel<T> {
    handle: Async,
    values: PhantomData<fn(T)>,
}

/// Sends to a [`Channel`], from any thread.
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
///         channel.handle().close(lp).unwrap();
///     }
/// });
/// let another = sender.clone();
/// let threads = [sender, another].map(|sender| std::thread::spawn(move || count(&sender)));
/// lp.run(RunMode::Default)?;
/// threads.map(|thread| thread.join().unwrap());
/// # std::io::Result::Ok(())
/// ```
pub struct Sender<T> {
    queue: Arc<Mutex<VecDeque<T>>>,
    sender: AsyncSender,
}

/// The channel was closed; here is the value.
///
/// ```
/// use uv_core::{Channel, Closed, Handle, Loop};
///
/// let mut lp = Loop::with_default_backend()?;
/// let (channel, sender) = Channel::new(&mut lp, |_, _, text: String| println!("{text}"));
/// channel.handle().close(&mut lp)?;
/// let Closed(text) = sender.send("too late".to_string()).unwrap_err();
/// assert_eq!(text, "too late");
/// # std::io::Result::Ok(())
/// ```
pub struct Closed<T>(pub T);

impl<T: Send + 'static> Channel<T> {
    /// A channel, active at once, and its sender.
    pub fn new<B: Backend>(
        lp: &mut Loop<B>,
        mut callback: impl FnMut(&mut Loop<B>, Channel<T>, T) + 'static,
    ) -> (Channel<T>, Sender<T>) {
        let queue = Arc::new(Mutex::new(VecDeque::new()));
        let source = Source(Arc::clone(&queue));
        // Swapped with the queue, so that senders wait for a swap only, and neither
        // allocates in a steady state.
        let mut batch = VecDeque::new();
        let (handle, sender) = Async::new(lp, move |lp: &mut Loop<B>, handle| {
            std::mem::swap(&mut batch, &mut *lock(&source.0));
            while let Some(value) = batch.pop_front() {
                callback(lp, Channel::of(handle), value);
                if handle.is_closing(lp) {
                    batch.clear();
                }
            }
        });
        (Channel::of(handle), Sender { queue, sender })
    }
}

/// The receiving end of the queue. Goes with the callback, when no send succeeds any more.
struct Source<T>(Arc<Mutex<VecDeque<T>>>);

impl<T> Drop for Source<T> {
    fn drop(&mut self) {
        // Senders may live on; what nobody will take must not. Dropped without the lock,
        // as dropping a value may be anything.
        let undelivered = std::mem::take(&mut *lock(&self.0));
        drop(undelivered);
    }
}

impl<T> Channel<T> {
    fn of(handle: Async) -> Channel<T> {
        Channel { handle, values: PhantomData }
    }

    /// The handle inside: to close, to reference, to look at.
    pub fn handle(self) -> Async {
        self.handle
    }
}

impl<T> Sender<T> {
    /// Sends a value.
    ///
    /// # Errors
    ///
    /// [`Closed`] with the value if the channel was closed, its callback has panicked, or
    /// its loop is gone.
    pub fn send(&self, value: T) -> Result<(), Closed<T>> {
        let mut queue = lock(&self.queue);
        queue.push_back(value);
        // With the lock held: nobody else's value can be at the end.
        match self.sender.send() {
            Ok(()) => Ok(()),
            Err(_) => Err(Closed(queue.pop_back().expect("it was pushed just now"))),
        }
    }
}

/// A sender that panicked has pushed its value or not: both are fine.
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
        Sender { queue: Arc::clone(&self.queue), sender: self.sender.clone() }
    }
}

impl<T> fmt::Debug for Channel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Channel").field(&self.handle).finish()
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("waiting", &lock(&self.queue).len()).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Closed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Closed(..)")
    }
}

impl<T> fmt::Display for Closed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the channel is closed")
    }
}

impl<T> std::error::Error for Closed<T> {}

impl<T> From<Closed<T>> for io::Error {
    fn from(closed: Closed<T>) -> io::Error {
        io::Error::new(io::ErrorKind::BrokenPipe, closed.to_string())
    }
}
