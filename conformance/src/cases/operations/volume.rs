//! Large numbers of operations, and cancellation racing with completion.

use std::io::Write;
use std::net::Shutdown;
use std::thread;
use std::time::Instant;

use poll_core::{Backend, BoxedBackend, Event, Op, OpKind, RawBuf, RawSource, Token};

use crate::support::limits::need_descriptors;
use crate::support::observe::{A, SOON, quiet, wait_for};
use crate::support::operations::{await_end, is_cancelled, submit};
use crate::support::sources::{send, tcp_pair};
use crate::{Lab, Skip, Verdict};

/// A hundred thousand operations are in flight, far more than any kernel queue holds. Data
/// completes some, cancels others, and the peers' end of file the rest; each completes once.
pub fn a_hundred_thousand_in_flight(lab: &Lab) -> Verdict {
    // Wine takes a millisecond per operation.
    const ALL: u32 = if cfg!(windows) { 5_000 } else { 100_000 };
    const PAIRS: usize = 200;
    need_descriptors(2 * PAIRS as u64)?;
    let pairs: Vec<_> = (0..PAIRS).map(|_| tcp_pair()).collect();
    let mut memory = vec![0; ALL as usize];
    let mut backend = lab.backend()?;
    if !backend.supports(OpKind::Recv) {
        return Err(Skip::because("does not perform Recv"));
    }
    for (index, byte) in memory.chunks_mut(1).enumerate() {
        let source = RawSource::of(&pairs[index % PAIRS].0);
        let op = Op::Recv { source, buf: RawBuf::filling(byte) };
        submit(&mut backend, Token::new(index as u32, 0), op);
    }
    let mut ends = vec![0_u8; ALL as usize];
    let mut results = [0; 3];
    let mut note = |backend: &mut BoxedBackend, left: &mut u32| {
        for event in wait_for(backend, SOON) {
            let Event::Done { token, result, more, lease: None } = event else {
                panic!("{event:?} of a plain receive");
            };
            assert!(!more, "{token:?} continues after a receive");
            ends[token.index() as usize] += 1;
            *left -= 1;
            results[match result {
                Ok(1) => 0,
                Ok(0) => 1,
                _ if is_cancelled(result) => 2,
                _ => panic!("{token:?} ends with {result:?}"),
            }] += 1;
        }
    };
    let mut left = ALL;
    pairs.iter().for_each(|(_, far)| send(far, &[1; 10]));
    note(&mut backend, &mut left);
    for index in (0..ALL).step_by(3) {
        // An operation that has just completed is not found.
        let _ = backend.cancel(Token::new(index, 0));
    }
    note(&mut backend, &mut left);
    pairs
        .iter()
        .for_each(|(_, far)| far.shutdown(Shutdown::Write).expect("a peer that shuts down"));
    let started = Instant::now();
    while left > 0 {
        assert!(started.elapsed() < 5 * SOON, "{left} operations have not ended");
        note(&mut backend, &mut left);
    }
    assert!(ends.iter().all(|count| *count == 1), "an operation ended twice");
    assert_eq!(results[0], 10 * PAIRS, "each byte ended one operation");
    assert!(results[1] > 0 && results[2] > 0, "{results:?}: data, ends, cancels");
    quiet(&mut backend);
    Ok(())
}

/// A cancel that races with arriving data loses none: received bytes are reported, and the rest
/// stays for the next receive.
pub fn cancelled_receives_lose_no_data(lab: &Lab) -> Verdict {
    const ALL: usize = 20_000;
    let (near, mut far) = tcp_pair();
    let mut memory = [0; 61];
    let mut backend = lab.backend()?;
    if !backend.supports(OpKind::Recv) {
        return Err(Skip::because("does not perform Recv"));
    }
    let sent = |at: usize| (at % 251) as u8;
    let sender = thread::spawn(move || {
        far.set_nonblocking(false).expect("a blocking stream");
        for start in (0..ALL).step_by(50) {
            let piece: Vec<u8> = (start..start + 50).map(sent).collect();
            far.write_all(&piece).expect("a peer that receives");
            thread::yield_now();
        }
    });
    let (mut received, mut cancelled) = (0, 0);
    for round in 0.. {
        let source = RawSource::of(&near);
        let buf = RawBuf::filling(&mut memory);
        submit(&mut backend, A, Op::Recv { source, buf });
        if round % 3 > 0 {
            backend.cancel(A).expect("cancel of an operation in flight");
        }
        match await_end(&mut backend, A) {
            Ok(0) => break,
            Ok(count) => {
                for (index, byte) in memory[..count].iter().enumerate() {
                    assert_eq!(*byte, sent(received + index), "byte {} differs", received + index);
                }
                received += count;
            }
            result => {
                assert!(is_cancelled(result), "{result:?}");
                cancelled += 1;
            }
        }
    }
    sender.join().expect("a sender that sends all");
    assert_eq!(received, ALL, "bytes were lost with {cancelled} cancels");
    Ok(())
}
