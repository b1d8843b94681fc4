//! Where a datagram goes.

use std::net::SocketAddr;

use crate::sys::datagrams::Address;

/// The destination of a [send](super::Udp::send): an Internet address, the peer of a connected
/// socket (`None`), or the name of a Unix datagram socket.
///
/// ```
/// use std::net::SocketAddr;
/// use uv_core::Destination;
///
/// let to: SocketAddr = "127.0.0.1:53".parse().unwrap();
/// let _ = (Destination::from(to), Destination::from(Some(to)), Destination::from(None));
/// ```
#[derive(Clone, Debug)]
pub struct Destination(pub(super) Address);

impl From<SocketAddr> for Destination {
    fn from(to: SocketAddr) -> Destination {
        Destination(Address::Inet(to))
    }
}

impl From<Option<SocketAddr>> for Destination {
    fn from(to: Option<SocketAddr>) -> Destination {
        Destination(to.map_or(Address::Peer, Address::Inet))
    }
}

#[cfg(unix)]
impl Destination {
    /// The name of a Unix datagram socket: a path, or on Linux an abstract name with a leading
    /// NUL. Only a handle that was [opened](super::Udp::open) with such a socket sends there.
    ///
    /// ```
    /// use std::os::unix::net::UnixDatagram;
    /// use uv_core::{Destination, Loop, Udp};
    ///
    /// let path = std::env::temp_dir().join(format!("destination-{}", std::process::id()));
    /// # drop(std::fs::remove_file(&path));
    /// let receiver = UnixDatagram::bind(&path)?;
    /// let mut lp = Loop::with_default_backend()?;
    /// let udp = Udp::new(&mut lp);
    /// udp.open(&mut lp, UnixDatagram::unbound()?)?;
    /// udp.try_send(&mut lp, b"hello", Destination::unix(&path)?)?;
    /// let mut memory = [0; 16];
    /// assert_eq!(receiver.recv(&mut memory)?, 5);
    /// # std::fs::remove_file(path)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` for an empty name, one with a NUL inside, or one that is too long;
    /// `Unsupported` for an abstract name where there are none.
    pub fn unix(name: impl AsRef<std::path::Path>) -> std::io::Result<Destination> {
        let address = crate::sys::pipe_address(name.as_ref())?;
        Ok(Destination(Address::Unix(Box::new(address))))
    }
}
