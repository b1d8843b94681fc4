//! The paths on libuv with its fastest use: buffers and requests are recycled, without allocation.

use std::cell::Cell;
use std::ffi::{c_int, c_uint};
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};

use super::driver::{self, Driver, Gate};
use super::{
    Action, Answer, MANY, OTHER_TIMERS, PIECE, REQUEST, TIMERS, check, count_done, done, fail,
    keep, timeouts,
};
use crate::libuv::{Loop, Memory, check as succeed, sys};
use crate::temporary::Temporary;

/// The size that libuv suggests for a read.
const READ_SIZE: usize = 64 * 1024;

/// A handle, its only request and its buffer.
#[repr(C)]
#[derive(Clone, Copy)]
struct Endpoint<H, R> {
    handle: H,
    request: R,
    buffer: [u8; READ_SIZE],
}

type Connection = Endpoint<sys::uv_tcp_t, sys::uv_write_t>;
type Socket = Endpoint<sys::uv_udp_t, sys::uv_udp_send_t>;

pub(super) fn run(action: Action, rounds: u64) -> io::Result<()> {
    let lp = Loop::new()?;
    let result = match action {
        Action::Echo(answer, connections) => echo(&lp, answer, connections, rounds),
        Action::Write => write(&lp, rounds),
        Action::TryWrite => try_write(&lp, rounds),
        Action::TimerStart => timer_start(&lp, rounds),
        Action::TimerStop => timer_stop(&lp, rounds),
        Action::TimerRestart => timer_restart(&lp, rounds),
        Action::TimerFire => timer_fire(&lp, rounds),
        Action::AsyncSend => async_send(&lp, rounds),
        Action::Work => work(&lp, rounds),
        Action::UdpSend => udp_echo(&lp, datagram::<false>, rounds),
        Action::UdpTrySend => udp_echo(&lp, datagram::<true>, rounds),
        Action::FsRead => fs_read(&lp, rounds),
        Action::Iteration => iterations(&lp, rounds),
    };
    keep(lp);
    result
}

/// Runs iterations until callbacks have counted `count` operations.
#[inline]
fn run_until(lp: &Loop, operations: u64) {
    while done() < operations {
        lp.run_once();
    }
}

fn open(lp: &Loop, connection: *mut Connection, socket: impl Into<OwnedFd>) -> io::Result<()> {
    let handle = connection.cast::<sys::uv_tcp_t>();
    // SAFETY: the memory is kept until the process ends, and starts with the handle.
    succeed(unsafe { sys::uv_tcp_init(lp.raw(), handle) })?;
    // SAFETY: the handle is initialised and takes ownership of the descriptor.
    succeed(unsafe { sys::uv_tcp_open(handle, socket.into().into_raw_fd()) })
}

fn echo(lp: &Loop, answer: Answer, connections: usize, rounds: u64) -> io::Result<()> {
    let (mut driver, servers) = Driver::tcp(connections, answer != Answer::Nothing)?;
    let memory = Memory::<Connection>::new(servers.len());
    let read: unsafe extern "C" fn(*mut sys::uv_stream_t, isize, *const sys::uv_buf_t) =
        match answer {
            Answer::Write => read_write,
            Answer::TryWrite | Answer::Batched => read_try_write,
            Answer::Nothing => read_nothing,
        };
    for (connection, server) in memory.iter().zip(servers) {
        open(lp, connection, server)?;
        // SAFETY: the handle is initialised and open.
        succeed(unsafe {
            sys::uv_read_start(
                connection.cast(),
                Some(lend::<sys::uv_tcp_t, sys::uv_write_t>),
                Some(read),
            )
        })?;
    }
    for round in 1..=rounds {
        driver.round()?;
        run_until(lp, round * connections as u64);
    }
    keep(memory);
    check(rounds * connections as u64)
}

/// Lends the buffer of the endpoint that starts with this handle.
unsafe extern "C" fn lend<H, R>(handle: *mut sys::uv_handle_t, _: usize, buf: *mut sys::uv_buf_t) {
    let endpoint = handle.cast::<Endpoint<H, R>>();
    // SAFETY: a handle with this callback is the first field of an endpoint of these types.
    let base = unsafe { &raw mut (*endpoint).buffer };
    // SAFETY: libuv passes a valid pointer for the result.
    let buf = unsafe { &mut *buf };
    (buf.base, buf.len) = (base.cast(), READ_SIZE);
}

/// The received bytes, as the answer.
///
/// # Safety
///
/// `buf` is valid.
unsafe fn received(buf: *const sys::uv_buf_t, count: isize) -> sys::uv_buf_t {
    // SAFETY: the caller's promise.
    let base = unsafe { (*buf).base };
    sys::uv_buf_t { base, len: count.max(0) as usize }
}

