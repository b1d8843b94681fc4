//! What is peculiar to operations here; the rest is in the suite.

use std::fs::{File, OpenOptions};
use std::io::{IoSliceMut, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::windows::fs::OpenOptionsExt;
use std::os::windows::io::{FromRawHandle, FromRawSocket, OwnedHandle, OwnedSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use poll_core::{Backend, RawAddr, RawBuf, RawBufs, RawMessage, Ready};
use windows_sys::Win32::Networking::WinSock::{
    AF_INET, SOCKADDR_IN, WSABUF, WSAEMFILE, WSAENOTSOCK,
};
use windows_sys::Win32::Storage::FileSystem::{
    FILE_FLAG_OVERLAPPED, PIPE_ACCESS_DUPLEX, SetFileCompletionNotificationModes,
};
use windows_sys::Win32::System::Pipes::{CreateNamedPipeW, PIPE_TYPE_BYTE};

use super::*;
use crate::Iocp;

const A: Token = Token::new(0, 0);
const B: Token = Token::new(1, 0);

/// The parts of a `Done` that are not its token.
type Done = (End, bool, Option<Lent>);

fn submit(iocp: &mut Iocp, token: Token, op: Op) {
    // SAFETY: the tests keep what they lend as long as the backend.
    unsafe { iocp.submit(token, op) }.unwrap();
}

/// All that `token` reports in the next wait in which it does.
fn reports(iocp: &mut Iocp, token: Token) -> Vec<Done> {
    let started = Instant::now();
    loop {
        assert!(started.elapsed() < Duration::from_secs(10), "no report: {:?}", iocp.ops);
        let mut events = Vec::new();
        iocp.wait(Some(Duration::from_secs(1)), &mut events).unwrap();
        let of = |event| match event {
            Event::Done { token: of, result, more, lent } if of == token => {
                Some((result, more, lent))
            }
            _ => None,
        };
        let found: Vec<Done> = events.into_iter().filter_map(of).collect();
        if !found.is_empty() {
            return found;
        }
    }
}

fn end(iocp: &mut Iocp, token: Token) -> End {
    let reports = reports(iocp, token);
    match reports[..] {
        [(result, false, None)] => result,
        _ => panic!("one end is expected, not {reports:?}"),
    }
}

fn quiet(iocp: &mut Iocp) {
    let mut events = Vec::new();
    iocp.wait(Some(Duration::from_millis(20)), &mut events).unwrap();
    assert_eq!(events, []);
}

fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

/// Both ends of a named pipe; there is a client only later.
fn pipe() -> (File, PathBuf) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = format!(r"\\.\pipe\poll-iocp-{}-{count}", std::process::id());
    let name: Vec<u16> = path.encode_utf16().chain([0]).collect();
    let access = PIPE_ACCESS_DUPLEX | FILE_FLAG_OVERLAPPED;
    // SAFETY: the name ends with a NUL, and the null pointer stands for no attributes.
    let pipe = unsafe {
        CreateNamedPipeW(name.as_ptr(), access, PIPE_TYPE_BYTE, 1, 4096, 4096, 0, std::ptr::null())
    };
    assert_ne!(pipe as isize, -1, "{}", io::Error::last_os_error());
    // SAFETY: the pipe was just made, and nobody else has its handle.
    (File::from(unsafe { OwnedHandle::from_raw_handle(pipe) }), path.into())
}

fn client(path: &PathBuf) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

/// The whole of `memory` as an entry of a list that is kept beside it.
fn lent_slice(memory: &mut [u8]) -> IoSliceMut<'static> {
    let (start, len) = (memory.as_mut_ptr(), memory.len());
    // SAFETY: the callers keep the memory as long as the list.
    IoSliceMut::new(unsafe { std::slice::from_raw_parts_mut(start, len) })
}

fn sockaddr(address: SocketAddr) -> SOCKADDR_IN {
    let SocketAddr::V4(v4) = address else { unreachable!("tests are on 127.0.0.1") };
    let mut sockaddr = SOCKADDR_IN { sin_family: AF_INET, ..Default::default() };
    sockaddr.sin_port = v4.port().to_be();
    sockaddr.sin_addr.S_un.S_addr = u32::from_ne_bytes(v4.ip().octets());
    sockaddr
}

