//! TCP.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use uv_core::dns::{Hints, SocketType};
use uv_core::poll_core::Backend;
use uv_core::{Addresses, DefaultBackend, Listener as _, Tcp, TcpBindFlags};

use super::listener::IoListener;
use super::stream::IoStream;
use crate::Rt;
use crate::op::Op;

/// A TCP connection: its methods are those of [`IoStream`].
pub type TcpStream<B = DefaultBackend> = IoStream<Tcp, B>;

/// A TCP listener: its methods are those of [`IoListener`].
pub type TcpListener<B = DefaultBackend> = IoListener<Tcp, B>;

/// The length of the queue of connections that were not accepted.
const BACKLOG: u32 = 1024;

/// The time before the next address is tried (RFC 8305, section 5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

impl<B: Backend> IoListener<Tcp, B> {
    /// Listens at an address.
    ///
    /// # Errors
    ///
    /// The kernel's: `AddrInUse`, for example.
    ///
    /// # Panics
    ///
    /// Outside of tasks, as [`Rt::with`].
    pub fn bind(rt: &Rt<B>, address: SocketAddr) -> io::Result<TcpListener<B>> {
        let listener = IoListener::from_key(rt, rt.with(Tcp::new));
        let key = listener.key();
        rt.with(|lp| {
            key.bind(lp, address, TcpBindFlags::empty())?;
            key.listen_without_callback(lp, BACKLOG)
        })?;
        Ok(listener)
    }

