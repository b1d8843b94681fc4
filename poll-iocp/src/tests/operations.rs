//! Operations: pipes, files, accepts, errors, drop, and the association with the port.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::windows::fs::OpenOptionsExt;
use std::os::windows::io::{FromRawHandle, FromRawSocket, OwnedHandle, OwnedSocket, RawSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use poll_core::{Backend, BufferLease, Event, Interest, Op, RawBuf, RawBufs, RawSource, Token};
use windows_sys::Win32::Networking::WinSock::WSAENOTSOCK;
use windows_sys::Win32::Storage::FileSystem::{FILE_FLAG_OVERLAPPED, PIPE_ACCESS_DUPLEX};
use windows_sys::Win32::System::Pipes::{CreateNamedPipeW, PIPE_TYPE_BYTE};

use crate::Iocp;
use crate::ops::{ABORTED, OpResult};

pub(super) const A: Token = Token::new(0, 0);
pub(super) const B: Token = Token::new(1, 0);

/// The fields of a `Done` except its token.
pub(super) type Done = (OpResult, bool, Option<BufferLease>);

pub(super) fn submit(iocp: &mut Iocp, token: Token, op: Op) {
    // SAFETY: the tests declare all memory and sources of `op` before the backend, which is
    // dropped first.
    unsafe { iocp.submit(token, op) }.unwrap();
}

/// Waits until `token` reports, and returns its reports of that wait.
pub(super) fn reports(iocp: &mut Iocp, token: Token) -> Vec<Done> {
    let started = Instant::now();
    loop {
        assert!(started.elapsed() < Duration::from_secs(10), "no report: {:?}", iocp.ops);
        let mut events = Vec::new();
        iocp.wait(Some(Duration::from_secs(1)), &mut events).unwrap();
        let of = |event| match event {
            Event::Done { token: of, result, more, lease } if of == token => {
                Some((result, more, lease))
            }
            _ => None,
        };
        let found: Vec<Done> = events.into_iter().filter_map(of).collect();
        if !found.is_empty() {
            return found;
        }
    }
}

/// Waits for the result of an operation that reports once.
pub(super) fn end(iocp: &mut Iocp, token: Token) -> OpResult {
    let reports = reports(iocp, token);
    match reports[..] {
        [(result, false, None)] => result,
        _ => panic!("one last Done is expected, not {reports:?}"),
    }
}

/// Asserts that a short wait reports nothing.
pub(super) fn quiet(iocp: &mut Iocp) {
    let mut events = Vec::new();
    iocp.wait(Some(Duration::from_millis(20)), &mut events).unwrap();
    assert_eq!(events, []);
}

pub(super) fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

/// Creates a named pipe, and returns the server's end and the path for the client.
fn pipe() -> (File, PathBuf) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = format!(r"\\.\pipe\poll-iocp-{}-{count}", std::process::id());
    let name: Vec<u16> = path.encode_utf16().chain([0]).collect();
    let access = PIPE_ACCESS_DUPLEX | FILE_FLAG_OVERLAPPED;
    // SAFETY: the name ends with a NUL, and null attributes are allowed.
    let pipe = unsafe {
        CreateNamedPipeW(name.as_ptr(), access, PIPE_TYPE_BYTE, 1, 4096, 4096, 0, std::ptr::null())
    };
    assert_ne!(pipe as isize, -1, "{}", io::Error::last_os_error());
    // SAFETY: `CreateNamedPipeW` has just returned the handle, so it has no other owner.
    (File::from(unsafe { OwnedHandle::from_raw_handle(pipe) }), path.into())
}

fn client(path: &PathBuf) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

/// Returns `memory` as an element of a buffer list that is declared next to it.
pub(super) fn lent_slice(memory: &mut [u8]) -> IoSliceMut<'static> {
    let (start, len) = (memory.as_mut_ptr(), memory.len());
    // SAFETY: the tests drop the list before the memory.
    IoSliceMut::new(unsafe { std::slice::from_raw_parts_mut(start, len) })
}

#[test]
fn connect_named_pipe_completes_when_a_client_connects() {
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

    // A closed client is the end of file.
    submit(&mut iocp, A, read);
    drop(client);
    assert_eq!(end(&mut iocp, A), Ok(0));
}

