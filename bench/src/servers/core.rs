//! `uv-core`, on any backend.
//!
//! Its best: an answer is copied by `write_coalesced`, so that the answers of all connections leave
//! with the next wait. Compared with `try_write`, which makes a system call for each: about equal on
//! epoll, where a coalesced write of a single connection is a call too, and fewer calls on io_uring.

use std::cell::RefCell;
use std::io;
use std::net::TcpListener;
use std::rc::Rc;
use std::time::Duration;

use poll_core::Backend;
use uv_core::{Handle, Listener, Loop, RunMode, Stream, Tcp, Timer};

use super::service::DELAY;
use super::{BACKLOG, Handler, Service, connection_ended};

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
        let ready = peer.set_nodelay(lp, true).and_then(|()| start(lp, peer, service));
        if ready.is_err() {
            close(lp, peer);
        }
    })?;
    lp.run(RunMode::Default)?;
    Ok(())
}

fn start<B: Backend>(lp: &mut Loop<B>, peer: Tcp, service: Service) -> io::Result<()> {
    match service {
        // Callbacks without captures: a connection needs no memory of its own.
        Service::Echo => peer.read_start(lp, echo),
        Service::Sink => peer.read_start(lp, sink),
        Service::Http | Service::Compute(_) => {
            handle(lp, peer, Rc::new(RefCell::new(Handler::new(service))))
        }
        Service::Delay => delay(lp, peer),
    }
}

/// Answers by a handler, which outlives the reader: back-pressure replaces that.
fn handle<B: Backend>(
    lp: &mut Loop<B>,
    peer: Tcp,
    handler: Rc<RefCell<Handler>>,
) -> io::Result<()> {
    peer.read_start(lp, move |lp, peer, bytes| {
        let bytes = match bytes {
            Ok([]) | Err(_) => return close(lp, peer),
            Ok(bytes) => bytes,
        };
        let again = Rc::clone(&handler);
        match handler.borrow_mut().answer(bytes) {
            Ok(answer) => write(lp, peer, answer, |lp, peer| handle(lp, peer, again)),
            Err(_) => close(lp, peer),
        }
    })
}

fn sink<B: Backend>(lp: &mut Loop<B>, peer: Tcp, bytes: io::Result<&[u8]>) {
    if !matches!(bytes, Ok(bytes) if !bytes.is_empty()) {
        close(lp, peer);
    }
}

fn echo<B: Backend>(lp: &mut Loop<B>, peer: Tcp, bytes: io::Result<&[u8]>) {
    match bytes {
        Ok([]) | Err(_) => close(lp, peer),
        Ok(bytes) => write(lp, peer, bytes, |lp, peer| peer.read_start(lp, echo)),
    }
}

/// Writes an answer. If the peer reads too slowly, reading stops until the write completes, and
/// `read_again` starts it.
fn write<B: Backend>(
    lp: &mut Loop<B>,
    peer: Tcp,
    bytes: &[u8],
    read_again: impl FnOnce(&mut Loop<B>, Tcp) -> io::Result<()> + 'static,
) {
    let Some(rest) = write_some(lp, peer, bytes) else { return };
    let queued = peer.read_stop(lp).and_then(|()| {
        peer.write(lp, rest, |lp, peer, result, _| {
            if result.and_then(|()| read_again(lp, peer)).is_err() {
                close(lp, peer);
            }
        })
    });
    if queued.is_err() {
        close(lp, peer);
    }
}

/// Writes what can be written immediately; returns a copy of the rest, if there is one.
fn write_some<B: Backend>(lp: &mut Loop<B>, peer: Tcp, bytes: &[u8]) -> Option<Vec<u8>> {
    if bytes.is_empty() {
        return None;
    }
    match peer.write_coalesced(lp, bytes) {
        Ok(written) if written == bytes.len() => None,
        Ok(written) => Some(bytes[written..].to_vec()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Some(bytes.to_vec()),
        Err(_) => {
            close(lp, peer);
            None
        }
    }
}

/// Answers from a timer of the connection.
fn delay<B: Backend>(lp: &mut Loop<B>, peer: Tcp) -> io::Result<()> {
    let (timer, waiting) = (Timer::new(lp), Rc::new(RefCell::new(Vec::new())));
    peer.read_start(lp, move |lp, peer, bytes| {
        let bytes = match bytes {
            Ok([]) | Err(_) => {
                // A closed timer does not fire.
                let _ = timer.close(lp);
                return close(lp, peer);
            }
            Ok(bytes) => bytes,
        };
        waiting.borrow_mut().extend_from_slice(bytes);
        if timer.is_active(lp) {
            return;
        }
        let waiting = Rc::clone(&waiting);
        let started = timer.start(lp, DELAY, Duration::ZERO, move |lp, _| {
            let mut answer = waiting.borrow_mut();
            // The clients limit what is in flight, so that reading need not stop.
            let rest = write_some(lp, peer, &answer);
            answer.clear();
            if let Some(rest) = rest
                && peer.write(lp, rest, |_, _, _, _| {}).is_err()
            {
                close(lp, peer);
            }
        });
        if started.is_err() {
            close(lp, peer);
        }
    })
}

fn close<B: Backend>(lp: &mut Loop<B>, handle: Tcp) {
    // An earlier error may have closed it already.
    let _ = handle.close(lp);
    connection_ended();
}