    /// Listens at the first of some addresses that can be bound. A name is looked up first, and the
    /// call blocks meanwhile; numbers never block.
    ///
    /// ```
    /// use uv_async::{LoopExt, TcpListener};
    /// use uv_core::Loop;
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.block_on(async |rt| {
    ///     let listener = TcpListener::bind_to(&rt, "127.0.0.1:0")?; // Or ("localhost", 7000).
    ///     println!("listening at {}", listener.local_addr()?);
    ///     std::io::Result::Ok(())
    /// })??;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`bind`](IoListener::bind), for the last address; those of the lookup.
    ///
    /// # Panics
    ///
    /// Outside of tasks, as [`Rt::with`].
    pub fn bind_to(rt: &Rt<B>, on: impl Into<Addresses>) -> io::Result<TcpListener<B>> {
        let mut last = io::ErrorKind::InvalidInput.into();
        for address in on.into().resolve(SocketType::Stream)? {
            match Self::bind(rt, address) {
                Ok(listener) => return Ok(listener),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// The address that it listens at.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let key = self.key();
        self.rt().with(|lp| key.local_addr(lp))
    }
}

impl<B: Backend> IoStream<Tcp, B> {
    /// Two streams that are connected with each other.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn pair(rt: &Rt<B>) -> io::Result<(TcpStream<B>, TcpStream<B>)> {
        let (one, other) = rt.with(Tcp::pair)?;
        Ok((IoStream::from_key(rt, one), IoStream::from_key(rt, other)))
    }

    /// Connects to an address.
    ///
    /// ```
    /// use uv_async::{LoopExt, TcpListener, TcpStream};
    /// use uv_core::Loop;
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.block_on(async |rt| {
    ///     let listener = TcpListener::bind(&rt, "127.0.0.1:0".parse().unwrap())?;
    ///     let client = TcpStream::connect(&rt, listener.local_addr()?).await?;
    ///     client.set_nodelay(true)?;
    ///     let server = listener.accept().await?;
    ///     assert_eq!(server.peer_addr()?, client.local_addr()?);
    ///     std::io::Result::Ok(())
    /// })??;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// The kernel's: `ConnectionRefused`, for example.
    ///
    /// # Cancel safety
    ///
    /// Dropping it closes the socket.
    pub async fn connect(rt: &Rt<B>, address: SocketAddr) -> io::Result<TcpStream<B>> {
        Connecting::start(rt, address)?.await
    }

    /// Connects to a name. The addresses are tried one after the other, alternating between the families, each
    /// a quarter of a second after the one before or as soon as that has failed; the first
    /// connection wins, the others are closed (RFC 8305).
    ///
    /// ```
    /// use uv_async::{LoopExt, TcpListener, TcpStream};
    /// use uv_core::Loop;
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.block_on(async |rt| {
    ///     let listener = TcpListener::bind(&rt, "127.0.0.1:0".parse().unwrap())?;
    ///     let port = listener.local_addr()?.port();
    ///     let stream = TcpStream::connect_host(&rt, "localhost", port).await?;
    ///     assert_eq!(stream.peer_addr()?.port(), port);
    ///     std::io::Result::Ok(())
    /// })??;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Of the lookup, or the last of the attempts.
    ///
    /// # Cancel safety
    ///
    /// Dropping it closes all sockets.
    pub async fn connect_host(rt: &Rt<B>, host: &str, port: u16) -> io::Result<TcpStream<B>> {
        let found = rt.getaddrinfo(Some(host), Some(&port.to_string()), Hints::default()).await?;
        let mut addresses: Vec<SocketAddr> = Vec::new();
        for address in found.into_iter().map(|found| found.address) {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        Self::connect_any(rt, alternate(addresses)).await
    }

    /// Connects to one of several addresses: see [`connect_host`](IoStream::connect_host).
    ///
    /// # Errors
    ///
    /// `InvalidInput` without addresses, or the last error of the attempts.
    ///
    /// # Cancel safety
    ///
    /// Dropping it closes all sockets.
    pub async fn connect_any(
        rt: &Rt<B>,
        addresses: impl IntoIterator<Item = SocketAddr>,
    ) -> io::Result<TcpStream<B>> {
        Self::connect_staggered(rt, addresses, ATTEMPT_DELAY).await
    }

    /// As [`connect_any`](IoStream::connect_any), with another delay between two attempts.
    ///
    /// RFC 8305 recommends 250 ms, and no less than 10 ms where the peers are on the Internet.
    ///
    /// ```
    /// use std::time::Duration;
    /// use uv_async::{LoopExt, TcpListener, TcpStream};
    /// use uv_core::Loop;
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.block_on(async |rt| {
    ///     let listener = TcpListener::bind(&rt, "127.0.0.1:0".parse().unwrap())?;
    ///     let addresses = [listener.local_addr()?];
    ///     let delay = Duration::from_millis(100);
    ///     let stream = TcpStream::connect_staggered(&rt, addresses, delay).await?;
    ///     assert_eq!(stream.peer_addr()?, addresses[0]);
    ///     std::io::Result::Ok(())
    /// })??;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`connect_any`](IoStream::connect_any).
    ///
    /// # Cancel safety
    ///
    /// Dropping it closes all sockets.
    pub async fn connect_staggered(
        rt: &Rt<B>,
        addresses: impl IntoIterator<Item = SocketAddr>,
        delay: Duration,
    ) -> io::Result<TcpStream<B>> {
        let mut addresses = addresses.into_iter().fuse();
        let mut attempts: Vec<Connecting<B>> = Vec::new();
        let mut error = io::Error::new(io::ErrorKind::InvalidInput, "there is no address");
        let mut next = rt.sleep(Duration::ZERO);
        poll_fn(|cx| {
            loop {
                let mut at = 0;
                while at < attempts.len() {
                    match Pin::new(&mut attempts[at]).poll(cx) {
                        Poll::Ready(Ok(stream)) => return Poll::Ready(Ok(stream)),
                        Poll::Ready(Err(failed)) => {
                            error = failed;
                            drop(attempts.swap_remove(at));
                            next.reset(Duration::ZERO);
                        }
                        Poll::Pending => at += 1,
                    }
                }
                // The next attempt begins when the last has failed, or after the delay.
                if !attempts.is_empty() && Pin::new(&mut next).poll(cx).is_pending() {
                    return Poll::Pending;
                }
                let Some(address) = addresses.next() else {
                    if attempts.is_empty() {
                        let unused = io::ErrorKind::Other.into();
                        return Poll::Ready(Err(std::mem::replace(&mut error, unused)));
                    }
                    return Poll::Pending;
                };
                match Connecting::start(rt, address) {
                    Ok(attempt) => {
                        attempts.push(attempt);
                        next.reset(rt.now().saturating_add(delay));
                    }
                    Err(failed) => {
                        error = failed;
                        next.reset(Duration::ZERO);
                    }
                }
            }
        })
        .await
    }

    /// The address of this side.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let key = self.key();
        self.rt().with(|lp| key.local_addr(lp))
    }

    /// The address of the peer.
    ///
    /// # Errors
    ///
    /// The kernel's: `NotConnected` after a reset.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        let key = self.key();
        self.rt().with(|lp| key.peer_addr(lp))
    }

    /// Sends small writes immediately (`TCP_NODELAY`).
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        let key = self.key();
        self.rt().with(|lp| key.set_nodelay(lp, nodelay))
    }
}

/// Alternates between the families, the first address's first.
fn alternate(addresses: Vec<SocketAddr>) -> impl Iterator<Item = SocketAddr> {
    let first_is_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (one, other): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|address| address.is_ipv6() == first_is_v6);
    let longer = one.len().max(other.len());
    (0..longer).flat_map(move |at| [one.get(at).copied(), other.get(at).copied()]).flatten()
}

/// A connect in flight.
struct Connecting<B: Backend> {
    /// `None` once it was given away.
    stream: Option<TcpStream<B>>,
    op: Op<B, io::Result<()>>,
}

impl<B: Backend> Connecting<B> {
    fn start(rt: &Rt<B>, address: SocketAddr) -> io::Result<Connecting<B>> {
        let stream = IoStream::from_key(rt, rt.with(Tcp::new));
        let ((completer, op), key) = (rt.op(), stream.key());
        rt.with(|lp| {
            key.connect(lp, address, move |lp, _, result| drop(completer.complete(lp, result)))
        })?;
        Ok(Connecting { stream: Some(stream), op })
    }
}

impl<B: Backend> Future for Connecting<B> {
    type Output = io::Result<TcpStream<B>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let result = std::task::ready!(Pin::new(&mut self.op).poll(cx));
        Poll::Ready(
            result.and_then(|()| {
                self.stream.take().ok_or_else(|| io::ErrorKind::NotConnected.into())
            }),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_alternate() {
        let parse = |list: &[&str]| -> Vec<SocketAddr> {
            list.iter().map(|one| one.parse().unwrap()).collect()
        };
        let sorted = parse(&["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1", "1.1.1.2:1"]);
        let expected = parse(&["[::1]:1", "1.1.1.1:1", "[::2]:1", "1.1.1.2:1", "[::3]:1"]);
        assert_eq!(alternate(sorted).collect::<Vec<_>>(), expected);
        assert_eq!(alternate(Vec::new()).count(), 0);
    }
}
