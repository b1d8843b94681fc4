//! Short forms of servers and clients over TCP.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
#[cfg(unix)]
use std::os::fd::OwnedFd;
use std::rc::Rc;

use poll_core::Backend;

use crate::dns::SocketType;
use crate::handles::addresses::{self, Addresses, Named};
use crate::handles::{Handle, Tcp, TcpBindFlags};
use crate::storage::InlineFnOnce;
use crate::streams::{self, Connecting, Listener, output};
use crate::{Loop, WorkRequest};

/// The number of connections that may wait in the kernel to be accepted.
const BACKLOG: u32 = 1024;

impl Tcp {
    /// A server that calls `callback` with each connection, from now on until it is closed.
    ///
    /// An error of the callback closes its connection, and an error of the listener closes that:
    /// both go to the handler of [`Loop::on_error`]. Connections are accepted with `TCP_NODELAY`.
    ///
    /// ```
    /// use uv_core::{Handle, Loop, RunMode, Stream, Tcp};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let server = Tcp::listen_on(&mut lp, "127.0.0.1:0", |lp, peer| {
    ///     peer.on_read(lp, |lp, peer, bytes| {
    ///         match bytes {
    ///             [] => peer.finish(lp),
    ///             bytes => peer.send(lp, bytes.to_vec()),
    ///         }
    ///         Ok(())
    ///     })
    /// })?;
    /// println!("an echo server at {}", server.local_addr(&lp)?);
    /// # server.close(&mut lp)?;
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`bind`](Tcp::bind) and [`listen`](Listener::listen), for the last of several addresses;
    /// the error of the lookup, which blocks, if the address is a name; `InvalidInput` if `on`
    /// names no address.
    #[doc(alias = "uv_listen")]
    #[cfg_attr(feature = "origins", track_caller)]
    pub fn listen_on<B: Backend>(
        lp: &mut Loop<B>,
        on: impl Into<Addresses>,
        mut callback: impl FnMut(&mut Loop<B>, Tcp) -> io::Result<()> + 'static,
    ) -> io::Result<Tcp> {
        let server = bound(lp, on.into().resolve(SocketType::Stream)?)?;
        let listening = server.listen(lp, BACKLOG, move |lp, server, result| {
            match result.and_then(|()| server.accept(lp)) {
                Ok(peer) => {
                    // A peer that is gone already is found by the first read or write.
                    let _ = peer.set_nodelay(lp, true);
                    peer.attempt(lp, |lp| callback(lp, peer));
                }
                Err(error) => server.fail(lp, error),
            }
        });
        listening.inspect_err(|_| server.close_if_open(lp))?;
        Ok(server)
    }

    /// Connects to the first of several addresses that answers, and calls back once. The addresses
    /// of a name are looked up by the loop.
    ///
    /// The handle is connecting from now on: writes may be queued, and a close cancels
    /// everything. All errors, also those of the lookup, are reported by the callback; if several
    /// addresses have failed, that of the last.
    ///
    /// ```
    /// use uv_core::{Handle, Loop, RunMode, Stream, Tcp};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let server = Tcp::listen_on(&mut lp, "127.0.0.1:0", |lp, peer| Ok(peer.finish(lp)))?;
    /// let to = server.local_addr(&lp)?;
    /// let client = Tcp::connect_to(&mut lp, to, move |lp, client, result| {
    ///     println!("connected to {to}: {result:?}");
    ///     client.finish(lp);
    ///     server.unreference(lp).unwrap(); // It is no reason to run on.
    /// });
    /// client.send(&mut lp, "sent when it is connected");
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    #[doc(alias = "uv_tcp_connect")]
    #[cfg_attr(feature = "origins", track_caller)]
    pub fn connect_to<B: Backend>(
        lp: &mut Loop<B>,
        to: impl Into<Addresses>,
        callback: impl FnOnce(&mut Loop<B>, Tcp, io::Result<()>) + 'static,
    ) -> Tcp {
        let target = Tcp::new(lp);
        let step = Rc::new(Cell::new(Step::None));
        let current = Rc::clone(&step);
        let ended = move |lp: &mut Loop<B>, (_, result)| {
            // If the handle was closed, an attempt or a lookup is left.
            current.take().cancel(lp);
            callback(lp, target, result);
        };
        // The handle is new and has no socket to watch, so this cannot fail.
        let begun =
            output::connect::begin(lp, target.0, Connecting::UnderWay, InlineFnOnce::new(ended));
        debug_assert!(begun.is_ok());
        let attempts = Attempts { target, left: VecDeque::new(), step };
        match to.into().0 {
            Named::Known(addresses) => {
                lp.defer(move |lp| attempts.with(addresses).next(lp, addresses::none()));
            }
            Named::Name(host, service) => attempts.look_up(lp, &host, &service),
            Named::Invalid(text) => attempts.fail_later(lp, addresses::invalid(&text)),
        }
        target
    }

    /// Accepts the waiting connection as a socket without a handle, for another thread or loop,
    /// which takes it by [`open`](Tcp::open).
    ///
    /// ```
    /// use uv_core::{Handle, Listener, Loop, RunMode, Tcp, TcpBindFlags};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let server = Tcp::new(&mut lp);
    /// server.bind(&mut lp, "127.0.0.1:0".parse().unwrap(), TcpBindFlags::empty())?;
    /// server.listen(&mut lp, 128, |lp, server, _| {
    ///     let socket = server.accept_socket(lp).unwrap();
    ///     println!("{:?}", std::net::TcpStream::from(socket).peer_addr());
    ///     server.close(lp).unwrap();
    /// })?;
    /// let client = std::net::TcpStream::connect(server.local_addr(&lp)?)?;
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`accept`](Listener::accept).
    #[cfg(unix)]
    #[doc(alias = "uv_accept")]
    pub fn accept_socket<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<OwnedFd> {
        crate::streams::accept_socket(self, lp)
    }

    /// Takes the connection out of the loop and closes the handle: another loop, or other code,
    /// goes on with the descriptor. It stops reading; no received byte is lost.
    ///
    /// ```
    /// use uv_core::{Handle, Loop, RunMode, Stream, Tcp};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let (near, far) = Tcp::pair(&mut lp)?;
    /// let socket = near.release(&mut lp)?;
    ///
    /// let thread = std::thread::spawn(move || {
    ///     let mut lp = Loop::with_default_backend()?;
    ///     let tcp = Tcp::new(&mut lp);
    ///     tcp.open(&mut lp, socket)?;
    ///     tcp.write(&mut lp, "from another loop", |lp, tcp, _, _| tcp.close_if_open(lp))?;
    ///     lp.run(RunMode::Default)
    /// });
    /// far.on_read(&mut lp, |lp, far, bytes| match bytes {
    ///     [] => far.close(lp),
    ///     bytes => Ok(assert_eq!(bytes, b"from another loop")),
    /// })?;
    /// lp.run(RunMode::Default)?;
    /// thread.join().unwrap()?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key; `InvalidInput` if the stream is closing or passes handles;
    /// `EBADF` without a socket; `ResourceBusy` if it listens, has requests that have not called
    /// back, or if the loop has received bytes that were not read: read them first. The handle
    /// stays open then, and is not being read.
    #[cfg(unix)]
    pub fn release<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<OwnedFd> {
        crate::streams::release(self, lp)
    }
}