#[test]
fn a_named_pipe_waits_for_its_client() {
    let (server, path) = pipe();
    let mut memory = vec![0; 16];
    let mut list = [lent_slice(&mut memory)];
    let source = RawSource::of_handle(&server);
    let mut iocp = Iocp::new().unwrap();
    submit(&mut iocp, A, Op::ConnectNamedPipe { pipe: source });
    quiet(&mut iocp);
    let mut client = client(&path);
    assert_eq!(end(&mut iocp, A), Ok(0));

    let read = Op::Read { source, bufs: RawBufs::filling(&mut list), offset: None };
    submit(&mut iocp, A, read);
    quiet(&mut iocp);
    client.write_all(b"hello").unwrap();
    assert_eq!(end(&mut iocp, A), Ok(5));
    assert_eq!(&memory[..5], b"hello");

    // The end of the other side is the end of file.
    submit(&mut iocp, A, read);
    drop(client);
    assert_eq!(end(&mut iocp, A), Ok(0));
}

#[test]
fn a_client_that_came_first_is_no_failure() {
    let (server, path) = pipe();
    let mut client = client(&path);
    let (one, two) = (b"first, ".to_vec(), b"second".to_vec());
    let list = [std::io::IoSlice::new(&one), std::io::IoSlice::new(&two)];
    let source = RawSource::of_handle(&server);
    let mut iocp = Iocp::new().unwrap();
    submit(&mut iocp, A, Op::ConnectNamedPipe { pipe: source });
    assert_eq!(end(&mut iocp, A), Ok(0));

    submit(&mut iocp, A, Op::Write { source, bufs: RawBufs::sending(&list), offset: None });
    assert_eq!(end(&mut iocp, A), Ok(13));
    let mut text = [0; 13];
    client.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"first, second");
}

#[test]
fn a_read_of_a_pipe_can_be_cancelled_and_loses_nothing() {
    let (server, path) = pipe();
    let mut client = client(&path);
    let mut memory = vec![0; 16];
    let mut list = [lent_slice(&mut memory)];
    let source = RawSource::of_handle(&server);
    let mut iocp = Iocp::new().unwrap();
    let read = Op::Read { source, bufs: RawBufs::filling(&mut list), offset: None };
    submit(&mut iocp, A, read);
    quiet(&mut iocp);
    iocp.cancel(A).unwrap();
    assert_eq!(end(&mut iocp, A), Err(ABORTED));
    client.write_all(b"late").unwrap();
    submit(&mut iocp, A, read);
    assert_eq!(end(&mut iocp, A), Ok(4));
    assert_eq!(&memory[..4], b"late");
}

/// Opens a file of its own with some flags.
fn temporary(name: &str, content: &[u8], flags: u32) -> (File, PathBuf) {
    let path = std::env::temp_dir().join(format!("poll-iocp-{}-{name}", std::process::id()));
    std::fs::write(&path, content).unwrap();
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(&path);
    (file.unwrap(), path)
}

