//! A UDP client with time-outs and retries: asks `udp_responder` for the addresses of names.
//!
//! ```sh
//! cargo run -p uv-core --example udp_responder &
//! cargo run -p uv-core --example udp_client -- --server 127.0.0.1:7001 --name red --name blue
//! ```
//!
//! Datagrams may be lost, late or doubled: a query without an answer is sent again, after a time that
//! doubles, and fails after four attempts. Queries are numbered, so that the late answer to one is
//! not taken for that to the next.

mod common;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use uv_core::backends::Auto;
use uv_core::{Handle, Loop, RunMode, Timer, Udp};

const ATTEMPTS: u32 = 4;
const FIRST_WAIT: Duration = Duration::from_millis(50);

#[derive(Default)]
struct Client {
    names: Vec<String>,
    /// One for each name that is done, in order: their number is that of the query under way.
    results: Vec<io::Result<String>>,
    attempt: u32,
    wait: Duration,
}

pub(crate) fn main() -> io::Result<()> {
    let arguments = common::Arguments::read(&["--backend", "--server", "--name"])?;
    let backend: String = arguments.get("--backend", "auto".into())?;
    let server: SocketAddr = arguments.get("--server", ([127, 0, 0, 1], 7001).into())?;
    let names = arguments.all("--name");
    for (name, result) in names.iter().zip(ask(&backend, server, names.clone(), FIRST_WAIT)?) {
        println!("{name}: {}", result.unwrap_or_else(|error| error.to_string()));
    }
    Ok(())
}

/// Asks for one name after the other; returns the answers in order.
pub(crate) fn ask(
    backend: &str,
    server: SocketAddr,
    names: Vec<String>,
    wait: Duration,
) -> io::Result<Vec<io::Result<String>>> {
    let mut lp = Loop::new(common::backend(backend)?);
    *lp.state() = Client { names, wait, ..Client::default() };
    let (udp, timer) = (Udp::new(&mut lp), Timer::new(&mut lp));
    udp.connect(&mut lp, server)?; // Answers of others are not received.
    // Errors, such as a refusal, go to no handler: the timer repeats what is not answered.
    udp.on_recv(&mut lp, move |lp, _, datagram| {
        let Some((number, text)) = datagram.data.split_first_chunk() else { return Ok(()) };
        if u16::from_be_bytes(*number) as usize == lp.state::<Client>().results.len() {
            let text = String::from_utf8_lossy(text).into_owned();
            done(lp, udp, timer, Ok(text));
        }
        Ok(())
    })?;
    attempt(&mut lp, udp, timer);
    lp.run(RunMode::Default)?;
    Ok(std::mem::take(&mut lp.state::<Client>().results))
}

/// Keeps the result of a query, and goes on with the next one.
fn done(lp: &mut Loop<Auto>, udp: Udp, timer: Timer, result: io::Result<String>) {
    let client = lp.state::<Client>();
    client.results.push(result);
    client.attempt = 0;
    attempt(lp, udp, timer);
}

/// Sends the query under way once more, or gives up, or ends.
fn attempt(lp: &mut Loop<Auto>, udp: Udp, timer: Timer) {
    let client = lp.state::<Client>();
    let number = client.results.len();
    let Some(name) = client.names.get(number) else {
        timer.close_if_open(lp);
        return udp.close_if_open(lp);
    };
    if client.attempt == ATTEMPTS {
        return done(lp, udp, timer, Err(io::ErrorKind::TimedOut.into()));
    }
    let query = [&(number as u16).to_be_bytes(), name.as_bytes()].concat();
    let wait = client.wait * 2_u32.pow(client.attempt);
    client.attempt += 1;
    udp.send_to(lp, query, None);
    timer.attempt(lp, |lp| {
        timer.start(lp, wait, Duration::ZERO, move |lp, timer| attempt(lp, udp, timer))
    });
}
