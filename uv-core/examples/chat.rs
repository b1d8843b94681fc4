//! A chat server: shared state without `Rc`, idle time-outs, slow readers.
//!
//! ```sh
//! cargo run -p uv-core --example chat -- --port 7002 --backend auto --idle 300
//! ```
//!
//! Then `nc 127.0.0.1 7002` in several terminals: each line goes to all other clients, and
//! `/name Ada` sets a name. A client that is idle for `--idle` seconds is disconnected, and so is
//! one that reads so slowly that a mebibyte waits for it. `Ctrl-C` ends the server.

mod common;

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use common::Arguments;
use uv_core::backends::Auto;
use uv_core::{
    AnyHandle, Channel, Handle, Loop, RunMode, Sender, Signal, Stream, Tcp, Timer, signum,
};

/// The bytes that may wait for a client.
const SLOW: usize = 1 << 20;
/// The longest line.
const LINE: usize = 4096;

/// All state of the server. It lives in the loop, and callbacks borrow it from there.
#[derive(Default)]
struct Chat {
    clients: HashMap<Tcp, Client>,
    idle: Duration,
}

struct Client {
    name: String,
    line: Vec<u8>,
    timer: Timer,
    /// The error that has closed it.
    error: Option<io::Error>,
}

pub(crate) fn main() -> io::Result<()> {
    let arguments = Arguments::read(&["--backend", "--port", "--idle"])?;
    let backend: String = arguments.get("--backend", "auto".into())?;
    let (port, idle) = (arguments.get("--port", 7002)?, arguments.get("--idle", 300)?);
    serve(&backend, port, Duration::from_secs(idle), |at, _| println!("chat on {at}"))
}

/// Serves until a signal, or until `()` is sent to the sender that `ready` gets.
pub(crate) fn serve(
    backend: &str,
    port: u16,
    idle: Duration,
    ready: impl FnOnce(SocketAddr, Sender<()>),
) -> io::Result<()> {
    let mut lp = Loop::new(common::backend(backend)?);
    lp.state::<Chat>().idle = idle;
    // The one place that every error reaches, before the handle is closed.
    lp.on_error(|lp, handle, error| {
        eprintln!("{handle}: {error}");
        if let AnyHandle::Tcp(peer) = handle
            && let Some(client) = lp.state::<Chat>().clients.get_mut(&peer)
        {
            client.error = Some(error);
        }
    });
    let server = Tcp::listen_on(&mut lp, (Ipv4Addr::LOCALHOST, port), join)?;
    let (_, sender) = Channel::new(&mut lp, |lp, _, ()| end(lp));
    let signal = Signal::new(&mut lp);
    signal.start(&mut lp, signum::SIGINT, |lp, _, _| end(lp))?;
    ready(server.local_addr(&lp)?, sender);
    lp.run(RunMode::Default)?;
    Ok(())
}

fn join(lp: &mut Loop<Auto>, peer: Tcp) -> io::Result<()> {
    let (name, timer) = (peer.peer_addr(lp)?.to_string(), Timer::new(lp));
    say(lp, peer, &format!("* {name} has joined\n"));
    lp.state::<Chat>().clients.insert(peer, Client { name, line: Vec::new(), timer, error: None });
    peer.on_close(lp, left)?;
    postpone(lp, peer)?;
    peer.on_read(lp, hear)
}

fn hear(lp: &mut Loop<Auto>, peer: Tcp, bytes: &[u8]) -> io::Result<()> {
    if bytes.is_empty() {
        return peer.close(lp);
    }
    postpone(lp, peer)?;
    let Some(client) = lp.state::<Chat>().clients.get_mut(&peer) else { return Ok(()) };
    client.line.extend_from_slice(bytes);
    let end = client.line.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let lines: Vec<u8> = client.line.drain(..end).collect();
    if client.line.len() > LINE {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a line is too long"));
    }
    for line in String::from_utf8_lossy(&lines).lines() {
        let Some(client) = lp.state::<Chat>().clients.get_mut(&peer) else { break };
        let text = match line.strip_prefix("/name ") {
            Some(name) => {
                let old = std::mem::replace(&mut client.name, name.trim().into());
                format!("* {old} is now {}\n", client.name)
            }
            None => format!("{}: {line}\n", client.name),
        };
        say(lp, peer, &text);
    }
    Ok(())
}

/// Sends a text to all clients but one. The state and the loop are used side by side.
fn say(lp: &mut Loop<Auto>, from: Tcp, text: &str) {
    let text = std::sync::Arc::new(text.as_bytes().to_vec());
    lp.with_state(|lp, chat: &mut Chat| {
        for &peer in chat.clients.keys().filter(|peer| **peer != from) {
            match peer.write_queue_size(lp) {
                0..SLOW => peer.send(lp, text.clone()),
                _ => peer.fail(lp, io::Error::other("it reads too slowly")),
            }
        }
    });
}

/// Starts the idle time of a client again.
fn postpone(lp: &mut Loop<Auto>, peer: Tcp) -> io::Result<()> {
    let chat = lp.state::<Chat>();
    let (Some(client), idle) = (chat.clients.get(&peer), chat.idle) else { return Ok(()) };
    client.timer.start(lp, idle, Duration::ZERO, move |lp, _| {
        peer.fail(lp, io::ErrorKind::TimedOut.into());
    })
}

/// The one place where a client ends, for whatever reason.
fn left(lp: &mut Loop<Auto>, peer: Tcp) {
    if let Some(client) = lp.state::<Chat>().clients.remove(&peer) {
        client.timer.close_if_open(lp);
        let why =
            client.error.map_or("the end of the connection".into(), |error| error.to_string());
        say(lp, peer, &format!("* {} has left: {why}\n", client.name));
    }
}

/// Closes everything: the loop ends.
fn end(lp: &mut Loop<Auto>) {
    lp.walk().into_iter().for_each(|handle| handle.close_if_open(lp));
}
