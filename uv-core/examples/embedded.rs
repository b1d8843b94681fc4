//! This loop inside another one: mio waits for its own sources and for the loop's descriptor.
//!
//! ```sh
//! cargo run -p uv-core --example embedded -- --ticks 3 --backend auto
//! ```
//!
//! The same steps work in any loop that can poll a descriptor: poll `backend_fd` for reading, for
//! at most `backend_timeout`, then run with `RunMode::NoWait`; if the other loop reports edges, as
//! mio does, until there are no more events. Unix only.

#[cfg(unix)]
pub(crate) fn main() -> std::io::Result<()> {
    let arguments = common::Arguments::read(&["--backend", "--ticks"])?;
    let backend: String = arguments.get("--backend", "auto".into())?;
    let (ticks, datagrams) = run(&backend, arguments.get("--ticks", 3)?)?;
    println!("{ticks} ticks of this loop, {datagrams} datagrams of mio");
    Ok(())
}

#[cfg(unix)]
mod common;

/// Runs until `until` ticks of a timer of the inner loop. Each sends a datagram, which the outer
/// loop receives.
#[cfg(unix)]
pub(crate) fn run(backend: &str, until: u32) -> std::io::Result<(u32, u32)> {
    use mio::unix::SourceFd;
    use mio::{Events, Interest, Poll, Token};
    use std::os::fd::AsRawFd;
    use std::time::Duration;
    use uv_core::{Handle, Loop, RunMode, Timer};

    const INNER: Token = Token(0);
    const SOCKET: Token = Token(1);

    let (mut outer, mut events) = (Poll::new()?, Events::with_capacity(16));
    let mut socket = mio::net::UdpSocket::bind(([127, 0, 0, 1], 0).into())?;
    outer.registry().register(&mut socket, SOCKET, Interest::READABLE)?;
    let to = socket.local_addr()?;

    let mut lp = Loop::new(common::backend(backend)?);
    let (timer, tick) = (Timer::new(&mut lp), Duration::from_millis(2));
    let sender = std::net::UdpSocket::bind("127.0.0.1:0")?;
    timer.start(&mut lp, tick, tick, move |lp, timer| {
        *lp.state::<u32>() += 1;
        timer.attempt(lp, |_| sender.send_to(b"tick", to).map(drop));
        if *lp.state::<u32>() == until {
            timer.close_if_open(lp);
        }
    })?;
    // `select` and `poll` have no descriptor: those loops need a thread of their own.
    let fd = lp.backend_fd().ok_or(std::io::ErrorKind::Unsupported)?;
    outer.registry().register(&mut SourceFd(&fd.as_raw_fd()), INNER, Interest::READABLE)?;

    let mut datagrams = 0;
    while lp.is_alive() || datagrams < until {
        // mio rounds a time-out up to milliseconds, so that no timer is polled for too early.
        match outer.poll(&mut events, lp.backend_timeout()) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {} // By a signal.
            result => result?,
        }
        while socket.recv(&mut [0; 8]).is_ok() {
            datagrams += 1;
        }
        // Also without an event of the inner loop: its timers may be due.
        let metrics = lp.metrics();
        loop {
            let handled = metrics.events();
            if !lp.run(RunMode::NoWait)? || metrics.events() == handled {
                break;
            }
        }
    }
    Ok((*lp.state::<u32>(), datagrams))
}

#[cfg(not(unix))]
fn main() {
    println!("a completion port is no descriptor that another loop could poll");
}
