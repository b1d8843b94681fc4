//! Point 9: lent memory is the kernel's, and then the caller's again.
//!
//! Memory that the kernel still writes to after its owner has freed it is corruption
//! somewhere else, some time later. There is no worse thing to debug.

use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, UdpSocket};
use std::ptr::NonNull;
use std::time::Duration;

use poll_core::{Backend, Lent, Op, OpKind, RawBuf, RawBufs, RawSource, Token};

use crate::support::limits::need_descriptors;
use crate::support::observe::{A, quiet};
use crate::support::operations::{
    Done, await_end, await_last, await_reports, is_cancelled, lent_slice, submit,
};
use crate::support::sources::{half_close, send, tcp_pair};
use crate::support::wine;
use crate::{Lab, Skip, Verdict};

/// A byte that nobody sends.
const UNTOUCHED: u8 = 0xa5;

/// What arrives is where it was asked for, in order, and not a byte beyond what the
/// result says.
pub fn is_filled_and_handed_back<B: Backend>(lab: &Lab<B>) -> Verdict {
    let (near, far) = tcp_pair();
    let mut memory = [UNTOUCHED; 64];
    let mut backend = lab.backend()?;
    let mut received = Vec::new();
    for (text, counts) in [("first", &[5][..]), ("a second, longer", &[10, 6]), ("3", &[1])] {
        send(&far, text.as_bytes());
        for expected in counts {
            memory.fill(UNTOUCHED);
            let mut list = [lent_slice(&mut memory[8..18])];
            let op = filling(&backend, RawSource::of(&near), &mut list)?;
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

/// What is sent is what the memory held at `submit`, to the last byte, even if the
/// caller uses the memory again right after the last `Done`. Sends from the memory
/// itself (zero copy) must hold that `Done` back until the kernel has let go.
pub fn is_sent_as_it_was<B: Backend>(lab: &Lab<B>) -> Verdict {
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
    let received = receiver.join().expect("the receiving thread").expect("all that was sent");
    let wrong = received.iter().enumerate().find(|(index, byte)| **byte != pattern(*index));
    assert_eq!(wrong, None, "not what the memory held when it was submitted");
    Ok(())
}

/// Dropping a backend first ends what is in flight: what arrives later is written
/// nowhere, and is still there for whoever reads the source next.
pub fn is_free_after_a_drop<B: Backend>(lab: &Lab<B>) -> Verdict {
    let (mut near, mut far) = tcp_pair();
    for waits in [false, true] {
        if waits && wine::binds_sources_for_ever() {
            (near, far) = tcp_pair();
        }
        let mut memory = vec![UNTOUCHED; 64];
        let mut list = [lent_slice(&mut memory)];
        let mut backend = lab.backend()?;
        let op = filling(&backend, RawSource::of(&near), &mut list)?;
        submit(&mut backend, A, op);
        if waits {
            quiet(&mut backend); // The kernel has it by now.
        }
        drop(backend);
        send(&far, b"late");
        near.set_nonblocking(false).expect("a blocking stream");
        near.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
        let mut text = [0; 4];
        near.read_exact(&mut text).expect("what arrived after the drop: it was not received");
        assert_eq!(&text, b"late");
        near.set_nonblocking(true).expect("a non-blocking stream");
        assert!(memory.iter().all(|byte| *byte == UNTOUCHED), "written to after the drop");
    }
    Ok(())
}

/// Thousands of operations in flight end with their backend, and it takes their memory with it
/// no more than that of one.
pub fn of_thousands_is_free_after_a_drop<B: Backend>(lab: &Lab<B>) -> Verdict {
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
            quiet(&mut backend); // The kernel has these; the others are on their way.
        }
    }
    drop(backend);
    for (near, far) in &pairs {
        send(far, b"late");
        let mut text = [0; 4];
        near.set_nonblocking(false).expect("a blocking stream");
        let mut near = near;
        near.read_exact(&mut text).expect("what arrived after the drop: it was not received");
        assert_eq!(&text, b"late");
    }
    assert!(memory.iter().all(|byte| *byte == UNTOUCHED), "written to after the drop");
    Ok(())
}

/// Buffers of a group go round: each is lent with what arrived, is the caller's until
/// it is recycled, and is filled again after. More arrives than the group holds.
pub fn is_provided_and_recycled<B: Backend>(lab: &Lab<B>) -> Verdict {
    let (near, far) = tcp_pair();
    let group = Group::new();
    let mut backend = lab.backend()?;
    group.provide(&mut backend)?;
    let again = group.try_provide(&mut backend).expect_err("a group provided twice");
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
                assert!(done.more, "the group is not empty and the peer is there: {done:?}");
                let (lent, piece) = group.piece(done);
                received.extend_from_slice(piece);
                backend.recycle(lent);
            }
        }
    }
    assert_eq!(received, sent, "something else than what was sent");

    // A loop stops by cancelling; the peer's end is the other way to stop.
    half_close(&far);
    let end = await_reports(&mut backend, A)[0];
    assert_eq!((end.result, end.more), (Ok(0), false), "the end of file ends the operation");
    if let Some(lent) = end.lent {
        backend.recycle(lent);
    }
    quiet(&mut backend);
    Ok(())
}

