//! Events that run no callback.

use std::io;

use uv_core::{Handle, Prepare, RunMode, Stream};

use crate::support::datagrams;
use crate::support::loops::{new_loop, run, timer_in};
use crate::support::observe::SHORT;
use crate::support::sources::send;
use crate::support::streams::connected;
use crate::support::trace::Trace;
use crate::{Lab, Loop, Verdict};

fn never<H: Handle>(_: &mut Loop, handle: H, _: io::Result<()>) {
    panic!("{} was called after it was stopped", handle.into());
}

/// An iteration keeps waiting until a callback runs: data for a stopped reader, or the completion
/// of a coalesced write, runs none and counts as no event.
pub fn once_waits_for_a_callback(lab: &Lab) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    let ((tcp, far), (other, _peer)) = (connected(&mut lp), connected(&mut lp));
    let (udp, address) = datagrams::bound(&mut lp);
    tcp.read_start(&mut lp, |lp, tcp, bytes| never(lp, tcp, bytes.map(drop))).unwrap();
    udp.recv_start(&mut lp, |lp, udp, _| never(lp, udp, Ok(()))).unwrap();
    run(&mut lp, RunMode::NoWait);
    tcp.read_stop(&mut lp).unwrap();
    udp.recv_stop(&mut lp).unwrap();
    send(&far, b"for a stopped reader");
    datagrams::send_numbers(address, 0..2);
    let events = lp.metrics().events();
    let prepare = Prepare::new(&mut lp);
    // In the iteration that waits, and on two streams, so that backends with operations send it
    // asynchronously.
    let write = trace.then("prepare", move |lp, prepare: Prepare| {
        for stream in [tcp, other] {
            assert_eq!(stream.write_coalesced(lp, b"in a batch").expect("space in the buffer"), 10);
        }
        prepare.stop(lp).unwrap();
    });
    prepare.start(&mut lp, write).unwrap();
    timer_in(&mut lp, SHORT, trace.noting("timer"));
    run(&mut lp, RunMode::Once);
    trace.expect(&["prepare", "timer"], "one iteration, to the timer");
    assert_eq!(lp.metrics().events(), events, "no event was counted");
    Ok(())
}

/// A completion without a callback may be the last one that the loop waits for: the loop then ends,
/// or runs the close callback that waited for it. So does a coalesced write of one stream, which is
/// sent without an operation.
pub fn completion_without_callback_ends_the_wait(lab: &Lab) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    let (streams, _peers): (Vec<_>, Vec<_>) = (0..2).map(|_| connected(&mut lp)).unzip();
    for written in [&streams[..1], &streams[..]] {
        let (written, noted) = (written.to_vec(), trace.clone());
        timer_in(&mut lp, SHORT / 4, move |lp, _| {
            for stream in &written {
                stream.write_coalesced(lp, b"the last").expect("space in the buffer");
            }
            noted.note("timer");
        });
        run(&mut lp, RunMode::Default);
        trace.expect(&["timer"], "the loop ends when the batches are sent");
    }
    let noted = trace.clone();
    streams[0].read_start(&mut lp, |lp, tcp, bytes| never(lp, tcp, bytes.map(drop))).unwrap();
    timer_in(&mut lp, SHORT / 4, move |lp, _| {
        streams[0].close_with(lp, noted.noting("closed")).unwrap();
    });
    run(&mut lp, RunMode::Default);
    trace.expect(&["closed"], "closed once its receive was cancelled");
    Ok(())
}
