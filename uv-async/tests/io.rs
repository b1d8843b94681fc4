//! Streams, listeners, requests and sources of events, on every backend.

mod common;

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use common::{Runtime, every};
use uv_async::{
    LoopExt, PipeStream, Rt, TcpListener, TcpStream, channel, copy_bidirectional, yield_now,
};
use uv_core::dns::{Hints, NameFlags};
use uv_core::{Handle, RunMode, Stream, WorkError, fs};

fn any() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// Runs an async case on each backend, and checks that it leaves no handle open.
fn each(case: impl AsyncFn(Runtime) -> io::Result<()>) {
    every(|lp| {
        lp.block_on(async |rt| case(rt).await).unwrap().unwrap();
        for _ in 0..100 {
            if lp.walk().is_empty() {
                return;
            }
            lp.run(uv_core::RunMode::NoWait).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("handles are left: {:?}", lp.walk());
    });
}

async fn echo<S: Stream>(stream: uv_async::IoStream<S, common::Backend>) -> io::Result<()> {
    let mut buffer = vec![0; 4096];
    loop {
        let (count, mut filled) = stream.read(buffer).await;
        let count = count?;
        if count == 0 {
            return stream.shutdown().await;
        }
        filled.truncate(count);
        let (result, written) = stream.write_all(filled).await;
        result?;
        buffer = written;
        buffer.resize(4096, 0);
    }
}

/// After a read the loop goes on reading. That does not keep it alive if nothing waits for bytes.
#[test]
fn a_stream_that_nothing_waits_for_does_not_keep_the_loop_alive() {
    every(|lp| {
        let rt = Rt::attach(lp);
        let body = async {
            let (one, other) = TcpStream::pair(&rt)?;
            one.write_slice(b"first").await?;
            assert_eq!(&*other.lend().await?, b"first");
            io::Result::Ok((one, other))
        };
        let (one, other) = rt.block_on(lp, body).unwrap().unwrap();
        assert!(other.key().is_active(lp), "the loop goes on reading");
        lp.run(RunMode::NoWait).unwrap();
        assert!(!lp.is_alive(), "{}", lp.debug_alive());
        let body = async {
            one.write_slice(b"second").await?;
            assert_eq!(&*other.lend().await?, b"second");
            io::Result::Ok(())
        };
        rt.block_on(lp, body).unwrap().unwrap();
        let (key, unread) = rt.enter(lp, || other.into_key());
        assert!(unread.bytes.is_empty() && key.is_referenced(lp), "callbacks get it as it was");
        key.close(lp).unwrap();
        rt.enter(lp, || drop(one));
    });
}

#[test]
fn clients_are_echoed() {
    each(async |rt| {
        let listener = TcpListener::bind(&rt, any())?;
        let address = listener.local_addr()?;
        let inside = rt.clone();
        let server = rt.spawn_local(async move {
            let mut incoming = listener.incoming();
            for _ in 0..8 {
                let client = incoming.next().await?;
                client.set_nodelay(true)?;
                drop(inside.spawn_local(echo(client)));
            }
            io::Result::Ok(())
        });
        let clients: Vec<_> = (0..8_u8)
            .map(|id| {
                let rt = rt.clone();
                rt.clone().spawn_local(async move {
                    let stream = TcpStream::connect(&rt, address).await?;
                    for round in 0..50 {
                        let sent = vec![id ^ round; 1 + usize::from(id) * 100];
                        let (result, sent) = stream.write_all(sent).await;
                        result?;
                        let (result, received) = stream.read_exact(vec![0; sent.len()]).await;
                        result?;
                        assert_eq!(received, sent);
                    }
                    stream.shutdown().await?;
                    assert_eq!(stream.read(vec![0; 1]).await.0?, 0);
                    io::Result::Ok(())
                })
            })
            .collect();
        for client in clients {
            client.await.unwrap()?;
        }
        server.await.unwrap()
    });
}

#[test]
fn large_transfers_are_complete_and_in_order() {
    const SIZE: usize = 3 << 20;
    let pattern = |at: usize| (at % 251) as u8;
    each(async |rt| {
        let (one, other) = PipeStream::pair(&rt)?;
        let sender = rt.spawn_local(async move {
            let bytes: Vec<u8> = (0..SIZE).map(pattern).collect();
            let (head, tail) = bytes.split_at(SIZE / 2);
            one.write_all(vec![head.to_vec(), Vec::new(), tail.to_vec()]).await.0?;
            let mut left = vec![1_u8; 100_000];
            while !left.is_empty() {
                let (count, mut back) = one.write(left).await;
                left = back.split_off(count?);
            }
            io::Result::Ok(())
        });
        let mut at = 0;
        while at < SIZE + 100_000 {
            // All ways of reading.
            let bytes = match at % 3 {
                0 => {
                    let (count, mut buffer) = other.read(vec![0; 5000]).await;
                    buffer.truncate(count?);
                    buffer
                }
                1 => {
                    let lent = other.lend().await?;
                    let half = lent.len().div_ceil(2);
                    let bytes = lent[..half].to_vec();
                    lent.keep_from(half);
                    bytes
                }
                _ => other.lend().await?.to_vec(),
            };
            assert!(!bytes.is_empty());
            for byte in bytes {
                assert_eq!(byte, if at < SIZE { pattern(at) } else { 1 }, "at {at}");
                at += 1;
            }
        }
        assert!(other.lend().await?.is_empty(), "the writer is gone");
        sender.await.unwrap()
    });
}

#[test]
fn refused_requests_return_their_buffers() {
    each(async |rt| {
        let (one, _other) = TcpStream::pair(&rt)?;
        let (result, buffer) = one.read(Vec::<u8>::new()).await;
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert!(buffer.is_empty());
        one.shutdown().await?;
        let (result, buffer) = one.write_all(b"late".to_vec()).await;
        assert!(result.is_err() && buffer == b"late");
        let unconnected = TcpStream::from_key(&rt, rt.with(uv_core::Tcp::new));
        let (result, buffer) = unconnected.read(vec![7; 3]).await;
        assert!(result.is_err() && buffer == [7; 3]);
        assert!(unconnected.lend().await.is_err());
        Ok(())
    });
}

/// What was written before the stream is dropped arrives.
#[test]
fn a_drop_does_not_discard_what_was_written() {
    each(async |rt| {
        for size in [1, 5000, 200_000] {
            let (one, other) = TcpStream::pair(&rt)?;
            let writer = rt.spawn_local(async move { one.write_all(vec![3; size]).await.0 });
            let (result, bytes) = other.read_exact(vec![0; size]).await;
            result?;
            assert!(bytes.iter().all(|byte| *byte == 3));
            assert!(other.lend().await?.is_empty());
            writer.await.unwrap()?;
        }
        Ok(())
    });
}

#[test]
fn two_tasks_use_one_stream() {
    each(async |rt| {
        let (one, other) = TcpStream::pair(&rt)?;
        let (echoing, one) = (rt.spawn_local(echo(other)), Rc::new(one));
        let writing = Rc::clone(&one);
        let writer = rt.spawn_local(async move {
            let (_, mut half) = writing.split();
            for _ in 0..100 {
                half.write_all(vec![5; 1000]).await.0?;
            }
            half.shutdown().await
        });
        let (mut half, mut total) = (one.split().0, 0);
        loop {
            match half.lend().await?.len() {
                0 => break,
                count => total += count,
            }
        }
        assert_eq!(total, 100_000);
        writer.await.unwrap()?;
        echoing.await.unwrap()
    });
}

#[test]
fn a_proxy_copies_in_both_directions() {
    each(async |rt| {
        let (client, near) = TcpStream::pair(&rt)?;
        let (far, server) = TcpStream::pair(&rt)?;
        let proxy = rt.spawn_local(async move { copy_bidirectional(&near, &far).await });
        let server = rt.spawn_local(echo(server));
        client.write_all(vec![9; 300_000]).await.0?;
        client.shutdown().await?;
        let mut total = 0;
        loop {
            match client.lend().await?.len() {
                0 => break,
                count => total += count,
            }
        }
        assert_eq!(total, 300_000);
        assert_eq!(proxy.await.unwrap()?, (300_000, 300_000));
        server.await.unwrap()
    });
}

#[test]
fn the_first_address_that_answers_wins() {
    each(async |rt| {
        let listener = TcpListener::bind(&rt, any())?;
        let closed = TcpListener::bind(&rt, any())?.local_addr()?;
        yield_now().await; // It is closed by now.
        let addresses = [closed, closed, listener.local_addr()?];
        let stream = TcpStream::connect_any(&rt, addresses).await?;
        assert_eq!(stream.peer_addr()?, listener.local_addr()?);
        assert!(TcpStream::connect_any(&rt, [closed]).await.is_err());
        let none = TcpStream::connect_any(&rt, []).await.unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::InvalidInput);
        Ok(())
    });
}

