//! Sockets and pipes to watch, and the ways to end them.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use poll_core::RawSource;
use socket2::{Domain, SockRef, Socket, Type};

use super::observe::SOON;

/// A source that a backend can watch.
pub(crate) trait Source {
    /// Its descriptor for a backend.
    fn raw(&self) -> RawSource;
}

#[cfg(unix)]
impl<T: std::os::fd::AsRawFd> Source for T {
    fn raw(&self) -> RawSource {
        RawSource::of(self)
    }
}

#[cfg(windows)]
impl<T: std::os::windows::io::AsRawSocket> Source for T {
    fn raw(&self) -> RawSource {
        RawSource::of(self)
    }
}

/// A non-blocking listener on a free port of 127.0.0.1.
pub(crate) fn listener() -> TcpListener {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port to listen on");
    listener.set_nonblocking(true).expect("a non-blocking listener");
    listener
}

/// Both ends of a TCP connection, non-blocking, with `TCP_NODELAY`.
pub(crate) fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port to listen on");
    let address = listener.local_addr().expect("the listener's address");
    let near = TcpStream::connect(address).expect("a connection to the listener");
    let ours = near.local_addr().expect("the connection's address");
    // Another process may have connected to this port: accept the connection made above.
    let far = loop {
        let (far, peer) = listener.accept().expect("the connection's other end");
        if peer == ours {
            break far;
        }
    };
    for end in [&near, &far] {
        end.set_nonblocking(true).expect("a non-blocking stream");
        end.set_nodelay(true).expect("TCP_NODELAY");
    }
    (near, far)
}

/// Two connected UDP sockets, non-blocking.
pub(crate) fn udp_pair() -> (UdpSocket, UdpSocket) {
    let bind = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a UDP port");
    let (near, far) = (bind(), bind());
    near.connect(far.local_addr().expect("an address")).expect("a peer");
    far.connect(near.local_addr().expect("an address")).expect("a peer");
    for end in [&near, &far] {
        end.set_nonblocking(true).expect("a non-blocking socket");
    }
    (near, far)
}

/// The reading and the writing end of a pipe, non-blocking.
#[cfg(unix)]
pub(crate) fn pipe() -> (io::PipeReader, io::PipeWriter) {
    use std::os::fd::AsFd;
    let (reader, writer) = io::pipe().expect("a pipe");
    for end in [reader.as_fd(), writer.as_fd()] {
        set_nonblocking(end);
    }
    (reader, writer)
}

/// Makes a descriptor non-blocking.
#[cfg(unix)]
pub(crate) fn set_nonblocking(fd: std::os::fd::BorrowedFd<'_>) {
    use std::os::fd::AsRawFd;
    // SAFETY: the borrowed descriptor is open, and `F_GETFL` takes no pointer.
    let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
    // SAFETY: as above, with `F_SETFL`.
    let set = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) };
    assert!(flags >= 0 && set == 0, "O_NONBLOCK: {}", io::Error::last_os_error());
}

/// Closes with a reset instead of an orderly shutdown.
pub(crate) fn reset(stream: TcpStream) {
    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("SO_LINGER");
}

/// Shuts down the writing side: the peer reads an end of file and may still write.
pub(crate) fn half_close(stream: &TcpStream) {
    stream.shutdown(Shutdown::Write).expect("a shutdown of the writing side");
}

/// An address without a listener: a port that was bound a moment ago.
pub(crate) fn refused_address() -> SocketAddr {
    let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port to bind");
    bound.local_addr().expect("its address")
}

/// A non-blocking socket with a connect to `address` in progress or completed.
pub(crate) fn connecting(address: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).expect("a socket");
    socket.set_nonblocking(true).expect("a non-blocking socket");
    match socket.connect(&address.into()) {
        Ok(()) => {}
        Err(error) if under_way(&error) => {}
        // Some kernels refuse synchronously; the socket then keeps no error.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
        Err(error) => panic!("connecting to {address}: {error}"),
    }
    socket.into()
}

#[cfg(unix)]
fn under_way(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EINPROGRESS)
}

#[cfg(windows)]
fn under_way(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

/// Sends one byte of urgent data.
pub(crate) fn send_urgent(stream: &TcpStream) {
    SockRef::from(stream).send_out_of_band(b"!").expect("urgent data sent");
}

/// Sends all of `bytes`, which must fit into the free buffer space.
pub(crate) fn send(mut to: impl Write, bytes: &[u8]) {
    to.write_all(bytes).expect("space in the send buffer");
}

/// Returns once data, or the end of the connection, has arrived at `stream`, and leaves it unread.
pub(crate) fn arrived(stream: &TcpStream) {
    let started = Instant::now();
    while stream.peek(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
        assert!(started.elapsed() < SOON, "nothing arrives on the loopback interface");
        std::thread::yield_now();
    }
}

/// Reads until a read would block; true at the end of file.
pub(crate) fn drain(mut from: impl Read) -> bool {
    let mut buffer = [0; 16 * 1024];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => panic!("while draining: {error}"),
        }
    }
}

/// Writes until a write would block, and returns the number of bytes.
pub(crate) fn fill(mut to: impl Write) -> usize {
    let chunk = [0; 64 * 1024];
    fill_by(|| to.write(&chunk))
}

/// Calls `write` until it would block, and returns the number of bytes. Kernels grow buffers while
/// they are filled and may delay acknowledgements by 40 ms, so it continues until nothing was
/// accepted for longer than that.
pub(crate) fn fill_by(mut write: impl FnMut() -> io::Result<usize>) -> usize {
    let (mut total, mut refused) = (0, 0);
    while refused < 30 {
        match write() {
            Ok(count) => (total, refused) = (total + count, 0),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                refused += 1;
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(error) => panic!("while filling: {error}"),
        }
    }
    total
}

/// Shrinks the socket's buffers, so that [`fill`] is quick.
pub(crate) fn shrink_buffers(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    socket.set_send_buffer_size(8 * 1024).expect("SO_SNDBUF");
    socket.set_recv_buffer_size(8 * 1024).expect("SO_RCVBUF");
}
