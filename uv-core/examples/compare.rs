//! The same server and client on every backend of this machine, in one program.
//!
//! ```sh
//! cargo run --release -p uv-core --features select,poll,uring --example compare -- --messages 20000
//! ```
//!
//! Prints the round trips per second of 32 connections over one loop. A measurement that deserves
//! the name is `cargo run --release -p bench`.

mod common;

use std::io;
use std::time::Instant;

use uv_core::backends::Auto;
use uv_core::{Handle, Loop, RunMode, Stream, Tcp};

const CONNECTIONS: u64 = 32;

/// The messages that are left to send, and those that came back.
#[derive(Default)]
struct Count {
    left: u64,
    echoed: u64,
}

pub(crate) fn main() -> io::Result<()> {
    let arguments = common::Arguments::read(&["--messages"])?;
    let messages = arguments.get("--messages", 20_000)?;
    for name in Auto::NAMES {
        match measure(name, messages) {
            Ok((echoed, rate)) => println!("{name:8} {echoed} messages, {rate:9.0} per second"),
            Err(error) => println!("{name:8} {error}"),
        }
    }
    Ok(())
}

/// Sends messages over several connections; returns how many came back, and how many per second.
pub(crate) fn measure(backend: &str, messages: u64) -> io::Result<(u64, f64)> {
    let mut lp = Loop::new(common::backend(backend)?);
    lp.state::<Count>().left = messages;
    let server = Tcp::listen_on(&mut lp, "127.0.0.1:0", |lp, peer| {
        peer.on_read(lp, |lp, peer, bytes| {
            match bytes {
                [] => peer.finish(lp),
                bytes => peer.send(lp, bytes.to_vec()),
            }
            Ok(())
        })
    })?;
    let to = server.local_addr(&lp)?;
    let begun = Instant::now();
    for _ in 0..CONNECTIONS {
        Tcp::connect_to(&mut lp, to, move |lp, client, result| {
            client.attempt(lp, |lp| {
                result?;
                next(lp, client, server);
                client.on_read(lp, move |lp, client, _| {
                    lp.state::<Count>().echoed += 1;
                    next(lp, client, server);
                    Ok(())
                })
            });
        });
    }
    lp.run(RunMode::Default)?;
    let echoed = lp.state::<Count>().echoed;
    Ok((echoed, echoed as f64 / begun.elapsed().as_secs_f64()))
}

/// Sends the next message, or ends.
fn next(lp: &mut Loop<Auto>, client: Tcp, server: Tcp) {
    let count = lp.state::<Count>();
    match count.left.checked_sub(1) {
        Some(left) => {
            count.left = left;
            client.send(lp, "ping");
        }
        None => {
            client.close_if_open(lp);
            server.close_if_open(lp);
        }
    }
}
