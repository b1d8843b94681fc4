//! hyper: HTTP/1.1 and HTTP/2, server and client.
//!
//! hyper's connections take our streams as they are. HTTP/2 spawns a task for each request: the
//! executor is the runtime, and no future has to be `Send`.

use std::cell::Cell;
use std::convert::Infallible;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::{http1 as client1, http2 as client2};
use hyper::rt::{Read, Write};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Version};
use uv_async::{HyperTimer, Rt, TcpListener, TcpStream};
use uv_core::poll_core::Backend;

use crate::other;

/// A request or response with a body that is there as a whole.
pub type Body = Full<Bytes>;

/// Which version of the protocol a connection has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2, by prior knowledge or by ALPN.
    Http2,
}

/// Serves connections until an accept fails.
///
/// # Errors
///
/// Those of accepting.
pub async fn serve<B: Backend>(
    rt: &Rt<B>,
    listener: TcpListener<B>,
    protocol: Protocol,
) -> io::Result<()> {
    // Shared by all connections without a lock: tasks stay in the loop's thread.
    let requests = Rc::new(Cell::new(0));
    loop {
        let stream = listener.accept().await?;
        let (inside, requests) = (rt.clone(), Rc::clone(&requests));
        rt.spawn_local(async move { serve_connection(&inside, stream, protocol, requests).await });
    }
}

/// Serves one connection: of TCP, or of TLS over it.
///
/// # Errors
///
/// Those of the connection.
pub async fn serve_connection<B: Backend>(
    rt: &Rt<B>,
    stream: impl Read + Write + Unpin + 'static,
    protocol: Protocol,
    requests: Rc<Cell<u64>>,
) -> io::Result<()> {
    let service = service_fn(move |request| {
        requests.set(requests.get() + 1);
        answer(request, requests.get())
    });
    match protocol {
        Protocol::Http1 => {
            let connection = http1::Builder::new()
                .timer(HyperTimer::new(rt))
                .header_read_timeout(Duration::from_secs(30))
                .serve_connection(stream, service);
            connection.await.map_err(other)
        }
        Protocol::Http2 => {
            let connection = http2::Builder::new(rt.clone())
                .timer(HyperTimer::new(rt))
                .serve_connection(stream, service);
            connection.await.map_err(other)
        }
    }
}

/// Echoes the body of a request, and counts requests.
async fn answer(request: Request<Incoming>, number: u64) -> Result<Response<Body>, Infallible> {
    let (parts, body) = request.into_parts();
    let found = parts.uri.path() == "/echo";
    let response = Response::builder().header("x-request", number);
    let response = match body.collect().await {
        _ if !found => response.status(StatusCode::NOT_FOUND).body(Body::default()),
        Ok(body) => response.body(Body::new(body.to_bytes())),
        Err(_) => response.status(StatusCode::BAD_REQUEST).body(Body::default()),
    };
    Ok(response.unwrap_or_default())
}

/// The client's side of a connection.
#[derive(Debug)]
pub enum Client {
    /// One request at a time.
    Http1(client1::SendRequest<Body>),
    /// Any number of them: see [`Client::try_clone`].
    Http2(client2::SendRequest<Body>),
}

impl Client {
    /// Connects to a server.
    ///
    /// # Errors
    ///
    /// Those of the connect and of the handshake.
    pub async fn connect<B: Backend>(
        rt: &Rt<B>,
        address: std::net::SocketAddr,
        protocol: Protocol,
    ) -> io::Result<Client> {
        Client::new(rt, TcpStream::connect(rt, address).await?, protocol).await
    }

    /// The client of a connected stream: of TCP, or of TLS over it.
    ///
    /// # Errors
    ///
    /// Those of the handshake.
    pub async fn new<B: Backend>(
        rt: &Rt<B>,
        stream: impl Read + Write + Unpin + 'static,
        protocol: Protocol,
    ) -> io::Result<Client> {
        match protocol {
            Protocol::Http1 => {
                let (client, connection) = client1::handshake(stream).await.map_err(other)?;
                rt.spawn_local(connection);
                Ok(Client::Http1(client))
            }
            Protocol::Http2 => {
                let handshake = client2::handshake(rt.clone(), stream).await;
                let (client, connection) = handshake.map_err(other)?;
                rt.spawn_local(connection);
                Ok(Client::Http2(client))
            }
        }
    }

    /// Another handle of the same connection, for requests at the same time. `None` for HTTP/1.1.
    pub fn try_clone(&self) -> Option<Client> {
        match self {
            Client::Http1(_) => None,
            Client::Http2(client) => Some(Client::Http2(client.clone())),
        }
    }

    /// Posts a body; returns the status, the version and the body of the response.
    ///
    /// # Errors
    ///
    /// Those of the connection.
    pub async fn post(
        &mut self,
        path: &str,
        body: impl Into<Bytes>,
    ) -> io::Result<(StatusCode, Version, Bytes)> {
        let uri = format!("http://localhost{path}");
        let request = Request::post(uri).header("host", "localhost");
        let request = request.body(Body::new(body.into())).map_err(other)?;
        let response = match self {
            Client::Http1(client) => {
                client.ready().await.map_err(other)?;
                client.send_request(request).await
            }
            Client::Http2(client) => {
                client.ready().await.map_err(other)?;
                client.send_request(request).await
            }
        };
        let (parts, body) = response.map_err(other)?.into_parts();
        let body = body.collect().await.map_err(other)?.to_bytes();
        Ok((parts.status, parts.version, body))
    }
}

/// Runs the server and some requests of both versions on one loop.
///
/// # Errors
///
/// Those of the network.
pub async fn demo<B: Backend>(rt: &Rt<B>) -> io::Result<()> {
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let listener = TcpListener::bind(rt, ([127, 0, 0, 1], 0).into())?;
        let (address, inside) = (listener.local_addr()?, rt.clone());
        let server = rt.spawn_local(async move { serve(&inside, listener, protocol).await });
        let mut client = Client::connect(rt, address, protocol).await?;
        let (status, version, body) = client.post("/echo", "hello").await?;
        println!("{version:?} {status}: {}", String::from_utf8_lossy(&body));
        server.abort();
    }
    Ok(())
}
