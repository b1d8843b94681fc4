//! The paths on uv-core's loop, written as its documentation recommends.

use std::cell::Cell;
use std::io;
use std::net::UdpSocket;
use std::rc::Rc;
use std::time::Duration;

use poll_core::Backend;
use uv_core::fs::{self, File, OpenOptions};
use uv_core::{Async, Loop, Pool, RunMode, Stream, Tcp, Timer, Udp, WorkError};

use super::driver::{self, Driver, Gate};
use super::{
    Action, Answer, MANY, OTHER_TIMERS, PIECE, REQUEST, TIMERS, check, count_done, done, fail,
    keep, timeouts,
};
use crate::temporary::Temporary;

pub(super) fn run<B: Backend>(backend: B, action: Action, rounds: u64) -> io::Result<()> {
    let mut lp = Loop::new(backend);
    let result = match action {
        Action::Echo(answer, connections) => echo(&mut lp, answer, connections, rounds),
        Action::Write => write(&mut lp, rounds),
        Action::TryWrite => try_write(&mut lp, rounds),
        Action::TimerStart => timer_start(&mut lp, rounds),
        Action::TimerStop => timer_stop(&mut lp, rounds),
        Action::TimerRestart => timer_restart(&mut lp, rounds),
        Action::TimerFire => timer_fire(&mut lp, rounds),
        Action::AsyncSend => async_send(&mut lp, rounds),
        Action::Work => work(&mut lp, rounds),
        Action::UdpSend => udp_echo(&mut lp, UdpAnswer::Send, rounds),
        Action::UdpTrySend => udp_echo(&mut lp, UdpAnswer::TrySend, rounds),
        Action::FsRead => fs_read(&mut lp, rounds),
        Action::Iteration => iterations(&mut lp, rounds),
    };
    keep(lp);
    result
}

/// A buffer that is recycled from write to write.
type Recycled = Rc<Cell<Vec<u8>>>;

fn recycled() -> Recycled {
    Rc::new(Cell::new(Vec::with_capacity(64 * 1024)))
}

fn echo<B: Backend>(
    lp: &mut Loop<B>,
    answer: Answer,
    connections: usize,
    rounds: u64,
) -> io::Result<()> {
    let (mut driver, servers) = Driver::tcp(connections, answer != Answer::Nothing)?;
    for server in servers {
        let tcp = Tcp::new(lp);
        tcp.open(lp, server)?;
        match answer {
            Answer::Write => {
                let buffer = recycled();
                tcp.read_start(lp, move |lp, tcp, bytes| answer_by_write(lp, tcp, bytes, &buffer))?;
            }
            Answer::TryWrite => tcp.read_start(lp, |lp, tcp, bytes| {
                answered(bytes.and_then(|bytes| tcp.try_write(lp, bytes)));
            })?,
            Answer::Batched => tcp.read_start(lp, |lp, tcp, bytes| {
                answered(bytes.and_then(|bytes| tcp.write_coalesced(lp, bytes)));
            })?,
            Answer::Nothing => tcp.read_start(lp, |_, _, bytes| {
                answered(bytes.map(|bytes| bytes.len()));
            })?,
        }
    }
    for round in 1..=rounds {
        driver.round()?;
        while done() < round * connections as u64 {
            lp.run(RunMode::Once)?;
        }
    }
    check(rounds * connections as u64)
}

/// Counts an answer to a whole request. A missing one blocks the driver or fails the check.
fn answered(written: io::Result<usize>) {
    match written {
        Ok(REQUEST) => count_done(),
        written => fail(&format!("a request is answered in part only: {written:?}")),
    }
}

fn answer_by_write<B: Backend>(
    lp: &mut Loop<B>,
    tcp: Tcp,
    bytes: io::Result<&[u8]>,
    buffer: &Recycled,
) {
    let mut answer = buffer.take();
    answer.clear();
    answer.extend_from_slice(bytes.unwrap_or_default());
    let recycle = Rc::clone(buffer);
    let queued = tcp.write(lp, answer, move |_, _, result, answer| {
        answered(result.map(|()| answer.len()));
        recycle.set(answer);
    });
    if let Err(error) = queued {
        fail(&error.to_string());
    }
}

