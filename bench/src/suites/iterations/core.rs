//! Iterations of `uv-core`.

use std::cell::Cell;
use std::io;
use std::net::UdpSocket;
use std::rc::Rc;

use poll_core::Backend;
use uv_core::{Idle, Loop, Poll, PollEvents, RunMode};

use super::Registered;
use crate::clock::Stopwatch;
use crate::suite::{Reading, Sample};

pub(super) fn run<B: Backend>(
    backend: B,
    registered: Registered,
    iterations: u64,
) -> io::Result<Sample> {
    let mut lp = Loop::new(backend);
    if registered == Registered::QuietSocket {
        let poll = Poll::new(&mut lp, UdpSocket::bind("127.0.0.1:0")?)?;
        poll.start(&mut lp, PollEvents::READABLE, |_, _, _| {})?;
    }
    let counted = Rc::new(Cell::new(0));
    let count = Rc::clone(&counted);
    let idle = Idle::new(&mut lp);
    idle.start(&mut lp, move |lp, _| {
        count.set(count.get() + 1);
        if count.get() == iterations {
            lp.stop();
        }
    })?;
    let watch = Stopwatch::start();
    lp.run(RunMode::Default)?;
    let spent = watch.spent();
    Ok(Sample::new([Reading { count: counted.get(), spent }]))
}
