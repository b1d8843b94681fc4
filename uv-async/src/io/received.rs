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

/// The id of no task.
const NO_TASK: u32 = u32::MAX;

/// What the stream and the loop's reader share.
pub(crate) struct Received {
    pub(crate) input: RefCell<Input>,
    /// The task that found no bytes, or [`NO_TASK`], and others. All are woken by the next bytes.
    reader: Cell<u32>,
    others: RefCell<Vec<Waiting>>,
    /// The loop pushes.
    pushing: Cell<bool>,
    /// The number of [`Reader`]s: one that was stopped while it ran may end after the next has started.
    readers: Cell<u32>,
    /// The handle does not keep the loop alive, because the loop pushes.
    unreferenced: Cell<bool>,
    /// Requests with buffers of the program that are in flight: the loop cannot push meanwhile.
    pub(super) requests: Cell<u32>,
    /// How the stream has ended, until a reader has got it.
    end: Cell<Option<io::Result<()>>>,
}

impl Default for Received {
    fn default() -> Received {
        Received {
            input: RefCell::default(),
            reader: Cell::new(NO_TASK),
            others: RefCell::default(),
            pushing: Cell::new(false),
            readers: Cell::new(0),
            unreferenced: Cell::new(false),
            requests: Cell::new(0),
            end: Cell::new(None),
        }
    }
}

/// What a stream had received and no reader had got when it [gave its key
/// up](crate::IoStream::into_key).
///
/// ```
/// use uv_async::{LoopExt, TcpStream, Unread};
/// use uv_core::{Handle, Loop};
///
/// let mut lp = Loop::with_default_backend()?;
/// lp.block_on(async |rt| {
///     let (one, other) = TcpStream::pair(&rt)?;
///     one.write_slice(b"headbody").await?;
///     other.lend().await?.keep_from(4);
///     let (key, unread): (_, Unread) = other.into_key();
///     assert_eq!(unread.bytes, b"body");
///     assert!(unread.end.is_none(), "more may come");
///     rt.with(|lp| key.close(lp))
/// })??;
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Unread {
    /// The bytes, which come before all that the handle reads.
    pub bytes: Vec<u8>,
    /// How the stream has ended behind these bytes, if the loop has got there: `Ok` at the end of the
    /// stream. The kernel reports an error once, so reads of the handle do not report it again.
    pub end: Option<io::Result<()>>,
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
            unshared.reader.set(NO_TASK);
            unshared.others.get_mut().clear();
            unshared.requests.set(0);
            unshared.unreferenced.set(false);
            drop(unshared.end.take());
            pool.push(received);
        }
    }
}

impl Received {
    /// Waits until there are more bytes in `input`, or the stream has ended.
    pub(super) fn poll_more<S: Stream, B: Backend>(
        self: &Rc<Self>,
        rt: &Rt<B>,
        key: S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(end) = self.take_end() {
            return Poll::Ready(end);
        }
        if !self.pushing.get() && self.requests.get() == 0 {
            self.start(rt, key)?;
        }
        self.input.borrow_mut().release_memory(rt.memory());
        self.wait(rt, cx);
        Poll::Pending
    }

    /// How the stream has ended behind the bytes, if it has: for one reader.
    #[inline]
    pub(super) fn take_end(&self) -> Option<io::Result<()>> {
        self.end.take()
    }

    /// Takes the outcome of a request whose reader is gone, for the next one.
    pub(super) fn give_back(&self, result: io::Result<usize>, memory: &[u8]) {
        match result {
            Ok(count) => self.input.borrow_mut().push(&memory[..count]),
            // The kernel reports it once.
            Err(error) => self.end.set(Some(Err(error))),
        }
    }

    /// Has the reader woken by the next bytes.
    #[inline]
    pub(super) fn wait<B: Backend>(&self, rt: &Rt<B>, cx: &Context<'_>) {
        let reader = self.reader.get();
        match rt.current_task(cx.waker()) {
            Some(id) if reader == NO_TASK || reader == id => self.reader.set(id),
            _ => self.wait_beside(rt, cx),
        }
    }

    #[cold]
    fn wait_beside<B: Backend>(&self, rt: &Rt<B>, cx: &Context<'_>) {
        let (mut others, new) = (self.others.borrow_mut(), Waiting::for_context(rt, cx));
        if !others.iter().any(|old| old.is_same(&new)) {
            others.push(new);
        }
    }

