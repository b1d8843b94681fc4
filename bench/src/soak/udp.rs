//! Datagrams between two sockets that echo.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use uv_core::{Handle, Timer, Udp, UdpBindFlags};

use super::flow::bytes;
use super::{Kind, Loop, World, after};

/// Datagrams in flight: few enough for the buffer of a socket.
const WINDOW: u64 = 8;
const BYTES: usize = 1200;

/// Loopback loses nothing of this size unless memory is short; then the window is filled again.
const RESEND: Duration = Duration::from_secs(5);

struct Lane {
    world: Rc<World>,
    client: Udp,
    server: Udp,
    to: SocketAddr,
    next: Cell<u64>,
    /// Echoes since the last check for lost datagrams.
    heard: Cell<u64>,
    timer: Timer,
}

pub(super) fn start(world: &Rc<World>, lp: &mut Loop) -> io::Result<()> {
    let (client, server) = (Udp::new(lp), Udp::new(lp));
    for socket in [client, server] {
        socket.bind(lp, SocketAddr::from(([127, 0, 0, 1], 0)), UdpBindFlags::empty())?;
    }
    let this = Rc::clone(world);
    server.recv_start(lp, move |lp, server, received| {
        if let Ok(datagram) = received {
            let echo = server.send(lp, datagram.data.to_vec(), datagram.from, |_, _, _, _| {});
            this.check(Kind::Udp, "echo", echo);
        }
    })?;
    let to = server.local_addr(lp)?;
    let timer = after(lp, RESEND, RESEND, |_, _| {})?;
    let (world, next, heard) = (Rc::clone(world), Cell::new(0), Cell::new(0));
    let lane = Rc::new(Lane { world, client, server, to, next, heard, timer });
    let this = Rc::clone(&lane);
    client.recv_start(lp, move |lp, _, received| {
        if let Ok(datagram) = received {
            heard_echo(&this, lp, datagram.data);
        }
    })?;
    let this = Rc::clone(&lane);
    timer.start(lp, RESEND, RESEND, move |lp, _| {
        if this.heard.replace(0) == 0 {
            (0..WINDOW).for_each(|_| send(&this, lp));
        }
    })?;
    (0..WINDOW).for_each(|_| send(&lane, lp));
    Ok(())
}

/// A datagram begins with its number and its length.
fn make(world: &World, number: u64) -> Vec<u8> {
    let len = world.size(BYTES);
    let mut datagram = number.to_le_bytes().to_vec();
    datagram.extend((len as u64).to_le_bytes());
    datagram.extend(bytes(number, 0, len));
    datagram
}

/// The number of a datagram that is as it was sent.
fn parse(datagram: &[u8]) -> Option<u64> {
    let (number, rest) = datagram.split_first_chunk::<8>()?;
    let (len, body) = rest.split_first_chunk::<8>()?;
    let (number, len) = (u64::from_le_bytes(*number), u64::from_le_bytes(*len));
    (body == bytes(number, 0, usize::try_from(len).ok()?)).then_some(number)
}

fn send(lane: &Rc<Lane>, lp: &mut Loop) {
    let number = lane.next.replace(lane.next.get() + 1);
    let world = Rc::clone(&lane.world);
    let datagram = make(&world, number);
    let sent = lane.client.send(lp, datagram, lane.to, move |_, _, result, _| match result {
        Err(error) if uv_core::is_cancelled(&error) => {}
        result => {
            world.check(Kind::Udp, "send", result);
        }
    });
    lane.world.check(Kind::Udp, "send", sent);
}

fn heard_echo(lane: &Rc<Lane>, lp: &mut Loop, datagram: &[u8]) {
    lane.heard.set(lane.heard.get() + 1);
    match parse(datagram) {
        Some(number) if number < lane.next.get() => lane.world.count(Kind::Udp, datagram.len()),
        _ => lane.world.fail(Kind::Udp, format!("{} bytes that were not sent", datagram.len())),
    }
    if !lane.world.ending.get() {
        return send(lane, lp);
    }
    for handle in [lane.client, lane.server] {
        let _ = handle.close(lp);
    }
    let _ = lane.timer.close(lp);
}
