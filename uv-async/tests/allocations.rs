//! In a steady state, reads, writes, accepts and sleeps allocate nothing.

mod common;
#[path = "../../uv-core/tests/support/counting.rs"]
mod counting;

use std::io;
use std::time::Duration;

use common::{Runtime, every, serial};
use counting::allocations;
use uv_async::{LoopExt, TcpListener, TcpStream, yield_now};

/// Rounds before counting, in which tables grow to their final size, and counted rounds.
const WARM_UP: usize = 200;
const COUNTED: usize = 1000;

/// Runs an async case on each backend; it calls the function that it gets after each round.
fn every_round(case: impl AsyncFn(Runtime, &mut dyn FnMut() -> bool) -> io::Result<()>) {
    let _serial = serial();
    every(|lp| {
        let (mut rounds, mut before) = (0, 0);
        let mut round = || {
            rounds += 1;
            let now = allocations();
            if rounds == WARM_UP {
                before = now;
            }
            if rounds == WARM_UP + COUNTED {
                assert_eq!(now - before, 0, "allocations in {COUNTED} rounds");
            }
            rounds < WARM_UP + COUNTED
        };
        lp.block_on(async |rt| case(rt, &mut round).await).unwrap().unwrap();
        assert_eq!(rounds, WARM_UP + COUNTED);
    });
}

#[test]
fn reads_and_writes_with_owned_buffers() {
    every_round(async |rt, round| {
        let (one, other) = TcpStream::pair(&rt)?;
        let (mut ours, mut theirs) = (vec![1; 512], vec![0; 512]);
        loop {
            let (result, back) = one.write_all(ours).await;
            result?;
            ours = back;
            let (count, back) = other.read(theirs).await;
            assert_eq!(count?, 512);
            theirs = back;
            if !round() {
                return Ok(());
            }
        }
    });
}

/// Reads that are requests with buffers of their own, and writes that wait for the reader.
#[test]
fn large_reads_and_writes_that_wait() {
    const SIZE: usize = 4 << 20;
    every_round(async |rt, round| {
        let (one, other) = TcpStream::pair(&rt)?;
        let writer = rt.spawn_local(async move {
            let mut ours = vec![1; SIZE];
            loop {
                let (result, back) = one.write_all(ours).await;
                if result.is_err() {
                    return; // The reader is gone.
                }
                ours = back;
            }
        });
        let mut theirs = vec![0; 32 << 10];
        loop {
            let mut left = SIZE / 16;
            while left > 0 {
                let (count, back) = other.read(theirs).await;
                left -= count?.min(left);
                theirs = back;
            }
            if !round() {
                writer.abort();
                return Ok(());
            }
        }
    });
}

/// A writer that is faster than the reader: the loop stops reading and goes on, again and again.
#[test]
fn large_lent_reads_and_writes_that_wait() {
    const SIZE: usize = 4 << 20;
    every_round(async |rt, round| {
        let (one, other) = TcpStream::pair(&rt)?;
        let writer = rt.spawn_local(async move {
            let mut ours = vec![1; SIZE];
            loop {
                let (result, back) = one.write_all(ours).await;
                if result.is_err() {
                    return; // The reader is gone.
                }
                ours = back;
            }
        });
        loop {
            let mut left = SIZE / 16;
            while left > 0 {
                let count = other.lend().await?.len();
                left -= count.min(left);
                // The loop reads more than is taken meanwhile.
                yield_now().await;
            }
            if !round() {
                writer.abort();
                return Ok(());
            }
        }
    });
}

#[test]
fn lent_reads() {
    every_round(async |rt, round| {
        let (one, other) = TcpStream::pair(&rt)?;
        loop {
            one.write_all(&[1; 512]).await.0?;
            let lent = other.lend().await?;
            assert_eq!(lent.len(), 512);
            lent.keep_from(100);
            drop(other.lend().await?);
            if !round() {
                return Ok(());
            }
        }
    });
}

#[test]
fn sleeps_timeouts_and_yields() {
    every_round(async |rt, round| {
        loop {
            rt.sleep(Duration::from_nanos(1)).await;
            let never = std::future::pending::<()>();
            rt.timeout(Duration::from_nanos(1), never).await.unwrap_err();
            rt.timeout(Duration::from_secs(3600), yield_now()).await.unwrap();
            if !round() {
                return Ok(());
            }
        }
    });
}

#[test]
fn accepts_and_connects() {
    every_round(async |rt, round| {
        let listener = TcpListener::bind(&rt, "127.0.0.1:0".parse().unwrap())?;
        let address = listener.local_addr()?;
        loop {
            // A dropped accept, and one that succeeds.
            rt.timeout(Duration::from_nanos(1), listener.accept()).await.unwrap_err();
            let client = TcpStream::connect(&rt, address).await?;
            let server = listener.accept().await?;
            server.key(); // Both are closed here.
            drop((client, server));
            // The handles are freed in the closing phase.
            yield_now().await;
            if !round() {
                return Ok(());
            }
        }
    });
}