    /// True while the loop pushes bytes. Then the stream has not ended, and no request is in flight.
    #[inline]
    pub(super) fn is_pushing(&self) -> bool {
        self.pushing.get()
    }

    /// True if a reader waits for bytes to be pushed.
    pub(super) fn has_waiting(&self) -> bool {
        self.reader.get() != NO_TASK || !self.others.borrow().is_empty()
    }

    fn start<S: Stream, B: Backend>(self: &Rc<Self>, rt: &Rt<B>, key: S) -> io::Result<()> {
        let reader = Reader::new(rt, self);
        rt.with(|lp| {
            key.read_start(lp, move |lp, key, bytes| reader.push(lp, key, bytes))?;
            // A task that waits for the bytes keeps the loop alive. Reading without one does not.
            if key.is_referenced(lp) {
                key.unreference(lp)?;
                self.unreferenced.set(true);
            }
            io::Result::Ok(())
        })?;
        self.pushing.set(true);
        Ok(())
    }

    /// Stops pushing. Bytes that the loop has are for the next reader of the handle.
    pub(super) fn stop<S: Stream, B: Backend>(&self, lp: &mut Loop<B>, key: S) {
        if self.pushing.replace(false) {
            // Fails only if the program has closed the handle.
            let _ = key.read_stop(lp);
        }
        self.reference(lp, key);
    }

    /// Stops pushing, and puts back what was pushed, for the next reader of the handle.
    pub(super) fn stop_and_unread<S: Stream, B: Backend>(&self, lp: &mut Loop<B>, key: S) {
        self.stop(lp, key);
        let bytes = self.input.borrow_mut().take_all();
        let failed = self.take_end().and_then(Result::err);
        // One of the kernel: the program may have stopped the reader.
        let failed = failed.filter(|error| error.raw_os_error().is_some());
        if !bytes.is_empty() || failed.is_some() {
            // Fails if the program has closed the handle, or has replaced the reader.
            let _ = key.unread(lp, bytes, failed);
        }
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
        if self.requests.get() == 0 && self.has_waiting() {
            self.wake_all(|waiting| rt.with_or_wake_later(waiting));
        }
    }

    fn wake_all(&self, mut wake: impl FnMut(Waiting)) {
        match self.reader.replace(NO_TASK) {
            NO_TASK => {}
            id => wake(Waiting::Task(id)),
        }
        self.wake_others(wake);
    }

    fn wake_others(&self, mut wake: impl FnMut(Waiting)) {
        loop {
            // Not borrowed while it is woken: a waker may run any code.
            let next = self.others.borrow_mut().pop();
            let Some(waiting) = next else { return };
            wake(waiting);
        }
    }
}

/// The loop's reader. When it is dropped although a task waits for bytes, the task gets an error.
///
/// Two words: with the key of the stream it is a callback that needs no allocation, so that reading
/// can stop and go on for each piece.
struct Reader<B: Backend> {
    rt: Rt<B>,
    received: Rc<Received>,
}

impl<B: Backend> Reader<B> {
    fn new(rt: &Rt<B>, received: &Rc<Received>) -> Reader<B> {
        received.readers.set(received.readers.get() + 1);
        Reader { rt: rt.clone(), received: Rc::clone(received) }
    }

    #[inline]
    fn push<S: Stream>(&self, lp: &mut Loop<B>, key: S, bytes: io::Result<&[u8]>) {
        let received = &*self.received;
        match bytes {
            Ok(bytes) if !bytes.is_empty() => {
                let behind = received.input.borrow_mut().append(bytes, self.rt.memory());
                if behind {
                    received.stop(lp, key);
                }
            }
            // Both end the reading.
            end => {
                received.pushing.set(false);
                received.end.set(Some(end.map(drop)));
                received.reference(lp, key);
            }
        }
        // Most streams have one reader, a task of this runtime.
        match received.reader.replace(NO_TASK) {
            NO_TASK => {}
            id => self.rt.wake_task(lp, id),
        }
        if !received.others.borrow().is_empty() {
            received.wake_others(|waiting| waiting.wake(&self.rt, lp));
        }
    }
}

impl<B: Backend> Drop for Reader<B> {
    fn drop(&mut self) {
        let received = &*self.received;
        received.readers.set(received.readers.get() - 1);
        if received.readers.get() == 0 && received.pushing.replace(false) {
            received.end.set(Some(Err(lost())));
            received.wake_all(|waiting| waiting.wake_later(&self.rt));
        }
    }
}