#[test]
fn files_are_read_to_their_end() {
    let (file, path) = temporary("end", b"0123456789", FILE_FLAG_OVERLAPPED);
    let mut memory = vec![0; 4];
    let mut list = [lent_slice(&mut memory)];
    let mut iocp = Iocp::new().unwrap();
    for (offset, expected) in [(0, 4), (8, 2), (10, 0), (100, 0)] {
        let bufs = RawBufs::filling(&mut list);
        let source = RawSource::of_handle(&file);
        submit(&mut iocp, A, Op::Read { source, bufs, offset: Some(offset) });
        assert_eq!(end(&mut iocp, A), Ok(expected), "from {offset} on");
    }
    drop(iocp);
    drop(file);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn what_takes_no_operation_is_refused_with_advice() {
    let mut memory = vec![0; 4];
    let mut list = [lent_slice(&mut memory)];
    let mut iocp = Iocp::new().unwrap();
    for (flags, offset, advice) in
        [(0, Some(0), "FILE_FLAG_OVERLAPPED"), (FILE_FLAG_OVERLAPPED, None, "give an offset")]
    {
        let (file, path) = temporary("unfit", b"text", flags);
        let (source, bufs) = (RawSource::of_handle(&file), RawBufs::filling(&mut list));
        // SAFETY: what is lent outlives the backend.
        let refused = unsafe { iocp.submit(A, Op::Read { source, bufs, offset }) };
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert!(error.to_string().contains(advice), "{error}");
        drop(file);
        std::fs::remove_file(path).unwrap();
    }
    quiet(&mut iocp);
    assert!(iocp.cancel(A).is_err(), "nothing was started");
}

#[test]
fn a_closed_source_is_an_error_of_the_operation() {
    let mut memory = vec![0; 4];
    let buf = RawBuf::filling(&mut memory);
    let mut iocp = Iocp::new().unwrap();
    submit(&mut iocp, A, Op::Recv { source: RawSource::from_socket(0x7ffc), buf });
    assert!(iocp.cancel(A).is_ok(), "in flight until it is told");
    assert!(end(&mut iocp, A).is_err());
}

/// Takes a socket that an operation made.
fn owned(result: usize) -> OwnedSocket {
    // SAFETY: the operation made it for its caller.
    unsafe { OwnedSocket::from_raw_socket(result as RawSocket) }
}

#[test]
fn a_burst_of_connections_is_accepted_with_ever_more_calls() {
    const CONNECTIONS: usize = 64;
    // Calls complete in the system's own time: on a busy machine, now and then, one a wait.
    let together = (0..10).any(|_| waits_for_a_burst(CONNECTIONS) < CONNECTIONS);
    assert!(together, "one connection a wait");
}

/// How many waits it takes to accept so many connections that have come at once.
fn waits_for_a_burst(connections: usize) -> usize {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let clients: Vec<_> = (0..connections).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut iocp = Iocp::new().unwrap();
    submit(&mut iocp, A, Op::AcceptMulti { listener: RawSource::of(&listener) });
    let mut accepted = Vec::new();
    let mut waits = 0;
    while accepted.len() < clients.len() {
        for (result, more, _) in reports(&mut iocp, A) {
            assert!(more);
            accepted.push(owned(result.unwrap()));
        }
        waits += 1;
    }
    iocp.cancel(A).unwrap();
    assert_eq!(end(&mut iocp, A), Err(ABORTED));
    assert_eq!(iocp.ops.in_flight(), 0);
    // Whoever comes later is not accepted by calls that are left over.
    let _late = TcpStream::connect(address).unwrap();
    quiet(&mut iocp);
    waits
}

#[test]
fn a_drop_closes_what_was_accepted_unheard() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut iocp = Iocp::new().unwrap();
    submit(&mut iocp, A, Op::AcceptMulti { listener: RawSource::of(&listener) });
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    drop(iocp);
    drop(listener);
    client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let ended = client.read(&mut [0; 1]);
    let timed_out = |error: &io::Error| {
        matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
    };
    assert!(!ended.as_ref().is_err_and(timed_out), "{ended:?}");
}

#[test]
fn a_drop_waits_for_thousands_of_operations() {
    let pairs: Vec<_> = (0..50).map(|_| tcp_pair()).collect();
    let mut memory = vec![0u8; 4000];
    let mut iocp = Iocp::new().unwrap();
    for (index, byte) in memory.iter_mut().enumerate() {
        let source = RawSource::of(&pairs[index % pairs.len()].0);
        let buf = RawBuf::filling(std::slice::from_mut(byte));
        submit(&mut iocp, Token::new(index as u32, 0), Op::Recv { source, buf });
    }
    assert_eq!(iocp.ops.in_flight(), 4000);
    let started = Instant::now();
    drop(iocp);
    assert!(started.elapsed() < Duration::from_secs(10));
    for (mut near, mut far) in pairs {
        far.write_all(b"x").unwrap();
        near.read_exact(&mut [0]).unwrap();
    }
    assert!(memory.iter().all(|byte| *byte == 0), "written to after the drop");
}

#[test]
fn a_datagram_that_does_not_fit_is_cut() {
    for arrives_first in [true, false] {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let send = || socket.send_to(b"a long datagram", address).unwrap();
        let (mut memory, mut list) = (vec![0; 6], Vec::new());
        list.push(lent_slice(&mut memory));
        let mut from = SOCKADDR_IN::default();
        let mut message = WSAMSG {
            name: (&raw mut from).cast(),
            namelen: size_of::<SOCKADDR_IN>() as i32,
            lpBuffers: list.as_mut_ptr().cast::<WSABUF>(),
            dwBufferCount: 1,
            ..Default::default()
        };
        let mut iocp = Iocp::new().unwrap();
        if arrives_first {
            send();
        }
        let source = RawSource::of(&socket);
        let raw = RawMessage(NonNull::from(&mut message).cast());
        submit(&mut iocp, A, Op::RecvMsg { source, message: raw, flags: 0 });
        if !arrives_first {
            quiet(&mut iocp);
            send();
        }
        assert_eq!(end(&mut iocp, A), Ok(6));
        assert_eq!((&memory[..], message.dwFlags), (&b"a long"[..], MSG_TRUNC));
        assert_eq!(from.sin_port, address.port().to_be());
        // The rest of it is gone, and nothing else happens.
        quiet(&mut iocp);
        assert_eq!(iocp.ops.in_flight(), 0);
    }
}

