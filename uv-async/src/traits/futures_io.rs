//! `futures_io`'s traits of streams.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_io::{AsyncBufRead, AsyncRead, AsyncWrite};
use uv_core::Stream;
use uv_core::poll_core::Backend;

use crate::IoStream;

impl<S: Stream, B: Backend> AsyncRead for IoStream<S, B> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_fill(cx))?;
        Poll::Ready(Ok(self.input.borrow_mut().copy_to(buf)))
    }
}

impl<S: Stream + Unpin, B: Backend> AsyncBufRead for IoStream<S, B> {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        ready!(this.poll_fill(cx))?;
        Poll::Ready(Ok(this.input.get_mut().bytes()))
    }

    fn consume(self: Pin<&mut Self>, count: usize) {
        self.input.borrow_mut().consume(count);
    }
}

impl<S: Stream, B: Backend> AsyncWrite for IoStream<S, B> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        IoStream::poll_write(&self, cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_drain(cx)
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_shutdown(cx)
    }
}
