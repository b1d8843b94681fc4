//! A UDP server that answers each datagram with its length, on any backend.
//!
//! ```sh
//! cargo run -p uv-core --example udp_responder -- --port 7001 --backend auto
//! ```
//!
//! Then `echo hello | nc -u -w1 127.0.0.1 7001`. `--backend` takes the name of a backend that
//! this program was built with, or `auto`. With `--datagrams N` it ends after N datagrams.

mod common;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use common::Arguments;
use uv_core::{Handle, Loop, RunMode, Udp, UdpBindFlags};

pub(crate) fn main() -> io::Result<()> {
    let arguments = Arguments::read(&["--backend", "--port", "--datagrams"])?;
    let backend: String = arguments.get("--backend", "auto".into())?;
    let (port, datagrams) =
        (arguments.get("--port", 7001)?, arguments.get("--datagrams", u64::MAX)?);
    answer(&backend, port, datagrams, |address| println!("answering on {address}"))
}

/// Answers a number of datagrams, after a call of `ready` with the address.
pub(crate) fn answer(
    backend: &str,
    port: u16,
    mut datagrams: u64,
    ready: impl FnOnce(SocketAddr),
) -> io::Result<()> {
    let mut lp = Loop::new(common::backend(backend)?);
    let server = Udp::new(&mut lp);
    server.bind(&mut lp, (Ipv4Addr::LOCALHOST, port).into(), UdpBindFlags::empty())?;
    server.recv_start(&mut lp, move |lp, server, datagram| {
        let datagram = match datagram {
            Ok(datagram) => datagram,
            // A UDP error concerns one datagram: the next may succeed.
            Err(error) => return eprintln!("{error}"),
        };
        let (answer, to) = (format!("{} bytes\n", datagram.data.len()), datagram.from);
        let sent = server.send(lp, answer, to, move |_, _, result, _| {
            if let Err(error) = result {
                eprintln!("no answer to {to}: {error}");
            }
        });
        sent.expect("the handle is open and not connected");
        datagrams -= 1;
        if datagrams == 0 {
            // The last answer was sent already, or is cancelled.
            server.close(lp).expect("it is open");
        }
    })?;
    ready(server.local_addr(&lp)?);
    lp.run(RunMode::Default)?;
    Ok(())
}
