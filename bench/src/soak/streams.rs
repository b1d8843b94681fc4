//! Connections to an echo server, over TCP and over pipes with a name.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;

use uv_core::{Handle, Listener, Pipe, Tcp, TcpBindFlags};

use super::flow::{Expected, bytes};
use super::{Kind, Loop, World};

/// Connections at a time.
const CONNECTIONS: usize = 8;

/// The most bytes of a connection, and of a write.
const BYTES: usize = 1 << 20;
const WRITE: usize = 1 << 17;

/// The bytes of a connection in a flood.
const FLOOD_BYTES: usize = 1 << 16;

/// A stream that connects to a server of its kind.
trait Dial: Listener {
    const KIND: Kind;
    type Address: Clone + 'static;

    fn bind(lp: &mut Loop) -> io::Result<(Self, Self::Address)>;

    fn dial(
        lp: &mut Loop,
        to: Self::Address,
        callback: impl FnOnce(&mut Loop, Self, io::Result<()>) + 'static,
    ) -> io::Result<Self>;

    /// Closes with a reset, where the kind has that.
    fn reset(self, lp: &mut Loop) -> io::Result<()>;
}

impl Dial for Tcp {
    const KIND: Kind = Kind::Tcp;
    type Address = SocketAddr;

    fn bind(lp: &mut Loop) -> io::Result<(Tcp, SocketAddr)> {
        let server = Tcp::new(lp);
        server.bind(lp, SocketAddr::from(([127, 0, 0, 1], 0)), TcpBindFlags::empty())?;
        let address = server.local_addr(lp)?;
        Ok((server, address))
    }

    fn dial(
        lp: &mut Loop,
        to: SocketAddr,
        callback: impl FnOnce(&mut Loop, Tcp, io::Result<()>) + 'static,
    ) -> io::Result<Tcp> {
        let client = Tcp::new(lp);
        client.connect(lp, to, callback).map(|()| client)
    }

    fn reset(self, lp: &mut Loop) -> io::Result<()> {
        self.close_reset(lp)
    }
}

impl Dial for Pipe {
    const KIND: Kind = Kind::Pipe;
    type Address = PathBuf;

    fn bind(lp: &mut Loop) -> io::Result<(Pipe, PathBuf)> {
        thread_local!(static MADE: Cell<u32> = const { Cell::new(0) });
        let number = MADE.replace(MADE.get() + 1);
        let name = format!("bench-soak-{}-{number}", std::process::id());
        let path = match cfg!(windows) {
            true => PathBuf::from(format!(r"\\.\pipe\{name}")),
            false => std::env::temp_dir().join(name),
        };
        let server = Pipe::new(lp);
        server.bind(lp, &path)?;
        Ok((server, path))
    }

    fn dial(
        lp: &mut Loop,
        to: PathBuf,
        callback: impl FnOnce(&mut Loop, Pipe, io::Result<()>) + 'static,
    ) -> io::Result<Pipe> {
        let client = Pipe::new(lp);
        client.connect(lp, to, callback).map(|()| client)
    }

    fn reset(self, lp: &mut Loop) -> io::Result<()> {
        self.close(lp)
    }
}

/// A server and those of its clients that are open.
struct Lane<S: Dial> {
    world: Rc<World>,
    server: S,
    address: S::Address,
    clients: Cell<usize>,
    flood: bool,
}

/// Begins connections over TCP and over pipes: a few that are replaced when they end, or a flood
/// of them.
pub(super) fn start(world: &Rc<World>, lp: &mut Loop, flood: bool) -> io::Result<()> {
    start_kind::<Tcp>(world, lp, flood)?;
    start_kind::<Pipe>(world, lp, flood)
}

fn start_kind<S: Dial>(world: &Rc<World>, lp: &mut Loop, flood: bool) -> io::Result<()> {
    let (server, address) = S::bind(lp)?;
    let (this, accepted) = (Rc::clone(world), Cell::new(0_u32));
    server.listen(lp, 1024, move |lp, server, result| {
        if let Some(()) = this.check(S::KIND, "listen", result)
            && let Some(peer) = this.check(S::KIND, "accept", server.accept(lp))
        {
            accepted.set(accepted.get() + 1);
            serve(&this, lp, peer, accepted.get());
        }
    })?;
    let clients = Cell::new(if flood { world.flood } else { CONNECTIONS });
    let world = Rc::clone(world);
    let lane = Rc::new(Lane { world, server, address, clients, flood });
    (0..lane.clients.get()).for_each(|_| connect(&lane, lp));
    Ok(())
}

