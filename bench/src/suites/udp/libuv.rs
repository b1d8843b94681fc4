//! UDP handles of libuv, in two ways: with its fastest functions, and with requests, as in its
//! guide.

use std::ffi::{c_int, c_uint, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::net::{SocketAddr, SocketAddrV4};
use std::time::Duration;

use super::{AT_ONCE, PATIENCE, PingPong, SIZE, Trips, flooded};
use crate::clock::Stopwatch;
use crate::libuv::{self, Loop, Memory, sys};
use crate::suite::Sample;

/// The way datagrams are sent and received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// libuv's best: `uv_udp_try_send`, and `UV_UDP_RECVMMSG`.
    Try,
    /// `uv_udp_send` with recycled requests, and one datagram per system call: more instructions
    /// for the same calls, and more calls if datagrams arrive in bursts.
    Send,
}

/// libuv needs space for 20 datagrams of maximum size to receive several per call.
const BATCH_ROOM: usize = 20 * 64 * 1024;
/// A bug in this version drops datagrams of larger batches.
const TRY_AT_ONCE: usize = 20;

/// A socket, its number, and its flood data.
#[repr(C)]
#[derive(Clone, Copy)]
struct Socket {
    handle: sys::uv_udp_t,
    bytes: [u8; SIZE],
    number: usize,
}

/// The state shared by all callbacks: the data of the loop.
struct Shared {
    trips: Trips,
    pingers: *mut Socket,
    style: Style,
    room: Vec<u8>,
    received: u64,
    sent: u64,
    over: bool,
}

fn shared<'a>(lp: *mut sys::uv_loop_t) -> &'a mut Shared {
    // SAFETY: the loop is initialised, and its data was set before any handle started.
    let shared = unsafe { (*lp).data }.cast::<Shared>();
    // SAFETY: it outlives the loop, and no two callbacks run at a time.
    unsafe { &mut *shared }
}

/// Binds a socket; returns its address.
fn bound(lp: &Loop, socket: *mut Socket, flags: c_uint) -> io::Result<SocketAddr> {
    let (any, handle) = (libc_address(), socket.cast::<sys::uv_udp_t>());
    // SAFETY: the memory outlives the loop, and starts with the handle.
    libuv::check(unsafe { sys::uv_udp_init_ex(lp.raw(), handle, flags) })?;
    // SAFETY: the handle is initialised, and the address is valid.
    libuv::check(unsafe { sys::uv_udp_bind(handle, (&raw const any).cast(), 0) })?;
    let mut name = any;
    let mut length = size_of::<libc::sockaddr_in>() as c_int;
    // SAFETY: `name` is valid for writes of its length.
    libuv::check(unsafe { sys::uv_udp_getsockname(handle, (&raw mut name).cast(), &mut length) })?;
    let ip = u32::from_be(name.sin_addr.s_addr);
    Ok(SocketAddrV4::new(ip.into(), u16::from_be(name.sin_port)).into())
}

fn libc_address() -> libc::sockaddr_in {
    // SAFETY: plain data; all zeros are a valid address.
    let mut address = unsafe { std::mem::zeroed::<libc::sockaddr_in>() };
    address.sin_family = libc::AF_INET as libc::sa_family_t;
    address.sin_addr.s_addr = u32::from(std::net::Ipv4Addr::LOCALHOST).to_be();
    address
}

fn connect(socket: *mut Socket, to: SocketAddr) -> io::Result<()> {
    let mut address = libc_address();
    address.sin_port = to.port().to_be();
    // SAFETY: the handle is initialised, and the address is valid.
    libuv::check(unsafe { sys::uv_udp_connect(socket.cast(), (&raw const address).cast()) })
}

fn recv_start(
    socket: *mut Socket,
    callback: unsafe extern "C" fn(
        *mut sys::uv_udp_t,
        isize,
        *const sys::uv_buf_t,
        *const sys::sockaddr,
        c_uint,
    ),
) -> io::Result<()> {
    // SAFETY: the handle is initialised.
    libuv::check(unsafe { sys::uv_udp_recv_start(socket.cast(), Some(lend), Some(callback)) })
}

