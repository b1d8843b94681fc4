//! The traits of other crates, on every backend. Programs on them are in `uv-async/ecosystem`.

mod common;

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use common::{Runtime, every};
use hyper::rt::Timer;
use uv_async::{HyperTimer, LoopExt, TcpListener, TcpStream, UdpSocket};

fn each(case: impl AsyncFn(Runtime) -> io::Result<()>) {
    every(|lp| lp.block_on(async |rt| case(rt).await).unwrap().unwrap());
}

#[test]
fn hypers_timer_sleeps_and_ends_with_its_future() {
    each(async |rt| {
        let timer = HyperTimer::new(&rt);
        let begun = rt.now();
        timer.sleep(Duration::from_millis(2)).await;
        assert!(rt.now() >= begun + Duration::from_millis(2));
        let long = timer.sleep(Duration::from_secs(3600));
        rt.sleep(Duration::from_millis(1)).await;
        assert_eq!(rt.task_count(), 2);
        drop(long);
        rt.sleep(Duration::from_millis(1)).await;
        assert_eq!(rt.task_count(), 1, "its task is gone");
        Ok(())
    });
}

#[test]
fn futures_io_traits() {
    use futures_io::{AsyncBufRead, AsyncRead, AsyncWrite};
    each(async |rt| {
        let (mut one, mut other) = TcpStream::pair(&rt)?;
        // More than the kernel takes at once: the reader runs meanwhile.
        let reader = rt.spawn_local(async move {
            let (mut total, mut memory) = (0, [0; 1000]);
            loop {
                let line = poll_fn(|cx| {
                    Pin::new(&mut other).poll_fill_buf(cx).map_ok(|bytes| bytes.len().min(7))
                })
                .await?;
                Pin::new(&mut other).consume(line);
                let read = poll_fn(|cx| Pin::new(&mut other).poll_read(cx, &mut memory)).await?;
                total += line + read;
                if read == 0 {
                    return io::Result::Ok(total);
                }
            }
        });
        let (bytes, mut at) = (vec![1; 2_000_000], 0);
        while at < bytes.len() {
            at += poll_fn(|cx| Pin::new(&mut one).poll_write(cx, &bytes[at..])).await?;
        }
        poll_fn(|cx| Pin::new(&mut one).poll_flush(cx)).await?;
        poll_fn(|cx| Pin::new(&mut one).poll_close(cx)).await?;
        assert_eq!(reader.await.unwrap()?, 2_000_000);
        Ok(())
    });
}

#[test]
fn tokio_io_traits() {
    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
    each(async |rt| {
        let (mut one, mut other) = TcpStream::pair(&rt)?;
        let mut at = 0;
        while at < 5 {
            at += poll_fn(|cx| Pin::new(&mut one).poll_write(cx, &b"hello"[at..])).await?;
        }
        poll_fn(|cx| Pin::new(&mut one).poll_shutdown(cx)).await?;
        let mut memory = [0; 16];
        let mut buffer = ReadBuf::new(&mut memory);
        loop {
            let before = buffer.filled().len();
            poll_fn(|cx| Pin::new(&mut other).poll_read(cx, &mut buffer)).await?;
            if buffer.filled().len() == before {
                break;
            }
        }
        assert_eq!(buffer.filled(), b"hello");
        Ok(())
    });
}

#[test]
fn streams_of_connections_and_ticks() {
    use futures_core::Stream;
    each(async |rt| {
        let listener = TcpListener::bind(&rt, "127.0.0.1:0".parse().unwrap())?;
        let _client = TcpStream::connect(&rt, listener.local_addr()?).await?;
        let mut incoming = listener.incoming();
        let next = poll_fn(|cx| Pin::new(&mut incoming).poll_next(cx)).await;
        assert!(next.is_some_and(|stream| stream.is_ok()));
        let mut ticks = rt.interval(Duration::from_millis(1));
        for _ in 0..3 {
            assert!(poll_fn(|cx| Pin::new(&mut ticks).poll_next(cx)).await.is_some());
        }
        Ok(())
    });
}

