//! `uv-core`, on any backend.

use std::io;
use std::net::TcpListener;

use poll_core::Backend;
use uv_core::{Handle, Listener, Loop, RunMode, Stream, Tcp};

use super::{BACKLOG, Service};

pub(crate) fn serve<B: Backend>(
    backend: B,
    listener: TcpListener,
    service: Service,
) -> io::Result<()> {
    let mut lp = Loop::new(backend);
    let server = Tcp::new(&mut lp);
    server.open(&mut lp, listener)?;
    server.listen(&mut lp, BACKLOG, move |lp, server, result| {
        // A failed accept does not affect other connections.
        let Ok(peer) = result.and_then(|()| server.accept(lp)) else { return };
        let ready = peer.set_nodelay(lp, true).and_then(|()| match service {
            Service::Echo => peer.read_start(lp, echo),
            Service::Sink => peer.read_start(lp, sink),
        });
        if ready.is_err() {
            close(lp, peer);
        }
    })?;
    lp.run(RunMode::Default)?;
    Ok(())
}

fn sink<B: Backend>(lp: &mut Loop<B>, peer: Tcp, bytes: io::Result<&[u8]>) {
    if !matches!(bytes, Ok(bytes) if !bytes.is_empty()) {
        close(lp, peer);
    }
}

fn echo<B: Backend>(lp: &mut Loop<B>, peer: Tcp, bytes: io::Result<&[u8]>) {
    let bytes = match bytes {
        Ok([]) | Err(_) => return close(lp, peer),
        Ok(bytes) => bytes,
    };
    let written = match peer.write_coalesced(lp, bytes) {
        Ok(written) => written,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
        Err(_) => return close(lp, peer),
    };
    if written == bytes.len() {
        return;
    }
    // Back-pressure: the peer reads too slowly, so reading stops until the write completes.
    let rest = bytes[written..].to_vec();
    let queued = peer.read_stop(lp).and_then(|()| {
        peer.write(lp, rest, |lp, peer, result, _| {
            if result.and_then(|()| peer.read_start(lp, echo)).is_err() {
                close(lp, peer);
            }
        })
    });
    if queued.is_err() {
        close(lp, peer);
    }
}

fn close<B: Backend>(lp: &mut Loop<B>, handle: Tcp) {
    // An earlier error may have closed it already.
    let _ = handle.close(lp);
}
