//! Random bytes.

use std::io::ErrorKind;

use uv_core::{Pool, RunMode, WorkKind, random};

use crate::support::gate::Gate;
use crate::support::loops::{new_loop, run, run_to_the_end};
use crate::support::streams::outcome;
use crate::support::trace::Log;
use crate::{Lab, Skip, Verdict};

/// Random bytes fill a buffer of any size, and differ each time.
pub fn random_bytes_fill_the_buffer(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let callbacks = Log::default();
    for length in [0, 1, 255, 256, 257, 100_000] {
        let log = callbacks.clone();
        let begun = lp.random(vec![0; length], move |_, bytes| {
            let bytes = bytes.expect("random bytes");
            assert_eq!(bytes.len(), length, "the length is unchanged");
            log.push(bytes);
        });
        begun.expect("a request");
    }
    run_to_the_end(&mut lp);
    let filled = callbacks.take();
    assert_eq!(filled.len(), 6);
    let mut longest = vec![0; 100_000];
    random::fill(&mut longest).expect("random bytes");
    for bytes in filled.iter().filter(|bytes| bytes.len() > 200).chain([&longest]) {
        let distinct = |piece: &[u8]| piece.iter().any(|byte| byte != &piece[0]);
        assert!(bytes.chunks_exact(100).all(distinct), "a hundred bytes are all the same");
    }
    assert!(!filled.contains(&longest), "twice the same");
    Ok(())
}

/// A queued request for random bytes can be cancelled.
pub fn queued_random_requests_can_be_cancelled(lab: &Lab) -> Verdict {
    let (mut lp, pool, gate) = (new_loop(lab)?, Pool::new(1).expect("a pool"), Gate::default());
    lp.set_pool(pool.clone());
    let (at, callbacks) = (gate.clone(), Log::default());
    lp.queue_work_on(&pool, WorkKind::Cpu, move || at.pass(), |_, _| {}).expect("queued work");
    gate.await_waiting(1);
    let log = callbacks.clone();
    let request = lp.random(vec![0; 16], move |_, bytes| log.push(outcome(&bytes)));
    request.expect("a request").cancel(&mut lp).expect("it waits");
    assert_eq!(callbacks.len(), 0, "never inline");
    run(&mut lp, RunMode::Once);
    assert_eq!(callbacks.take(), ["cancelled"]);
    gate.open();
    run_to_the_end(&mut lp);
    Ok(())
}

/// More bytes than a C `int` can count are refused immediately.
pub fn too_many_random_bytes_are_refused(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let length = 1_usize << 31;
    if length > isize::MAX as usize {
        return Err(Skip::because("no buffer is so long on this machine"));
    }
    // Untouched pages cost nothing.
    let mut buffer = vec![0; length];
    assert_eq!(random::fill(&mut buffer).map_err(|e| e.kind()), Err(ErrorKind::InvalidInput));
    let refused = lp.random(buffer, |_, _| panic!("a request that was refused has called back"));
    assert_eq!(refused.map(drop).map_err(|e| e.kind()), Err(ErrorKind::InvalidInput));
    assert!(!lp.is_alive(), "nothing was started");
    Ok(())
}
