//! The futures of writes.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use uv_core::poll_core::Backend;
use uv_core::{IoBuf, Stream, WriteRequest};

use super::buf::{BufResult, Carried, Done, len_of};
use super::stream::{IoStream, finish};
use crate::Rt;
use crate::op::{Op, OrLost};

/// See [`IoStream::write`].
pub(super) struct Write<'a, S: Stream, B: Backend, T: IoBuf> {
    stream: &'a IoStream<S, B>,
    /// `None` once a request has it.
    buf: Option<T>,
    /// The number of bytes of a buffer that a request has.
    total: usize,
    request: Option<Writing<'a, B, Done<T>>>,
}

/// The buffer is used through references only, and so is not pinned.
impl<S: Stream, B: Backend, T: IoBuf> Unpin for Write<'_, S, B, T> {}

impl<'a, S: Stream, B: Backend, T: IoBuf> Write<'a, S, B, T> {
    pub(super) fn new(stream: &'a IoStream<S, B>, buf: T) -> Self {
        Write { stream, buf: Some(buf), total: 0, request: None }
    }

    /// Most writes are done by the first attempt.
    #[inline]
    fn poll(&mut self, cx: &mut Context<'_>, all: bool) -> Poll<BufResult<usize, T>> {
        let Some(buf) = &self.buf else { return self.poll_request(cx) };
        let total = len_of(buf);
        match self.stream.try_write(buf, total) {
            Ok(written) if written == total || !all && written > 0 => self.ready(Ok(written)),
            tried => self.poll_rest(cx, tried, total),
        }
    }

    #[inline]
    fn ready(&mut self, result: io::Result<usize>) -> Poll<BufResult<usize, T>> {
        let Some(buf) = self.buf.take() else { panic!("polled after it was ready") };
        Poll::Ready((result, buf))
    }

    /// Gives the rest to a request.
    #[inline(never)]
    fn poll_rest(
        &mut self,
        cx: &mut Context<'_>,
        tried: io::Result<usize>,
        total: usize,
    ) -> Poll<BufResult<usize, T>> {
        let written = match tried {
            Ok(written) => written,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return self.ready(Err(error)),
        };
        let (stream, Some(buf)) = (self.stream, self.buf.take()) else { return Poll::Pending };
        let (completer, op) = stream.rt.op();
        let (key, carried) = (stream.key(), Carried::new(buf, written, completer));
        let request = stream.rt.with(|lp| {
            key.write(lp, carried, |lp, key, result, carried| {
                finish(lp, key, result.map(|()| 0), carried);
            })
        });
        let mut writing = Writing { rt: &stream.rt, op, request: None };
        match request {
            Ok(request) => writing.request = Some(request),
            Err(error) => return Poll::Ready(writing.op.refused(error)),
        }
        (self.request, self.total) = (Some(writing), total);
        self.poll_request(cx)
    }

    fn poll_request(&mut self, cx: &mut Context<'_>) -> Poll<BufResult<usize, T>> {
        let Some(writing) = &mut self.request else { panic!("polled after it was ready") };
        let (result, buf) = ready!(Pin::new(&mut writing.op).poll(cx)).into_result();
        self.request = None;
        Poll::Ready((result.map(|_| self.total), buf))
    }
}

impl<S: Stream, B: Backend, T: IoBuf> Future for Write<'_, S, B, T> {
    type Output = BufResult<usize, T>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Write::poll(self.get_mut(), cx, false)
    }
}

/// See [`IoStream::write_all`].
pub(super) struct WriteAll<'a, S: Stream, B: Backend, T: IoBuf>(pub(super) Write<'a, S, B, T>);

impl<S: Stream, B: Backend, T: IoBuf> Future for WriteAll<'_, S, B, T> {
    type Output = BufResult<(), T>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (result, buf) = ready!(Write::poll(&mut self.0, cx, true));
        Poll::Ready((result.map(drop), buf))
    }
}

/// See [`IoStream::write_slice`].
pub(super) struct WriteSlice<'a, 'b, S: Stream, B: Backend> {
    pub(super) stream: &'a IoStream<S, B>,
    pub(super) bytes: &'b [u8],
}

impl<S: Stream, B: Backend> Future for WriteSlice<'_, '_, S, B> {
    type Output = io::Result<()>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        while !self.bytes.is_empty() {
            let count = ready!(self.stream.poll_write_piece(cx, self.bytes))?;
            self.bytes = &self.bytes[count..];
        }
        Poll::Ready(Ok(()))
    }
}

/// A write in flight.
pub(super) struct Writing<'a, B: Backend, T: OrLost> {
    pub(super) rt: &'a Rt<B>,
    pub(super) op: Op<B, T>,
    pub(super) request: Option<WriteRequest>,
}

impl<B: Backend, T: OrLost> Drop for Writing<'_, B, T> {
    fn drop(&mut self) {
        if let Some(request) = self.request.filter(|_| self.op.is_pending()) {
            self.rt.with_or_defer(move |lp| drop(request.cancel(lp)));
        }
    }
}