unsafe extern "C" fn read_write(
    stream: *mut sys::uv_stream_t,
    count: isize,
    buf: *const sys::uv_buf_t,
) {
    let connection = stream.cast::<Connection>();
    // SAFETY: libuv passes the buffer of `lend`.
    let answer = unsafe { received(buf, count) };
    // SAFETY: a handle with this callback is the first field of a connection.
    let request = unsafe { &raw mut (*connection).request };
    // SAFETY: request and buffer belong to the connection, which has no other write in flight.
    let queued = unsafe { sys::uv_write(request, stream, &answer, 1, Some(written)) };
    if queued < 0 || count != REQUEST as isize {
        fail("uv_write rejects an answer");
    }
}

unsafe extern "C" fn written(_: *mut sys::uv_write_t, status: c_int) {
    if status < 0 {
        fail("uv_write fails");
    }
    count_done();
}

unsafe extern "C" fn read_try_write(
    stream: *mut sys::uv_stream_t,
    count: isize,
    buf: *const sys::uv_buf_t,
) {
    // SAFETY: libuv passes the buffer of `lend`.
    let answer = unsafe { received(buf, count) };
    // SAFETY: the buffer belongs to the connection, and libuv has filled this number of bytes.
    answered(unsafe { sys::uv_try_write(stream, &answer, 1) });
}

unsafe extern "C" fn read_nothing(_: *mut sys::uv_stream_t, count: isize, _: *const sys::uv_buf_t) {
    answered(count as c_int);
}

#[inline]
fn answered(count: c_int) {
    if count != REQUEST as c_int {
        fail("a request is not answered as a whole");
    }
    count_done();
}

/// Opens a connection, and returns its other end.
fn connect(lp: &Loop, connection: *mut Connection) -> io::Result<OwnedFd> {
    let (ours, theirs) = driver::tcp_pair()?;
    open(lp, connection, ours)?;
    Ok(theirs.into())
}

fn write(lp: &Loop, rounds: u64) -> io::Result<()> {
    let memory = Memory::<Connection>::new(1);
    let (connection, theirs) = (memory.first(), connect(lp, memory.first())?);
    // SAFETY: the memory belongs to the connection.
    let request = unsafe { &raw mut (*connection).request };
    // SAFETY: the memory belongs to the connection.
    let base = unsafe { &raw mut (*connection).buffer };
    let answer = sys::uv_buf_t { base: base.cast(), len: REQUEST };
    for round in 1..=rounds {
        // SAFETY: request and buffer are kept, and no other write is in flight.
        succeed(unsafe { sys::uv_write(request, connection.cast(), &answer, 1, Some(written)) })?;
        run_until(lp, round);
        driver::receive(&theirs)?;
    }
    keep(memory);
    check(rounds)
}

fn try_write(lp: &Loop, rounds: u64) -> io::Result<()> {
    let memory = Memory::<Connection>::new(1);
    let (connection, theirs) = (memory.first(), connect(lp, memory.first())?);
    let mut bytes = [7_u8; REQUEST];
    let answer = sys::uv_buf_t { base: bytes.as_mut_ptr().cast(), len: REQUEST };
    for _ in 0..rounds {
        // SAFETY: the handle is open, and the bytes are valid.
        answered(unsafe { sys::uv_try_write(connection.cast(), &answer, 1) });
        driver::receive(&theirs)?;
    }
    keep(memory);
    check(rounds)
}

/// Timers that are not started.
fn idle_timers(lp: &Loop, count: usize) -> io::Result<Memory<sys::uv_timer_t>> {
    let timers = Memory::<sys::uv_timer_t>::new(count);
    for timer in timers.iter() {
        // SAFETY: the memory is kept until the process ends.
        succeed(unsafe { sys::uv_timer_init(lp.raw(), timer) })?;
    }
    Ok(timers)
}

/// Timers, of which the first are started.
fn timers(lp: &Loop, timeouts: &[u64]) -> io::Result<Memory<sys::uv_timer_t>> {
    let timers = idle_timers(lp, timeouts.len())?;
    for (timer, timeout) in timers.iter().zip(timeouts).take(OTHER_TIMERS) {
        start(timer, *timeout)?;
    }
    Ok(timers)
}

#[inline]
fn start(timer: *mut sys::uv_timer_t, timeout_ms: u64) -> io::Result<()> {
    // SAFETY: the timer is initialised.
    succeed(unsafe { sys::uv_timer_start(timer, Some(fired), timeout_ms, 0) })
}

