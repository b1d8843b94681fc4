//! A TCP proxy, on any backend.
//!
//! ```sh
//! cargo run -p uv-core --example proxy -- --to 127.0.0.1:80 --port 7002 --backend auto
//! ```
//!
//! Each direction has one buffer, which is read into and then written. So no side is read faster
//! than the other accepts, and a connection uses two buffers, however many bytes it transfers. With
//! `--connections N` the proxy ends after N connections.

mod common;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use common::Arguments;
use uv_core::backends::Auto;
use uv_core::{Handle, Listener, Loop, RunMode, Stream, Tcp, TcpBindFlags};

/// The number of connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

/// The size of the buffer of one direction.
const BUFFER: usize = 64 * 1024;

pub(crate) fn main() -> io::Result<()> {
    let arguments = Arguments::read(&["--backend", "--port", "--connections", "--to"])?;
    let to = arguments.get("--to", SocketAddr::from((Ipv4Addr::LOCALHOST, 80)))?;
    let backend: String = arguments.get("--backend", "auto".into())?;
    let (port, connections) =
        (arguments.get("--port", 7002)?, arguments.get("--connections", u64::MAX)?);
    serve(&backend, port, connections, to, |address| println!("forwarding {address} to {to}"))
}

/// Forwards a number of connections to `to`, after a call of `listening` with the address.
pub(crate) fn serve(
    backend: &str,
    port: u16,
    connections: u64,
    to: SocketAddr,
    listening: impl FnOnce(SocketAddr),
) -> io::Result<()> {
    let mut lp = Loop::new(common::backend(backend)?);
    let server = Tcp::new(&mut lp);
    server.bind(&mut lp, (Ipv4Addr::LOCALHOST, port).into(), TcpBindFlags::empty())?;
    let mut left = connections;
    server.listen(&mut lp, BACKLOG, move |lp, server, result| {
        if let Err(error) = result.and_then(|()| server.accept(lp)).and_then(|it| join(lp, it, to))
        {
            eprintln!("connection dropped: {error}");
        }
        left -= 1;
        if left == 0 {
            close(lp, server);
        }
    })?;
    listening(server.local_addr(&lp)?);
    lp.run(RunMode::Default)?;
    Ok(())
}

/// Connects to the server, and forwards bytes in both directions.
fn join(lp: &mut Loop<Auto>, client: Tcp, to: SocketAddr) -> io::Result<()> {
    let server = Tcp::new(lp);
    let begun = server.connect(lp, to, move |lp, server, result| {
        if let Err(error) = result {
            eprintln!("{to}: {error}");
            return close_both(lp, client, server);
        }
        forward(lp, client, server, vec![0; BUFFER]);
        forward(lp, server, client, vec![0; BUFFER]);
    });
    begun.inspect_err(|_| close_both(lp, client, server))
}

/// Reads once from one side and writes it to the other. The next read starts after the write.
fn forward(lp: &mut Loop<Auto>, from: Tcp, to: Tcp, buffer: Vec<u8>) {
    from.read_with(lp, buffer, move |lp, from, count, mut buffer| match count {
        Ok(0) => end(lp, from, to),
        Ok(count) => {
            buffer.truncate(count);
            to.write_with(lp, buffer, move |lp, to, result, mut buffer| match result {
                Ok(()) => {
                    buffer.resize(BUFFER, 0);
                    forward(lp, from, to, buffer);
                }
                Err(_) => close_both(lp, from, to),
            });
        }
        Err(_) => close_both(lp, from, to),
    });
}

/// Forwards the end of one direction; the other direction may continue.
fn end(lp: &mut Loop<Auto>, from: Tcp, to: Tcp) {
    let shutdown = to.shutdown(lp, move |lp, to, result| {
        // If the other side was shut down as well, both directions have ended.
        if result.is_err() || !from.is_writable(lp) {
            close_both(lp, from, to);
        }
    });
    if shutdown.is_err() {
        close_both(lp, from, to);
    }
}

fn close_both(lp: &mut Loop<Auto>, one: Tcp, other: Tcp) {
    close(lp, one);
    close(lp, other);
}

fn close(lp: &mut Loop<Auto>, handle: Tcp) {
    // It may be closing already, because of an earlier error.
    let _ = handle.close(lp);
}