fn write<B: Backend>(lp: &mut Loop<B>, rounds: u64) -> io::Result<()> {
    let (ours, theirs) = driver::tcp_pair()?;
    let (tcp, theirs) = (Tcp::new(lp), theirs.into());
    tcp.open(lp, ours)?;
    let buffer = recycled();
    buffer.set(vec![7; REQUEST]);
    for round in 1..=rounds {
        let recycle = Rc::clone(&buffer);
        tcp.write(lp, buffer.take(), move |_, _, result, bytes| {
            answered(result.map(|()| bytes.len()));
            recycle.set(bytes);
        })?;
        while done() < round {
            lp.run(RunMode::Once)?;
        }
        driver::receive(&theirs)?;
    }
    check(rounds)
}

fn try_write<B: Backend>(lp: &mut Loop<B>, rounds: u64) -> io::Result<()> {
    let (ours, theirs) = driver::tcp_pair()?;
    let (tcp, theirs) = (Tcp::new(lp), theirs.into());
    tcp.open(lp, ours)?;
    let bytes = [7; REQUEST];
    for _ in 0..rounds {
        answered(tcp.try_write(lp, &bytes));
        driver::receive(&theirs)?;
    }
    check(rounds)
}

/// Started timers, and one more for each round that is not started.
fn timers<B: Backend>(lp: &mut Loop<B>, timeouts: &[u64]) -> io::Result<Vec<Timer>> {
    let timers: Vec<Timer> = timeouts.iter().map(|_| Timer::new(lp)).collect();
    for (timer, timeout) in timers.iter().zip(timeouts).take(OTHER_TIMERS) {
        start(lp, *timer, *timeout)?;
    }
    Ok(timers)
}

#[inline]
fn start<B: Backend>(lp: &mut Loop<B>, timer: Timer, timeout_ms: u64) -> io::Result<()> {
    timer.start(lp, Duration::from_millis(timeout_ms), Duration::ZERO, |_, _| count_done())
}

fn timer_start<B: Backend>(lp: &mut Loop<B>, rounds: u64) -> io::Result<()> {
    let timeouts = timeouts(2 * OTHER_TIMERS);
    let timers = timers(lp, &timeouts)?;
    let idle = timers.iter().zip(&timeouts).skip(OTHER_TIMERS);
    for (timer, timeout) in idle.take(rounds as usize) {
        start(lp, *timer, *timeout)?;
    }
    keep(timers);
    Ok(())
}

fn timer_stop<B: Backend>(lp: &mut Loop<B>, rounds: u64) -> io::Result<()> {
    let timeouts = timeouts(OTHER_TIMERS);
    let timers = timers(lp, &timeouts)?;
    for timer in timers.iter().take(rounds as usize) {
        timer.stop(lp)?;
    }
    keep(timers);
    Ok(())
}

fn timer_restart<B: Backend>(lp: &mut Loop<B>, rounds: u64) -> io::Result<()> {
    let timeouts = timeouts(OTHER_TIMERS);
    let timers = timers(lp, &timeouts)?;
    for (timer, timeout) in timers.iter().zip(&timeouts).take(rounds as usize) {
        start(lp, *timer, *timeout + 60_000)?;
    }
    keep(timers);
    Ok(())
}

fn timer_fire<B: Backend>(lp: &mut Loop<B>, rounds: u64) -> io::Result<()> {
    let timers: Vec<Timer> = (0..TIMERS).map(|_| Timer::new(lp)).collect();
    for round in 1..=rounds {
        for timer in &timers {
            start(lp, *timer, 0)?;
        }
        while done() < round * TIMERS as u64 {
            lp.run(RunMode::Once)?;
        }
    }
    keep(timers);
    check(rounds * TIMERS as u64)
}

