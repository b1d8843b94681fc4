//! Futures that are dropped at random points lose no byte, connection, message or descriptor: on
//! every backend, and on each with injected faults.

mod common;

use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use common::{Backend, Rng, Runtime, every_and_faulty, serial};
use uv_async::{IoStream, LoopExt, PipeStream, TcpListener, TcpStream, channel, yield_now};
use uv_core::{Stream, fs};

/// Runs a case for several seeds on each backend, and checks that no descriptor is left. The
/// variables `FIRST_SEED` and `SEEDS` choose others.
fn seeds(count: u64, case: impl AsyncFn(Runtime, Rng) -> io::Result<()>) {
    let _serial = serial();
    let variable = |name| std::env::var(name).ok().map(|number| number.parse().unwrap());
    let (first, count) = (variable("FIRST_SEED").unwrap_or(0), variable("SEEDS").unwrap_or(count));
    for seed in first..first + count {
        every_and_faulty(seed, |lp| {
            #[cfg(target_os = "linux")]
            let before = common::descriptors();
            lp.block_on(async |rt| case(rt, Rng(seed)).await)
                .unwrap()
                .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            for _ in 0..200 {
                if !lp.walk().is_empty() {
                    lp.run(uv_core::RunMode::NoWait).unwrap();
                }
            }
            assert!(lp.walk().is_empty(), "seed {seed}: handles are left: {:?}", lp.walk());
            #[cfg(target_os = "linux")]
            assert!(
                common::descriptors() <= before + SHARED,
                "seed {seed}: {} descriptors, {before} before",
                common::descriptors()
            );
        });
    }
}

/// Descriptors that a loop opens once and keeps: the reserve of listeners, for example.
#[cfg(target_os = "linux")]
const SHARED: usize = 3;

/// Polls a future at most `polls` times, and drops it then: `None`.
async fn limited<F: Future>(future: F, polls: u64) -> Option<F::Output> {
    let (mut future, mut left) = (pin!(future), polls);
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => {
                // Not only when it is woken: any poll may be the last.
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    })
    .await
}

/// Drops a future at a random point: after some polls, or after a time; or never.
async fn interrupted<F: Future>(rt: &Runtime, rng: &mut Rng, future: F) -> Option<F::Output> {
    match rng.below(4) {
        0 => limited(future, rng.below(4)).await,
        1 => rt.timeout(Duration::from_micros(rng.below(200)), future).await.ok(),
        2 => limited(future, 1 + rng.below(30)).await,
        _ => Some(future.await),
    }
}

fn pattern(at: usize) -> u8 {
    (at % 251) as u8
}

const TOTAL: usize = 150_000;

async fn write_pattern<S: Stream>(
    stream: Rc<IoStream<S, Backend>>,
    mut rng: Rng,
) -> io::Result<()> {
    let mut at = 0;
    while at < TOTAL {
        let largest = if rng.below(8) == 0 { 60_000 } else { 500 };
        let size = (1 + rng.below(largest) as usize).min(TOTAL - at);
        let bytes: Vec<u8> = (at..at + size).map(pattern).collect();
        stream.write_all(bytes).await.0?;
        at += size;
        if rng.below(4) == 0 {
            yield_now().await;
        }
    }
    stream.shutdown().await
}

/// Reads in all ways, each of which may be dropped, and checks each byte.
async fn read_pattern<S: Stream>(
    rt: &Runtime,
    stream: &IoStream<S, Backend>,
    mut rng: Rng,
) -> io::Result<()> {
    let mut at = 0;
    loop {
        let bytes = match rng.below(4) {
            0 | 1 => {
                let buffer = vec![0; 1 + rng.below(3000) as usize];
                let Some((count, mut buffer)) =
                    interrupted(rt, &mut rng, stream.read(buffer)).await
                else {
                    continue;
                };
                buffer.truncate(count?);
                buffer
            }
            2 => {
                let more = rng.below(3000) as usize;
                let Some(lent) = interrupted(rt, &mut rng, stream.lend_more_than(more)).await
                else {
                    continue;
                };
                let lent = lent?;
                let count = lent.len().min(1 + more);
                let bytes = lent[..count].to_vec();
                let ended = lent.len() <= more;
                lent.keep_from(count);
                assert!(!ended || at + count == TOTAL, "fewer bytes at the end only");
                bytes
            }
            _ => {
                let part = rng.below(3000) as usize;
                let Some(lent) = interrupted(rt, &mut rng, stream.lend()).await else { continue };
                let lent = lent?;
                let count = if lent.is_empty() { 0 } else { 1 + part % lent.len() };
                let bytes = lent[..count].to_vec();
                lent.keep_from(count);
                bytes
            }
        };
        if bytes.is_empty() {
            assert_eq!(at, TOTAL, "the end comes after the last byte");
            return Ok(());
        }
        for byte in bytes {
            assert_eq!(byte, pattern(at), "at {at}");
            at += 1;
        }
    }
}

