//! Files that are sent in order with the writes of a stream.

use std::future::{Future, poll_fn};
use std::io;
use std::ops::Range;
use std::pin::Pin;

use uv_core::Stream;
use uv_core::fs::File;
use uv_core::poll_core::Backend;

use super::stream::IoStream;
use super::writing::Writing;

impl<S: Stream, B: Backend> IoStream<S, B> {
    /// Sends a range of an open file, after the writes before it and before those behind it.
    /// Returns the number of bytes: fewer than the range has if the file ends before.
    ///
    /// Nothing is copied where the kernel can send files; the disk is read by the backend or by the
    /// pool, never by the loop's thread: see [`Stream::send_file`].
    ///
    /// ```
    /// use uv_async::{LoopExt, TcpStream};
    /// use uv_core::{Loop, fs};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.block_on(async |rt| {
    ///     let (one, other) = TcpStream::pair(&rt)?;
    ///     let file = rt.fs(fs::open("Cargo.toml", fs::OpenOptions::new().read(true))).await?;
    ///     one.write_all("the first line: ").await.0?;
    ///     assert_eq!(one.send_file(&file, 0..9).await?, 9);
    ///     one.shutdown().await?;
    ///     let (result, text) = other.read_exact(vec![0; 25]).await;
    ///     result?;
    ///     assert_eq!(text, b"the first line: [package]");
    ///     std::io::Result::Ok(())
    /// })??;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`write`](IoStream::write), `InvalidInput` for a range that ends before it starts, and the
    /// errors of reading the file.
    ///
    /// # Cancel safety
    ///
    /// If this is dropped, the peer gets a beginning of the range, whose length is not known, and
    /// then what is written next. Drop the stream too, or send in a task of its own.
    pub async fn send_file(&self, file: &File, range: Range<u64>) -> io::Result<u64> {
        let ((completer, op), key) = (self.rt().op(), self.key());
        let request = self.rt().with(|lp| {
            key.send_file(lp, file, range, move |lp, _, result, sent| {
                drop(completer.complete(lp, result.map(|()| sent)));
            })
        })?;
        let mut writing = Writing { rt: self.rt(), op, request: Some(request) };
        poll_fn(|cx| Pin::new(&mut writing.op).poll(cx)).await
    }
}