/// A group with no buffer left ends the operation with `ENOBUFS`, loses nothing, and
/// works again when buffers come back. A slow consumer must not be fatal.
pub fn exhausted_groups_say_so<B: Backend>(lab: &Lab<B>) -> Verdict {
    let (near, far) = tcp_pair();
    let group = Group::new();
    let mut backend = lab.backend()?;
    group.provide(&mut backend)?;
    let all = usize::from(Group::COUNT) * Group::SIZE as usize;
    let sent: Vec<u8> = (0..all + 100).map(|index| (index % 251) as u8).collect();
    send(&far, &sent);

    let (mut received, mut kept) = (Vec::new(), Vec::new());
    let recv = Op::RecvMulti { source: RawSource::of(&near), group: Group::ID };
    submit(&mut backend, A, recv);
    let error = loop {
        let reports = await_reports(&mut backend, A);
        for done in reports.iter().filter(|done| done.result.is_ok()) {
            let (lent, piece) = group.piece(*done);
            received.extend_from_slice(piece);
            kept.push(lent);
        }
        match reports[reports.len() - 1] {
            Done { result: Err(code), more, .. } => {
                assert!(!more, "without buffers the operation is over: {reports:?}");
                break code;
            }
            // Some kernels end it with the last buffer and say why next time.
            Done { more: false, .. } => submit(&mut backend, A, recv),
            Done { more: true, .. } => {}
        }
    };
    assert_eq!(error, NO_BUFFERS, "ENOBUFS is expected");
    assert!(received.len() <= all, "more bytes than the group can hold");

    while received.len() < sent.len() {
        kept.drain(..).for_each(|lent| backend.recycle(lent));
        submit(&mut backend, A, recv);
        let mut more = true;
        while more && received.len() < sent.len() {
            for done in await_reports(&mut backend, A) {
                more = done.more;
                if done.result != Err(NO_BUFFERS) {
                    let (lent, piece) = group.piece(done);
                    received.extend_from_slice(piece);
                    kept.push(lent);
                }
            }
        }
    }
    assert_eq!(received, sent, "bytes were lost or changed when the group was empty");
    Ok(())
}

/// Messages come one to a buffer, behind their lengths, flags and addresses. One that is
/// empty is a message, too, and one that is too long is cut and says so.
pub fn messages_are_provided_with_their_addresses<B: Backend>(lab: &Lab<B>) -> Verdict {
    const NUMBERS: usize = 16;
    const ADDRESS: usize = 16; // A `sockaddr_in`.
    const ROOM: usize = Group::SIZE as usize - NUMBERS - ADDRESS;
    let bind = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a UDP port");
    let (near, far) = (bind(), bind());
    let (to, from) = (near.local_addr().expect("an address"), far.local_addr());
    let port = from.expect("an address").port().to_be_bytes();
    let group = Group::new();
    let mut backend = lab.backend()?;
    if !backend.supports(OpKind::RecvMsgMulti) {
        return Err(Skip::because("does not perform RecvMsgMulti"));
    }
    group.provide(&mut backend)?;
    let (source, address_len) = (RawSource::of(&near), ADDRESS as u32);
    let op = Op::RecvMsgMulti { source, group: Group::ID, address_len, control_len: 0 };
    submit(&mut backend, A, op);
    let long = [b'x'; 2 * ROOM];
    for text in [&b"first"[..], b"", &long[..ROOM], &long, b"last"] {
        far.send_to(text, to).expect("a datagram sent");
        let done = await_reports(&mut backend, A)[0];
        // Linux takes a message of nothing for an end, and has it start anew.
        assert!(done.more || text.is_empty(), "a group that is not empty: {done:?}");
        if !done.more {
            submit(&mut backend, A, op);
        }
        let (lent, piece) = group.piece(done);
        let number = |index: usize| {
            let bytes = piece[4 * index..][..4].try_into().expect("four bytes");
            u32::from_ne_bytes(bytes)
        };
        assert_eq!([number(0), number(1)], [address_len, 0], "the lengths in front");
        assert_eq!(piece[NUMBERS + 2..][..2], port, "the port of who has sent it");
        let fits = &text[..text.len().min(ROOM)];
        assert_eq!(&piece[NUMBERS + ADDRESS..], fits);
        assert_eq!(number(3) & TRUNCATED != 0, text.len() > ROOM, "{:#x}", number(3));
        // What is left of a message that was cut is not told everywhere.
        assert!(number(2) as usize >= fits.len(), "its length: {}", number(2));
        backend.recycle(lent);
    }
    backend.cancel(A).expect("cancel of an operation that goes on");
    let result = await_end(&mut backend, A);
    assert!(is_cancelled(result), "cancelled, it ends with {result:?}");
    quiet(&mut backend);
    Ok(())
}