#[test]
fn messages_are_sent_where_they_are_addressed() {
    let (near, far) = (UdpSocket::bind("127.0.0.1:0"), UdpSocket::bind("127.0.0.1:0"));
    let (near, far) = (near.unwrap(), far.unwrap());
    let mut to = sockaddr(far.local_addr().unwrap());
    let (mut one, mut two) = (b"hel".to_vec(), b"lo".to_vec());
    let mut list = [lent_slice(&mut one), lent_slice(&mut two)];
    let mut message = WSAMSG {
        name: (&raw mut to).cast(),
        namelen: size_of::<SOCKADDR_IN>() as i32,
        lpBuffers: list.as_mut_ptr().cast::<WSABUF>(),
        dwBufferCount: 2,
        ..Default::default()
    };
    let mut iocp = Iocp::new().unwrap();
    let raw = RawMessage(NonNull::from(&mut message).cast());
    submit(&mut iocp, A, Op::SendMsg { source: RawSource::of(&near), message: raw, flags: 0 });
    assert_eq!(end(&mut iocp, A), Ok(5));
    let mut text = [0; 16];
    let (count, from) = far.recv_from(&mut text).unwrap();
    assert_eq!((&text[..count], from), (&b"hello"[..], near.local_addr().unwrap()));

    // Connecting such a socket only notes its peer.
    let address = RawAddr { ptr: NonNull::from(&mut to).cast(), len: 16 };
    submit(&mut iocp, A, Op::Connect { source: RawSource::of(&near), address });
    assert_eq!(end(&mut iocp, A), Ok(0));
    assert_eq!(near.peer_addr().unwrap(), far.local_addr().unwrap());
}

/// Eight buffers for messages, and what is in them.
struct Group(Box<[std::cell::UnsafeCell<u8>; 8 * Group::SIZE]>);

impl Group {
    const SIZE: usize = 128;

    fn new() -> Group {
        Group(Box::new([const { std::cell::UnsafeCell::new(0) }; 8 * Group::SIZE]))
    }

    fn provide(&self, iocp: &mut Iocp) {
        let start = NonNull::from(&self.0[..]).cast();
        // SAFETY: the tests make the group before the backend, so that it outlives it.
        unsafe { iocp.provide(3, start, Group::SIZE as u32, 8) }.unwrap();
    }

    fn piece(&self, lent: Lent, len: usize) -> &[u8] {
        assert_eq!((lent.group, lent.offset), (3, 0));
        let start = self.0[usize::from(lent.buffer) * Group::SIZE].get();
        // SAFETY: what is lent is not written to.
        unsafe { std::slice::from_raw_parts(start, len) }
    }
}

#[test]
fn messages_come_with_their_addresses_in_buffers_of_a_group() {
    const ROOM: u32 = size_of::<SOCKADDR_IN>() as u32;
    let (near, far) = (UdpSocket::bind("127.0.0.1:0"), UdpSocket::bind("127.0.0.1:0"));
    let (near, far) = (near.unwrap(), far.unwrap());
    let group = Group::new();
    let mut iocp = Iocp::new().unwrap();
    group.provide(&mut iocp);
    let op = Op::RecvMsgMulti {
        source: RawSource::of(&near),
        group: 3,
        address_len: ROOM,
        control_len: 0,
    };
    submit(&mut iocp, A, op);
    quiet(&mut iocp);
    let long = [b'x'; 2 * Group::SIZE];
    let texts: [&[u8]; 4] = [b"first", b"", b"third", &long];
    for text in texts {
        far.send_to(text, near.local_addr().unwrap()).unwrap();
    }
    let mut received = Vec::new();
    while received.len() < texts.len() {
        for (result, more, lent) in reports(&mut iocp, A) {
            assert!(more, "{result:?}");
            let (total, lent) = (result.unwrap(), lent.unwrap());
            let piece = group.piece(lent, total);
            let numbers: Vec<u32> = (0..4)
                .map(|index| u32::from_ne_bytes(piece[4 * index..][..4].try_into().unwrap()))
                .collect();
            let payload = &piece[16 + ROOM as usize..];
            assert_eq!((numbers[0], numbers[1], numbers[2] as usize), (ROOM, 0, payload.len()));
            assert_eq!(piece[18..20], far.local_addr().unwrap().port().to_be_bytes());
            received.push((payload.to_vec(), numbers[3] & MSG_TRUNC != 0));
            iocp.recycle(lent);
        }
    }
    let room = Group::SIZE - 16 - ROOM as usize;
    let expected = texts.map(|text| (text[..text.len().min(room)].to_vec(), text.len() > room));
    assert_eq!(received, expected);
    iocp.cancel(A).unwrap();
    assert_eq!(end(&mut iocp, A), Err(ABORTED));
    drop(iocp);
}