#[test]
fn keys_come_from_callbacks_and_go_back() {
    each(async |rt| {
        let (one, other) = TcpStream::pair(&rt)?;
        one.write_all("abcdef").await.0?;
        let lent = other.lend().await?;
        assert!(lent.starts_with(b"ab"));
        lent.keep_from(2);
        let (key, unread) = other.into_key();
        assert_eq!(unread.bytes, b"cdef");
        assert!(unread.end.is_none());
        one.write_all("ghi").await.0?;
        let (sender, mut receiver) = channel(&rt);
        rt.with(|lp| {
            key.read_start(lp, move |lp, key, bytes| {
                sender.send(bytes.unwrap().to_vec()).unwrap();
                key.read_stop(lp).unwrap();
            })
        })?;
        assert_eq!(receiver.recv().await.unwrap(), b"ghi");
        let again = TcpStream::from_key(&rt, key);
        one.write_all("jkl").await.0?;
        assert_eq!(&*again.lend().await?, b"jkl");
        Ok(())
    });
}

/// Both ends of a TCP connection, which can be reset, unlike a pair.
async fn connected(
    rt: &Runtime,
) -> io::Result<(TcpStream<common::Backend>, TcpStream<common::Backend>)> {
    let listener = TcpListener::bind(rt, any())?;
    let one = TcpStream::connect(rt, listener.local_addr()?).await?;
    Ok((one, listener.accept().await?))
}