fn timer(
    lp: &Loop,
    timer: &Memory<sys::uv_timer_t>,
    (timeout, repeat): (Duration, Duration),
    callback: unsafe extern "C" fn(*mut sys::uv_timer_t),
) -> io::Result<()> {
    let (timeout, repeat) = (timeout.as_millis() as u64, repeat.as_millis() as u64);
    // SAFETY: the memory outlives the loop.
    libuv::check(unsafe { sys::uv_timer_init(lp.raw(), timer.first()) })?;
    // SAFETY: the handle is initialised.
    libuv::check(unsafe { sys::uv_timer_start(timer.first(), Some(callback), timeout, repeat) })
}

/// Lends the same buffer to every read: no callback keeps it.
unsafe extern "C" fn lend(handle: *mut sys::uv_handle_t, _: usize, buf: *mut sys::uv_buf_t) {
    // SAFETY: libuv passes a valid handle.
    let shared = shared(unsafe { (*handle).loop_ });
    // SAFETY: libuv passes a valid pointer for the result.
    let buf = unsafe { &mut *buf };
    buf.base = shared.room.as_mut_ptr().cast();
    buf.len = shared.room.len();
}

/// The received datagram; `None` for an error or the end of a batch.
unsafe fn bytes<'a>(count: isize, buf: *const sys::uv_buf_t) -> Option<&'a [u8]> {
    if count <= 0 {
        return None;
    }
    // SAFETY: the caller passes the buffer that libuv reported.
    let base = unsafe { (*buf).base };
    // SAFETY: libuv has received this number of bytes into the buffer.
    Some(unsafe { std::slice::from_raw_parts(base.cast(), count as usize) })
}

/// A request and its datagram.
struct Send {
    request: MaybeUninit<sys::uv_udp_send_t>,
    bytes: [u8; SIZE],
}

/// Sends to an address or, without one, to the peer. A datagram that the kernel rejects counts as
/// lost and is resent.
fn send(socket: *mut sys::uv_udp_t, bytes: &[u8], to: *const sys::sockaddr, style: Style) {
    if style == Style::Try {
        let buf = sys::uv_buf_t { base: bytes.as_ptr().cast_mut().cast(), len: bytes.len() };
        // SAFETY: the handle is open, and bytes and address outlive the call.
        unsafe { sys::uv_udp_try_send(socket, &buf, 1, to) };
        return;
    }
    let Ok(bytes) = bytes.try_into() else { return };
    let send = Box::into_raw(Box::new(Send { request: MaybeUninit::zeroed(), bytes }));
    // SAFETY: the pointer is from `Box::into_raw` above, and `free_send` frees it.
    let Send { request, bytes } = unsafe { &mut *send };
    let request = request.as_mut_ptr();
    // SAFETY: the memory belongs to the request.
    unsafe { (*request).data = send.cast() };
    let buf = sys::uv_buf_t { base: bytes.as_mut_ptr().cast(), len: SIZE };
    // SAFETY: request and bytes live until `free_send`.
    if unsafe { sys::uv_udp_send(request, socket, &buf, 1, to, Some(free_send)) } < 0 {
        // SAFETY: the failed call does not keep it.
        drop(unsafe { Box::from_raw(send) });
    }
}

unsafe extern "C" fn free_send(request: *mut sys::uv_udp_send_t, _: c_int) {
    // SAFETY: libuv passes a valid request.
    let send: *mut c_void = unsafe { (*request).data };
    // SAFETY: `send` made it from a box, and libuv no longer uses it.
    drop(unsafe { Box::from_raw(send.cast::<Send>()) });
}

