//! One stream used by several tasks: none of them is forgotten, and bytes stay in order. On every
//! backend.

mod common;

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use common::{Runtime, every, every_and_faulty};
use uv_async::{LoopExt, Rt, TcpStream, yield_now};

/// What should end fails after this time.
const LIMIT: Duration = Duration::from_secs(60);

async fn within(rt: &Runtime, case: impl AsyncFn(&Runtime) -> io::Result<()>) {
    rt.timeout(LIMIT, case(rt)).await.expect("a task was not woken").unwrap();
}

fn each(case: impl AsyncFn(&Runtime) -> io::Result<()>) {
    every(|lp| lp.block_on(async |rt| within(&rt, &case).await).unwrap());
}

/// Several tasks wait until the kernel takes what one of them has written.
#[test]
fn all_writers_of_a_slow_connection_go_on() {
    const WRITERS: usize = 4;
    const SIZE: usize = 3_000_000;
    each(async |rt| {
        let (one, other) = TcpStream::pair(rt)?;
        let one = Rc::new(one);
        let writers: Vec<_> = (0..WRITERS)
            .map(|_| {
                let one = Rc::clone(&one);
                rt.spawn_local(async move { one.write_slice(&vec![1; SIZE]).await })
            })
            .collect();
        for _ in 0..10 {
            yield_now().await;
        }
        let mut total = 0;
        while total < WRITERS * SIZE {
            total += other.lend().await?.len();
        }
        for writer in writers {
            writer.await??;
        }
        Ok(())
    });
}

/// The last one that waits is dropped: the others are woken nevertheless.
#[test]
fn a_dropped_writer_does_not_take_the_wake_of_another() {
    const SIZE: usize = 10_000_000;
    each(async |rt| {
        let (one, other) = TcpStream::pair(rt)?;
        let one = Rc::new(one);
        let (writing, shutting) = (Rc::clone(&one), Rc::clone(&one));
        let writer = rt.spawn_local(async move { writing.write_slice(&vec![1; SIZE]).await });
        yield_now().await;
        for _ in 0..3 {
            // Both wait for the same bytes: one in this task, one in another that ends.
            let late = one.write_slice(b"late");
            assert!(rt.timeout(Duration::ZERO, late).await.is_err(), "the connection is full");
            let inside = Rc::clone(&shutting);
            let aborted = rt.spawn_local(async move { inside.write_slice(b"late").await });
            yield_now().await;
            aborted.abort();
            assert!(aborted.await.is_err());
        }
        let mut total = 0;
        while total < SIZE {
            total += other.lend().await?.len();
        }
        writer.await?
    });
}

/// Two reads at a time that have their bytes and are dropped, the later one first.
#[test]
fn bytes_of_two_dropped_reads_stay_in_order() {
    const SIZE: usize = 8192;
    let pattern: Vec<u8> = (0..5 * SIZE).map(|at| (at % 251) as u8).collect();
    every_and_faulty(3, |lp| {
        let case = async |rt: &Runtime| {
            let (one, other) = TcpStream::pair(rt)?;
            let (mut sent, mut seen) = (0, 0);
            // Large pieces: from the second on, a read is a request with a buffer of its own.
            for piece in pattern[..2 * SIZE].chunks(SIZE) {
                one.write_all(piece.to_vec()).await.0?;
                sent += piece.len();
                while seen < sent {
                    let (count, bytes) = other.read(vec![0; 2 * SIZE]).await;
                    let count = count?;
                    assert_eq!(bytes[..count], pattern[seen..seen + count]);
                    seen += count;
                }
            }
            {
                let mut first = pin!(other.read(vec![0; 2 * SIZE]));
                let mut second = pin!(other.read(vec![0; 2 * SIZE]));
                poll_fn(|cx| {
                    assert!(first.as_mut().poll(cx).is_pending());
                    assert!(second.as_mut().poll(cx).is_pending());
                    Poll::Ready(())
                })
                .await;
                for piece in pattern[2 * SIZE..4 * SIZE].chunks(SIZE) {
                    one.write_all(piece.to_vec()).await.0?;
                    for _ in 0..20 {
                        rt.sleep(Duration::from_micros(100)).await; // The loop runs.
                    }
                }
            }
            one.write_all(pattern[4 * SIZE..].to_vec()).await.0?;
            while seen < pattern.len() {
                let lent = other.lend().await?;
                assert_eq!(lent[..], pattern[seen..seen + lent.len()], "at {seen}");
                seen += lent.len();
            }
            Ok(())
        };
        lp.block_on(async |rt| within(&rt, case).await).unwrap();
    });
}

/// A wake of an outer `block_on` while an inner one runs is not lost.
#[test]
fn a_block_on_inside_of_another_takes_no_wake() {
    every(|lp| {
        let rt = Rt::attach(lp);
        let inside = rt.clone();
        let outer = async move {
            let mut sleep = pin!(inside.sleep(Duration::from_millis(1)));
            poll_fn(|cx| {
                if sleep.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(());
                }
                // The timer fires while the inner one runs.
                let inner = inside.sleep(Duration::from_millis(5));
                inside.with(|lp| inside.block_on(lp, inner)).unwrap();
                Poll::Pending
            })
            .await;
        };
        let (inside, limit) = (rt.clone(), rt.clone());
        let limited = async move { limit.timeout(LIMIT, outer).await };
        inside.block_on(lp, limited).unwrap().expect("the wake was lost");
    });
}

/// What was dropped outside of tasks is closed before the next future is polled.
#[test]
fn drops_outside_of_tasks_come_before_the_next_future() {
    every(|lp| {
        let rt = Rt::attach(lp);
        let streams = rt.block_on(lp, async { TcpStream::pair(&rt) }).unwrap().unwrap();
        let key = streams.0.key();
        drop(streams);
        let closing = async { rt.with(|lp| uv_core::Handle::is_closing(key, lp)) };
        assert!(rt.block_on(lp, closing).unwrap());
    });
}
