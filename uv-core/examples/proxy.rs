//! A proxy for TCP, on any backend: what comes in on one side goes out on the other.
//!
//! ```sh
//! cargo run -p uv-core --example proxy -- --to 127.0.0.1:80 --port 7002 --backend auto
//! ```
//!
//! Each direction is one buffer that is read into, written from, and read into again. So
//! nobody is read faster than the other side takes it, and memory is two buffers a connection,
//! however much there is to pass on. With `--connections N` it ends after so many.

mod common;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use common::Arguments;
use uv_core::backends::Auto;
use uv_core::{BindFlags, Handle, Loop, RunMode, Stream, Tcp};

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

/// Bytes that are on their way in one direction.
const BUFFER: usize = 64 * 1024;

pub(crate) fn main() -> io::Result<()> {
    let arguments = Arguments::read(&["--backend", "--port", "--connections", "--to"])?;
    let to = arguments.get("--to", SocketAddr::from((Ipv4Addr::LOCALHOST, 80)))?;
    let backend: String = arguments.get("--backend", "auto".into())?;
    let (port, connections) =
        (arguments.get("--port", 7002)?, arguments.get("--connections", u64::MAX)?);
    serve(&backend, port, connections, to, |address| println!("{address} leads to {to}"))
}

/// Passes so many connections on to `to`, after telling on which address.
pub(crate) fn serve(
    backend: &str,
    port: u16,
    connections: u64,
    to: SocketAddr,
    listening: impl FnOnce(SocketAddr),
) -> io::Result<()> {
    let mut lp = Loop::new(common::backend(backend)?);
    let server = Tcp::new(&mut lp);
    server.bind(&mut lp, (Ipv4Addr::LOCALHOST, port).into(), BindFlags::empty())?;
    let mut left = connections;
    server.listen(&mut lp, BACKLOG, move |lp, server, result| {
        if let Err(error) = result.and_then(|()| server.accept(lp)).and_then(|it| join(lp, it, to))
        {
            eprintln!("a connection is given up: {error}");
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

/// Connects a client to where it leads, and passes on what either says.
fn join(lp: &mut Loop<Auto>, client: Tcp, to: SocketAddr) -> io::Result<()> {
    let server = Tcp::new(lp);
    let begun = server.connect(lp, to, move |lp, server, result| {
        if let Err(error) = result {
            eprintln!("{to}: {error}");
            return close_both(lp, client, server);
        }
        pass_on(lp, client, server, vec![0; BUFFER]);
        pass_on(lp, server, client, vec![0; BUFFER]);
    });
    begun.inspect_err(|_| close_both(lp, client, server))
}

/// Reads once from one side; the next read waits until the other has taken all of it.
fn pass_on(lp: &mut Loop<Auto>, from: Tcp, to: Tcp, buffer: Vec<u8>) {
    let reading = from.read(lp, buffer, move |lp, from, count, mut buffer| match count {
        Ok(0) => end(lp, from, to),
        Ok(count) => {
            buffer.truncate(count);
            let writing = to.write(lp, buffer, move |lp, to, result, mut buffer| match result {
                Ok(()) => {
                    buffer.resize(BUFFER, 0);
                    pass_on(lp, from, to, buffer);
                }
                Err(_) => close_both(lp, from, to),
            });
            if writing.is_err() {
                close_both(lp, from, to);
            }
        }
        Err(_) => close_both(lp, from, to),
    });
    if reading.is_err() {
        close_both(lp, from, to);
    }
}

/// One side has said all: the other is told, and may go on until it has, too.
fn end(lp: &mut Loop<Auto>, from: Tcp, to: Tcp) {
    let told = to.shutdown(lp, move |lp, to, result| {
        // A side that cannot be written any more has been told the same.
        if result.is_err() || !from.is_writable(lp) {
            close_both(lp, from, to);
        }
    });
    if told.is_err() {
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
