//! The receiving side of a stream: the loop pushes bytes, readers take them.
//!
//! Between two reads of a task the loop goes on reading, so that a read costs no request. It stops
//! when bytes arrive that nothing has taken since the bytes before them, and goes on when all are
//! taken.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

use uv_core::poll_core::Backend;
use uv_core::{Loop, Stream};

use super::input::Input;
use crate::Rt;
use crate::op::{Waiting, lost};

/// From this size on, reads into the buffers of the program are worth a request each: the loop's
/// buffer would cost a copy.
pub(super) const LARGE: usize = 4096;

/// The number of receiving sides that are kept.
const MAX_KEPT: usize = 1024;

/// What the stream and the loop's reader share.
#[derive(Default)]
pub(crate) struct Received {
    pub(crate) input: RefCell<Input>,
    /// Readers that found no bytes. All are woken by the next ones.
    waiting: RefCell<Vec<Waiting>>,
    /// The number of the reader that the loop has: 0 for none.
    pushing: Cell<u32>,
    /// The handle does not keep the loop alive, because the loop pushes.
    unreferenced: Cell<bool>,
    last_number: Cell<u32>,
    /// Requests with buffers of the program that are in flight: the loop cannot push meanwhile.
    pub(super) requests: Cell<u32>,
    /// How the stream has ended, until a reader has got it.
    end: Cell<Option<io::Result<()>>>,
}

/// The receiving sides of closed streams, for those to come.
#[derive(Default)]
pub(crate) struct ReceivedPool(RefCell<Vec<Rc<Received>>>);

impl ReceivedPool {
    pub(super) fn take(&self) -> Rc<Received> {
        self.0.borrow_mut().pop().unwrap_or_default()
    }

    /// Keeps one that nothing else has.
    pub(super) fn put(&self, mut received: Rc<Received>) {
        let mut pool = self.0.borrow_mut();
        if pool.len() < MAX_KEPT
            && let Some(unshared) = Rc::get_mut(&mut received)
        {
            unshared.input.get_mut().reset();
            unshared.waiting.get_mut().clear();
            unshared.requests.set(0);
            unshared.unreferenced.set(false);
            drop(unshared.end.take());
            pool.push(received);
        }
    }
}

impl Received {
    /// Waits until there are bytes in `input`, or the stream has ended.
    #[inline]
    pub(super) fn poll_fill<S: Stream, B: Backend>(
        self: &Rc<Self>,
        rt: &Rt<B>,
        key: S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let empty = self.input.borrow().is_empty();
        if empty { self.poll_more(rt, key, cx) } else { Poll::Ready(Ok(())) }
    }

    /// As [`poll_fill`](Received::poll_fill), when there are none.
    fn poll_more<S: Stream, B: Backend>(
        self: &Rc<Self>,
        rt: &Rt<B>,
        key: S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(end) = self.end.take() {
            return Poll::Ready(end);
        }
        if self.pushing.get() == 0 && self.requests.get() == 0 {
            self.start(rt, key)?;
        }
        self.input.borrow_mut().release_memory(rt.memory());
        let (mut waiting, new) = (self.waiting.borrow_mut(), Waiting::for_context(rt, cx));
        if !waiting.iter().any(|old| old.is_same(&new)) {
            waiting.push(new);
        }
        Poll::Pending
    }

    /// True while the loop pushes bytes.
    pub(super) fn is_pushing(&self) -> bool {
        self.pushing.get() != 0
    }

    /// True if a reader waits for bytes to be pushed.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.borrow().is_empty()
    }

    fn start<S: Stream, B: Backend>(self: &Rc<Self>, rt: &Rt<B>, key: S) -> io::Result<()> {
        let number = self.last_number.get().wrapping_add(1).max(1);
        let reader = Reader { rt: rt.clone(), received: Rc::clone(self), number };
        rt.with(|lp| {
            key.read_start(lp, move |lp, key, bytes| reader.push(lp, key, bytes))?;
            // A task that waits for the bytes keeps the loop alive. Reading without one does not.
            if key.is_referenced(lp) {
                key.unreference(lp)?;
                self.unreferenced.set(true);
            }
            io::Result::Ok(())
        })?;
        self.last_number.set(number);
        self.pushing.set(number);
        Ok(())
    }

    /// Stops pushing. Bytes that the loop has are for the next reader of the handle.
    pub(super) fn stop<S: Stream, B: Backend>(&self, lp: &mut Loop<B>, key: S) {
        if self.pushing.replace(0) != 0 {
            // Fails only if the program has closed the handle.
            let _ = key.read_stop(lp);
        }
        self.reference(lp, key);
    }

    /// Lets the handle keep the loop alive as before.
    fn reference<S: Stream, B: Backend>(&self, lp: &mut Loop<B>, key: S) {
        if self.unreferenced.replace(false) {
            // As above.
            let _ = key.reference(lp);
        }
    }

    /// A request with a buffer of the program has ended.
    pub(super) fn request_ended<B: Backend>(&self, rt: &Rt<B>) {
        self.requests.set(self.requests.get() - 1);
        if self.requests.get() == 0 && !self.waiting.borrow().is_empty() {
            self.wake_all(|waiting| rt.with_or_wake_later(waiting));
        }
    }

    fn wake_all(&self, mut wake: impl FnMut(Waiting)) {
        loop {
            // Not borrowed while it is woken: a waker may run any code.
            let next = self.waiting.borrow_mut().pop();
            let Some(waiting) = next else { return };
            wake(waiting);
        }
    }
}

/// The loop's reader. When it is dropped although a task waits for bytes, the task gets an error.
struct Reader<B: Backend> {
    rt: Rt<B>,
    received: Rc<Received>,
    number: u32,
}

impl<B: Backend> Reader<B> {
    fn push<S: Stream>(&self, lp: &mut Loop<B>, key: S, bytes: io::Result<&[u8]>) {
        let received = &*self.received;
        match bytes {
            Ok(bytes) if !bytes.is_empty() => {
                let mut input = received.input.borrow_mut();
                let slow = !input.is_empty();
                input.large = bytes.len() >= LARGE;
                input.append(bytes, self.rt.memory());
                drop(input);
                if slow {
                    received.stop(lp, key);
                }
            }
            // Both end the reading.
            end => {
                received.pushing.set(0);
                received.end.set(Some(end.map(drop)));
                received.reference(lp, key);
            }
        }
        received.wake_all(|waiting| waiting.wake(&self.rt, lp));
    }
}

impl<B: Backend> Drop for Reader<B> {
    fn drop(&mut self) {
        let received = &*self.received;
        if received.pushing.get() == self.number {
            received.pushing.set(0);
            received.end.set(Some(Err(lost())));
            received.wake_all(|waiting| waiting.wake_later(&self.rt));
        }
    }
}
