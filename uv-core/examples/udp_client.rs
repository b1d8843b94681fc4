//! A UDP client with time-outs and retries: asks `udp_responder` and prints the answers.
//!
//! ```sh
//! cargo run -p uv-core --example udp_responder &
//! cargo run -p uv-core --example udp_client -- --server 127.0.0.1:7001 --queries 3
//! ```
//!
//! Datagrams may be lost: a query without an answer is sent again, after a time that doubles, and
//! fails after four attempts.

mod common;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use uv_core::backends::Auto;
use uv_core::{Handle, Loop, RunMode, Timer, Udp};

const ATTEMPTS: u32 = 4;
const FIRST_WAIT: Duration = Duration::from_millis(50);

/// The query under way.
#[derive(Default)]
struct Client {
    queries: Vec<String>,
    attempt: u32,
    results: Vec<io::Result<String>>,
}

pub(crate) fn main() -> io::Result<()> {
    let arguments = common::Arguments::read(&["--backend", "--server", "--queries"])?;
    let backend: String = arguments.get("--backend", "auto".into())?;
    let server: SocketAddr = arguments.get("--server", ([127, 0, 0, 1], 7001).into())?;
    let queries = (1..=arguments.get("--queries", 3)?).map(|number| "x".repeat(number)).collect();
    for result in ask(&backend, server, queries)? {
        println!("{}", result.as_deref().map_or_else(io::Error::to_string, str::to_owned));
    }
    Ok(())
}

/// Sends the queries one after the other; returns their answers in order.
pub(crate) fn ask(
    backend: &str,
    server: SocketAddr,
    mut queries: Vec<String>,
) -> io::Result<Vec<io::Result<String>>> {
    let mut lp = Loop::new(common::backend(backend)?);
    queries.reverse();
    lp.state::<Client>().queries = queries;
    let (udp, timer) = (Udp::new(&mut lp), Timer::new(&mut lp));
    udp.connect(&mut lp, server)?; // Answers of others are not received.
    udp.recv_start(&mut lp, move |lp, _, datagram| {
        // An error, such as a refusal, is no answer: the timer decides.
        let Ok(datagram) = datagram else { return };
        let answer = String::from_utf8_lossy(datagram.data).trim_end().to_owned();
        next(lp, udp, timer, Some(Ok(answer)));
    })?;
    next(&mut lp, udp, timer, None);
    lp.run(RunMode::Default)?;
    Ok(std::mem::take(&mut lp.state::<Client>().results))
}

/// Keeps the result of a query and sends the next one, or ends.
fn next(lp: &mut Loop<Auto>, udp: Udp, timer: Timer, result: Option<io::Result<String>>) {
    let client = lp.state::<Client>();
    if let Some(result) = result {
        client.queries.pop();
        client.results.push(result);
    }
    client.attempt = 0;
    if client.queries.is_empty() {
        timer.close_if_open(lp);
        return udp.close_if_open(lp);
    }
    send(lp, udp, timer);
}

fn send(lp: &mut Loop<Auto>, udp: Udp, timer: Timer) {
    let client = lp.state::<Client>();
    let (attempt, query) = (client.attempt, client.queries.last().cloned().unwrap_or_default());
    client.attempt += 1;
    if attempt == ATTEMPTS {
        return next(lp, udp, timer, Some(Err(io::ErrorKind::TimedOut.into())));
    }
    // A send that fails is as lost as a datagram: the timer repeats it.
    let _ = udp.send(lp, query, None, |_, _, _, _| {});
    let wait = FIRST_WAIT * 2_u32.pow(attempt);
    timer.attempt(lp, |lp| {
        timer.start(lp, wait, Duration::ZERO, move |lp, timer| send(lp, udp, timer))
    });
}
