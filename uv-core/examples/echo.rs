//! An echo server over TCP, on any backend.
//!
//! ```sh
//! cargo run -p uv-core --example echo -- --port 7000 --backend auto
//! ```
//!
//! `--backend` takes the name of a backend that this program was built with, or `auto`.
//! With `--connections N` it ends after N connections.

mod common;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use common::Arguments;
use uv_core::backends::Auto;
use uv_core::{Handle, Listener, Loop, RunMode, Stream, Tcp, TcpBindFlags};

/// The number of connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

pub(crate) fn main() -> io::Result<()> {
    let arguments = Arguments::read(&["--backend", "--port", "--connections"])?;
    let backend: String = arguments.get("--backend", "auto".into())?;
    let (port, connections) =
        (arguments.get("--port", 7000)?, arguments.get("--connections", u64::MAX)?);
    serve(&backend, port, connections, |address| println!("listening on {address}"))
}

/// Serves a number of connections, after a call of `listening` with the address.
pub(crate) fn serve(
    backend: &str,
    port: u16,
    connections: u64,
    listening: impl FnOnce(SocketAddr),
) -> io::Result<()> {
    let backend = common::backend(backend)?;
    eprintln!("running on {}", backend.name());
    let mut lp = Loop::new(backend);

    let server = Tcp::new(&mut lp);
    server.bind(&mut lp, (Ipv4Addr::LOCALHOST, port).into(), TcpBindFlags::empty())?;
    let mut left = connections;
    server.listen(&mut lp, BACKLOG, move |lp, server, result| {
        let accepted = result.and_then(|()| server.accept(lp)).and_then(|peer| {
            peer.set_nodelay(lp, true)?;
            peer.read_start(lp, echo)
        });
        if let Err(error) = accepted {
            eprintln!("accept: {error}");
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

fn echo(lp: &mut Loop<Auto>, peer: Tcp, bytes: io::Result<&[u8]>) {
    let bytes = match bytes {
        Ok([]) | Err(_) => return close(lp, peer),
        Ok(bytes) => bytes,
    };
    // Usually the kernel takes all bytes, and no copy is needed.
    let written = match peer.try_write(lp, bytes) {
        Ok(written) => written,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
        Err(_) => return close(lp, peer),
    };
    if written < bytes.len() {
        // Back-pressure: the peer reads slower than it writes, so reading stops until the rest is
        // written.
        let rest = bytes[written..].to_vec();
        let _ = peer.read_stop(lp); // The handle is open.
        peer.write_with(lp, rest, |lp, peer, result, _| {
            if result.and_then(|()| peer.read_start(lp, echo)).is_err() {
                close(lp, peer);
            }
        });
    }
}

fn close(lp: &mut Loop<Auto>, handle: Tcp) {
    // It may be closing already, because of an earlier error.
    let _ = handle.close(lp);
}
