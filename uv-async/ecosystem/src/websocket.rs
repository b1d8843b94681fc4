//! WebSockets by tungstenite: an echo server and its client.
//!
//! `async-tungstenite` takes any stream with the traits of `futures-io`.

use std::io;
use std::net::SocketAddr;

use async_tungstenite::tungstenite::{Error, Message};
use async_tungstenite::{WebSocketStream, accept_async, client_async};
use futures_util::StreamExt;
use uv_async::{Rt, TcpListener, TcpStream};
use uv_core::poll_core::Backend;

use crate::other;

/// Serves connections until an accept fails.
///
/// # Errors
///
/// Those of accepting.
pub async fn serve<B: Backend>(rt: &Rt<B>, listener: TcpListener<B>) -> io::Result<()> {
    loop {
        let stream = listener.accept().await?;
        rt.spawn_local(echo(stream));
    }
}

/// Sends each message back. Pings and the closing handshake are the library's.
async fn echo<B: Backend>(stream: TcpStream<B>) -> Result<(), Error> {
    let mut socket = accept_async(stream).await?;
    while let Some(message) = socket.next().await {
        let message = message?;
        if message.is_text() || message.is_binary() {
            socket.send(message).await?;
        }
    }
    Ok(())
}

/// Connects to a server.
///
/// # Errors
///
/// Those of the connect and of the handshake.
pub async fn connect<B: Backend>(
    rt: &Rt<B>,
    address: SocketAddr,
) -> io::Result<WebSocketStream<TcpStream<B>>> {
    let stream = TcpStream::connect(rt, address).await?;
    let (socket, _response) =
        client_async(format!("ws://{address}/"), stream).await.map_err(other)?;
    Ok(socket)
}

/// Runs the server and a client on one loop.
///
/// # Errors
///
/// Those of the network and of the protocol.
pub async fn demo<B: Backend>(rt: &Rt<B>) -> io::Result<()> {
    let listener = TcpListener::bind(rt, ([127, 0, 0, 1], 0).into())?;
    let (address, inside) = (listener.local_addr()?, rt.clone());
    let server = rt.spawn_local(async move { serve(&inside, listener).await });
    let mut socket = connect(rt, address).await?;
    socket.send(Message::text("hello")).await.map_err(other)?;
    if let Some(answer) = socket.next().await {
        println!("{}", answer.map_err(other)?.into_text().map_err(other)?);
    }
    socket.close(None).await.map_err(other)?;
    server.abort();
    Ok(())
}
