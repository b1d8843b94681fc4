//! The steps of polls, and those that change descriptors behind the loop's back.

#[cfg(unix)]
use std::cell::Cell;
use std::cell::RefCell;
use std::io;
use std::net::UdpSocket;
use std::rc::Rc;

#[cfg(unix)]
use uv_core::Handle;
use uv_core::Poll;

use super::objects::{Extra, Item};
use super::world::World;
use crate::Loop;

/// The socket that a poll without an owner watches: none once it is closed behind its back.
pub(super) type Watched = Rc<RefCell<Option<Descriptor>>>;

#[cfg(unix)]
pub(super) type Descriptor = std::os::fd::OwnedFd;
#[cfg(not(unix))]
pub(super) type Descriptor = UdpSocket;

/// Two connected datagram sockets.
fn sockets() -> io::Result<(UdpSocket, UdpSocket)> {
    let (one, other) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    one.connect(other.local_addr()?)?;
    other.connect(one.local_addr()?)?;
    Ok((one, other))
}

/// A poll that owns its socket.
pub(super) fn open_poll(lp: &mut Loop, name: &str) -> io::Result<[Option<Item>; 2]> {
    let (ours, theirs) = sockets()?;
    let poll = Poll::new(lp, ours)?;
    let extra = Extra::Poll { peer: Rc::new(theirs), watched: Watched::default() };
    Ok([Some(Item::new(name, poll, extra)), None])
}

/// A poll of a descriptor that the program keeps.
#[cfg(unix)]
pub(super) fn open_raw_poll(lp: &mut Loop, name: &str) -> io::Result<[Option<Item>; 2]> {
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

    use poll_core::RawSource;

    /// Numbers from here on are not used by anything else, so that one which is closed while the
    /// loop watches it does not become that of another handle.
    const FIRST: libc::c_int = 700;
    let (ours, theirs) = sockets()?;
    // SAFETY: the socket is open, and `F_DUPFD_CLOEXEC` takes no pointer.
    let fd = unsafe { libc::fcntl(ours.as_raw_fd(), libc::F_DUPFD_CLOEXEC, FIRST) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fcntl` has just created `fd`, which has no other owner.
    let ours = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: the number stays open, or unused (see `FIRST`): a loop that watches it affects no
    // other descriptor.
    let poll = unsafe { Poll::from_raw_source(lp, RawSource::of(&ours)) }?;
    let watched = Rc::new(RefCell::new(Some(ours)));
    Ok([Some(Item::new(name, poll, Extra::Poll { peer: Rc::new(theirs), watched })), None])
}

#[cfg(not(unix))]
pub(super) fn open_raw_poll(_: &mut Loop, _: &str) -> io::Result<[Option<Item>; 2]> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Replaces the descriptor of a stream by one whose peer is gone. The number stays open, because
/// another thread could use it otherwise, and the handle closes it in the end.
#[cfg(unix)]
pub(super) fn replace(world: &World, lp: &Loop, item: &Item) {
    use std::os::fd::AsRawFd;

    let Extra::Stream { input, output, peer } = &item.extra else { return };
    let Ok(source) = item.handle.raw_source(lp) else { return };
    let Ok((ours, theirs)) = std::os::unix::net::UnixStream::pair() else { return };
    drop(theirs);
    if ours.set_nonblocking(true).is_err() {
        return;
    }
    let excused: [&Cell<bool>; 4] =
        [&item.life.excused, &peer.excused, &input.broken, &output.broken];
    excused.iter().for_each(|flag| flag.set(true));
    // SAFETY: both numbers are open, and `dup2` takes no pointer.
    if unsafe { libc::dup2(ours.as_raw_fd(), source.fd()) } < 0 {
        world.fail(format!("{}: dup2: {}", item.name, io::Error::last_os_error()));
    }
}

#[cfg(not(unix))]
pub(super) fn replace(_: &World, _: &Loop, _: &Item) {}
