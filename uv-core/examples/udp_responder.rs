//! A UDP server that answers with the length of what it gets, on any backend.
//!
//! ```sh
//! cargo run -p uv-core --example udp_responder -- --port 7001 --backend auto
//! ```
//!
//! Then `echo hello | nc -u -w1 127.0.0.1 7001`. `--backend` takes the name of a backend that
//! this program was built with, or `auto`. With `--datagrams N` it ends after so many.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use uv_core::backends::Auto;
use uv_core::{Handle, Loop, RunMode, Udp, UdpBind};

pub(crate) fn main() -> io::Result<()> {
    let (mut backend, mut port, mut datagrams) = (String::from("auto"), 7001, u64::MAX);
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| wrong(format!("{name} needs a value")))?;
        let number = || value.parse().map_err(|_| wrong(format!("{name}: {value} is no number")));
        match name.as_str() {
            "--backend" => backend = value,
            "--port" => port = number()? as u16,
            "--datagrams" => datagrams = number()?,
            _ => return Err(wrong(format!("{name}: try --backend, --port or --datagrams"))),
        }
    }
    answer(&backend, port, datagrams, |address| println!("answering on {address}"))
}

/// Answers so many datagrams, after telling on which address.
pub(crate) fn answer(
    backend: &str,
    port: u16,
    mut datagrams: u64,
    ready: impl FnOnce(SocketAddr),
) -> io::Result<()> {
    let backend = if backend == "auto" { Auto::new() } else { Auto::named(backend) };
    let mut lp = Loop::new(backend?);
    let server = Udp::new(&mut lp);
    server.bind(&mut lp, (Ipv4Addr::LOCALHOST, port).into(), UdpBind::empty())?;
    server.recv_start(&mut lp, move |lp, server, datagram| {
        let datagram = match datagram {
            Ok(datagram) => datagram,
            // Errors of UDP are about one datagram: the next may be fine.
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
            // The last answer is in the kernel already, or it is cancelled.
            server.close(lp).expect("it is open");
        }
    })?;
    ready(server.local_addr(&lp)?);
    lp.run(RunMode::Default)?;
    Ok(())
}

fn wrong(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}
