//! What happens and is not told.

use std::io;

use poll_core::Backend;
use uv_core::{Handle, Loop, Prepare, RunMode, Stream};

use crate::support::datagrams;
use crate::support::loops::{new_loop, run, timer_in};
use crate::support::observe::SHORT;
use crate::support::sources::send;
use crate::support::streams::connected;
use crate::support::trace::Trace;
use crate::{Lab, Verdict};

fn never<T: Backend, H: Handle>(_: &mut Loop<T>, handle: H, _: io::Result<()>) {
    panic!("{} is told after it was stopped", handle.into());
}

/// An iteration that waits goes on waiting until there is something to tell: what arrives for
/// those who have stopped, or the end of a batch that was sent, is nobody's business, and no
/// event.
pub fn once_waits_for_something_to_tell<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    let ((tcp, far), (other, _peer)) = (connected(&mut lp), connected(&mut lp));
    let (udp, address) = datagrams::bound(&mut lp);
    tcp.read_start(&mut lp, |lp, tcp, bytes| never(lp, tcp, bytes.map(drop))).unwrap();
    udp.recv_start(&mut lp, |lp, udp, _| never(lp, udp, Ok(()))).unwrap();
    run(&mut lp, RunMode::NoWait);
    tcp.read_stop(&mut lp).unwrap();
    udp.recv_stop(&mut lp).unwrap();
    send(&far, b"for nobody");
    datagrams::send_numbers(address, 0..2);
    let events = lp.metrics().events();
    let prepare = Prepare::new(&mut lp);
    // In the turn that waits, and on two streams, so that operations send it where there are any.
    let write = trace.then("prepare", move |lp, prepare: Prepare| {
        for stream in [tcp, other] {
            assert_eq!(stream.write_batched(lp, b"in a batch").expect("room"), 10);
        }
        prepare.stop(lp).unwrap();
    });
    prepare.start(&mut lp, write).unwrap();
    timer_in(&mut lp, SHORT, trace.noting("timer"));
    run(&mut lp, RunMode::Once);
    trace.expect(&["prepare", "timer"], "one iteration, to the timer");
    assert_eq!(lp.metrics().events(), events, "nothing that anybody was told of");
    Ok(())
}

/// What is told to nobody may be the last that the loop has waited for: then it ends, or closes
/// what has waited for it.
pub fn a_quiet_end_ends_the_wait<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    let (streams, _peers): (Vec<_>, Vec<_>) = (0..2).map(|_| connected(&mut lp)).unzip();
    let (written, noted) = (streams.clone(), trace.clone());
    timer_in(&mut lp, SHORT / 4, move |lp, _| {
        for stream in &written {
            stream.write_batched(lp, b"the last").expect("room");
        }
        noted.note("timer");
    });
    run(&mut lp, RunMode::Default);
    trace.expect(&["timer"], "the loop ends when the batches have left");
    let noted = trace.clone();
    streams[0].read_start(&mut lp, |lp, tcp, bytes| never(lp, tcp, bytes.map(drop))).unwrap();
    timer_in(&mut lp, SHORT / 4, move |lp, _| {
        streams[0].close_with(lp, noted.noting("closed")).unwrap();
    });
    run(&mut lp, RunMode::Default);
    trace.expect(&["closed"], "when its receive has been cancelled");
    Ok(())
}