pub(super) fn ping_pong(task: PingPong, style: Style) -> io::Result<Sample> {
    let pingers = Memory::<Socket>::new(task.pingers);
    let (server, retry) = (Memory::<Socket>::new(1), Memory::<sys::uv_timer_t>::new(1));
    let mut data = Shared {
        trips: Trips::new(task),
        pingers: pingers.first(),
        style,
        room: vec![0; 64 * 1024],
        received: 0,
        sent: 0,
        over: false,
    };
    let lp = Loop::new()?;
    // SAFETY: the loop is initialised.
    unsafe { (*lp.raw()).data = (&raw mut data).cast() };
    let address = bound(&lp, server.first(), libc::AF_INET as c_uint)?;
    recv_start(server.first(), serve)?;
    for (number, pinger) in pingers.iter().enumerate() {
        bound(&lp, pinger, libc::AF_INET as c_uint)?;
        connect(pinger, address)?;
        // SAFETY: the memory belongs to the socket.
        unsafe { (*pinger).number = number };
        recv_start(pinger, pong)?;
    }
    timer(&lp, &retry, (PATIENCE, PATIENCE), resend_lost)?;
    for (number, pinger) in pingers.iter().enumerate() {
        if let Some(bytes) = shared(lp.raw()).trips.ping(number) {
            ping(pinger, bytes, style);
        }
    }
    let watch = Stopwatch::start();
    lp.run();
    let spent = watch.spent();
    drop(lp);
    Ok(data.trips.sample(spent))
}

fn ping(pinger: *mut Socket, bytes: [u8; SIZE], style: Style) {
    send(pinger.cast(), &bytes, std::ptr::null(), style);
}

unsafe extern "C" fn serve(
    server: *mut sys::uv_udp_t,
    count: isize,
    buf: *const sys::uv_buf_t,
    from: *const sys::sockaddr,
    _: c_uint,
) {
    // SAFETY: libuv passes valid pointers.
    let Some(bytes) = (unsafe { bytes(count, buf) }) else { return };
    // SAFETY: libuv passes a valid handle.
    let style = shared(unsafe { (*server).loop_ }).style;
    send(server, bytes, from, style);
}

unsafe extern "C" fn pong(
    pinger: *mut sys::uv_udp_t,
    count: isize,
    buf: *const sys::uv_buf_t,
    _: *const sys::sockaddr,
    _: c_uint,
) {
    // SAFETY: libuv passes valid pointers.
    let Some(answer) = (unsafe { bytes(count, buf) }) else { return };
    // SAFETY: libuv passes a valid handle.
    let lp = unsafe { (*pinger).loop_ };
    let (shared, pinger) = (shared(lp), pinger.cast::<Socket>());
    // SAFETY: a pinger's handle is the first field of its structure.
    let number = unsafe { (*pinger).number };
    if shared.trips.pong(number, answer)
        && let Some(bytes) = shared.trips.ping(number)
    {
        ping(pinger, bytes, shared.style);
    }
    if shared.trips.is_over() {
        // SAFETY: the loop is running.
        unsafe { sys::uv_stop(lp) };
    }
}

unsafe extern "C" fn resend_lost(timer: *mut sys::uv_timer_t) {
    // SAFETY: libuv passes a valid handle.
    let shared = shared(unsafe { (*timer).loop_ });
    for (number, bytes) in shared.trips.lost() {
        ping(shared.pingers.wrapping_add(number), bytes, shared.style);
    }
}