#[test]
fn dropped_receives_lose_no_datagram() {
    each(async |rt| {
        let one = UdpSocket::bind(&rt, "127.0.0.1:0".parse().unwrap())?;
        let other = UdpSocket::bind(&rt, "127.0.0.1:0".parse().unwrap())?;
        one.connect(other.local_addr()?)?;
        for number in 0..200_u8 {
            // A receive that is dropped before the datagram, and one that is dropped after it.
            let early = other.recv_from(vec![0; 16]);
            assert!(rt.timeout(Duration::ZERO, early).await.is_err());
            one.send(vec![number; 3]).await.0?;
            if number % 2 == 0 {
                let mut late = std::pin::pin!(other.recv_from(vec![0; 16]));
                let pending = poll_fn(|cx| {
                    std::task::Poll::Ready(
                        std::future::Future::poll(late.as_mut(), cx).is_pending(),
                    )
                });
                assert!(pending.await || number == 0);
                rt.sleep(Duration::from_micros(200)).await;
            }
            let (received, memory) = other.recv_from(vec![0; 16]).await;
            let received = received?;
            assert_eq!(&memory[received.range()], [number; 3]);
            assert_eq!(received.from, one.local_addr()?);
        }
        Ok(())
    });
}

/// A head and a body in one call: small ones are joined, large ones go as they are.
#[test]
fn vectored_writes_of_the_traits_keep_the_order() {
    use futures_io::{AsyncRead, AsyncWrite};
    use std::io::IoSlice;
    each(async |rt| {
        for size in [3, 2_000, 3_000_000] {
            let (mut one, mut other) = TcpStream::pair(&rt)?;
            let reader = rt.spawn_local(async move {
                let (mut all, mut memory) = (Vec::new(), [0; 4096]);
                loop {
                    let read = poll_fn(|cx| Pin::new(&mut other).poll_read(cx, &mut memory));
                    match read.await? {
                        0 => return io::Result::Ok(all),
                        count => all.extend_from_slice(&memory[..count]),
                    }
                }
            });
            let body: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
            let pieces = [&b"head"[..], b"", &body, b"tail"];
            let whole = pieces.concat();
            let (mut slices, mut written) = (pieces.map(IoSlice::new), 0);
            let mut slices = &mut slices[..];
            while written < whole.len() {
                let count =
                    poll_fn(|cx| Pin::new(&mut one).poll_write_vectored(cx, slices)).await?;
                IoSlice::advance_slices(&mut slices, count);
                written += count;
            }
            poll_fn(|cx| Pin::new(&mut one).poll_close(cx)).await?;
            assert!(reader.await.unwrap()? == whole, "{size}");
        }
        Ok(())
    });
}

#[test]
fn bytes_are_buffers() {
    use bytes::{Bytes, BytesMut};
    each(async |rt| {
        let (one, other) = TcpStream::pair(&rt)?;
        let page = Bytes::from(vec![7; 200_000]);
        // The reference count is all that is copied.
        let list = vec![page.slice(..10), Bytes::from_static(b"between"), page.clone()];
        let writer = rt.spawn_local(async move { one.write_all(list).await.0 });
        let (mut memory, mut all) = (BytesMut::zeroed(30_000), BytesMut::new());
        while all.len() < 10 + 7 + page.len() {
            let (count, mut filled) = other.read(memory.split_off(0)).await;
            let rest = filled.split_off(count?);
            all.unsplit(filled);
            memory = if rest.is_empty() { BytesMut::zeroed(30_000) } else { rest };
        }
        writer.await.unwrap()?;
        let (head, rest) = all.split_at(10);
        assert!(head == &page[..10] && &rest[..7] == b"between" && rest[7..] == page);
        Ok(())
    });
}