#[test]
fn an_idle_receiver_holds_no_buffer() {
    let (near, mut far) = tcp_pair();
    let others: Vec<_> = (0..20).map(|_| tcp_pair()).collect();
    let group = Group::new();
    let mut iocp = Iocp::new().unwrap();
    group.provide(&mut iocp);
    for (index, (idle, _)) in others.iter().enumerate() {
        let op = Op::RecvMulti { source: RawSource::of(idle), group: 3 };
        submit(&mut iocp, Token::new(index as u32 + 10, 0), op);
    }
    submit(&mut iocp, A, Op::RecvMulti { source: RawSource::of(&near), group: 3 });
    quiet(&mut iocp);
    let sent: Vec<u8> = (0..6 * Group::SIZE).map(|index| (index % 251) as u8).collect();
    far.write_all(&sent).unwrap();
    let (mut received, mut lent_out) = (Vec::new(), Vec::new());
    while received.len() < sent.len() {
        for (result, more, lent) in reports(&mut iocp, A) {
            assert!(more, "of eight buffers there is one for every piece: {result:?}");
            received.extend_from_slice(group.piece(lent.unwrap(), result.unwrap()));
            lent_out.push(lent.unwrap());
        }
    }
    assert_eq!(received, sent);
    lent_out.into_iter().for_each(|lent| iocp.recycle(lent));
    // A cancel between messages takes nothing away.
    iocp.cancel(A).unwrap();
    assert_eq!(end(&mut iocp, A), Err(ABORTED));
    far.write_all(b"late").unwrap();
    submit(&mut iocp, B, Op::RecvMulti { source: RawSource::of(&near), group: 3 });
    let [(result, true, Some(lent))] = reports(&mut iocp, B)[..] else { panic!("one piece") };
    assert_eq!(group.piece(lent, result.unwrap()), b"late");
}

/// Somebody else may have asked for no packets of calls that are over at once.
#[test]
fn sources_that_skip_packets_end_all_the_same() {
    let (near, mut far) = tcp_pair();
    let mut memory = vec![0; 16];
    let (sent, buf) = (b"hello".to_vec(), RawBuf::filling(&mut memory));
    let source = RawSource::of(&near);
    let group = Group::new();
    let mut iocp = Iocp::new().unwrap();
    group.provide(&mut iocp);
    // SAFETY: the handle is borrowed from its owner.
    let set = unsafe { SetFileCompletionNotificationModes(source.handle(), 1) };
    assert_ne!(set, 0);
    for _ in 0..3 {
        submit(&mut iocp, A, Op::Send { source, buf: RawBuf::sending(&sent) });
        assert_eq!(end(&mut iocp, A), Ok(5));
        far.read_exact(&mut [0; 5]).unwrap();
        far.write_all(b"answer").unwrap();
        submit(&mut iocp, B, Op::Recv { source, buf });
        assert_eq!(end(&mut iocp, B), Ok(6));
    }
    submit(&mut iocp, A, Op::RecvMulti { source, group: 3 });
    for _ in 0..3 {
        far.write_all(b"more").unwrap();
        let [(Ok(4), true, Some(lent))] = reports(&mut iocp, A)[..] else { panic!("one piece") };
        iocp.recycle(lent);
    }
    quiet(&mut iocp);
}

