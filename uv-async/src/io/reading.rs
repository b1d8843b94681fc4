//! The futures of reads.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use uv_core::poll_core::Backend;
use uv_core::{IoBufMut, ReadRequest, Stream};

use super::buf::{BufResult, Carried, Done};
use super::lent::Lent;
use super::received::{LARGE, Received};
use super::stream::{IoStream, finish};
use crate::op::Op;

/// See [`IoStream::read`].
pub(super) struct Read<'a, S: Stream, B: Backend, T: IoBufMut> {
    stream: &'a IoStream<S, B>,
    /// `None` once a request has it.
    buf: Option<T>,
    request: Option<Reading<'a, S, B, T>>,
}

/// The buffer is used through references only, and so is not pinned.
impl<S: Stream, B: Backend, T: IoBufMut> Unpin for Read<'_, S, B, T> {}

impl<S: Stream, B: Backend, T: IoBufMut> Future for Read<'_, S, B, T> {
    type Output = BufResult<usize, T>;

    /// Most reads take what the loop has pushed, or wait for it.
    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let stream = self.stream;
        let received = stream.received();
        let Some(buf) = &mut self.buf else { return self.poll_request(cx) };
        let memory = buf.memory();
        let mut input = received.input.borrow_mut();
        if input.is_usual() && !memory.is_empty() {
            if input.has_chunk() {
                let count = input.copy_chunk(memory);
                drop(input);
                return self.ready(Ok(count));
            }
            if input.is_empty() && received.is_pushing() {
                input.release_memory(stream.rt.memory());
                received.wait(&stream.rt, cx);
                return Poll::Pending;
            }
        }
        drop(input);
        self.poll_unusual(cx)
    }
}

impl<'a, S: Stream, B: Backend, T: IoBufMut> Read<'a, S, B, T> {
    pub(super) fn new(stream: &'a IoStream<S, B>, buf: T) -> Self {
        Read { stream, buf: Some(buf), request: None }
    }

    #[inline]
    fn ready(&mut self, result: io::Result<usize>) -> Poll<BufResult<usize, T>> {
        let Some(buf) = self.buf.take() else { panic!("polled after it was ready") };
        Poll::Ready((result, buf))
    }

    #[inline(never)]
    fn poll_unusual(&mut self, cx: &mut Context<'_>) -> Poll<BufResult<usize, T>> {
        let stream = self.stream;
        let Some(buf) = &mut self.buf else { return self.poll_request(cx) };
        if buf.memory().is_empty() {
            return self.ready(Err(empty_buffer()));
        }
        stream.put_front_back(0);
        let copied = stream.received().input.borrow_mut().copy_to(buf.memory());
        if copied > 0 {
            return self.ready(Ok(copied));
        }
        if let Some(end) = stream.received().take_end() {
            return self.ready(end.map(|()| 0));
        }
        if let Some(result) = stream.try_more(buf.memory()) {
            return self.ready(result);
        }
        if stream.prefers_pushed() {
            let filled = ready!(stream.poll_fill(cx));
            let copy = |()| stream.received().input.borrow_mut().copy_to(buf.memory());
            let result = filled.map(copy);
            return self.ready(result);
        }
        self.start_request(cx)
    }

    /// Gives the buffer to a request, which reads into it.
    fn start_request(&mut self, cx: &mut Context<'_>) -> Poll<BufResult<usize, T>> {
        let (stream, Some(buf)) = (self.stream, self.buf.take()) else { return Poll::Pending };
        let (completer, op) = stream.rt.op();
        let (key, carried) = (stream.key(), Carried::new(buf, 0, completer));
        let request = stream.rt.with(|lp| {
            stream.received().stop(lp, key);
            key.read(lp, carried, finish)
        });
        let mut reading = Reading { stream, op, request: None };
        match request {
            Ok(request) => reading.request = Some(request),
            Err(error) => return Poll::Ready(reading.op.refused(error)),
        }
        stream.received().requests.set(stream.received().requests.get() + 1);
        self.request = Some(reading);
        self.poll_request(cx)
    }

    fn poll_request(&mut self, cx: &mut Context<'_>) -> Poll<BufResult<usize, T>> {
        let Some(reading) = &mut self.request else { panic!("polled after it was ready") };
        let (result, mut buf) = ready!(Pin::new(&mut reading.op).poll(cx)).into_result();
        let (count, size) = (*result.as_ref().unwrap_or(&0), buf.memory().len());
        let mut input = self.stream.received().input.borrow_mut();
        (input.full, input.large, input.streak) = (count == size, count >= LARGE, 0);
        drop(input);
        self.request = None;
        Poll::Ready((result, buf))
    }
}

/// See [`IoStream::lend`].
pub(super) struct Lend<'a, S: Stream, B: Backend>(pub(super) &'a IoStream<S, B>);

impl<'a, S: Stream, B: Backend> Future for Lend<'a, S, B> {
    type Output = io::Result<Lent<'a>>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        ready!(self.0.poll_fill(cx))?;
        let input = &self.0.received().input;
        let chunk = input.borrow_mut().take_chunk();
        Poll::Ready(Ok(Lent::new(input, chunk)))
    }
}

/// See [`IoStream::lend_more_than`].
pub(super) struct LendMore<'a, S: Stream, B: Backend> {
    pub(super) stream: &'a IoStream<S, B>,
    pub(super) count: usize,
}

impl<'a, S: Stream, B: Backend> Future for LendMore<'a, S, B> {
    type Output = io::Result<Lent<'a>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        ready!(self.stream.poll_more_than(self.count, cx))?;
        let input = &self.stream.received().input;
        let chunk = input.borrow_mut().take_chunk();
        Poll::Ready(Ok(Lent::new(input, chunk)))
    }
}

/// A read in flight.
struct Reading<'a, S: Stream, B: Backend, T: IoBufMut> {
    stream: &'a IoStream<S, B>,
    op: Op<B, Done<T>>,
    request: Option<ReadRequest>,
}

impl<S: Stream, B: Backend, T: IoBufMut> Drop for Reading<'_, S, B, T> {
    fn drop(&mut self) {
        let Some(request) = self.request else { return };
        let (rt, received) = (&self.stream.rt, self.stream.received());
        if self.op.is_pending() && !give_back(&mut self.op, received) {
            let cancelled = rt.try_with(|lp| drop(request.cancel(lp)));
            if cancelled.is_none() {
                // The request may be complete before the loop is lent: the cell stays until then.
                let (mut op, rt, received) = (self.op.detach(), rt.clone(), Rc::clone(received));
                let inside = rt.clone();
                return rt.with_or_defer(move |lp| {
                    if !give_back(&mut op, &received) {
                        drop(request.cancel(lp));
                    }
                    received.request_ended(&inside);
                });
            }
        }
        received.request_ended(rt);
    }
}

/// Leaves the outcome of a request to the next reader, if it is complete.
fn give_back<B: Backend, T: IoBufMut>(op: &mut Op<B, Done<T>>, received: &Received) -> bool {
    let Some(done) = op.take() else { return false };
    let (result, mut buf) = done.into_result();
    received.give_back(result, buf.memory());
    true
}

fn empty_buffer() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "a read needs a buffer that is not empty")
}
