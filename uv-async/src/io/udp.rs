//! UDP.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use uv_core::dns::SocketType;
use uv_core::poll_core::Backend;
use uv_core::{
    Addresses, DefaultBackend, Handle, IoBuf, IoBufMut, Received, RecvRequest, Udp, UdpBindFlags,
    is_cancelled,
};

use super::buf::{BufResult, Carried, Done};
use super::kept::Kept;
use crate::Rt;
use crate::op::Op;

/// A received datagram and its bytes.
pub type OwnedDatagram = (Received, Box<[u8]>);

/// A UDP socket. It owns its handle and closes it on drop.
///
/// ```
/// use uv_async::{LoopExt, UdpSocket};
/// use uv_core::Loop;
///
/// let mut lp = Loop::with_default_backend()?;
/// lp.block_on(async |rt| {
///     let one = UdpSocket::bind(&rt, "127.0.0.1:0".parse().unwrap())?;
///     let other = UdpSocket::bind(&rt, "127.0.0.1:0".parse().unwrap())?;
///     one.send_to("hello", other.local_addr()?).await.0?;
///     let (received, memory) = other.recv_from(vec![0; 1500]).await;
///     let received = received?;
///     assert_eq!(&memory[received.range()], b"hello");
///     assert_eq!(received.from, one.local_addr()?);
///     std::io::Result::Ok(())
/// })??;
/// # std::io::Result::Ok(())
/// ```
pub struct UdpSocket<B: Backend = DefaultBackend> {
    rt: Rt<B>,
    key: Option<Udp>,
    /// What the requests of dropped receives have received.
    kept: Rc<Kept<io::Result<OwnedDatagram>>>,
}

impl<B: Backend> UdpSocket<B> {
    /// Binds a socket to an address.
    ///
    /// # Errors
    ///
    /// The kernel's: `AddrInUse`, for example.
    ///
    /// # Panics
    ///
    /// Outside of tasks, as [`Rt::with`].
    pub fn bind(rt: &Rt<B>, address: SocketAddr) -> io::Result<UdpSocket<B>> {
        let socket = UdpSocket::from_key(rt, rt.with(Udp::new));
        let key = socket.key();
        rt.with(|lp| key.bind(lp, address, UdpBindFlags::empty()))?;
        Ok(socket)
    }

    /// Binds a socket to the first of some addresses that can be bound. A name is looked up first,
    /// and the call blocks meanwhile; numbers never block.
    ///
    /// ```
    /// use uv_async::{LoopExt, UdpSocket};
    /// use uv_core::Loop;
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.block_on(async |rt| {
    ///     let socket = UdpSocket::bind_to(&rt, "127.0.0.1:0")?;
    ///     println!("receives at {}", socket.local_addr()?);
    ///     std::io::Result::Ok(())
    /// })??;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`bind`](UdpSocket::bind), for the last address; those of the lookup.
    ///
    /// # Panics
    ///
    /// Outside of tasks, as [`Rt::with`].
    pub fn bind_to(rt: &Rt<B>, on: impl Into<Addresses>) -> io::Result<UdpSocket<B>> {
        let mut last = io::ErrorKind::InvalidInput.into();
        for address in on.into().resolve(SocketType::Datagram)? {
            match Self::bind(rt, address) {
                Ok(socket) => return Ok(socket),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// The socket of a handle, which it owns from here on.
    pub fn from_key(rt: &Rt<B>, key: Udp) -> UdpSocket<B> {
        UdpSocket { rt: rt.clone(), key: Some(key), kept: Rc::default() }
    }

    /// Gives the handle up, with the datagrams that were received and not taken.
    ///
    /// If a receive was dropped outside of tasks and of [`Rt::enter`], call this inside of one:
    /// otherwise a datagram that arrives until the loop's next iteration is lost.
    pub fn into_key(mut self) -> (Udp, Vec<OwnedDatagram>) {
        let Some(key) = self.key.take() else { unreachable!("the key is there until a drop") };
        (key, self.kept.take_all().into_iter().filter_map(Result::ok).collect())
    }

    /// The handle, for options that this crate does not wrap: see [`Rt::with`].
    pub fn key(&self) -> Udp {
        let Some(key) = self.key else { unreachable!("the key is there until a drop") };
        key
    }

    /// The address of this socket.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let key = self.key();
        self.rt.with(|lp| key.local_addr(lp))
    }

    /// Sets the peer of [`send`](UdpSocket::send), whose datagrams alone are received from here on.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn connect(&self, address: SocketAddr) -> io::Result<()> {
        let key = self.key();
        self.rt.with(|lp| key.connect(lp, address))
    }

    /// Receives a datagram. What does not fit into the buffer is lost, and reported as truncated.
    ///
    /// # Errors
    ///
    /// The kernel's: `ConnectionRefused` on a connected socket, for example.
    ///
    /// # Cancel safety
    ///
    /// No datagram is lost: one that arrives for a dropped receive is for the next one.
    pub async fn recv_from<T: IoBufMut>(&self, mut buf: T) -> BufResult<Received, T> {
        loop {
            if let Some(kept) = self.kept.take() {
                return (kept.map(|datagram| copy(datagram, buf.memory())), buf);
            }
            let mut receiving = match self.start_receive(buf) {
                Ok(receiving) => receiving,
                Err(refused) => return refused,
            };
            match poll_fn(|cx| receiving.poll(cx)).await {
                // Its request was cancelled, because there is a kept datagram.
                (Err(error), back) if receiving.cancelled && is_cancelled(&error) => buf = back,
                done => return done,
            }
        }
    }

    fn start_receive<T: IoBufMut>(
        &self,
        buf: T,
    ) -> Result<Receiving<'_, B, T>, BufResult<Received, T>> {
        let (completer, mut op) = self.rt.op();
        let (key, carried) = (self.key(), Carried::new(buf, 0, completer));
        let request = self.rt.with(|lp| {
            key.recv(lp, carried, |lp, _, result, carried: Carried<B, T, Received>| {
                drop(carried.finish(lp, result.map_err(io::Error::from)));
            })
        });
        match request {
            Ok(request) => {
                let number = self.kept.begin();
                Ok(Receiving { socket: self, op, request, number, cancelled: false })
            }
            Err(error) => Err(op.refused(error)),
        }
    }

    /// Sends a datagram to an address.
    ///
    /// # Errors
    ///
    /// The kernel's.
    ///
    /// # Cancel safety
    ///
    /// A datagram that waits for room is sent also if this is dropped after its first poll.
    pub async fn send_to<T: IoBuf>(&self, buf: T, to: SocketAddr) -> BufResult<(), T> {
        self.send_datagram(buf, Some(to)).await
    }

    /// Sends a datagram to the peer of [`connect`](UdpSocket::connect).
    ///
    /// # Errors
    ///
    /// The kernel's.
    ///
    /// # Cancel safety
    ///
    /// As [`send_to`](UdpSocket::send_to).
    pub async fn send<T: IoBuf>(&self, buf: T) -> BufResult<(), T> {
        self.send_datagram(buf, None).await
    }

    async fn send_datagram<T: IoBuf>(&self, buf: T, to: Option<SocketAddr>) -> BufResult<(), T> {
        let key = self.key();
        if buf.pieces() == 1 {
            let sent = self.rt.with(|lp| key.try_send(lp, buf.piece(0), to));
            match sent {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => return (sent.map(drop), buf),
            }
        }
        let (completer, mut op) = self.rt.op();
        let carried = Carried::new(buf, 0, completer);
        let sent = self.rt.with(|lp| {
            key.send(lp, carried, to, |lp, _, result, carried: Carried<B, T>| {
                drop(carried.finish(lp, result.map(|()| 0)));
            })
        });
        let (result, buf) = match sent {
            Ok(()) => op.await.into_result(),
            Err(error) => op.refused(error),
        };
        (result.map(drop), buf)
    }
}

impl<B: Backend> Drop for UdpSocket<B> {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            // Fails only if the program has closed the handle.
            self.rt.with_or_defer(move |lp| drop(key.close(lp)));
        }
    }
}

