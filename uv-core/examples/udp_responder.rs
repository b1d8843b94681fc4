//! A DNS-like UDP responder, on any backend: a name is answered with its address.
//!
//! ```sh
//! cargo run -p uv-core --example udp_responder -- --port 7001 --backend auto
//! ```
//!
//! A query is a number of two bytes and a name; the answer is the same number and an address, so that
//! the client knows which of its queries it is for: `printf '..red' | nc -u -w1 127.0.0.1 7001`. With
//! `--datagrams N` it ends after N answers.

mod common;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use common::Arguments;
use uv_core::{Handle, Loop, RunMode, Udp};

const NAMES: [(&str, &str); 3] =
    [("red", "192.0.2.1"), ("green", "192.0.2.2"), ("blue", "192.0.2.3")];

pub(crate) fn main() -> io::Result<()> {
    let arguments = Arguments::read(&["--backend", "--port", "--datagrams"])?;
    let backend: String = arguments.get("--backend", "auto".into())?;
    let (port, datagrams) =
        (arguments.get("--port", 7001)?, arguments.get("--datagrams", u64::MAX)?);
    answer(&backend, port, datagrams, |address| println!("answering on {address}"))
}

/// Answers a number of queries, after a call of `ready` with the address.
pub(crate) fn answer(
    backend: &str,
    port: u16,
    mut left: u64,
    ready: impl FnOnce(SocketAddr),
) -> io::Result<()> {
    let mut lp = Loop::new(common::backend(backend)?);
    lp.on_error(|_, handle, error| eprintln!("{handle}: {error}"));
    let server = Udp::bind_to(&mut lp, (Ipv4Addr::LOCALHOST, port))?;
    server.on_recv(&mut lp, move |lp, server, datagram| {
        // Not a query: silence invites no more of them.
        let Some(answer) = answer_to(datagram.data) else { return Ok(()) };
        left -= 1;
        if left > 0 {
            server.send_to(lp, answer, datagram.from);
            return Ok(());
        }
        // A close would cancel the last answer.
        server.send_with(lp, answer, datagram.from, |lp, server, result, _| {
            server.attempt(lp, |lp| result.and_then(|()| server.close(lp)));
        });
        server.recv_stop(lp)
    })?;
    ready(server.local_addr(&lp)?);
    lp.run(RunMode::Default)?;
    Ok(())
}

fn answer_to(query: &[u8]) -> Option<Vec<u8>> {
    let (number, name) = query.split_at_checked(2)?;
    let found = NAMES.iter().find(|(known, _)| known.as_bytes() == name.trim_ascii());
    let address = found.map_or("no such name", |(_, address)| *address);
    Some([number, address.as_bytes()].concat())
}
