//! An HTTP/1.1 server: keep-alive, pipelining, files by `send_file`, back-pressure, graceful end.
//!
//! ```sh
//! cargo run --release -p uv-core --example http -- --root . --port 8080 --backend auto
//! ```
//!
//! Then `curl -v http://127.0.0.1:8080/README.md` or `wrk -c 64 -t 2 http://127.0.0.1:8080/README.md`.
//! On `SIGINT` or `SIGTERM` it accepts no more connections, answers the requests that it has, and
//! ends.

mod common;

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use common::Arguments;
use uv_core::backends::Auto;
use uv_core::{
    AnyHandle, Channel, Handle, Loop, RunMode, Sender, Signal, Stream, Tcp, Timer, fs, signum,
};

/// The longest head of a request, and the most bytes that are kept of pipelined requests.
const MAX_HEAD: usize = 16 * 1024;
/// A connection without requests is closed after this time.
const IDLE: Duration = Duration::from_secs(30);
/// A connection that was sent its last response is closed after this time.
const LINGER: Duration = Duration::from_secs(5);

#[derive(Default)]
struct Server {
    root: PathBuf,
    listener: Option<Tcp>,
    connections: HashMap<Tcp, Connection>,
    /// No new requests are taken.
    ending: bool,
}

struct Connection {
    input: Vec<u8>,
    /// A response is being sent; pipelined requests wait.
    busy: bool,
    timer: Timer,
}

/// The head of a request, as far as this server needs it.
struct Request {
    method: String,
    path: String,
    keep_alive: bool,
    /// The size of the head and the body.
    size: usize,
}

pub(crate) fn main() -> io::Result<()> {
    let arguments = Arguments::read(&["--backend", "--port", "--root"])?;
    let backend: String = arguments.get("--backend", "auto".into())?;
    let root: PathBuf = arguments.get("--root", ".".into())?;
    serve(&backend, arguments.get("--port", 8080)?, root, |at, _| println!("http://{at}/"))
}

/// Serves until a signal, or until `()` is sent to the sender that `ready` gets.
pub(crate) fn serve(
    backend: &str,
    port: u16,
    root: PathBuf,
    ready: impl FnOnce(SocketAddr, Sender<()>),
) -> io::Result<()> {
    let mut lp = Loop::new(common::backend(backend)?);
    lp.state::<Server>().root = root.canonicalize()?;
    lp.on_error(|lp, handle, error| match handle {
        AnyHandle::Tcp(peer) if Some(peer) != lp.state::<Server>().listener => {} // No news.
        other => eprintln!("{other}: {error}"),
    });
    let listener = Tcp::listen_on(&mut lp, (Ipv4Addr::LOCALHOST, port), |lp, peer| {
        let timer = Timer::new(lp);
        let connection = Connection { input: Vec::new(), busy: false, timer };
        lp.state::<Server>().connections.insert(peer, connection);
        // However it ends: by the peer, an error, a time-out or the end of the server.
        peer.on_close(lp, move |lp, peer| {
            lp.state::<Server>().connections.remove(&peer);
            timer.close_if_open(lp);
        })?;
        wait_for_request(lp, peer)?;
        peer.on_read(lp, received)
    })?;
    lp.state::<Server>().listener = Some(listener);
    let (channel, sender) = Channel::new(&mut lp, |lp, _, ()| end(lp));
    channel.unreference(&mut lp)?;
    for number in [signum::SIGINT, signum::SIGTERM] {
        let signal = Signal::new(&mut lp);
        signal.start(&mut lp, number, |lp, _, _| end(lp))?;
        signal.unreference(&mut lp)?;
    }
    ready(listener.local_addr(&lp)?, sender);
    lp.run(RunMode::Default)?;
    Ok(())
}

/// Graceful end: idle connections are closed now, busy ones after their response.
fn end(lp: &mut Loop<Auto>) {
    let server = lp.state::<Server>();
    server.ending = true;
    let idle = server.connections.iter().filter(|(_, connection)| !connection.busy);
    let idle: Vec<_> = idle.map(|(peer, _)| *peer).collect();
    if let Some(listener) = server.listener {
        listener.close_if_open(lp);
    }
    idle.into_iter().for_each(|peer| peer.close_if_open(lp));
}

fn wait_for_request(lp: &mut Loop<Auto>, peer: Tcp) -> io::Result<()> {
    let Some(connection) = lp.state::<Server>().connections.get(&peer) else { return Ok(()) };
    connection.timer.start(lp, IDLE, Duration::ZERO, move |lp, _| peer.close_if_open(lp))
}

fn received(lp: &mut Loop<Auto>, peer: Tcp, bytes: &[u8]) -> io::Result<()> {
    let Some(connection) = lp.state::<Server>().connections.get_mut(&peer) else { return Ok(()) };
    if bytes.is_empty() {
        // A busy connection is closed after its response: the peer may still read it.
        if !connection.busy {
            peer.close_if_open(lp);
        }
        return Ok(());
    }
    connection.input.extend_from_slice(bytes);
    if connection.busy && connection.input.len() > MAX_HEAD {
        peer.read_stop(lp)?; // Back-pressure: the peer waits for responses.
    }
    next_request(lp, peer)
}

