//! The peer of every socket, in the thread of the loop.

use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};

use super::{Action, Answer, REQUEST, fail};

/// A socket that sends requests and one that receives answers: the same one, unless the driver
/// runs alone.
#[derive(Debug)]
struct Peer {
    to: OwnedFd,
    from: OwnedFd,
}

/// Sends requests to a server in this thread, and receives its answers.
///
/// Rounds alternate between two groups of connections. The answers to a round are received before
/// the next request of the same group. The round of the other group in between lets a loop that
/// submits writes with its next wait do so, as with remote clients.
#[derive(Debug)]
pub(super) struct Driver {
    groups: [Vec<Peer>; 2],
    answers: bool,
    rounds: u64,
}

/// Two connected sockets, both without Nagle's algorithm.
pub(super) fn tcp_pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let ours = TcpStream::connect(listener.local_addr()?)?;
    let (theirs, _) = listener.accept()?;
    ours.set_nodelay(true)?;
    theirs.set_nodelay(true)?;
    Ok((ours, theirs))
}

impl Driver {
    /// Sockets for `connections` in each group; the server gets the other ends.
    pub(super) fn tcp(connections: usize, answers: bool) -> io::Result<(Driver, Vec<TcpStream>)> {
        let (mut driver, mut servers) = (Driver::new(answers), Vec::new());
        for group in &mut driver.groups {
            for _ in 0..connections {
                let (ours, theirs) = tcp_pair()?;
                group.push(Peer { from: ours.try_clone()?.into(), to: ours.into() });
                servers.push(theirs);
            }
        }
        Ok((driver, servers))
    }

    /// One datagram socket in each group, connected to the server's.
    pub(super) fn udp() -> io::Result<(Driver, UdpSocket)> {
        let (mut driver, server) = (Driver::new(true), UdpSocket::bind("127.0.0.1:0")?);
        for group in &mut driver.groups {
            let ours = UdpSocket::bind("127.0.0.1:0")?;
            ours.connect(server.local_addr()?)?;
            group.push(Peer { from: ours.try_clone()?.into(), to: ours.into() });
        }
        Ok((driver, server))
    }

    /// Socket pairs without a loop: requests sent at one end are received at the other.
    fn to_itself(connections: usize, answers: bool) -> io::Result<Driver> {
        let mut driver = Driver::new(answers);
        for group in &mut driver.groups {
            for _ in 0..connections {
                let (ours, theirs) = tcp_pair()?;
                group.push(Peer { to: ours.into(), from: theirs.into() });
            }
        }
        Ok(driver)
    }

    fn new(answers: bool) -> Driver {
        Driver { groups: [Vec::new(), Vec::new()], answers, rounds: 0 }
    }

    /// Receives the answers to the group's last round, and sends its next requests.
    #[inline(never)]
    pub(super) fn round(&mut self) -> io::Result<()> {
        let group = &self.groups[(self.rounds % 2) as usize];
        if self.answers && self.rounds >= 2 {
            for peer in group {
                receive(&peer.from)?;
            }
        }
        for peer in group {
            send(&peer.to)?;
        }
        self.rounds += 1;
        Ok(())
    }
}

/// Receives one answer; blocks until it arrives.
#[inline(never)]
pub(super) fn receive(socket: &OwnedFd) -> io::Result<()> {
    let mut answer = [0_u8; REQUEST];
    // SAFETY: `answer` is valid for writes of its length.
    let count = unsafe { libc::recv(socket.as_raw_fd(), answer.as_mut_ptr().cast(), REQUEST, 0) };
    whole(count)
}

#[inline(never)]
fn send(socket: &OwnedFd) -> io::Result<()> {
    let request = [7_u8; REQUEST];
    // SAFETY: `request` is valid for reads of its length.
    let count = unsafe {
        libc::send(socket.as_raw_fd(), request.as_ptr().cast(), REQUEST, libc::MSG_NOSIGNAL)
    };
    whole(count)
}

fn whole(count: isize) -> io::Result<()> {
    match count {
        count if count == REQUEST as isize => Ok(()),
        count if count < 0 => Err(io::Error::last_os_error()),
        count => Err(io::Error::other(format!("{count} bytes instead of {REQUEST}"))),
    }
}

/// Keeps the only thread of a pool in step with its loop, so that either runs while the other is
/// blocked and every run takes the same path: the thread neither sleeps without work nor competes for
/// a lock.
///
/// The last job of each round is a gate. It reports that the jobs before it have ended, and occupies
/// the thread while the loop calls back and queues the jobs of the next round.
#[derive(Debug)]
pub(super) struct Gate {
    reached: (PipeReader, PipeWriter),
    opened: (PipeReader, PipeWriter),
}

impl Gate {
    /// It is never dropped: the last job of a path stays at it.
    pub(super) fn new() -> io::Result<&'static Gate> {
        let gate = Gate { reached: io::pipe()?, opened: io::pipe()? };
        Ok(Box::leak(Box::new(gate)))
    }

    /// The job: notifies the loop, and blocks until the loop opens the gate.
    pub(super) fn job(&self) {
        self.arrive();
        take(&self.opened.0);
    }

    /// Blocks until the thread is at the gate.
    pub(super) fn wait(&self) {
        take(&self.reached.0);
    }

    /// Lets the thread run until it is at the gate of the next round.
    pub(super) fn pass(&self) {
        self.open();
        self.wait();
    }

    fn arrive(&self) {
        give(&self.reached.1);
    }

    pub(super) fn open(&self) {
        give(&self.opened.1);
    }

    /// The calls of both sides, without jobs.
    fn alone(rounds: u64) -> io::Result<()> {
        let gate = Gate::new()?;
        for _ in 0..rounds {
            gate.open();
            take(&gate.opened.0);
            gate.arrive();
            gate.wait();
        }
        Ok(())
    }
}

#[inline(never)]
fn take(mut from: &PipeReader) {
    if !matches!(from.read(&mut [0]), Ok(1)) {
        fail("a gate of the pool does not open");
    }
}

#[inline(never)]
fn give(mut to: &PipeWriter) {
    if !matches!(to.write(&[0]), Ok(1)) {
        fail("a gate of the pool does not open");
    }
}

/// Runs the driver of a path without its loop.
pub(super) fn alone(action: Action, rounds: u64) -> io::Result<()> {
    let (connections, answers) = match action {
        Action::Echo(answer, connections) => (connections, answer != Answer::Nothing),
        Action::Write | Action::TryWrite => return receive_alone(rounds),
        Action::Work => return Gate::alone(rounds),
        _ => (1, true),
    };
    let mut driver = Driver::to_itself(connections, answers)?;
    for _ in 0..rounds {
        driver.round()?;
    }
    Ok(())
}

/// Receives answers that one write has buffered before: few enough for any socket buffer.
fn receive_alone(rounds: u64) -> io::Result<()> {
    // The same in each run, so that its cost cancels out.
    const MOST: usize = 64 * 1024;
    let (mut ours, theirs) = tcp_pair()?;
    let theirs = OwnedFd::from(theirs);
    // A longer run would block for ever; the lengths are constants.
    if rounds as usize > MOST / REQUEST {
        return Err(io::Error::other(
            "the answers of all rounds do not fit into a socket buffer: use fewer rounds",
        ));
    }
    ours.write_all(&[7; MOST])?;
    for _ in 0..rounds {
        receive(&theirs)?;
    }
    Ok(())
}
