//! tokio's traits of streams. Its runtime is not needed.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::ReadBuf;
use uv_core::Stream;
use uv_core::poll_core::Backend;

use crate::IoStream;

impl<S: Stream, B: Backend> tokio::io::AsyncRead for IoStream<S, B> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = self.poll_read_copy(cx, buf.remaining(), |bytes| buf.put_slice(bytes));
        read.map_ok(drop)
    }
}

poll_buf_read!(tokio::io::AsyncBufRead);
poll_write!(tokio::io::AsyncWrite, poll_shutdown, is_write_vectored);
