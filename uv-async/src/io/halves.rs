//! Halves of a stream, and copying between streams.

use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::ops::Range;
use std::pin::{Pin, pin};
use std::task::Poll;

use uv_core::fs::File;
use uv_core::poll_core::Backend;
use uv_core::{IoBuf, IoBufMut, Stream};

use super::buf::BufResult;
use super::lent::Lent;
use super::stream::IoStream;

/// The half of an [`IoStream`] that reads.
#[derive(Debug)]
pub struct ReadHalf<'a, S: Stream, B: Backend>(pub(crate) &'a IoStream<S, B>);

/// The half of an [`IoStream`] that writes.
#[derive(Debug)]
pub struct WriteHalf<'a, S: Stream, B: Backend>(pub(crate) &'a IoStream<S, B>);

impl<S: Stream, B: Backend> ReadHalf<'_, S, B> {
    /// As [`IoStream::read`].
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub async fn read<T: IoBufMut>(&mut self, buf: T) -> BufResult<usize, T> {
        self.0.read(buf).await
    }

    /// As [`IoStream::read_exact`].
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub async fn read_exact(&mut self, buf: Vec<u8>) -> BufResult<(), Vec<u8>> {
        self.0.read_exact(buf).await
    }

    /// As [`IoStream::lend`].
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub async fn lend(&mut self) -> io::Result<Lent<'_>> {
        self.0.lend().await
    }

    /// As [`IoStream::lend_more_than`].
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub async fn lend_more_than(&mut self, count: usize) -> io::Result<Lent<'_>> {
        self.0.lend_more_than(count).await
    }
}

impl<S: Stream, B: Backend> WriteHalf<'_, S, B> {
    /// As [`IoStream::write`].
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub async fn write<T: IoBuf>(&mut self, buf: T) -> BufResult<usize, T> {
        self.0.write(buf).await
    }

    /// As [`IoStream::write_slice`].
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub async fn write_slice(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_slice(bytes).await
    }

    /// As [`IoStream::send_file`].
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub async fn send_file(&mut self, file: &File, range: Range<u64>) -> io::Result<u64> {
        self.0.send_file(file, range).await
    }

    /// As [`IoStream::write_all`].
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub async fn write_all<T: IoBuf>(&mut self, buf: T) -> BufResult<(), T> {
        self.0.write_all(buf).await
    }

    /// As [`IoStream::shutdown`].
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub async fn shutdown(&mut self) -> io::Result<()> {
        self.0.shutdown().await
    }
}

/// Copies in both directions until both streams have ended; each end is passed on by a shutdown.
/// Returns the numbers of bytes from `one` to `other`, and back.
///
/// ```
/// use uv_async::{LoopExt, TcpStream, copy_bidirectional};
/// use uv_core::Loop;
///
/// let mut lp = Loop::with_default_backend()?;
/// lp.block_on(async |rt| {
///     let ((client, near), (far, server)) = (TcpStream::pair(&rt)?, TcpStream::pair(&rt)?);
///     let proxy = rt.spawn_local(async move { copy_bidirectional(&near, &far).await });
///     client.write_slice(b"question").await?;
///     client.shutdown().await?;
///     assert_eq!(server.read_exact(vec![0; 8]).await.1, b"question");
///     server.write_slice(b"reply").await?;
///     server.shutdown().await?;
///     assert_eq!(proxy.await.unwrap()?, (8, 5));
///     std::io::Result::Ok(())
/// })??;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The first error of a read or a write.
///
/// # Cancel safety
///
/// Bytes that were read and not written are lost if this is dropped.
pub async fn copy_bidirectional<S: Stream, T: Stream, B: Backend>(
    one: &IoStream<S, B>,
    other: &IoStream<T, B>,
) -> io::Result<(u64, u64)> {
    let (there, back) = (pin!(copy(one, other)), pin!(copy(other, one)));
    both(there, back).await
}

async fn copy<S: Stream, T: Stream, B: Backend>(
    from: &IoStream<S, B>,
    to: &IoStream<T, B>,
) -> io::Result<u64> {
    let mut total = 0;
    loop {
        let lent = from.lend().await?;
        if lent.is_empty() {
            to.shutdown().await?;
            return Ok(total);
        }
        let mut at = 0;
        while at < lent.len() {
            at += poll_fn(|cx| to.poll_write_copy(cx, &[IoSlice::new(&lent[at..])])).await?;
        }
        total += lent.len() as u64;
    }
}

/// Both results, or the first error.
async fn both<T>(
    mut one: Pin<&mut impl Future<Output = io::Result<T>>>,
    mut other: Pin<&mut impl Future<Output = io::Result<T>>>,
) -> io::Result<(T, T)> {
    let (mut first, mut second) = (None, None);
    poll_fn(|cx| {
        if first.is_none()
            && let Poll::Ready(result) = one.as_mut().poll(cx)
        {
            first = Some(result?);
        }
        if second.is_none()
            && let Poll::Ready(result) = other.as_mut().poll(cx)
        {
            second = Some(result?);
        }
        match (first.take(), second.take()) {
            (Some(one), Some(other)) => Poll::Ready(Ok((one, other))),
            (one, other) => {
                (first, second) = (one, other);
                Poll::Pending
            }
        }
    })
    .await
}