#[test]
fn dropped_reads_lose_no_byte() {
    seeds(6, async |rt, mut rng| {
        let (one, other) = TcpStream::pair(&rt)?;
        let (three, four) = PipeStream::pair(&rt)?;
        let mut seed = || Rng(rng.next());
        let writers = [
            rt.spawn_local(write_pattern(Rc::new(one), seed())),
            rt.spawn_local(write_pattern(Rc::new(three), seed())),
        ];
        let (inside, random) = (rt.clone(), seed());
        let reader = rt.spawn_local(async move { read_pattern(&inside, &four, random).await });
        read_pattern(&rt, &other, seed()).await?;
        reader.await.unwrap()?;
        for writer in writers {
            writer.await.unwrap()?;
        }
        Ok(())
    });
}

#[test]
fn dropped_accepts_lose_no_connection() {
    const CONNECTIONS: usize = 40;
    seeds(6, async |rt, mut rng| {
        let listener = TcpListener::bind(&rt, "127.0.0.1:0".parse().unwrap())?;
        let address = listener.local_addr()?;
        let (inside, mut random) = (rt.clone(), Rng(rng.next()));
        let clients = rt.spawn_local(async move {
            let mut streams = Vec::new();
            for _ in 0..CONNECTIONS {
                streams.push(TcpStream::connect(&inside, address).await?);
                if random.below(3) == 0 {
                    inside.sleep(Duration::from_micros(random.below(300))).await;
                }
            }
            io::Result::Ok(streams)
        });
        let (mut accepted, mut peers) = (Vec::new(), BTreeSet::new());
        while accepted.len() < CONNECTIONS {
            let next = match rng.below(2) {
                0 => interrupted(&rt, &mut rng, listener.accept()).await,
                _ => {
                    let mut incoming = listener.incoming();
                    interrupted(&rt, &mut rng, incoming.next()).await
                }
            };
            if let Some(stream) = next {
                let stream = stream?;
                peers.insert(stream.peer_addr()?);
                accepted.push(stream);
            }
        }
        assert_eq!(peers.len(), CONNECTIONS, "none is lost, none is accepted twice");
        assert_eq!(clients.await.unwrap()?.len(), CONNECTIONS);
        Ok(())
    });
}

#[test]
fn dropped_connects_and_writes_leak_nothing() {
    seeds(6, async |rt, mut rng| {
        let listener = TcpListener::bind(&rt, "127.0.0.1:0".parse().unwrap())?;
        let address = listener.local_addr()?;
        for _ in 0..30 {
            let connected = interrupted(&rt, &mut rng, TcpStream::connect(&rt, address)).await;
            let Some(Ok(client)) = connected else { continue };
            // More than the kernel takes: the rest is dropped with the future.
            let write = client.write_all(vec![1; 8 << 20]);
            assert!(limited(write, 1 + rng.below(5)).await.is_none());
        }
        Ok(())
    });
}

#[test]
fn dropped_file_operations_leak_no_file() {
    seeds(4, async |rt, mut rng| {
        for _ in 0..60 {
            let open = fs::open("/dev/null", fs::OpenOptions::new().read(true));
            drop(interrupted(&rt, &mut rng, rt.fs(open)).await);
            let work = rt.queue_work(|| std::fs::File::open("/dev/null"));
            drop(interrupted(&rt, &mut rng, work).await);
        }
        // Operations in flight end before the loop is dropped.
        rt.sleep(Duration::from_millis(20)).await;
        Ok(())
    });
}

#[test]
fn dropped_receives_lose_no_message() {
    seeds(4, async |rt, mut rng| {
        let (sender, mut receiver) = channel(&rt);
        let thread = std::thread::spawn(move || {
            for number in 0..500_u32 {
                sender.send(number).unwrap();
            }
        });
        let mut next = 0;
        loop {
            match interrupted(&rt, &mut rng, receiver.recv()).await {
                Some(Some(number)) => {
                    assert_eq!(number, next);
                    next += 1;
                }
                Some(None) => break,
                None => {}
            }
        }
        assert_eq!(next, 500);
        thread.join().unwrap();
        Ok(())
    });
}

/// Tasks that are aborted in the middle of anything.
#[test]
fn aborted_tasks_leak_nothing() {
    seeds(6, async |rt, mut rng| {
        let listener = Rc::new(TcpListener::bind(&rt, "127.0.0.1:0".parse().unwrap())?);
        let address = listener.local_addr()?;
        let mut tasks = Vec::new();
        for _ in 0..20 {
            let (inside, accepting) = (rt.clone(), Rc::clone(&listener));
            tasks.push(rt.spawn_local(async move {
                loop {
                    let stream = accepting.accept().await?;
                    drop(inside.spawn_local(async move {
                        while stream.read(vec![0; 64]).await.0? > 0 {
                            stream.write_all(vec![2; 64]).await.0?;
                        }
                        io::Result::Ok(())
                    }));
                }
            }));
            let inside = rt.clone();
            let client = async move {
                let stream = TcpStream::connect(&inside, address).await?;
                loop {
                    stream.write_all(vec![1; 64]).await.0?;
                    stream.lend().await?;
                    inside.sleep(Duration::from_micros(50)).await;
                }
            };
            tasks.push(rt.spawn_local(client));
        }
        while !tasks.is_empty() {
            rt.sleep(Duration::from_micros(rng.below(300))).await;
            let task = tasks.swap_remove(rng.below(tasks.len() as u64) as usize);
            task.abort();
            let ended: Result<io::Result<()>, _> = task.await;
            assert!(ended.is_err() || ended.is_ok_and(|result| result.is_err()));
        }
        Ok(())
    });
}

