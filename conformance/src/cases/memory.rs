//! Point 9: lent memory belongs to the kernel until its `Done`, then to the caller again.
//!
//! Memory that the kernel writes after its owner freed it is corrupted at an unrelated place and a
//! later time.

use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, UdpSocket};
use std::ptr::NonNull;
use std::time::Duration;

use poll_core::{
    Backend, BoxedBackend, BufferLease, Op, OpKind, RawBuf, RawBufs, RawSource, Token,
};

use crate::support::limits::need_descriptors;
use crate::support::observe::{A, quiet};
use crate::support::operations::{
    Done, await_end, await_last, await_reports, is_cancelled, lent_slice, submit,
};
use crate::support::sources::{half_close, send, tcp_pair};
use crate::support::wine;
use crate::{Lab, Skip, Verdict};

/// A byte that no case sends.
const UNTOUCHED: u8 = 0xa5;

/// Received bytes are in the given buffer, in order, and nothing is written beyond the length that
/// the result reports.
pub fn is_filled_within_bounds(lab: &Lab) -> Verdict {
    let (near, far) = tcp_pair();
    let mut memory = [UNTOUCHED; 64];
    let mut backend = lab.backend()?;
    let mut received = Vec::new();
    for (text, counts) in [("first", &[5][..]), ("a second, longer", &[10, 6]), ("3", &[1])] {
        send(&far, text.as_bytes());
        for expected in counts {
            memory.fill(UNTOUCHED);
            let mut list = [lent_slice(&mut memory[8..18])];
            let op = receive_op(&backend, RawSource::of(&near), &mut list)?;
            submit(&mut backend, A, op);
            let result = await_end(&mut backend, A);
            assert_eq!(result, Ok(*expected), "of {text:?}, in a buffer of 10");
            let (filled, beyond) = memory[8..].split_at(*expected);
            received.extend_from_slice(filled);
            let around = memory[..8].iter().chain(beyond);
            assert!(around.into_iter().all(|byte| *byte == UNTOUCHED), "written out of bounds");
        }
    }
    assert_eq!(String::from_utf8_lossy(&received), "firsta second, longer3");
    quiet(&mut backend);
    Ok(())
}

/// The bytes sent are those in memory at `submit`, even if the caller reuses the memory right after
/// the last `Done`. A zero-copy send must delay that `Done` until the kernel has released the
/// memory.
pub fn is_sent_as_submitted(lab: &Lab) -> Verdict {
    const LEN: usize = 1 << 20;
    let pattern = |index: usize| (index % 251) as u8;
    let (near, mut far) = tcp_pair();
    far.set_nonblocking(false).expect("a blocking stream");
    let mut memory = vec![0; 256 * 1024];
    let mut backend = lab.backend()?;
    if !backend.supports(OpKind::Send) {
        return Err(Skip::because("does not perform Send"));
    }
    let receiver = std::thread::spawn(move || {
        let mut received = vec![0; LEN];
        far.read_exact(&mut received).map(|()| received)
    });
    let mut sent = 0;
    while sent < LEN {
        let len = memory.len().min(LEN - sent);
        memory.iter_mut().enumerate().for_each(|(index, byte)| *byte = pattern(sent + index));
        let buf = RawBuf::sending(&memory[..len]);
        submit(&mut backend, A, Op::Send { source: RawSource::of(&near), buf });
        let count = await_last(&mut backend, A).expect("a send to a peer that reads");
        assert!((1..=len).contains(&count), "{count} bytes sent of {len}");
        memory.fill(UNTOUCHED);
        sent += count;
    }
    let received = receiver.join().expect("the receiving thread").expect("all sent bytes");
    let wrong = received.iter().enumerate().find(|(index, byte)| **byte != pattern(*index));
    assert_eq!(wrong, None, "differs from the memory at submission");
    Ok(())
}

/// Dropping a backend first ends the operations in flight: data that arrives later is written to no
/// lent memory and stays readable from the source.
pub fn is_released_by_drop(lab: &Lab) -> Verdict {
    let (mut near, mut far) = tcp_pair();
    for waits in [false, true] {
        if waits && wine::binds_sources_permanently() {
            (near, far) = tcp_pair();
        }
        let mut memory = vec![UNTOUCHED; 64];
        let mut list = [lent_slice(&mut memory)];
        let mut backend = lab.backend()?;
        let op = receive_op(&backend, RawSource::of(&near), &mut list)?;
        submit(&mut backend, A, op);
        if waits {
            quiet(&mut backend); // Submits it to the kernel.
        }
        drop(backend);
        send(&far, b"late");
        near.set_nonblocking(false).expect("a blocking stream");
        near.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
        let mut text = [0; 4];
        near.read_exact(&mut text).expect("data that arrived after the drop");
        assert_eq!(&text, b"late");
        near.set_nonblocking(true).expect("a non-blocking stream");
        assert!(memory.iter().all(|byte| *byte == UNTOUCHED), "written to after the drop");
    }
    Ok(())
}