unsafe extern "C" fn fired(_: *mut sys::uv_timer_t) {
    count_done();
}

fn timer_start(lp: &Loop, rounds: u64) -> io::Result<()> {
    let timeouts = timeouts(2 * OTHER_TIMERS);
    let timers = timers(lp, &timeouts)?;
    let idle = timers.iter().zip(&timeouts).skip(OTHER_TIMERS);
    for (timer, timeout) in idle.take(rounds as usize) {
        start(timer, *timeout)?;
    }
    keep(timers);
    Ok(())
}

fn timer_stop(lp: &Loop, rounds: u64) -> io::Result<()> {
    let timers = timers(lp, &timeouts(OTHER_TIMERS))?;
    for timer in timers.iter().take(rounds as usize) {
        // SAFETY: the timer is initialised.
        succeed(unsafe { sys::uv_timer_stop(timer) })?;
    }
    keep(timers);
    Ok(())
}

fn timer_restart(lp: &Loop, rounds: u64) -> io::Result<()> {
    let timeouts = timeouts(OTHER_TIMERS);
    let timers = timers(lp, &timeouts)?;
    for (timer, timeout) in timers.iter().zip(&timeouts).take(rounds as usize) {
        start(timer, *timeout + 60_000)?;
    }
    keep(timers);
    Ok(())
}

fn timer_fire(lp: &Loop, rounds: u64) -> io::Result<()> {
    let timers = idle_timers(lp, TIMERS)?;
    for round in 1..=rounds {
        for timer in timers.iter() {
            start(timer, 0)?;
        }
        run_until(lp, round * TIMERS as u64);
    }
    keep(timers);
    check(rounds * TIMERS as u64)
}

fn async_send(lp: &Loop, rounds: u64) -> io::Result<()> {
    let handle = Memory::<sys::uv_async_t>::new(1);
    // SAFETY: the memory is kept until the process ends.
    succeed(unsafe { sys::uv_async_init(lp.raw(), handle.first(), Some(notified)) })?;
    for round in 1..=rounds {
        // SAFETY: the handle is initialised and open.
        succeed(unsafe { sys::uv_async_send(handle.first()) })?;
        run_until(lp, round);
    }
    keep(handle);
    check(rounds)
}

unsafe extern "C" fn notified(_: *mut sys::uv_async_t) {
    count_done();
}

fn work(lp: &Loop, rounds: u64) -> io::Result<()> {
    let gate = Gate::new()?;
    // A gate for each round: in a pool of several threads, any of those that are at a gate passes.
    let (jobs, gates) =
        (Memory::<sys::uv_work_t>::new(MANY - 1), Memory::<Gated>::new(rounds as usize + 1));
    let queue_gate = |round: u64| {
        let request = gates.first().wrapping_add(round as usize);
        // SAFETY: the request is kept, and was never in flight.
        unsafe { (*request).gate = Some(gate) };
        // SAFETY: as above, and it is the first field.
        succeed(unsafe { sys::uv_queue_work(lp.raw(), request.cast(), Some(stay), Some(computed)) })
    };
    queue_gate(0)?;
    gate.wait();
    for round in 1..=rounds {
        for request in jobs.iter() {
            // SAFETY: the request is kept, and not in flight: as many gates are passed as there were
            // rounds, so the other operations that were counted are those of all jobs.
            succeed(unsafe {
                sys::uv_queue_work(lp.raw(), request, Some(compute), Some(computed))
            })?;
        }
        queue_gate(round)?;
        gate.pass();
        run_until(lp, round * MANY as u64);
    }
    check(rounds * MANY as u64)?;
    // The pool is that of the process.
    gate.open();
    run_until(lp, rounds * MANY as u64 + 1);
    keep((jobs, gates));
    Ok(())
}

/// A request that occupies the thread of the pool.
#[repr(C)]
#[derive(Clone, Copy)]
struct Gated {
    raw: sys::uv_work_t,
    gate: Option<&'static Gate>,
}

unsafe extern "C" fn stay(request: *mut sys::uv_work_t) {
    // SAFETY: a request with this callback is the first field of this struct.
    let gated = unsafe { &*request.cast::<Gated>() };
    gated.gate.into_iter().for_each(Gate::job);
}

unsafe extern "C" fn compute(_: *mut sys::uv_work_t) {}

unsafe extern "C" fn computed(_: *mut sys::uv_work_t, status: c_int) {
    if status < 0 {
        fail("the work is cancelled");
    }
    count_done();
}

