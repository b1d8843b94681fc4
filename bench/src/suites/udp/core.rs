//! UDP handles of `uv-core`.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use poll_core::Backend;
use uv_core::{Handle, Loop, RunMode, Timer, Udp, UdpBindFlags};

use super::{PATIENCE, PingPong, Trips, flooded};
use crate::clock::Stopwatch;
use crate::suite::Sample;

fn bound<B: Backend>(lp: &mut Loop<B>) -> io::Result<(Udp, SocketAddr)> {
    let udp = Udp::new(lp);
    udp.bind(lp, SocketAddr::from(([127, 0, 0, 1], 0)), UdpBindFlags::empty())?;
    Ok((udp, udp.local_addr(lp)?))
}

pub(super) fn ping_pong<B: Backend>(backend: B, task: PingPong) -> io::Result<Sample> {
    let mut lp = Loop::new(backend);
    let trips = Rc::new(RefCell::new(Trips::new(task)));
    let (server, address) = bound(&mut lp)?;
    server.recv_start(&mut lp, |lp, server, datagram| {
        if let Ok(datagram) = datagram {
            // A datagram that the kernel rejects counts as lost and is resent.
            let _ = server.try_send(lp, datagram.data, datagram.from);
        }
    })?;
    let mut pingers = Vec::new();
    for number in 0..task.pingers {
        let (pinger, _) = bound(&mut lp)?;
        pinger.connect(&mut lp, address)?;
        let trips = Rc::clone(&trips);
        pinger.recv_start(&mut lp, move |lp, pinger, datagram| {
            let mut trips = trips.borrow_mut();
            if datagram.is_ok_and(|datagram| trips.pong(number, datagram.data))
                && let Some(ping) = trips.ping(number)
            {
                let _ = pinger.try_send(lp, &ping, None);
            }
            if trips.is_over() {
                lp.stop();
            }
        })?;
        pingers.push(pinger);
    }
    for (number, pinger) in pingers.iter().enumerate() {
        if let Some(ping) = trips.borrow_mut().ping(number) {
            pinger.try_send(&mut lp, &ping, None)?;
        }
    }
    let (timer, state) = (Timer::new(&mut lp), Rc::clone(&trips));
    timer.start(&mut lp, PATIENCE, PATIENCE, move |lp, _| {
        for (number, ping) in state.borrow_mut().lost() {
            let _ = pingers[number].try_send(lp, &ping, None);
        }
    })?;
    let watch = Stopwatch::start();
    lp.run(RunMode::Default)?;
    let spent = watch.spent();
    Ok(trips.borrow().sample(spent))
}

/// The progress of a flood.
#[derive(Default)]
struct Counts {
    received: Cell<u64>,
    sent: Cell<u64>,
    over: Cell<bool>,
}

/// The datagrams of a flood.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    /// The bytes of each send.
    pub(super) batch: &'static [u8],
    /// The size of the datagrams into which the kernel splits a send, and which it joins again.
    pub(super) segment: Option<u16>,
    /// The number of sends in flight.
    pub(super) at_once: usize,
}

impl Flow {
    /// The size of a datagram.
    fn size(self) -> usize {
        self.segment.map_or(self.batch.len(), usize::from)
    }
}

pub(super) fn flood<B: Backend>(backend: B, window: Duration, flow: Flow) -> io::Result<Sample> {
    let mut lp = Loop::new(backend);
    let counts = Rc::new(Counts::default());
    let ((receiver, address), (sender, _)) = (bound(&mut lp)?, bound(&mut lp)?);
    if let Some(size) = flow.segment {
        receiver.set_coalescing(&mut lp, true)?;
        sender.set_segment_size(&mut lp, size)?;
    }
    let count = Rc::clone(&counts);
    receiver.recv_start(&mut lp, move |_, _, datagram| {
        let Ok(datagram) = datagram else { return };
        let right = datagram.segments().filter(|piece| *piece == &flow.batch[..flow.size()]);
        count.received.set(count.received.get() + right.count() as u64);
    })?;
    sender.connect(&mut lp, address)?;
    let (timer, ends) = (Timer::new(&mut lp), Rc::clone(&counts));
    timer.start(&mut lp, window, window, move |lp, timer| {
        if ends.received.get() == 0 {
            return; // The flood has not started yet, on a busy machine.
        }
        ends.over.set(true);
        // Both are open: only this callback closes them.
        let _ = receiver.close(lp).and_then(|()| timer.close(lp));
    })?;
    let watch = Stopwatch::start();
    for _ in 0..flow.at_once {
        send(&mut lp, sender, flow, Rc::clone(&counts));
    }
    lp.run(RunMode::Default)?;
    let spent = watch.spent();
    Ok(flooded(counts.received.get(), counts.sent.get(), spent))
}

/// Sends a batch, and the next one after its completion.
fn send<B: Backend>(lp: &mut Loop<B>, sender: Udp, flow: Flow, counts: Rc<Counts>) {
    if counts.over.get() {
        return;
    }
    let sent = sender.send(lp, flow.batch, None, move |lp, sender, result, _| {
        let datagrams = if result.is_ok() { flow.batch.len() / flow.size() } else { 0 };
        counts.sent.set(counts.sent.get() + datagrams as u64);
        send(lp, sender, flow, counts);
    });
    // A failure makes the count wrong, which the check reports.
    drop(sent);
}
