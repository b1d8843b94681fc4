//! `bench serve`: a server for other load generators.

use std::io::{self, Write};
use std::net::{IpAddr, TcpListener};

use uv_core::backends::Auto;

use crate::servers::{self, Service};

/// Serves until killed.
///
/// # Errors
///
/// If the port is taken, and the error that ends the server.
pub(crate) fn serve(
    service: Service,
    backend: Option<&str>,
    id: Option<&str>,
    (host, port): (IpAddr, u16),
    out: &mut dyn Write,
) -> io::Result<()> {
    crate::limits::descriptors();
    let named = |error: io::Error| io::Error::new(error.kind(), format!("port {port}: {error}"));
    #[cfg(target_os = "linux")]
    if let Some(id) = id {
        servers::named(id)?;
    }
    let listener = servers::listen((host, port).into()).map_err(named)?;
    let address = listener.local_addr()?;
    let mut announce =
        |id: &str| writeln!(out, "{service}: {id} on {address}").and_then(|()| out.flush());
    if let Some(id) = id {
        announce(id)?;
        return servers::serve(id, service, listener);
    }
    let backend = match backend {
        Some(name) => Auto::named(name)?,
        None => Auto::new()?,
    };
    announce(&format!("uv-core {}", backend.name()))?;
    on(backend, listener, service)
}

/// Unwraps `Auto`: the loop runs on the concrete backend, as in the measurements.
fn on(backend: Auto, listener: TcpListener, service: Service) -> io::Result<()> {
    match backend {
        #[cfg(target_os = "linux")]
        Auto::Epoll(backend) => servers::core::serve(backend, listener, service),
        #[cfg(target_os = "linux")]
        Auto::Uring(backend) => servers::core::serve(backend, listener, service),
        Auto::Poll(backend) => servers::core::serve(backend, listener, service),
        Auto::Select(backend) => servers::core::serve(backend, listener, service),
        backend => servers::core::serve(backend, listener, service),
    }
}
