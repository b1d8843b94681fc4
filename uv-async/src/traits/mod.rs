//! Implementations of the traits of other crates, each behind a feature.
//!
//! The poll-based traits differ in names only: [`IoStream`](crate::IoStream) has one method for
//! each purpose, and the macros here give them these names.

#[cfg(any(feature = "futures-io", feature = "tokio-io", feature = "hyper"))]
impl<S: uv_core::Stream, B: uv_core::poll_core::Backend> crate::IoStream<S, B> {
    /// Reads at most `room` bytes, which `put` copies: pieces of the input, in order. Their number is
    /// 0 at the end of the stream.
    fn poll_read_copy(
        &self,
        cx: &mut std::task::Context<'_>,
        room: usize,
        put: impl FnMut(&[u8]),
    ) -> std::task::Poll<std::io::Result<usize>> {
        if room > 0 {
            std::task::ready!(self.poll_fill(cx))?;
        }
        std::task::Poll::Ready(Ok(self.received().input.borrow_mut().take_with(room, put)))
    }
}

/// Implements a crate's `Write` trait; `$shutdown` is its name of the method that ends the output.
#[cfg(any(feature = "futures-io", feature = "tokio-io", feature = "hyper"))]
macro_rules! poll_write {
    ($write:path, $shutdown:ident $(, $is_vectored:ident)?) => {
        impl<S: uv_core::Stream, B: uv_core::poll_core::Backend> $write for crate::IoStream<S, B> {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                self.poll_write_copy(cx, &[io::IoSlice::new(bytes)])
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                slices: &[io::IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                self.poll_write_copy(cx, slices)
            }

            $(
                fn $is_vectored(&self) -> bool {
                    true
                }
            )?

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.poll_drain(cx)
            }

            fn $shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.poll_end(cx)
            }
        }
    };
}

/// Implements a crate's `AsyncBufRead`.
#[cfg(any(feature = "futures-io", feature = "tokio-io"))]
macro_rules! poll_buf_read {
    ($buf_read:path) => {
        impl<S: uv_core::Stream + Unpin, B: uv_core::poll_core::Backend> $buf_read
            for crate::IoStream<S, B>
        {
            fn poll_fill_buf(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
            ) -> Poll<io::Result<&[u8]>> {
                std::task::ready!(self.poll_fill(cx))?;
                Poll::Ready(Ok(self.get_mut().take_front()))
            }

            fn consume(self: Pin<&mut Self>, count: usize) {
                self.put_front_back(count);
            }
        }
    };
}

#[cfg(feature = "futures-io")]
mod futures_io;
#[cfg(feature = "hyper")]
mod hyper;
#[cfg(feature = "stream")]
mod stream;
#[cfg(feature = "tokio-io")]
mod tokio_io;

#[cfg(feature = "hyper")]
pub use hyper::HyperTimer;