fn async_send<B: Backend>(lp: &mut Loop<B>, rounds: u64) -> io::Result<()> {
    let (_, sender) = Async::new(lp, |_, _| count_done());
    for round in 1..=rounds {
        sender.send()?;
        while done() < round {
            lp.run(RunMode::Once)?;
        }
    }
    check(rounds)
}

fn work<B: Backend>(lp: &mut Loop<B>, rounds: u64) -> io::Result<()> {
    let gate = Gate::new()?;
    lp.set_pool(Pool::new(1)?);
    lp.queue_work(|| gate.job(), worked)?;
    gate.wait();
    for round in 1..=rounds {
        for _ in 1..MANY {
            lp.queue_work(|| (), worked)?;
        }
        lp.queue_work(|| gate.job(), worked)?;
        gate.pass();
        while done() < round * MANY as u64 {
            lp.run(RunMode::Once)?;
        }
    }
    check(rounds * MANY as u64)
}

fn worked<B: Backend>(_: &mut Loop<B>, result: Result<(), WorkError>) {
    match result {
        Ok(()) => count_done(),
        Err(error) => fail(&error.to_string()),
    }
}

/// The way a datagram is answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UdpAnswer {
    Send,
    TrySend,
}

fn udp_echo<B: Backend>(lp: &mut Loop<B>, answer: UdpAnswer, rounds: u64) -> io::Result<()> {
    let (mut driver, server) = Driver::udp()?;
    let udp = Udp::new(lp);
    udp.open(lp, server)?;
    let buffer = recycled();
    udp.recv_start(lp, move |lp, udp, datagram| {
        let Ok(datagram) = datagram else { fail("a datagram is lost on the loopback interface") };
        if answer == UdpAnswer::TrySend {
            return answered(udp.try_send(lp, datagram.data, datagram.from));
        }
        let mut bytes = buffer.take();
        bytes.clear();
        bytes.extend_from_slice(datagram.data);
        let recycle = Rc::clone(&buffer);
        let sent = udp.send(lp, bytes, datagram.from, move |_, _, result, bytes| {
            answered(result.map(|()| bytes.len()));
            recycle.set(bytes);
        });
        if let Err(error) = sent {
            fail(&error.to_string());
        }
    })?;
    for round in 1..=rounds {
        driver.round()?;
        while done() < round {
            lp.run(RunMode::Once)?;
        }
    }
    check(rounds)
}

fn fs_read<B: Backend>(lp: &mut Loop<B>, rounds: u64) -> io::Result<()> {
    lp.set_pool(Pool::new(1)?);
    let file = Temporary::new("count", &[7; PIECE]);
    let open = fs::open(file.path()?, OpenOptions::new().read(true)).perform()?;
    let buffer = recycled();
    buffer.set(vec![0; PIECE]);
    for round in 1..=rounds {
        read_piece(lp, &open, &buffer)?;
        while done() < round {
            lp.run(RunMode::Once)?;
        }
    }
    keep(open);
    check(rounds)
}

fn read_piece<B: Backend>(lp: &mut Loop<B>, file: &File, buffer: &Recycled) -> io::Result<()> {
    let recycle = Rc::clone(buffer);
    fs::read_at(file, buffer.take(), 0).start(lp, move |_, (count, piece)| {
        match count {
            Ok(PIECE) => count_done(),
            count => fail(&format!("a piece is read in part only: {count:?}")),
        }
        recycle.set(piece);
    })?;
    Ok(())
}

fn iterations<B: Backend>(lp: &mut Loop<B>, rounds: u64) -> io::Result<()> {
    let quiet = Udp::new(lp);
    quiet.open(lp, UdpSocket::bind("127.0.0.1:0")?)?;
    quiet.recv_start(lp, |_, _, _| fail("the quiet socket received a datagram"))?;
    for _ in 0..rounds {
        lp.run(RunMode::NoWait)?;
    }
    Ok(())
}
