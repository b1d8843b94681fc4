//! System calls per response: no more than a hand-written loop makes.

use std::io::{Read as _, Write as _};
use std::thread;

use poll_core::{Backend, OpKind};
use uv_core::{Handle, RunMode, Stream, Tcp};

use crate::support::loops::{new_loop, run};
use crate::support::streams::{both_ends, connected, finish};
use crate::support::syscalls;
use crate::support::trace::Count;
use crate::{Lab, Loop, Verdict};

/// Responds with the received data.
type Answer = fn(&mut Loop, Tcp, &[u8]);

/// The ways to respond.
fn answers() -> [(&'static str, Answer); 3] {
    [
        ("try_write", |lp, tcp, bytes| assert_eq!(tcp.try_write(lp, bytes).unwrap(), bytes.len())),
        ("write_coalesced", |lp, tcp, bytes| {
            assert_eq!(tcp.write_coalesced(lp, bytes).unwrap(), bytes.len());
        }),
        ("write", |lp, tcp, bytes| {
            tcp.write(lp, bytes.to_vec(), |_, _, result, _| result.unwrap()).unwrap();
        }),
    ]
}

/// A round trip costs one wait, one read and one write, and no other system call, with every way of
/// writing. With receive operations it costs fewer.
pub fn an_echo_costs_three_system_calls(lab: &Lab) -> Verdict {
    const BEFORE: u32 = 200;
    const ROUNDS: u32 = 100;
    for (name, answer) in answers() {
        let mut lp = new_loop(lab)?;
        let (tcp, mut peer) = connected(&mut lp);
        let asked = Count::default();
        let reading = tcp.read_start(&mut lp, move |lp, tcp, bytes| {
            answer(lp, tcp, bytes.unwrap());
            if [BEFORE, BEFORE + ROUNDS].contains(&(asked.add() as u32)) {
                lp.stop();
            }
        });
        reading.unwrap();
        let asker = thread::spawn(move || {
            for _ in 0..BEFORE + ROUNDS {
                peer.write_all(b"ping").expect("a peer that listens");
                let mut echo = [0; 4];
                peer.read_exact(&mut echo).expect("an echo");
                assert_eq!(&echo, b"ping");
            }
        });
        // One-time costs are paid now.
        run(&mut lp, RunMode::Default);
        let calls = syscalls::count(|| run(&mut lp, RunMode::Default))?.1;
        if lp.backend().supports(OpKind::RecvMulti) {
            let [waits, reads, writes] = calls.by_kind();
            let most = 2 * ROUNDS + 2;
            assert!(reads == 0 && waits + writes <= most, "{name}: {calls:?} for {ROUNDS} rounds");
        } else {
            assert_eq!(calls.by_kind(), [ROUNDS; 3], "{name}: {calls:?} for {ROUNDS} rounds");
            assert_eq!(calls.total(), 3 * ROUNDS, "{name}: {calls:?}, and nothing else");
        }
        asker.join().expect("a peer that asks");
        tcp.close(&mut lp).unwrap();
        finish(lp);
    }
    Ok(())
}

/// With many connections and coalesced responses, a request costs at most one wait, one read and
/// one write; an eighth of a system call if the backend performs the I/O.
pub fn coalesced_responses_share_system_calls(lab: &Lab) -> Verdict {
    const CONNECTIONS: u32 = 64;
    const ROUNDS: u32 = 50;
    let mut lp = new_loop(lab)?;
    let requests = CONNECTIONS * ROUNDS;
    let performs = [OpKind::RecvMulti, OpKind::Send].map(|kind| lp.backend().supports(kind));
    let answered = Count::default();
    for _ in 0..CONNECTIONS {
        let (one, other) = both_ends(&mut lp);
        for tcp in [one, other] {
            let answered = answered.clone();
            let reading = tcp.read_start(&mut lp, move |lp, tcp, bytes| {
                assert_eq!(tcp.write_coalesced(lp, bytes.unwrap()).unwrap(), 4);
                if answered.add().is_multiple_of(u64::from(requests)) {
                    lp.stop();
                }
            });
            reading.unwrap();
        }
        one.try_write(&mut lp, b"ping").unwrap();
    }
    // One-time costs are paid now.
    run(&mut lp, RunMode::Default);
    let calls = syscalls::count(|| run(&mut lp, RunMode::Default))?.1;
    // A run that stops sends the writes left for the next wait, each by its own call.
    let at_the_edges = 3 + CONNECTIONS;
    let most = if performs == [true, true] { requests / 8 } else { 3 * requests };
    assert!(calls.total() <= most + at_the_edges, "{calls:?} for {requests} requests");
    for handle in lp.walk() {
        handle.close(&mut lp).unwrap();
    }
    finish(lp);
    Ok(())
}