type Received = unsafe extern "C" fn(
    *mut sys::uv_udp_t,
    isize,
    *const sys::uv_buf_t,
    *const sys::sockaddr,
    c_uint,
);

fn open_udp(lp: &Loop, socket: *mut Socket, own: UdpSocket, received: Received) -> io::Result<()> {
    let handle = socket.cast::<sys::uv_udp_t>();
    // SAFETY: the memory is kept until the process ends, and starts with the handle.
    succeed(unsafe { sys::uv_udp_init(lp.raw(), handle) })?;
    // SAFETY: the handle is initialised and takes ownership of the descriptor.
    succeed(unsafe { sys::uv_udp_open(handle, own.into_raw_fd()) })?;
    // SAFETY: the handle is initialised and open.
    succeed(unsafe {
        sys::uv_udp_recv_start(
            handle,
            Some(lend::<sys::uv_udp_t, sys::uv_udp_send_t>),
            Some(received),
        )
    })
}

fn udp_echo(lp: &Loop, received: Received, rounds: u64) -> io::Result<()> {
    let (mut driver, server) = Driver::udp()?;
    let memory = Memory::<Socket>::new(1);
    open_udp(lp, memory.first(), server, received)?;
    for round in 1..=rounds {
        driver.round()?;
        run_until(lp, round);
    }
    keep(memory);
    check(rounds)
}

/// Answers a datagram, by `uv_udp_try_send` or by `uv_udp_send`.
unsafe extern "C" fn datagram<const TRY: bool>(
    udp: *mut sys::uv_udp_t,
    count: isize,
    buf: *const sys::uv_buf_t,
    from: *const sys::sockaddr,
    _: c_uint,
) {
    // libuv calls back without a datagram when the socket is drained.
    if from.is_null() {
        return;
    }
    // SAFETY: libuv passes the buffer of `lend`.
    let answer = unsafe { received(buf, count) };
    if TRY {
        // SAFETY: the buffer belongs to the socket, and libuv passes a valid address.
        return answered(unsafe { sys::uv_udp_try_send(udp, &answer, 1, from) });
    }
    // SAFETY: a handle with this callback is the first field of a socket.
    let request = unsafe { &raw mut (*udp.cast::<Socket>()).request };
    // SAFETY: request and buffer belong to the socket, which has no other send in flight.
    if unsafe { sys::uv_udp_send(request, udp, &answer, 1, from, Some(sent)) } < 0 {
        fail("uv_udp_send rejects an answer");
    }
}

unsafe extern "C" fn sent(_: *mut sys::uv_udp_send_t, status: c_int) {
    if status < 0 {
        fail("uv_udp_send fails");
    }
    count_done();
}

thread_local! {
    /// The result of the last file request.
    static RESULT: Cell<isize> = const { Cell::new(0) };
}

fn fs_read(lp: &Loop, rounds: u64) -> io::Result<()> {
    let file = Temporary::new("count", &[7; PIECE]);
    let open = std::fs::File::open(file.path()?)?;
    let (request, mut piece) = (Memory::<sys::uv_fs_t>::new(1), vec![0_u8; PIECE]);
    let buf = sys::uv_buf_t { base: piece.as_mut_ptr().cast(), len: PIECE };
    for round in 1..=rounds {
        // SAFETY: request and piece are kept, and the request is not in flight.
        succeed(unsafe {
            sys::uv_fs_read(lp.raw(), request.first(), open.as_raw_fd(), &buf, 1, 0, Some(read))
        })?;
        run_until(lp, round);
    }
    keep((request, piece, open));
    if RESULT.get() != PIECE as isize {
        return Err(io::Error::other("a piece is not read as a whole"));
    }
    check(rounds)
}

unsafe extern "C" fn read(request: *mut sys::uv_fs_t) {
    // SAFETY: libuv passes a valid request.
    RESULT.set(unsafe { (*request).result });
    // SAFETY: the request has completed.
    unsafe { sys::uv_fs_req_cleanup(request) };
    count_done();
}

fn iterations(lp: &Loop, rounds: u64) -> io::Result<()> {
    let memory = Memory::<Socket>::new(1);
    open_udp(lp, memory.first(), UdpSocket::bind("127.0.0.1:0")?, received_nothing)?;
    for _ in 0..rounds {
        lp.run_no_wait();
    }
    keep(memory);
    Ok(())
}

unsafe extern "C" fn received_nothing(
    _: *mut sys::uv_udp_t,
    _: isize,
    _: *const sys::uv_buf_t,
    _: *const sys::sockaddr,
    _: c_uint,
) {
    fail("the quiet socket received a datagram");
}