/// A stream that the loop goes on reading, and a peer that has reset it: the loop has the error.
async fn reset(rt: &Runtime, first: &[u8]) -> io::Result<TcpStream<common::Backend>> {
    let (one, other) = connected(rt).await?;
    one.write_slice(first).await?;
    let (result, bytes) = other.read_exact(vec![0; first.len()]).await;
    result?;
    assert_eq!(bytes, first);
    // The loop goes on reading.
    if !rt.with(|lp| other.key().is_active(lp)) {
        timed_out(rt, other.lend()).await;
    }
    let (key, _) = one.into_key();
    rt.with(|lp| key.close_reset(lp))?;
    while rt.with(|lp| other.key().is_active(lp)) {
        yield_now().await;
    }
    Ok(other)
}

/// Polls a future once, which must wait, and drops it.
async fn timed_out<F: Future>(rt: &Runtime, future: F) {
    assert!(rt.timeout(Duration::ZERO, future).await.is_err());
}

#[test]
fn an_error_that_the_loop_has_received_reaches_a_reader() {
    each(async |rt| {
        for size in [5, 8192, 100_000] {
            let first = vec![1; size];
            let is_reset = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionReset;
            let (result, _) = reset(&rt, &first).await?.read(vec![0; 64]).await;
            assert!(result.is_err_and(|error| is_reset(&error)));
            let stream = reset(&rt, &first).await?;
            assert!(stream.lend().await.is_err_and(|error| is_reset(&error)));
            let (key, unread) = reset(&rt, &first).await?.into_key();
            assert!(unread.bytes.is_empty());
            assert!(unread.end.unwrap().is_err_and(|error| is_reset(&error)));
            rt.with(|lp| key.close(lp))?;
        }
        Ok(())
    });
}

