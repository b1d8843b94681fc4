//! UDP handles of `uv-core`.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use poll_core::Backend;
use uv_core::{Handle, Loop, RunMode, Timer, Udp, UdpBindFlags};

use super::{AT_ONCE, PATIENCE, PingPong, SIZE, Trips, flooded};
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

pub(super) fn flood<B: Backend>(backend: B, window: Duration) -> io::Result<Sample> {
    let mut lp = Loop::new(backend);
    let counts = Rc::new(Counts::default());
    let ((receiver, address), (sender, _)) = (bound(&mut lp)?, bound(&mut lp)?);
    let count = Rc::clone(&counts);
    receiver.recv_start(&mut lp, move |_, _, datagram| {
        let right = datagram.is_ok_and(|datagram| datagram.data == FLOOD);
        count.received.set(count.received.get() + u64::from(right));
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
    for _ in 0..AT_ONCE {
        send(&mut lp, sender, Rc::clone(&counts));
    }
    lp.run(RunMode::Default)?;
    let spent = watch.spent();
    Ok(flooded(counts.received.get(), counts.sent.get(), spent))
}

const FLOOD: &[u8] = &[0x5a; SIZE];

/// Sends a datagram, and the next one after its completion.
fn send<B: Backend>(lp: &mut Loop<B>, sender: Udp, counts: Rc<Counts>) {
    if counts.over.get() {
        return;
    }
    let sent = sender.send(lp, FLOOD, None, move |lp, sender, result, _| {
        counts.sent.set(counts.sent.get() + u64::from(result.is_ok()));
        send(lp, sender, counts);
    });
    // A failure makes the count wrong, which the check reports.
    drop(sent);
}