impl<B: Backend> fmt::Debug for UdpSocket<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UdpSocket").field("key", &self.key).finish_non_exhaustive()
    }
}

/// Copies a kept datagram.
fn copy((mut received, bytes): OwnedDatagram, memory: &mut [u8]) -> Received {
    let len = bytes.len().min(memory.len());
    memory[..len].copy_from_slice(&bytes[..len]);
    received.truncated |= len < bytes.len();
    (received.offset, received.len) = (0, len);
    received
}

/// A receive in flight.
struct Receiving<'a, B: Backend, T: IoBufMut> {
    socket: &'a UdpSocket<B>,
    op: Op<B, Done<T, Received>>,
    request: RecvRequest,
    number: u32,
    /// The request was cancelled to get the buffer back.
    cancelled: bool,
}

impl<B: Backend, T: IoBufMut> Receiving<'_, B, T> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<BufResult<Received, T>> {
        let UdpSocket { rt, kept, .. } = self.socket;
        if let Poll::Ready(done) = Pin::new(&mut self.op).poll(cx) {
            return Poll::Ready(done.into_result());
        }
        if kept.is_empty() {
            kept.wait(self.number, rt, cx);
        } else if !self.cancelled {
            self.cancelled = rt.with(|lp| self.request.cancel(lp)).is_ok();
        }
        Poll::Pending
    }
}

impl<B: Backend, T: IoBufMut> Drop for Receiving<'_, B, T> {
    fn drop(&mut self) {
        let (rt, kept, number) = (&self.socket.rt, &self.socket.kept, self.number);
        if !self.op.is_pending() || keep(&mut self.op, rt, kept) {
            return kept.end(number);
        }
        let (request, kept) = (self.request, Rc::clone(kept));
        // The request may be complete before the loop is lent: the cell stays until then.
        let (mut op, inside) = (self.op.detach(), rt.clone());
        rt.with_or_defer(move |lp| {
            if !keep(&mut op, &inside, &kept) {
                drop(request.cancel(lp));
            }
            kept.end(number);
        });
    }
}

/// Keeps the outcome of a receive whose future is gone, if it is complete.
fn keep<B: Backend, T: IoBufMut>(
    op: &mut Op<B, Done<T, Received>>,
    rt: &Rt<B>,
    kept: &Kept<io::Result<OwnedDatagram>>,
) -> bool {
    let Some(done) = op.take() else { return false };
    match done.into_result() {
        (Ok(received), mut buf) => {
            let bytes = buf.memory()[received.range()].into();
            kept.put(rt, Ok((received, bytes)));
        }
        (Err(error), _) if is_cancelled(&error) => {}
        // The kernel reports it once.
        (Err(error), _) => kept.put(rt, Err(error)),
    }
    true
}