#[test]
fn an_end_that_the_loop_has_received_comes_with_the_key() {
    each(async |rt| {
        let (one, other) = TcpStream::pair(&rt)?;
        one.write_slice(b"last").await?;
        other.lend().await?.keep_from(2);
        one.shutdown().await?;
        while rt.with(|lp| other.key().is_active(lp)) {
            yield_now().await;
        }
        let (key, unread) = other.into_key();
        assert_eq!(unread.bytes, b"st");
        assert!(matches!(unread.end, Some(Ok(()))));
        rt.with(|lp| key.close(lp))
    });
}

/// Set when a future is woken.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Dropped when it is complete and before its task has seen that, a read leaves its error to the
/// next one.
#[test]
fn an_error_of_a_dropped_read_is_for_the_next() {
    each(async |rt| {
        let (one, other) = connected(&rt).await?;
        // Large pieces, so that the next read is a request.
        one.write_slice(&[1; 8192]).await?;
        let (result, _) = other.read_exact(vec![0; 8192]).await;
        result?;
        let woken = Arc::new(Woken::default());
        {
            let mut read = std::pin::pin!(other.read(vec![0; 8192]));
            let waker = Waker::from(Arc::clone(&woken));
            assert!(read.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            let (key, _) = one.into_key();
            rt.with(|lp| key.close_reset(lp))?;
            while !woken.0.load(Ordering::SeqCst) {
                yield_now().await;
            }
        }
        let (result, _) = other.read(vec![0; 8192]).await;
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        Ok(())
    });
}

#[test]
fn files_work_names_and_random_bytes() {
    each(async |rt| {
        let template = std::env::temp_dir().join("uv-async-XXXXXX");
        let (file, path) = rt.fs(fs::mkstemp(template)).await?;
        let (count, bytes) = rt.fs(fs::write_at(&file, b"hello".to_vec(), 0)).await;
        assert_eq!((count?, bytes.len()), (5, 5));
        let (count, bytes) = rt.fs(fs::read_at(&file, vec![0; 16], 1)).await;
        assert_eq!((&bytes[..count?], rt.fs(fs::fstat(&file)).await?.size), (&b"ello"[..], 5));
        rt.fs(fs::close(file)).await?;
        rt.fs(fs::unlink(&path)).await?;
        assert!(rt.fs(fs::stat("a\0b")).await.is_err(), "a refused operation");

        assert_eq!(rt.queue_work(|| 6 * 7).await.unwrap(), 42);
        let panicked = rt.queue_work(|| panic!("on purpose")).await;
        assert!(matches!(panicked, Err(WorkError::Panicked(_))));
        let found = rt.getaddrinfo(Some("127.0.0.1"), Some("80"), Hints::default()).await?;
        assert!(found.iter().all(|found| found.address == "127.0.0.1:80".parse().unwrap()));
        let flags = NameFlags::NUMERICHOST | NameFlags::NUMERICSERV;
        assert_eq!(rt.getnameinfo("127.0.0.1:80".parse().unwrap(), flags).await?.host, "127.0.0.1");
        assert_ne!(rt.random(vec![0; 32]).await?, [0; 32]);
        Ok(())
    });
}

#[cfg(unix)]
#[test]
fn children_are_fed_and_awaited() {
    use uv_async::Child;
    use uv_core::{Command, Pipe, PipeFlags, Stdio};

    each(async |rt| {
        let (input, output) = rt.with(|lp| (Pipe::new(lp), Pipe::new(lp)));
        let stdio =
            [Stdio::Pipe(input, PipeFlags::READABLE), Stdio::Pipe(output, PipeFlags::WRITABLE)];
        let mut child = Child::spawn(&rt, &Command::new("cat").stdio(stdio))?;
        let input = PipeStream::from_key(&rt, input);
        let output = PipeStream::from_key(&rt, output);
        input.write_all("through a child").await.0?;
        input.shutdown().await?;
        drop(input);
        let (result, bytes) = output.read_exact(vec![0; 15]).await;
        result?;
        assert_eq!(bytes, b"through a child");
        assert!(rt.timeout(Duration::ZERO, child.wait()).await.is_err() || child.id().is_ok());
        assert!(child.wait().await?.success());
        assert!(child.wait().await?.success(), "the status is kept");
        Ok(())
    });
}

#[test]
fn channels_end_with_their_senders() {
    each(async |rt| {
        let (sender, mut receiver) = channel(&rt);
        let thread = std::thread::spawn(move || {
            for number in 0..100_u32 {
                sender.send(number).unwrap();
            }
        });
        let mut numbers = Vec::new();
        while let Some(number) = receiver.recv().await {
            numbers.push(number);
        }
        thread.join().unwrap();
        assert_eq!(numbers, (0..100).collect::<Vec<_>>());
        Ok(())
    });
}

/// A file with a pattern, which goes with the test.
fn file_of(size: usize, name: &str) -> (Vec<u8>, std::path::PathBuf) {
    let bytes: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
    let path = std::env::temp_dir().join(format!("uv-async-{name}-{}", std::process::id()));
    std::fs::write(&path, &bytes).unwrap();
    (bytes, path)
}

#[test]
fn files_are_sent_in_order_with_writes() {
    let (bytes, path) = file_of(700_000, "in-order");
    each(async |rt| {
        let (one, other) = TcpStream::pair(&rt)?;
        let file = rt.fs(fs::open(&path, fs::OpenOptions::new().read(true))).await?;
        let sender = rt.spawn_local(async move {
            one.write_all("head").await.0?;
            assert_eq!(one.send_file(&file, 100..600_000).await?, 599_900);
            one.write_all("tail").await.0?;
            assert_eq!(one.send_file(&file, 699_000..u32::MAX.into()).await?, 1000);
            assert!(one.send_file(&file, Range { start: 2, end: 1 }).await.is_err());
            one.shutdown().await
        });
        let mut all = Vec::new();
        loop {
            let lent = other.lend().await?;
            if lent.is_empty() {
                break;
            }
            all.extend_from_slice(&lent);
        }
        sender.await??;
        let expected = [&b"head"[..], &bytes[100..600_000], b"tail", &bytes[699_000..]].concat();
        assert!(all == expected, "{} of {} bytes", all.len(), expected.len());
        Ok(())
    });
    std::fs::remove_file(path).unwrap();
}

/// The peer gets a beginning of the file, and then what is written next.
#[test]
fn a_dropped_send_of_a_file_leaves_the_stream_in_order() {
    let (bytes, path) = file_of(16_000_000, "dropped");
    each(async |rt| {
        let (one, other) = TcpStream::pair(&rt)?;
        let file = rt.fs(fs::open(&path, fs::OpenOptions::new().read(true))).await?;
        let sending = rt.timeout(Duration::from_millis(2), one.send_file(&file, 0..16_000_000));
        assert!(sending.await.is_err(), "nothing reads, and the file is larger than all buffers");
        let (marker, reader) = (vec![255; 1000], rt.clone());
        let reader = reader.spawn_local(async move {
            let mut all = Vec::new();
            loop {
                let lent = other.lend().await?;
                if lent.is_empty() {
                    return io::Result::Ok(all);
                }
                all.extend_from_slice(&lent);
            }
        });
        one.write_all(marker.clone()).await.0?;
        one.shutdown().await?;
        let all = reader.await??;
        let sent = all.len() - marker.len();
        assert!(sent < bytes.len() && all[..sent] == bytes[..sent] && all[sent..] == marker);
        Ok(())
    });
    std::fs::remove_file(path).unwrap();
}

/// A stream that is not read holds a bounded number of bytes: the rest stays with the peer.
#[test]
fn a_slow_reader_stops_the_sender() {
    each(async |rt| {
        let (one, other) = TcpStream::pair(&rt)?;
        let writer = rt.spawn_local(async move { one.write_all(vec![1; 64 << 20]).await.0 });
        let mut total = other.lend().await?.len();
        // The loop goes on reading for a while, and stops.
        for _ in 0..200 {
            rt.sleep(Duration::from_micros(100)).await;
        }
        assert!(!writer.is_finished(), "64 MiB fit into no buffers");
        while total < 64 << 20 {
            let lent = other.lend().await?;
            assert!(lent.len() <= 1 << 20, "{} bytes at once", lent.len());
            total += lent.len();
        }
        writer.await?
    });
}

#[test]
fn a_reader_may_keep_from_any_position() {
    each(async |rt| {
        let (one, other) = TcpStream::pair(&rt)?;
        for (count, rest) in [(0, "bytes"), (2, "tes"), (5, ""), (6, ""), (usize::MAX, "")] {
            one.write_slice(b"bytes").await?;
            let lent = other.lend().await?;
            assert_eq!(&*lent, b"bytes");
            lent.keep_from(count);
            one.write_slice(b".").await?;
            let expected = format!("{rest}.");
            let (result, bytes) = other.read_exact(vec![0; expected.len()]).await;
            result?;
            assert_eq!(bytes, expected.as_bytes());
        }
        Ok(())
    });
}

/// Tasks that read one stream in all ways: each byte goes to one of them.
#[test]
fn readers_of_all_kinds_share_a_stream() {
    const TOTAL: usize = 300_000;
    each(async |rt| {
        let (one, other) = TcpStream::pair(&rt)?;
        let (other, seen) = (Rc::new(other), Rc::new(Cell::new(0)));
        let readers: Vec<_> = (0..6)
            .map(|number| {
                let (other, seen) = (Rc::clone(&other), Rc::clone(&seen));
                rt.spawn_local(async move {
                    loop {
                        let count = match number % 2 {
                            0 => other.read(vec![0; 5000]).await.0?,
                            _ => other.lend().await?.len(),
                        };
                        if count == 0 {
                            return io::Result::Ok(());
                        }
                        seen.set(seen.get() + count);
                    }
                })
            })
            .collect();
        let mut left = TOTAL;
        for size in [1, 100, 9000].into_iter().cycle() {
            let size = left.min(size);
            one.write_all(vec![1; size]).await.0?;
            left -= size;
            if left == 0 {
                break;
            }
            if size == 100 {
                yield_now().await;
            }
        }
        one.shutdown().await?;
        for reader in readers {
            reader.await??;
        }
        assert_eq!(seen.get(), TOTAL);
        Ok(())
    });
}

/// A parser that has found no end of a message waits for more of it, and does not keep other tasks
/// from running meanwhile.
#[test]
fn kept_bytes_wait_for_more() {
    each(async |rt| {
        let (one, other) = TcpStream::pair(&rt)?;
        let writer = rt.spawn_local(async move {
            for piece in [&b"a me"[..], b"ssage\nan", b"other\nno end"] {
                one.write_slice(piece).await?;
                yield_now().await;
            }
            one.shutdown().await
        });
        let (mut lines, mut searched) = (Vec::new(), 0);
        loop {
            let bytes = other.lend_more_than(searched).await?;
            match bytes[searched..].iter().position(|byte| *byte == b'\n') {
                Some(at) => {
                    let end = searched + at;
                    lines.push(bytes[..end].to_vec());
                    bytes.keep_from(end + 1);
                    searched = 0;
                }
                None if bytes.len() == searched => {
                    bytes.keep_from(0);
                    break;
                }
                None => {
                    searched = bytes.len();
                    bytes.keep_from(0);
                }
            }
        }
        assert_eq!(lines, [&b"a message"[..], b"another"]);
        assert_eq!(&*other.lend_more_than(100).await?, b"no end", "the end is reported again");
        assert!(other.lend().await?.is_empty());
        writer.await.unwrap()
    });
}