#[test]
fn connect_named_pipe_succeeds_if_the_client_was_first() {
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
fn a_cancelled_read_of_a_pipe_loses_no_data() {
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

/// Creates a temporary file and opens it with `flags`.
fn temporary(name: &str, content: &[u8], flags: u32) -> (File, PathBuf) {
    let path = std::env::temp_dir().join(format!("poll-iocp-{}-{name}", std::process::id()));
    std::fs::write(&path, content).unwrap();
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(&path);
    (file.unwrap(), path)
}

#[test]
fn a_read_at_the_end_of_a_file_returns_zero() {
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
fn unsuitable_files_are_rejected_with_a_remedy() {
    let mut memory = vec![0; 4];
    let mut list = [lent_slice(&mut memory)];
    let mut iocp = Iocp::new().unwrap();
    for (flags, offset, remedy) in
        [(0, Some(0), "FILE_FLAG_OVERLAPPED"), (FILE_FLAG_OVERLAPPED, None, "give an offset")]
    {
        let (file, path) = temporary("unfit", b"text", flags);
        let (source, bufs) = (RawSource::of_handle(&file), RawBufs::filling(&mut list));
        // SAFETY: all memory and sources of `op` outlive the backend.
        let refused = unsafe { iocp.submit(A, Op::Read { source, bufs, offset }) };
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert!(error.to_string().contains(remedy), "{error}");
        drop(file);
        std::fs::remove_file(path).unwrap();
    }
    quiet(&mut iocp);
    assert!(iocp.cancel(A).is_err(), "no operation was started");
}

#[test]
fn a_closed_source_fails_the_operation() {
    let mut memory = vec![0; 4];
    let buf = RawBuf::filling(&mut memory);
    let mut iocp = Iocp::new().unwrap();
    submit(&mut iocp, A, Op::Recv { source: RawSource::from_socket(0x7ffc), buf });
    assert!(iocp.cancel(A).is_ok(), "in flight until its result is delivered");
    assert!(end(&mut iocp, A).is_err());
}

/// Takes ownership of an accepted socket.
fn owned(result: usize) -> OwnedSocket {
    // SAFETY: the accept operation passes ownership of the socket to its caller.
    unsafe { OwnedSocket::from_raw_socket(result as RawSocket) }
}

#[test]
fn a_burst_of_connections_raises_the_number_of_accept_calls() {
    const CONNECTIONS: usize = 64;
    // On a busy machine the calls may complete one per wait.
    let is_batched = (0..10).any(|_| waits_for_a_burst(CONNECTIONS) < CONNECTIONS);
    assert!(is_batched, "one connection per wait");
}

/// Returns the number of waits that accept `connections` pending connections.
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
    // No call is left over that would accept a later connection.
    let _late = TcpStream::connect(address).unwrap();
    quiet(&mut iocp);
    waits
}

#[test]
fn a_drop_closes_accepted_sockets_that_were_not_delivered() {
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

/// Windows 8.1 can move a socket to another port; Wine 8 cannot.
#[test]
fn a_source_moves_to_another_backend() {
    let (near, mut far) = tcp_pair();
    let mut memory = vec![0; 16];
    let op = Op::Recv { source: RawSource::of(&near), buf: RawBuf::filling(&mut memory) };
    for round in 0..3 {
        let mut iocp = Iocp::new().unwrap();
        // SAFETY: all memory and sources of `op` outlive the backend.
        match unsafe { iocp.submit(A, op) } {
            Err(error) if round > 0 && error.kind() == io::ErrorKind::Unsupported => {
                // Not `eprintln!`: the test harness captures it.
                let skip = b"skip: sources cannot move to another completion port here\n";
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
fn a_reused_handle_value_is_associated_again() {
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
    assert!(sources.len() < 20, "the system has reused no handle value");
}

/// A synchronous file may get the handle value of a closed socket.
#[test]
fn a_synchronous_file_with_a_reused_handle_value_is_rejected() {
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
        // SAFETY: all memory and sources of `op` outlive the backend.
        let error = unsafe { iocp.submit(A, op) }.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
    } else {
        // Not `eprintln!`: the test harness captures it.
        let _ = io::stderr().write_all(b"skip: the handle value of the socket was not reused\n");
    }
    quiet(&mut iocp);
    drop(iocp);
    for (file, path) in files {
        drop(file);
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn packets_posted_by_other_code_are_ignored() {
    let mut iocp = Iocp::new().unwrap();
    let port = iocp.shared.port.handle();
    let key = crate::port::Key::Operation as usize;
    for address in [0, 8, 0x1234_5678] {
        let overlapped = std::ptr::without_provenance(address);
        // SAFETY: the address is copied to the packet and not dereferenced.
        let posted = unsafe {
            windows_sys::Win32::System::IO::PostQueuedCompletionStatus(port, 0, key, overlapped)
        };
        assert_ne!(posted, 0);
    }
    quiet(&mut iocp);
}

#[test]
fn socket_operations_on_a_pipe_fail() {
    let (server, _) = pipe();
    let mut memory = vec![0; 4];
    let buf = RawBuf::filling(&mut memory);
    let mut iocp = Iocp::new().unwrap();
    submit(&mut iocp, A, Op::Recv { source: RawSource::of_handle(&server), buf });
    assert!(end(&mut iocp, A).is_err());
    submit(
        &mut iocp,
        A,
        Op::Poll { source: RawSource::of_handle(&server), interest: Interest::READ },
    );
    assert_eq!(end(&mut iocp, A), Err(WSAENOTSOCK));
}