/// Windows gives a socket to another port when asked to. Wine cannot.
#[test]
fn a_source_moves_to_another_backend() {
    let (near, mut far) = tcp_pair();
    let mut memory = vec![0; 16];
    let op = Op::Recv { source: RawSource::of(&near), buf: RawBuf::filling(&mut memory) };
    for round in 0..3 {
        let mut iocp = Iocp::new().unwrap();
        // SAFETY: what is lent outlives the backend.
        match unsafe { iocp.submit(A, op) } {
            Err(error) if round > 0 && error.kind() == io::ErrorKind::Unsupported => {
                // Not `eprintln!`: the test harness would swallow it.
                let skip = b"skip: no source can leave its completion port here\n";
                let _ = std::io::stderr().write_all(skip);
                return;
            }
            other => other.unwrap(),
        }
        far.write_all(b"hello").unwrap();
        assert_eq!(end(&mut iocp, A), Ok(5));
    }
}

#[test]
fn a_number_that_is_used_again_is_bound_again() {
    let mut memory = vec![0; 16];
    let buf = RawBuf::filling(&mut memory);
    let mut iocp = Iocp::new().unwrap();
    let mut sources = std::collections::HashSet::new();
    for _ in 0..20 {
        let (near, mut far) = tcp_pair();
        let source = RawSource::of(&near);
        sources.insert(source);
        submit(&mut iocp, A, Op::Recv { source, buf });
        far.write_all(b"hello").unwrap();
        assert_eq!(end(&mut iocp, A), Ok(5));
    }
    assert!(sources.len() < 20, "the system has used no number twice");
}

/// The number of a socket may come to be that of a file that takes no operations.
#[test]
fn a_number_that_was_a_socket_s_may_be_a_file_s() {
    let (mut memory, mut byte) = (vec![0; 16], vec![0; 1]);
    let (buf, mut list) = (RawBuf::filling(&mut memory), [lent_slice(&mut byte)]);
    let mut iocp = Iocp::new().unwrap();
    let (near, mut far) = tcp_pair();
    let was = RawSource::of(&near);
    submit(&mut iocp, A, Op::Recv { source: was, buf });
    far.write_all(b"hello").unwrap();
    assert_eq!(end(&mut iocp, A), Ok(5));
    drop(near);
    let files: Vec<_> = (0..64).map(|index| temporary(&format!("n{index}"), b"x", 0)).collect();
    let reused = files.iter().map(|(file, _)| RawSource::of_handle(file)).find(|is| *is == was);
    if let Some(source) = reused {
        let op = Op::Read { source, bufs: RawBufs::filling(&mut list), offset: Some(0) };
        // SAFETY: what is lent outlives the backend.
        let error = unsafe { iocp.submit(A, op) }.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
    } else {
        // Not `eprintln!`: the test harness would swallow it.
        let _ = io::stderr().write_all(b"skip: the number of the socket was not used again\n");
    }
    quiet(&mut iocp);
    drop(iocp);
    for (file, path) in files {
        drop(file);
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn only_a_listener_s_own_errors_end_accepting() {
    assert!(accept::is_ones_own(windows_sys::Win32::Networking::WinSock::WSAECONNRESET));
    assert!(!accept::is_ones_own(WSAEMFILE) && !accept::is_ones_own(ABORTED));
}

#[test]
fn a_stranger_s_packet_is_ignored() {
    let mut iocp = Iocp::new().unwrap();
    let port = iocp.door.port.handle();
    let key = crate::port::Key::Operation as usize;
    for address in [0, 8, 0x1234_5678] {
        let overlapped = std::ptr::without_provenance(address);
        // SAFETY: the address is handed on and not followed.
        let posted = unsafe {
            windows_sys::Win32::System::IO::PostQueuedCompletionStatus(port, 0, key, overlapped)
        };
        assert_ne!(posted, 0);
    }
    quiet(&mut iocp);
}

#[test]
fn handles_of_pipes_are_no_sockets() {
    let (server, _) = pipe();
    let mut memory = vec![0; 4];
    let buf = RawBuf::filling(&mut memory);
    let mut iocp = Iocp::new().unwrap();
    submit(&mut iocp, A, Op::Recv { source: RawSource::of_handle(&server), buf });
    assert!(end(&mut iocp, A).is_err());
    submit(&mut iocp, A, Op::Poll { source: RawSource::of_handle(&server), interest: Ready::READ });
    assert_eq!(end(&mut iocp, A), Err(WSAENOTSOCK));
}
