//! tokio's traits of streams. Its runtime is not needed.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};
use uv_core::Stream;
use uv_core::poll_core::Backend;

use crate::IoStream;

impl<S: Stream, B: Backend> AsyncRead for IoStream<S, B> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_fill(cx))?;
        let mut input = self.input.borrow_mut();
        let bytes = input.bytes();
        let count = bytes.len().min(buf.remaining());
        buf.put_slice(&bytes[..count]);
        input.consume(count);
        Poll::Ready(Ok(()))
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

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        IoStream::poll_shutdown(&self, cx)
    }
}