/// Echoes in one of the three ways to write, by the number of the connection.
fn serve<S: Dial>(world: &Rc<World>, lp: &mut Loop, peer: S, number: u32) {
    let this = Rc::clone(world);
    let reading = peer.read_start(lp, move |lp, peer, result| {
        let received = match result {
            Ok(bytes) if !bytes.is_empty() => bytes,
            Ok(_) => {
                let ended = peer.shutdown(lp, |lp, peer, _| drop(peer.close(lp)));
                this.check(S::KIND, "shutdown of the server", ended);
                return;
            }
            // The client was reset.
            Err(_) => return drop(peer.close(lp)),
        };
        let taken = match number % 3 {
            0 => Ok(0),
            1 => peer.try_write(lp, received),
            _ => peer.write_coalesced(lp, received),
        };
        let rest = match taken {
            Ok(taken) => received[taken..].to_vec(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => received.to_vec(),
            // The client was reset; the next read reports it.
            Err(_) => return,
        };
        if !rest.is_empty() {
            let _ = peer.write(lp, rest, |_, _, _, _| {});
        }
    });
    world.check(S::KIND, "read_start of the server", reading);
}

/// One connection of a client.
struct Session<S: Dial> {
    lane: Rc<Lane<S>>,
    seed: u64,
    len: usize,
    sent: Cell<usize>,
    received: Expected,
    /// It is reset when so many bytes have arrived.
    reset_at: Option<usize>,
    closed: Cell<bool>,
}

fn connect<S: Dial>(lane: &Rc<Lane<S>>, lp: &mut Loop) {
    let world = &lane.world;
    let (seed, len) = (world.draw(), if lane.flood { FLOOD_BYTES } else { world.size(BYTES) });
    let reset_at = (!lane.flood && world.one_in(16)).then_some(len / 2);
    let received = Expected::new(seed, len);
    let (lane, sent, closed) = (Rc::clone(lane), Cell::new(0), Cell::new(false));
    let session = Rc::new(Session { lane, seed, len, sent, received, reset_at, closed });
    let this = Rc::clone(&session);
    let dialled = S::dial(lp, session.lane.address.clone(), move |lp, client, result| {
        let world = &this.lane.world;
        if world.check(S::KIND, "connect", result).is_none() {
            return end(&this, lp, client);
        }
        let reader = Rc::clone(&this);
        let reading =
            client.read_start(lp, move |lp, client, bytes| receive(&reader, lp, client, bytes));
        match world.check(S::KIND, "read_start", reading) {
            Some(()) => send(&this, lp, client),
            None => end(&this, lp, client),
        }
    });
    if session.lane.world.check(S::KIND, "connect", dialled).is_none() {
        next(&session.lane, lp);
    }
}

/// Writes the next piece, or shuts down.
fn send<S: Dial>(session: &Rc<Session<S>>, lp: &mut Loop, client: S) {
    let (world, this) = (&session.lane.world, Rc::clone(session));
    let sent = session.sent.get();
    let len = world.size(WRITE).min(session.len - sent);
    if len == 0 {
        let ended = client.shutdown(lp, move |_, _, result| this.sent_as("shutdown", result));
        world.check(S::KIND, "shutdown", ended);
        return;
    }
    session.sent.set(sent + len);
    let piece = bytes(session.seed, sent, len);
    let written = client.write(lp, piece, move |lp, client, result, _| {
        let goes_on = result.is_ok() && !this.closed.get();
        this.sent_as("write", result);
        if goes_on {
            send(&this, lp, client);
        }
    });
    world.check(S::KIND, "write", written);
}

impl<S: Dial> Session<S> {
    /// A write or a shutdown fails only if this side has closed.
    fn sent_as(&self, what: &str, result: io::Result<()>) {
        match result {
            Err(error) if uv_core::is_cancelled(&error) && self.reset_at.is_some() => {}
            result => {
                self.lane.world.check(S::KIND, what, result);
            }
        }
    }
}

fn receive<S: Dial>(session: &Rc<Session<S>>, lp: &mut Loop, client: S, result: io::Result<&[u8]>) {
    let world = &session.lane.world;
    world.progress();
    let arrived = match result {
        Ok([]) => session.received.end().map(|len| world.count(S::KIND, len)).map(|()| true),
        Ok(bytes) => session.received.take(bytes).map(|()| {
            session.reset_at.is_some_and(|at| session.len - session.received.missing() >= at)
        }),
        Err(error) => Err(format!("read: {error}")),
    };
    match arrived {
        Ok(false) => {}
        Ok(true) => end(session, lp, client),
        Err(why) => {
            world.fail(S::KIND, why);
            end(session, lp, client);
        }
    }
}

/// Closes the connection.
fn end<S: Dial>(session: &Rc<Session<S>>, lp: &mut Loop, client: S) {
    let lane = &session.lane;
    session.closed.set(true);
    let closed = match session.reset_at {
        // A connection that is being shut down cannot be reset.
        Some(_) if session.sent.get() < session.len => client.reset(lp),
        _ => client.close(lp),
    };
    lane.world.check(S::KIND, "close", closed);
    next(lane, lp);
}

/// A connection has ended: begins the next, or closes the server after the last.
fn next<S: Dial>(lane: &Rc<Lane<S>>, lp: &mut Loop) {
    if !lane.flood && !lane.world.ending.get() {
        return connect(lane, lp);
    }
    lane.clients.set(lane.clients.get() - 1);
    if lane.clients.get() == 0 {
        lane.world.check(S::KIND, "close of the server", lane.server.close(lp));
    }
}