/// Dropping a backend ends thousands of operations in flight as it ends one, and their memory is
/// the caller's again.
pub fn of_thousands_is_released_by_drop(lab: &Lab) -> Verdict {
    const PAIRS: usize = 100;
    need_descriptors(2 * PAIRS as u64)?;
    let pairs: Vec<_> = (0..PAIRS).map(|_| tcp_pair()).collect();
    let mut memory = vec![UNTOUCHED; 4_000];
    let mut backend = lab.backend()?;
    if !backend.supports(OpKind::Recv) {
        return Err(Skip::because("does not perform Recv"));
    }
    for (index, byte) in memory.chunks_mut(1).enumerate() {
        let source = RawSource::of(&pairs[index % PAIRS].0);
        let op = Op::Recv { source, buf: RawBuf::filling(byte) };
        submit(&mut backend, Token::new(index as u32, 0), op);
        if index == 2_000 {
            quiet(&mut backend); // Submits these; the others are still queued.
        }
    }
    drop(backend);
    for (near, far) in &pairs {
        send(far, b"late");
        let mut text = [0; 4];
        near.set_nonblocking(false).expect("a blocking stream");
        let mut near = near;
        near.read_exact(&mut text).expect("data that arrived after the drop");
        assert_eq!(&text, b"late");
    }
    assert!(memory.iter().all(|byte| *byte == UNTOUCHED), "written to after the drop");
    Ok(())
}

/// Buffers of a group are recycled: each is leased with received data, belongs to the caller until
/// it is released, and is then filled again. More data arrives than the group holds.
pub fn group_buffers_are_leased_and_released(lab: &Lab) -> Verdict {
    let (near, far) = tcp_pair();
    let group = Group::new();
    let mut backend = lab.backend()?;
    group.register_buffers(&mut backend)?;
    let again = group.try_register(&mut backend).expect_err("a group registered twice");
    assert_eq!(again.kind(), ErrorKind::AlreadyExists, "{again}");

    submit(&mut backend, A, Op::RecvMulti { source: RawSource::of(&near), group: Group::ID });
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    for round in 0..3 * Group::COUNT as u8 {
        // More than half of a buffer, which several messages may share.
        let text = vec![round; Group::SIZE as usize / 2 + usize::from(round)];
        send(&far, &text);
        sent.extend_from_slice(&text);
        while received.len() < sent.len() {
            for done in await_reports(&mut backend, A) {
                assert!(done.more, "the group has buffers and the peer is open: {done:?}");
                let (lease, piece) = group.piece(done);
                received.extend_from_slice(piece);
                backend.release_buffer(lease);
            }
        }
    }
    assert_eq!(received, sent, "differs from the sent bytes");

    // A loop stops by cancelling; the other way is the peer's end of file.
    half_close(&far);
    let end = await_reports(&mut backend, A)[0];
    assert_eq!((end.result, end.more), (Ok(0), false), "the end of file ends the operation");
    if let Some(lease) = end.lease {
        backend.release_buffer(lease);
    }
    quiet(&mut backend);
    Ok(())
}

/// A group without free buffers ends the operation with `ENOBUFS`, loses no data, and works again
/// when buffers are released. A slow consumer must not be fatal.
pub fn exhausted_group_is_enobufs(lab: &Lab) -> Verdict {
    let (near, far) = tcp_pair();
    let group = Group::new();
    let mut backend = lab.backend()?;
    group.register_buffers(&mut backend)?;
    let all = usize::from(Group::COUNT) * Group::SIZE as usize;
    let sent: Vec<u8> = (0..all + 100).map(|index| (index % 251) as u8).collect();
    send(&far, &sent);

    let (mut received, mut kept) = (Vec::new(), Vec::new());
    let recv = Op::RecvMulti { source: RawSource::of(&near), group: Group::ID };
    submit(&mut backend, A, recv);
    let error = loop {
        let reports = await_reports(&mut backend, A);
        for done in reports.iter().filter(|done| done.result.is_ok()) {
            let (lease, piece) = group.piece(*done);
            received.extend_from_slice(piece);
            kept.push(lease);
        }
        match reports[reports.len() - 1] {
            Done { result: Err(code), more, .. } => {
                assert!(!more, "without buffers the operation ends: {reports:?}");
                break code;
            }
            // Some kernels end it with the last buffer and report the cause at the next submission.
            Done { more: false, .. } => submit(&mut backend, A, recv),
            Done { more: true, .. } => {}
        }
    };
    assert_eq!(error, NO_BUFFERS, "ENOBUFS is expected");
    assert!(received.len() <= all, "more bytes than the group can hold");

    while received.len() < sent.len() {
        kept.drain(..).for_each(|lease| backend.release_buffer(lease));
        submit(&mut backend, A, recv);
        let mut more = true;
        while more && received.len() < sent.len() {
            for done in await_reports(&mut backend, A) {
                more = done.more;
                if done.result != Err(NO_BUFFERS) {
                    let (lease, piece) = group.piece(done);
                    received.extend_from_slice(piece);
                    kept.push(lease);
                }
            }
        }
    }
    assert_eq!(received, sent, "bytes were lost or changed when the group was empty");
    Ok(())
}