pub(super) fn flood(window: Duration, style: Style) -> io::Result<Sample> {
    let (receiver, ends) = (Memory::<Socket>::new(1), Memory::<sys::uv_timer_t>::new(1));
    let (sender, idle) = (Memory::<Socket>::new(1), Memory::<sys::uv_idle_t>::new(1));
    let requests = Memory::<sys::uv_udp_send_t>::new(AT_ONCE);
    let mut data = Shared {
        trips: Trips::new(PingPong { pingers: 0, trips: 0 }),
        pingers: sender.first(),
        style,
        room: vec![0; if style == Style::Try { BATCH_ROOM } else { 64 * 1024 }],
        received: 0,
        sent: 0,
        over: false,
    };
    let lp = Loop::new()?;
    // SAFETY: the loop is initialised.
    unsafe { (*lp.raw()).data = (&raw mut data).cast() };
    let batches = if style == Style::Try { sys::uv_udp_flags_UV_UDP_RECVMMSG } else { 0 };
    let address = bound(&lp, receiver.first(), libc::AF_INET as c_uint | batches as c_uint)?;
    bound(&lp, sender.first(), libc::AF_INET as c_uint)?;
    connect(sender.first(), address)?;
    // SAFETY: the memory belongs to the sender.
    unsafe { (*sender.first()).bytes = [0x5a; SIZE] };
    recv_start(receiver.first(), count)?;
    timer(&lp, &ends, (window, window), end)?;
    let watch = Stopwatch::start();
    match style {
        Style::Send => requests.iter().for_each(|request| resend(sender.first(), request)),
        Style::Try => {
            // SAFETY: the memory outlives the loop.
            libuv::check(unsafe { sys::uv_idle_init(lp.raw(), idle.first()) })?;
            // SAFETY: the handle is initialised.
            libuv::check(unsafe { sys::uv_idle_start(idle.first(), Some(try_send)) })?;
        }
    }
    lp.run();
    let spent = watch.spent();
    drop(lp);
    Ok(flooded(data.received, data.sent, spent))
}

unsafe extern "C" fn count(
    receiver: *mut sys::uv_udp_t,
    count: isize,
    buf: *const sys::uv_buf_t,
    _: *const sys::sockaddr,
    _: c_uint,
) {
    // SAFETY: libuv passes valid pointers.
    if let Some(bytes) = unsafe { bytes(count, buf) } {
        // SAFETY: libuv passes a valid handle.
        let shared = shared(unsafe { (*receiver).loop_ });
        shared.received += u64::from(bytes == [0x5a; SIZE]);
    }
}

fn resend(sender: *mut Socket, request: *mut sys::uv_udp_send_t) {
    // SAFETY: the memory outlives the loop, and does not change.
    let place = unsafe { &raw mut (*sender).bytes };
    let buf = sys::uv_buf_t { base: place.cast(), len: SIZE };
    let (sender, peer) = (sender.cast(), std::ptr::null());
    // SAFETY: the request is not in flight, and outlives the loop.
    unsafe { sys::uv_udp_send(request, sender, &buf, 1, peer, Some(taken)) };
}

unsafe extern "C" fn taken(request: *mut sys::uv_udp_send_t, status: c_int) {
    // SAFETY: libuv passes a valid request.
    let sender = unsafe { (*request).handle };
    // SAFETY: the handle of a request is valid until its callback.
    let shared = shared(unsafe { (*sender).loop_ });
    shared.sent += u64::from(status == 0);
    if !shared.over {
        resend(sender.cast(), request);
    }
}

unsafe extern "C" fn try_send(idle: *mut sys::uv_idle_t) {
    // SAFETY: libuv passes a valid handle.
    let shared = shared(unsafe { (*idle).loop_ });
    // SAFETY: the memory outlives the loop, and does not change.
    let place = unsafe { &raw mut (*shared.pingers).bytes };
    let mut buf = sys::uv_buf_t { base: place.cast(), len: SIZE };
    let (mut bufs, mut lengths) = ([&raw mut buf; TRY_AT_ONCE], [1; TRY_AT_ONCE]);
    let mut peers = [std::ptr::null_mut(); TRY_AT_ONCE];
    // SAFETY: the handle is open, and the three arrays have the passed length.
    let sent = unsafe {
        sys::uv_udp_try_send2(
            shared.pingers.cast(),
            TRY_AT_ONCE as c_uint,
            bufs.as_mut_ptr(),
            lengths.as_mut_ptr(),
            peers.as_mut_ptr(),
            0,
        )
    };
    shared.sent += sent.max(0) as u64;
}

unsafe extern "C" fn end(timer: *mut sys::uv_timer_t) {
    // SAFETY: libuv passes a valid handle.
    let lp = unsafe { (*timer).loop_ };
    if shared(lp).received == 0 {
        return; // The flood has not started yet, on a busy machine.
    }
    shared(lp).over = true;
    // SAFETY: the loop is running.
    unsafe { sys::uv_stop(lp) };
}