/// A listener at the first address that can be bound.
#[cfg_attr(feature = "origins", track_caller)]
fn bound<B: Backend>(lp: &mut Loop<B>, addresses: Vec<SocketAddr>) -> io::Result<Tcp> {
    let mut last = addresses::none();
    for address in addresses {
        let server = Tcp::new(lp);
        let bound = server.bind(lp, address, TcpBindFlags::empty());
        // An address in use is reported by the second call.
        match bound.and_then(|()| server.local_addr(lp)) {
            Ok(_) => return Ok(server),
            Err(error) => last = error,
        }
        server.close_if_open(lp);
    }
    Err(last)
}

/// The pending step of a connect.
#[derive(Default)]
enum Step {
    #[default]
    None,
    LookUp(WorkRequest),
    Attempt(Tcp),
}

impl Step {
    fn cancel<B: Backend>(self, lp: &mut Loop<B>) {
        match self {
            Step::None => {}
            // If a thread is at it, the answer finds the handle closed.
            Step::LookUp(request) => drop(request.cancel(lp)),
            Step::Attempt(attempt) => attempt.close_if_open(lp),
        }
    }
}

/// The addresses that are left to try for a handle.
struct Attempts {
    target: Tcp,
    left: VecDeque<SocketAddr>,
    step: Rc<Cell<Step>>,
}

impl Attempts {
    fn with(mut self, addresses: Vec<SocketAddr>) -> Attempts {
        self.left = addresses.into();
        self
    }

    fn look_up<B: Backend>(self, lp: &mut Loop<B>, host: &str, service: &str) {
        let (step, found) = (Rc::clone(&self.step), Rc::new(Cell::new(Some(self))));
        let attempts = Rc::clone(&found);
        let request =
            lp.getaddrinfo(Some(host), Some(service), Addresses::HINTS, move |lp, found| {
                let Some(attempts) = attempts.take() else { return };
                attempts.step.take();
                match found {
                    Ok(found) => {
                        let addresses = found.into_iter().map(|found| found.address).collect();
                        attempts.with(addresses).next(lp, addresses::none());
                    }
                    Err(error) => output::connect::resolved(lp, attempts.target.0, Err(error)),
                }
            });
        match (request, found.take()) {
            (Err(error), Some(attempts)) => attempts.fail_later(lp, error),
            (Ok(request), attempts) => {
                found.set(attempts);
                step.set(Step::LookUp(request));
            }
            (Err(_), None) => {}
        }
    }

    fn fail_later<B: Backend>(self, lp: &mut Loop<B>, error: io::Error) {
        lp.defer(move |lp| output::connect::resolved(lp, self.target.0, Err(error)));
    }

    /// Tries the next address; `last` is why the previous one failed. Each has a handle of its
    /// own, whose socket the target gets: the addresses may be of different families.
    fn next<B: Backend>(mut self, lp: &mut Loop<B>, mut last: io::Error) {
        if self.target.is_closing(lp) {
            return;
        }
        let step = Rc::clone(&self.step);
        while let Some(address) = self.left.pop_front() {
            let (attempt, rest) = (Tcp::new(lp), std::mem::take(&mut self.left));
            let others = Rc::new(Cell::new(Some(Attempts {
                target: self.target,
                left: rest,
                step: Rc::clone(&step),
            })));
            let after = Rc::clone(&others);
            let begun = attempt.connect(lp, address, move |lp, attempt, result| {
                let Some(attempts) = after.take() else { return };
                attempts.step.take();
                match result {
                    Ok(()) => streams::short_forms::adopt_attempt(lp, attempts.target.0, attempt.0),
                    Err(error) => {
                        attempt.close_if_open(lp);
                        attempts.next(lp, error);
                    }
                }
            });
            match begun {
                Ok(()) => return step.set(Step::Attempt(attempt)),
                Err(error) => last = error,
            }
            attempt.close_if_open(lp);
            self.left = others.take().map_or_else(VecDeque::new, |others| others.left);
        }
        output::connect::resolved(lp, self.target.0, Err(last));
    }
}