/// Each message occupies one buffer, behind its lengths, flags and address. An empty message is
/// delivered, and one that is too long is truncated and flagged.
pub fn group_messages_carry_addresses(lab: &Lab) -> Verdict {
    const NUMBERS: usize = 16;
    const ADDRESS: usize = 16; // A `sockaddr_in`.
    const SPACE: usize = Group::SIZE as usize - NUMBERS - ADDRESS;
    let bind = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a UDP port");
    let (near, far) = (bind(), bind());
    let (to, from) = (near.local_addr().expect("an address"), far.local_addr());
    let port = from.expect("an address").port().to_be_bytes();
    let group = Group::new();
    let mut backend = lab.backend()?;
    if !backend.supports(OpKind::RecvMsgMulti) {
        return Err(Skip::because("does not perform RecvMsgMulti"));
    }
    group.register_buffers(&mut backend)?;
    let (source, address_len) = (RawSource::of(&near), ADDRESS as u32);
    let op = Op::RecvMsgMulti { source, group: Group::ID, address_len, control_len: 0 };
    submit(&mut backend, A, op);
    let long = [b'x'; 2 * SPACE];
    for text in [&b"first"[..], b"", &long[..SPACE], &long, b"last"] {
        far.send_to(text, to).expect("a datagram sent");
        let done = await_reports(&mut backend, A)[0];
        // Linux takes an empty message for the end of file and ends the multishot.
        assert!(done.more || text.is_empty(), "the group has buffers: {done:?}");
        if !done.more {
            submit(&mut backend, A, op);
        }
        let (lease, piece) = group.piece(done);
        let number = |index: usize| {
            let bytes = piece[4 * index..][..4].try_into().expect("four bytes");
            u32::from_ne_bytes(bytes)
        };
        assert_eq!([number(0), number(1)], [address_len, 0], "the lengths in the header");
        assert_eq!(piece[NUMBERS + 2..][..2], port, "the port of the sender");
        let fits = &text[..text.len().min(SPACE)];
        assert_eq!(&piece[NUMBERS + ADDRESS..], fits);
        assert_eq!(number(3) & TRUNCATED != 0, text.len() > SPACE, "{:#x}", number(3));
        // Not every kernel reports the full length of a truncated message.
        assert!(number(2) as usize >= fits.len(), "its length: {}", number(2));
        backend.release_buffer(lease);
    }
    backend.cancel(A).expect("cancel of a continuing operation");
    let result = await_end(&mut backend, A);
    assert!(is_cancelled(result), "cancelled, it ends with {result:?}");
    quiet(&mut backend);
    Ok(())
}

/// A group can be unregistered once no operation takes buffers from it, and its memory is then the
/// caller's: a late release is ignored, and the group number can be reused.
pub fn groups_can_be_unregistered(lab: &Lab) -> Verdict {
    let (near, far) = tcp_pair();
    let (first, second) = (Group::new(), Group::new());
    let mut backend = lab.backend()?;
    let error =
        backend.unregister_buffers(Group::ID).expect_err("a group that was never registered");
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    let receive = Op::RecvMulti { source: RawSource::of(&near), group: Group::ID };
    for (group, text) in [(&first, "first"), (&second, "second")] {
        group.register_buffers(&mut backend)?;
        submit(&mut backend, A, receive);
        send(&far, text.as_bytes());
        let (lease, piece) = group.piece(await_reports(&mut backend, A)[0]);
        assert_eq!(piece, text.as_bytes());
        let error =
            backend.unregister_buffers(Group::ID).expect_err("an operation takes its buffers");
        assert_eq!(error.kind(), ErrorKind::ResourceBusy, "{error}");
        backend.cancel(A).expect("cancel of a continuing operation");
        await_last(&mut backend, A).expect_err("an operation that was cancelled");
        backend.unregister_buffers(Group::ID).expect("an unused group");
        backend.release_buffer(lease);
        let error = backend.unregister_buffers(Group::ID).expect_err("an unregistered group");
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    }
    // Data that arrives now is written to neither group.
    let untouched = |group: &Group| group.bytes().filter(|byte| *byte == UNTOUCHED).count();
    let before = (untouched(&first), untouched(&second));
    send(&far, &[1; 40]);
    quiet(&mut backend);
    assert_eq!(
        (untouched(&first), untouched(&second)),
        before,
        "written to after it was unregistered"
    );
    Ok(())
}

