//! `futures_io`'s traits of streams.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use uv_core::Stream;
use uv_core::poll_core::Backend;

use crate::IoStream;

impl<S: Stream, B: Backend> futures_io::AsyncRead for IoStream<S, B> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_read_copy(cx, buf.len(), |bytes| {
            let (part, rest) = std::mem::take(&mut buf).split_at_mut(bytes.len());
            part.copy_from_slice(bytes);
            buf = rest;
        })
    }
}

poll_buf_read!(futures_io::AsyncBufRead);
poll_write!(futures_io::AsyncWrite, poll_close);
