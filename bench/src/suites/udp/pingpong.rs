//! Hand-written ping-pong on a poller.

use std::io;
use std::net::UdpSocket;

use poll_core::RawSource;

use super::{PATIENCE, PingPong, SIZE, Trips};
use crate::clock::Stopwatch;
use crate::pollers::{OnPoller, Poller};
use crate::suite::Sample;

pub(super) fn socket() -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Receives a datagram; `None` if the socket is drained.
fn unless_blocked<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

impl OnPoller for PingPong {
    fn run<P: Poller>(&self, mut poller: P) -> io::Result<Sample> {
        let mut trips = Trips::new(*self);
        let server = socket()?;
        poller.add(self.pingers, RawSource::of(&server))?;
        let mut pingers = Vec::new();
        for number in 0..self.pingers {
            let pinger = socket()?;
            pinger.connect(server.local_addr()?)?;
            poller.add(number, RawSource::of(&pinger))?;
            pingers.push(pinger);
        }
        for (number, pinger) in pingers.iter().enumerate() {
            if let Some(ping) = trips.ping(number) {
                pinger.send(&ping)?;
            }
        }
        let (mut ready, mut buffer) = (Vec::new(), [0; SIZE + 1]);
        let watch = Stopwatch::start();
        while !trips.is_over() {
            ready.clear();
            poller.wait(Some(PATIENCE), &mut ready)?;
            for &number in &ready {
                if number == self.pingers {
                    serve::<P>(&server, &mut buffer)?;
                } else {
                    go_on::<P>(&mut trips, number, &pingers[number], &mut buffer)?;
                }
            }
            if ready.is_empty() {
                for (number, ping) in trips.lost() {
                    unless_blocked(pingers[number].send(&ping))?;
                }
            }
        }
        let spent = watch.spent();
        poller.remove(self.pingers, RawSource::of(&server))?;
        for (number, pinger) in pingers.iter().enumerate() {
            poller.remove(number, RawSource::of(pinger))?;
        }
        Ok(trips.sample(spent))
    }
}

/// Answers one datagram, or all on an edge-triggered poller.
fn serve<P: Poller>(server: &UdpSocket, buffer: &mut [u8]) -> io::Result<()> {
    while let Some((length, from)) = unless_blocked(server.recv_from(buffer))? {
        // A datagram that the kernel rejects counts as lost and is resent.
        unless_blocked(server.send_to(&buffer[..length], from))?;
        if !P::EDGE {
            break;
        }
    }
    Ok(())
}

fn go_on<P: Poller>(
    trips: &mut Trips,
    number: usize,
    pinger: &UdpSocket,
    buffer: &mut [u8],
) -> io::Result<()> {
    while let Some(length) = unless_blocked(pinger.recv(buffer))? {
        if trips.pong(number, &buffer[..length])
            && let Some(ping) = trips.ping(number)
        {
            unless_blocked(pinger.send(&ping))?;
        }
        if !P::EDGE {
            break;
        }
    }
    Ok(())
}