/// What a random selection has got.
enum Got {
    Bytes(Vec<u8>),
    Connection(TcpStream<Backend>),
    Message(u32),
    Nothing,
}

/// A branch of a selection.
type Branch<'a> = Pin<Box<dyn Future<Output = io::Result<Got>> + 'a>>;

/// Polls the branches in a random order until one is ready, and drops the others.
async fn select(mut branches: Vec<Branch<'_>>, rng: &mut Rng) -> io::Result<Got> {
    for at in (1..branches.len()).rev() {
        branches.swap(at, rng.below(at as u64 + 1) as usize);
    }
    poll_fn(|cx| {
        let ready = branches.iter_mut().find_map(|branch| match branch.as_mut().poll(cx) {
            Poll::Ready(got) => Some(got),
            Poll::Pending => None,
        });
        ready.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

/// Programs as `select!` makes them: many sources at once, of which one wins and all others are
/// dropped, again and again.
#[test]
fn random_selections_lose_nothing() {
    const CONNECTIONS: usize = 15;
    const MESSAGES: u32 = 100;
    seeds(6, async |rt, mut rng| {
        let (one, other) = TcpStream::pair(&rt)?;
        let listener = TcpListener::bind(&rt, "127.0.0.1:0".parse().unwrap())?;
        let (sender, mut receiver) = channel(&rt);
        let writer = rt.spawn_local(write_pattern(Rc::new(one), Rng(rng.next())));
        let (inside, address, mut random) = (rt.clone(), listener.local_addr()?, Rng(rng.next()));
        let clients = rt.spawn_local(async move {
            let mut streams = Vec::new();
            for number in 0..MESSAGES {
                sender.send(number).unwrap();
                if streams.len() < CONNECTIONS {
                    streams.push(TcpStream::connect(&inside, address).await?);
                }
                if random.below(3) == 0 {
                    inside.sleep(Duration::from_micros(random.below(200))).await;
                }
            }
            io::Result::Ok(streams)
        });
        let (mut bytes, mut accepted, mut next) = (0, Vec::new(), 0);
        while bytes < TOTAL || accepted.len() < CONNECTIONS || next < MESSAGES {
            let mut branches: Vec<Branch<'_>> = Vec::new();
            if bytes < TOTAL {
                let (direct, size) = (rng.below(2) == 0, 1 + rng.below(9000) as usize);
                let other = &other;
                branches.push(Box::pin(async move {
                    if direct {
                        let (count, mut buffer) = other.read(vec![0; size]).await;
                        buffer.truncate(count?);
                        return Ok(Got::Bytes(buffer));
                    }
                    let lent = other.lend().await?;
                    let part = lent[..lent.len().min(size)].to_vec();
                    lent.keep_from(part.len());
                    Ok(Got::Bytes(part))
                }));
            }
            if accepted.len() < CONNECTIONS {
                branches.push(Box::pin(async { listener.accept().await.map(Got::Connection) }));
            }
            if next < MESSAGES {
                branches.push(Box::pin(async {
                    Ok(receiver.recv().await.map_or(Got::Nothing, Got::Message))
                }));
            }
            let (time, polls) = (Duration::from_micros(rng.below(300)), rng.below(3) == 0);
            let rt = &rt;
            branches.push(Box::pin(async move {
                match polls {
                    true => yield_now().await,
                    false => rt.sleep(time).await,
                }
                Ok(Got::Nothing)
            }));
            let open = fs::open("/dev/null", fs::OpenOptions::new().read(true));
            branches.push(Box::pin(async move {
                rt.fs(open).await?;
                Ok(Got::Nothing)
            }));
            match select(branches, &mut rng).await? {
                Got::Bytes(part) => {
                    for byte in part {
                        assert_eq!(byte, pattern(bytes), "at {bytes}");
                        bytes += 1;
                    }
                }
                Got::Connection(stream) => accepted.push(stream.peer_addr()?),
                Got::Message(number) => {
                    assert_eq!(number, next);
                    next += 1;
                }
                Got::Nothing => {}
            }
        }
        writer.await.unwrap()?;
        clients.await.unwrap()?;
        let peers: BTreeSet<_> = accepted.into_iter().collect();
        assert_eq!(peers.len(), CONNECTIONS, "none is lost, none is accepted twice");
        // Files that are being opened are closed before the loop is dropped.
        rt.sleep(Duration::from_millis(20)).await;
        Ok(())
    });
}