/// A backend without groups returns `Unsupported`; one with groups refuses invalid sizes. Releasing
/// a buffer that was not leased is ignored everywhere.
pub fn unsupported_groups_are_refused(lab: &Lab) -> Verdict {
    let group = Group::new();
    let mut backend = lab.backend()?;
    let stranger = BufferLease { group: Group::ID, buffer: 3, offset: 0 };
    backend.release_buffer(stranger);
    if !backend.supports(OpKind::RecvMulti) && !backend.supports(OpKind::RecvMsgMulti) {
        let error = group.try_register(&mut backend).expect_err("no operation takes buffers");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        return Ok(());
    }
    for (size, count) in [(0, Group::COUNT), (Group::SIZE, 0)] {
        // SAFETY: the memory is declared before the backend and outlives it.
        let refused = unsafe { backend.register_buffers(Group::ID, group.start(), size, count) };
        let error = refused.expect_err("buffers of nothing");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{count} buffers of {size}: {error}");
    }
    group.register_buffers(&mut backend)?;
    backend.release_buffer(stranger);
    backend.release_buffer(BufferLease { buffer: u16::MAX, offset: u32::MAX, ..stranger });
    quiet(&mut backend);
    Ok(())
}

/// A receive, or a read from the socket on a backend that performs only reads.
fn receive_op(
    backend: &BoxedBackend,
    source: RawSource,
    list: &mut [std::io::IoSliceMut<'static>],
) -> Result<Op, Skip> {
    if backend.supports(OpKind::Recv) {
        return Ok(Op::Recv { source, buf: RawBuf::filling(&mut list[0]) });
    }
    if backend.supports(OpKind::Read) {
        return Ok(Op::Read { source, bufs: RawBufs::filling(list), offset: None });
    }
    Err(Skip::because("performs no operation that fills memory"))
}

#[cfg(unix)]
const NO_BUFFERS: i32 = libc::ENOBUFS;
#[cfg(windows)]
const NO_BUFFERS: i32 = 10055; // WSAENOBUFS

/// `MSG_TRUNC`.
#[cfg(unix)]
const TRUNCATED: u32 = libc::MSG_TRUNC as u32;
#[cfg(windows)]
const TRUNCATED: u32 = 0x100;

/// Memory registered as a group of buffers. It is accessed through its address only, since the
/// kernel may write to it at any time.
struct Group {
    memory: Box<[std::cell::UnsafeCell<u8>]>,
}

impl Group {
    const ID: u16 = 7;
    const COUNT: u16 = 4;
    const SIZE: u32 = 64;

    fn new() -> Group {
        let len = usize::from(Group::COUNT) * Group::SIZE as usize;
        Group { memory: (0..len).map(|_| UNTOUCHED.into()).collect() }
    }

    fn start(&self) -> NonNull<u8> {
        NonNull::from(&self.memory[..]).cast()
    }

    /// The bytes of the memory. The kernel must not own the group.
    fn bytes(&self) -> impl Iterator<Item = u8> {
        // SAFETY: the caller ensures that no operation in flight can write to the group.
        self.memory.iter().map(|byte| unsafe { *byte.get() })
    }

    fn try_register(&self, backend: &mut BoxedBackend) -> std::io::Result<()> {
        // SAFETY: cases create the group before the backend, so it is dropped after it, and read
        // only leased pieces.
        unsafe { backend.register_buffers(Group::ID, self.start(), Group::SIZE, Group::COUNT) }
    }

    fn register_buffers(&self, backend: &mut BoxedBackend) -> Verdict {
        if !backend.supports(OpKind::RecvMulti) {
            return Err(Skip::because("does not perform RecvMulti"));
        }
        self.try_register(backend).unwrap_or_else(|error| panic!("register_buffers: {error}"));
        Ok(())
    }

    /// The piece that a report leases, until it is released.
    fn piece(&self, done: Done) -> (BufferLease, &[u8]) {
        let len = done.result.unwrap_or_else(|code| panic!("a receive fails with {code}"));
        let lease = done.lease.unwrap_or_else(|| panic!("received without a lease: {done:?}"));
        let end = lease.offset as usize + len;
        assert!(
            lease.group == Group::ID && lease.buffer < Group::COUNT && end <= Group::SIZE as usize,
            "the lease is outside of every buffer: {done:?}"
        );
        let at = usize::from(lease.buffer) * Group::SIZE as usize + lease.offset as usize;
        let piece = self.memory[at..][..len].as_ptr().cast();
        // SAFETY: the bounds were checked above, and the kernel does not write to a leased piece
        // until it is released.
        (lease, unsafe { std::slice::from_raw_parts(piece, len) })
    }
}