/// Answers the next request that was received completely, unless a response is being sent.
fn next_request(lp: &mut Loop<Auto>, peer: Tcp) -> io::Result<()> {
    let Some(connection) = lp.state::<Server>().connections.get_mut(&peer) else { return Ok(()) };
    if connection.busy {
        return Ok(());
    }
    let request = match parse(&connection.input) {
        Ok(Some(request)) => request,
        Ok(None) => return Ok(()),
        Err(status) => {
            connection.busy = true; // The bytes behind an invalid request have no meaning.
            return respond(lp, peer, status, false, status.as_bytes().to_vec());
        }
    };
    connection.input.drain(..request.size);
    connection.busy = true;
    connection.timer.stop(lp)?;
    let keep = request.keep_alive && !lp.state::<Server>().ending;
    if request.method != "GET" && request.method != "HEAD" {
        return respond(lp, peer, "405 Method Not Allowed", keep, b"GET or HEAD\n".to_vec());
    }
    let Some(path) = below(&lp.state::<Server>().root, &request.path) else {
        return respond(lp, peer, "403 Forbidden", keep, b"no\n".to_vec());
    };
    let body = request.method == "GET";
    let opening = fs::open(path, fs::OpenOptions::new().read(true));
    opening.start_with(lp, move |lp, opened| match opened {
        Ok(file) => answer(lp, peer, file, keep, body),
        Err(_) => {
            peer.attempt(lp, |lp| respond(lp, peer, "404 Not Found", keep, b"not found\n".to_vec()))
        }
    });
    Ok(())
}

fn answer(lp: &mut Loop<Auto>, peer: Tcp, file: fs::File, keep: bool, body: bool) {
    fs::fstat(&file).start_with(lp, move |lp, stat| {
        peer.attempt(lp, |lp| {
            let stat = stat?;
            if !stat.is_file() {
                return respond(lp, peer, "404 Not Found", keep, b"no file\n".to_vec());
            }
            peer.send(lp, head("200 OK", keep, stat.size));
            if !body {
                return responded(lp, peer, keep);
            }
            // A slow client holds no memory: the file is sent when the kernel takes more of it.
            peer.send_file_with(lp, &file, 0..stat.size, move |lp, peer, result, sent| {
                peer.attempt(lp, |lp| match result {
                    Ok(()) if sent == stat.size => responded(lp, peer, keep),
                    // It was promised to be longer: the connection ends.
                    Ok(()) => Err(io::ErrorKind::UnexpectedEof.into()),
                    Err(error) => Err(error),
                });
            });
            Ok(())
        });
    });
}

fn respond(
    lp: &mut Loop<Auto>,
    peer: Tcp,
    status: &str,
    keep: bool,
    body: Vec<u8>,
) -> io::Result<()> {
    peer.send(lp, [head(status, keep, body.len() as u64), body]);
    responded(lp, peer, keep)
}

fn head(status: &str, keep: bool, length: u64) -> Vec<u8> {
    let connection = if keep { "keep-alive" } else { "close" };
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: {connection}\r\n\r\n")
        .into_bytes()
}

/// A response is queued: goes on with the next request, or ends.
fn responded(lp: &mut Loop<Auto>, peer: Tcp, keep: bool) -> io::Result<()> {
    let server = lp.state::<Server>();
    if !keep || server.ending {
        return last_response(lp, peer);
    }
    let Some(connection) = server.connections.get_mut(&peer) else { return Ok(()) };
    connection.busy = false;
    wait_for_request(lp, peer)?;
    if !peer.is_active(lp) {
        peer.on_read(lp, received)?;
    }
    // Later, so that a thousand pipelined requests are no recursion.
    lp.defer(move |lp| peer.attempt(lp, |lp| next_request(lp, peer)));
    Ok(())
}

/// Closes a connection after its last byte, or after some time if the peer does not close it, too.
fn last_response(lp: &mut Loop<Auto>, peer: Tcp) -> io::Result<()> {
    peer.finish(lp);
    let Some(connection) = lp.state::<Server>().connections.get(&peer) else { return Ok(()) };
    connection.timer.start(lp, LINGER, Duration::ZERO, move |lp, _| peer.close_if_open(lp))
}

/// The first request in `input`, or none if it is incomplete, or the status of an error.
fn parse(input: &[u8]) -> Result<Option<Request>, &'static str> {
    let Some(end) = input.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
        return if input.len() > MAX_HEAD { Err("431 Head Too Large") } else { Ok(None) };
    };
    let bad = "400 Bad Request";
    let text = std::str::from_utf8(&input[..end]).map_err(|_| bad)?;
    let mut lines = text.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(path), Some(version)) = (words.next(), words.next(), words.next())
    else {
        return Err(bad);
    };
    let (mut keep_alive, mut body) = (version == "HTTP/1.1", 0);
    for line in lines {
        let (name, value) = line.split_once(':').ok_or(bad)?;
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            body = value.parse().map_err(|_| bad)?;
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            return Err("501 Not Implemented");
        } else if name.eq_ignore_ascii_case("connection") {
            keep_alive = !value.eq_ignore_ascii_case("close")
                && (keep_alive || value.eq_ignore_ascii_case("keep-alive"));
        }
    }
    if body > MAX_HEAD {
        return Err("413 Content Too Large");
    }
    let size = end + 4 + body;
    let (method, path) = (method.to_owned(), path.to_owned());
    let request = Request { method, path, keep_alive, size };
    Ok((input.len() >= size).then_some(request))
}

/// The file of a request: no path of it leads out of `root`, but a symbolic link in it may.
fn below(root: &Path, path: &str) -> Option<PathBuf> {
    let path = Path::new(path.split('?').next()?.trim_start_matches('/'));
    path.components().all(|part| matches!(part, Component::Normal(_))).then(|| root.join(path))
}
