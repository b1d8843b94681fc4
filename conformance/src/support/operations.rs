//! Submitting operations and waiting for their completions.

use std::io::{self, IoSliceMut};
use std::net::TcpStream;
use std::time::Instant;

use poll_core::{
    Backend, BoxedBackend, BufferLease, Event, Interest, Op, OpKind, RawBuf, RawBufs, RawSource,
    Readiness, Token,
};

use super::observe::{SOON, wait_for};
use super::sources::{drain, reset, send, tcp_pair};
use crate::Skip;

/// The content of one `Done`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) result: Result<usize, i32>,
    pub(crate) more: bool,
    pub(crate) lease: Option<BufferLease>,
}

/// Submits an operation that must be accepted.
pub(crate) fn submit(backend: &mut BoxedBackend, token: Token, op: Op) {
    try_submit(backend, token, op)
        .unwrap_or_else(|error| panic!("submit {:?} as {token:?}: {error}", op.kind()));
}

/// Submits an operation that may be refused.
pub(crate) fn try_submit(backend: &mut BoxedBackend, token: Token, op: Op) -> io::Result<()> {
    // SAFETY: cases create sources and memory before the backend, so that these outlive it, and do
    // not access the memory of an operation in flight.
    unsafe { backend.submit(token, op) }
}

/// Waits until the operation reports, and returns all reports of that wait.
pub(crate) fn await_reports(backend: &mut BoxedBackend, token: Token) -> Vec<Done> {
    let started = Instant::now();
    while started.elapsed() < SOON {
        let events = wait_for(backend, SOON.saturating_sub(started.elapsed()));
        let reports = dones(&events, token);
        let ends = reports.iter().filter(|done| !done.more).count();
        let last = reports.last().is_some_and(|done| !done.more);
        assert!(ends == usize::from(last), "{token:?} reports after its end: {reports:?}");
        if !reports.is_empty() {
            return reports;
        }
    }
    panic!("the operation {token:?} reports nothing");
}

/// Waits until the operation completes with a single report, and returns its result.
pub(crate) fn await_end(backend: &mut BoxedBackend, token: Token) -> Result<usize, i32> {
    let reports = await_reports(backend, token);
    match reports[..] {
        [Done { result, more: false, .. }] => result,
        _ => panic!("expected one final `Done` of {token:?}, not {reports:?}"),
    }
}

/// Waits until the operation completes, and returns the first of its results.
pub(crate) fn await_last(backend: &mut BoxedBackend, token: Token) -> Result<usize, i32> {
    let mut reports = await_reports(backend, token);
    let first = reports[0].result;
    while reports.last().is_some_and(|done| done.more) {
        reports = await_reports(backend, token);
    }
    first
}

/// The reports of the operation in `events`.
pub(crate) fn dones(events: &[Event], token: Token) -> Vec<Done> {
    let about = |event: &Event| match *event {
        Event::Done { token: of, result, more, lease } if of == token => {
            Some(Done { result, more, lease })
        }
        _ => None,
    };
    events.iter().filter_map(about).collect()
}

/// True if an operation completed because it was cancelled.
pub(crate) fn is_cancelled(result: Result<usize, i32>) -> bool {
    #[cfg(unix)]
    const CANCELLED: i32 = libc::ECANCELED;
    #[cfg(windows)]
    const CANCELLED: i32 = windows_sys::Win32::Foundation::ERROR_OPERATION_ABORTED as i32;
    result == Err(CANCELLED)
}

/// The error of a failed operation.
pub(crate) fn error_of(result: Result<usize, i32>) -> io::Error {
    match result {
        Ok(count) => panic!("an operation that must fail returns {count}"),
        Err(code) => io::Error::from_raw_os_error(code),
    }
}

/// An operation that stays in flight until its peer sends.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) op: Op,
    memory: Vec<u8>,
    near: TcpStream,
    far: TcpStream,
    /// The list that a `Read` names.
    _list: Vec<IoSliceMut<'static>>,
}

impl Pending {
    /// The kinds that wait, the most interesting first.
    const KINDS: [OpKind; 3] = [OpKind::Recv, OpKind::Read, OpKind::Poll];

    /// Creates one of a kind that the backend performs.
    pub(crate) fn new(backend: &BoxedBackend) -> Result<Pending, Skip> {
        let performed = Pending::KINDS.into_iter().find(|kind| backend.supports(*kind));
        performed.map(Pending::of).ok_or_else(|| Skip::because("performs no operations"))
    }

    fn of(kind: OpKind) -> Pending {
        let (near, far) = tcp_pair();
        let mut memory = vec![0; 16];
        let mut list = vec![lent_slice(&mut memory)];
        let source = RawSource::of(&near);
        let op = match kind {
            OpKind::Recv => Op::Recv { source, buf: RawBuf::filling(&mut memory) },
            OpKind::Read => Op::Read { source, bufs: RawBufs::filling(&mut list), offset: None },
            _ => Op::Poll { source, interest: Interest::READ },
        };
        Pending { op, memory, near, far, _list: list }
    }

    /// The source of the operation.
    pub(crate) fn source(&self) -> &TcpStream {
        &self.near
    }

    /// The peer sends.
    pub(crate) fn send(&self) {
        send(&self.far, b"hello");
    }

    /// Asserts that the operation has seen the sent bytes. Reads any that it left.
    pub(crate) fn assert_seen(&self, result: Result<usize, i32>) {
        match self.op.kind() {
            OpKind::Poll => {
                assert_poll(result);
                drain(&self.near);
            }
            _ => {
                assert_eq!(result, Ok(5), "five bytes were sent");
                assert_eq!(&self.memory[..5], b"hello", "differs from the sent bytes");
            }
        }
    }

    /// The peer closes. Returns what must outlive the operation.
    pub(crate) fn close_peer(self) -> (Op, impl Sized) {
        drop(self.far);
        (self.op, (self.memory, self.near, self._list))
    }

    /// The peer resets the connection. Returns what must outlive the operation.
    pub(crate) fn reset_peer(self) -> (Op, impl Sized) {
        reset(self.far);
        (self.op, (self.memory, self.near, self._list))
    }
}

/// Asserts that a poll for `READ` has reported it.
pub(crate) fn assert_poll(result: Result<usize, i32>) {
    let bits = result.expect("a poll that succeeds");
    let ready = Readiness::from_bits_truncate(bits as u8);
    assert!(ready.contains(Readiness::READ), "a poll for READ ends with {ready:?}");
}

/// All of `memory` as an entry of a list that is kept with it.
pub(crate) fn lent_slice(memory: &mut [u8]) -> IoSliceMut<'static> {
    let (start, len) = (memory.as_mut_ptr(), memory.len());
    // SAFETY: the callers keep the memory, which is on the heap, as long as the list.
    IoSliceMut::new(unsafe { std::slice::from_raw_parts_mut(start, len) })
}
