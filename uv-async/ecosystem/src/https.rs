//! TLS by rustls, below hyper. The version of HTTP is agreed upon by ALPN.
//!
//! `tokio-rustls` needs tokio's `io` traits, not its runtime. The certificate is made when the
//! program starts, and the client trusts it alone.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use hyper_util::rt::TokioIo;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use tokio_rustls::rustls::{
    ClientConfig, CommonState, RootCertStore, ServerConfig, SupportedProtocolVersion,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use uv_async::{Rt, TcpListener, TcpStream};
use uv_core::poll_core::Backend;

use crate::http::{Client, Protocol, serve_connection};
use crate::other;

pub use tokio_rustls::rustls::version::{TLS12, TLS13};

/// A server's identity and a client that trusts it.
pub struct Identity {
    /// The configuration of the server.
    pub server: Arc<ServerConfig>,
    certificate: CertificateDer<'static>,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}

impl Identity {
    /// Makes a key and a certificate for `localhost`.
    ///
    /// # Errors
    ///
    /// Those of the cryptography.
    pub fn generate() -> io::Result<Identity> {
        let names = ["localhost".to_string()];
        let made = rcgen::generate_simple_self_signed(names).map_err(other)?;
        let certificate = made.cert.der().clone();
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let mut server = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(other)?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key.into())
            .map_err(other)?;
        server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Identity { server: Arc::new(server), certificate })
    }

    /// The configuration of a client that speaks one version of TLS, and one of HTTP.
    ///
    /// # Errors
    ///
    /// Those of the configuration.
    pub fn client(
        &self,
        version: &'static SupportedProtocolVersion,
        protocol: Protocol,
    ) -> io::Result<Arc<ClientConfig>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).map_err(other)?;
        let provider = Arc::new(ring::default_provider());
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .map_err(other)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        client.alpn_protocols = vec![match protocol {
            Protocol::Http1 => b"http/1.1".to_vec(),
            Protocol::Http2 => b"h2".to_vec(),
        }];
        Ok(Arc::new(client))
    }
}

fn agreed(connection: &CommonState) -> Protocol {
    match connection.alpn_protocol() {
        Some(b"h2") => Protocol::Http2,
        _ => Protocol::Http1,
    }
}

/// Serves connections until an accept fails. A handshake that fails ends its connection only.
///
/// # Errors
///
/// Those of accepting.
pub async fn serve<B: Backend>(
    rt: &Rt<B>,
    listener: TcpListener<B>,
    config: Arc<ServerConfig>,
) -> io::Result<()> {
    let (acceptor, requests) = (TlsAcceptor::from(config), Rc::new(Cell::new(0)));
    loop {
        let stream = listener.accept().await?;
        let (inside, acceptor, requests) = (rt.clone(), acceptor.clone(), Rc::clone(&requests));
        rt.spawn_local(async move {
            let stream = acceptor.accept(stream).await?;
            let protocol = agreed(stream.get_ref().1);
            serve_connection(&inside, TokioIo::new(stream), protocol, requests).await
        });
    }
}

/// Connects to a server at `localhost`.
///
/// # Errors
///
/// Those of the connect, and of both handshakes.
pub async fn connect<B: Backend>(
    rt: &Rt<B>,
    port: u16,
    config: Arc<ClientConfig>,
) -> io::Result<Client> {
    let stream = TcpStream::connect(rt, ([127, 0, 0, 1], port).into()).await?;
    let name = ServerName::try_from("localhost").map_err(other)?;
    let stream = TlsConnector::from(config).connect(name, stream).await?;
    let protocol = agreed(stream.get_ref().1);
    Client::new(rt, TokioIo::new(stream), protocol).await
}

/// Runs the server and a request of each version on one loop.
///
/// # Errors
///
/// Those of the network and of TLS.
pub async fn demo<B: Backend>(rt: &Rt<B>) -> io::Result<()> {
    let identity = Identity::generate()?;
    let listener = TcpListener::bind(rt, ([127, 0, 0, 1], 0).into())?;
    let (port, inside) = (listener.local_addr()?.port(), rt.clone());
    let config = Arc::clone(&identity.server);
    let server = rt.spawn_local(async move { serve(&inside, listener, config).await });
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let mut client = connect(rt, port, identity.client(&TLS13, protocol)?).await?;
        let (status, version, body) = client.post("/echo", "hello").await?;
        println!("{version:?} over TLS, {status}: {}", String::from_utf8_lossy(&body));
    }
    server.abort();
    Ok(())
}