/// Memory can be taken back when nothing takes buffers of it any more, and is then the
/// caller's alone: what is recycled late is ignored. The number can be used again.
pub fn groups_can_be_withdrawn<B: Backend>(lab: &Lab<B>) -> Verdict {
    let (near, far) = tcp_pair();
    let (first, second) = (Group::new(), Group::new());
    let mut backend = lab.backend()?;
    let error = backend.withdraw(Group::ID).expect_err("a group that was never provided");
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    let receive = Op::RecvMulti { source: RawSource::of(&near), group: Group::ID };
    for (group, text) in [(&first, "first"), (&second, "second")] {
        group.provide(&mut backend)?;
        submit(&mut backend, A, receive);
        send(&far, text.as_bytes());
        let (lent, piece) = group.piece(await_reports(&mut backend, A)[0]);
        assert_eq!(piece, text.as_bytes());
        let error = backend.withdraw(Group::ID).expect_err("an operation takes buffers of it");
        assert_eq!(error.kind(), ErrorKind::ResourceBusy, "{error}");
        backend.cancel(A).expect("cancel of an operation that goes on");
        await_last(&mut backend, A).expect_err("an operation that was cancelled");
        backend.withdraw(Group::ID).expect("a group that nobody uses");
        backend.recycle(lent);
        let error = backend.withdraw(Group::ID).expect_err("a group that is gone");
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    }
    // What arrives now is written to neither.
    let untouched = |group: &Group| group.bytes().filter(|byte| *byte == UNTOUCHED).count();
    let before = (untouched(&first), untouched(&second));
    send(&far, &[1; 40]);
    quiet(&mut backend);
    assert_eq!((untouched(&first), untouched(&second)), before, "written to after its end");
    Ok(())
}

/// A backend without groups says `Unsupported` at once; one with them refuses groups
/// that cannot be. Recycling what was not lent is ignored everywhere.
pub fn groups_are_refused_if_unsupported<B: Backend>(lab: &Lab<B>) -> Verdict {
    let group = Group::new();
    let mut backend = lab.backend()?;
    let stranger = Lent { group: Group::ID, buffer: 3, offset: 0 };
    backend.recycle(stranger);
    if !backend.supports(OpKind::RecvMulti) && !backend.supports(OpKind::RecvMsgMulti) {
        let error = group.try_provide(&mut backend).expect_err("a group that nothing takes");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        return Ok(());
    }
    for (size, count) in [(0, Group::COUNT), (Group::SIZE, 0)] {
        // SAFETY: the memory outlives the backend.
        let refused = unsafe { backend.provide(Group::ID, group.start(), size, count) };
        let error = refused.expect_err("buffers of nothing");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{count} buffers of {size}: {error}");
    }
    group.provide(&mut backend)?;
    backend.recycle(stranger);
    backend.recycle(Lent { buffer: u16::MAX, offset: u32::MAX, ..stranger });
    quiet(&mut backend);
    Ok(())
}

/// A receive, or a read from the socket where that is what the backend performs.
fn filling(
    backend: &impl Backend,
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

/// Memory provided as a group of buffers. It is read through its address only, as
/// the kernel writes to it at any time.
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

    /// What the memory holds. The group must not be the kernel's.
    fn bytes(&self) -> impl Iterator<Item = u8> {
        // SAFETY: the caller has seen to it that nobody writes.
        self.memory.iter().map(|byte| unsafe { *byte.get() })
    }

    fn try_provide(&self, backend: &mut impl Backend) -> std::io::Result<()> {
        // SAFETY: cases make the group before the backend, so that it is dropped
        // after it, and read only pieces that are lent.
        unsafe { backend.provide(Group::ID, self.start(), Group::SIZE, Group::COUNT) }
    }

    fn provide(&self, backend: &mut impl Backend) -> Verdict {
        if !backend.supports(OpKind::RecvMulti) {
            return Err(Skip::because("does not perform RecvMulti"));
        }
        self.try_provide(backend).unwrap_or_else(|error| panic!("provide: {error}"));
        Ok(())
    }

    /// The piece that a report lends, until it is recycled.
    fn piece(&self, done: Done) -> (Lent, &[u8]) {
        let len = done.result.unwrap_or_else(|code| panic!("a receive fails with {code}"));
        let lent = done.lent.unwrap_or_else(|| panic!("received, but where? {done:?}"));
        let end = lent.offset as usize + len;
        assert!(
            lent.group == Group::ID && lent.buffer < Group::COUNT && end <= Group::SIZE as usize,
            "a piece that is in no buffer: {done:?}"
        );
        let at = usize::from(lent.buffer) * Group::SIZE as usize + lent.offset as usize;
        let piece = self.memory[at..][..len].as_ptr().cast();
        // SAFETY: the bounds were checked, and the kernel does not touch a lent piece.
        (lent, unsafe { std::slice::from_raw_parts(piece, len) })
    }
}
