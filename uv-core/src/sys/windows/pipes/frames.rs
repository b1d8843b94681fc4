//! The frames of a pipe that passes handles; [`pipe_frames`](crate::sys::pipe_frames) has their
//! format.

use std::collections::VecDeque;
use std::io;
use std::os::windows::io::{
    AsRawHandle, BorrowedSocket, FromRawHandle, FromRawSocket, OwnedHandle, OwnedSocket, RawSocket,
};
use std::ptr;

use poll_core::RawSource;
use socket2::{SockRef, Type};
use windows_sys::Win32::Foundation::{DUPLICATE_SAME_ACCESS, DuplicateHandle, HANDLE};
use windows_sys::Win32::Networking::WinSock::{
    INVALID_SOCKET, SOCKET, WSA_FLAG_NO_HANDLE_INHERIT, WSA_FLAG_OVERLAPPED, WSADuplicateSocketW,
    WSAPROTOCOL_INFOW, WSASocketW,
};
use windows_sys::Win32::Storage::FileSystem::{FILE_TYPE_PIPE, GetFileType};
use windows_sys::Win32::System::Threading::{GetCurrentProcess, OpenProcess, PROCESS_DUP_HANDLE};

use crate::sys::Passed;
use crate::sys::pipe_frames::{
    HAS_BYTES, HAS_DATAGRAMS, HAS_PIPE, HAS_SOCKET, HEAD, Head, IS_CONNECTED, Incoming, PIPE_INFO,
    SOCKET_INFO,
};

const _: () = assert!(SOCKET_INFO == size_of::<WSAPROTOCOL_INFOW>() + 4);

/// Appends the frames of a message; the caller appends its bytes.
///
/// # Errors
///
/// Those of duplicating handles. The caller then [`discard`]s what was appended.
pub(super) fn append(
    bytes: &mut Vec<u8>,
    sources: &[RawSource],
    peer: u32,
    length: usize,
) -> io::Result<()> {
    if sources.is_empty() {
        let process = std::process::id();
        bytes.extend(Head { flags: HAS_BYTES, process, length: length as u32 }.bytes());
        return Ok(());
    }
    for (number, source) in sources.iter().enumerate() {
        // The last frame carries the bytes, so that every handle precedes them.
        let is_last = number + 1 == sources.len();
        let (has_bytes, length) = if is_last { (HAS_BYTES, length as u32) } else { (0, 0) };
        append_handle(bytes, *source, peer, |flags| {
            Head { flags: flags | has_bytes, process: peer, length }.bytes()
        })?;
    }
    Ok(())
}

/// Duplicates a handle into the peer and appends its frame.
fn append_handle(
    bytes: &mut Vec<u8>,
    source: RawSource,
    peer: u32,
    head: impl FnOnce(u32) -> [u8; HEAD],
) -> io::Result<()> {
    // SAFETY: its owner, a handle of the loop, keeps it open across this function. For a pipe the
    // only call is `getsockopt`, which fails.
    let socket = unsafe { BorrowedSocket::borrow_raw(source.socket()) };
    let socket = SockRef::from(&socket);
    let Ok(kind) = socket.r#type() else {
        let handle = duplicate(source.handle(), peer)?;
        bytes.extend(head(HAS_PIPE));
        bytes.extend((handle as u64).to_le_bytes());
        return Ok(());
    };
    let kind = match kind {
        Type::DGRAM => HAS_DATAGRAMS,
        _ if socket.peer_addr().is_ok() => IS_CONNECTED,
        _ => 0,
    };
    let mut info = WSAPROTOCOL_INFOW::default();
    // SAFETY: the owner keeps the socket open, and the call writes only the local structure.
    if unsafe { WSADuplicateSocketW(source.socket() as SOCKET, peer, &mut info) } != 0 {
        return Err(io::Error::last_os_error());
    }
    bytes.extend(head(HAS_SOCKET | kind));
    let from: *const WSAPROTOCOL_INFOW = &info;
    // SAFETY: `info` is plain data without padding, and lives longer than the slice.
    let info = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), size_of_val(&info)) };
    bytes.extend_from_slice(info);
    bytes.extend([0; 4]);
    Ok(())
}

/// Duplicates a handle into another process and returns its value there.
fn duplicate(handle: HANDLE, peer: u32) -> io::Result<usize> {
    // SAFETY: no memory is passed.
    let this = unsafe { GetCurrentProcess() };
    let opened;
    let process = if peer == std::process::id() {
        this
    } else {
        // SAFETY: no memory is passed.
        let process = unsafe { OpenProcess(PROCESS_DUP_HANDLE, 0, peer) };
        if process.is_null() {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call created the handle, and no other code owns it.
        opened = unsafe { OwnedHandle::from_raw_handle(process) };
        opened.as_raw_handle()
    };
    let (mut copy, options) = (ptr::null_mut(), DUPLICATE_SAME_ACCESS);
    // SAFETY: an invalid handle is an error; the call writes the duplicate to a local variable.
    match unsafe { DuplicateHandle(this, handle, process, &raw mut copy, 0, 0, options) } {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(copy as usize),
    }
}

/// Closes the handles of frames that were not sent, if they belong to this process.
pub(super) fn discard(mut bytes: &[u8]) {
    while let Some((head, rest)) = bytes.split_first_chunk::<HEAD>()
        && let Ok(head) = Head::of(head)
        && let Some((info, rest)) = rest.split_at_checked(head.info())
    {
        drop(taken(head, info));
        bytes = rest.get(head.length as usize..).unwrap_or_default();
    }
}

/// Takes ownership of the handle of a frame. `None` without a handle; an error if it is lost.
fn taken(head: Head, info: &[u8]) -> Result<Option<Passed>, ()> {
    if info.is_empty() {
        return Ok(None);
    }
    // A handle of another process has no meaning here.
    if head.process != 0 && head.process != std::process::id() {
        return Err(());
    }
    if head.flags & HAS_PIPE != 0 {
        let number = info.first_chunk::<PIPE_INFO>().map_or(0, |it| u64::from_le_bytes(*it));
        let handle = number as usize as HANDLE;
        // SAFETY: no memory is passed; an invalid handle has the type unknown.
        if unsafe { GetFileType(handle) } != FILE_TYPE_PIPE {
            return Err(());
        }
        // SAFETY: the peer duplicated it into this process, and no other code knows its value.
        return Ok(Some(Passed::Pipe(unsafe { OwnedHandle::from_raw_handle(handle) })));
    }
    let from: *const WSAPROTOCOL_INFOW = info.as_ptr().cast();
    // SAFETY: `info` has at least this length, and any bytes are valid plain data.
    let info = unsafe { from.read_unaligned() };
    let flags = WSA_FLAG_OVERLAPPED | WSA_FLAG_NO_HANDLE_INHERIT;
    // SAFETY: the structure lives across the call; -1 takes the values from it.
    let socket = unsafe { WSASocketW(-1, -1, -1, &info, 0, flags) };
    if socket == INVALID_SOCKET {
        return Err(());
    }
    // SAFETY: the peer duplicated it into this process, and no other code knows its value.
    let socket = unsafe { OwnedSocket::from_raw_socket(socket as RawSocket) };
    let has_datagrams = head.flags & HAS_DATAGRAMS != 0;
    Ok(Some(if has_datagrams { Passed::Udp(socket) } else { Passed::Tcp(socket) }))
}

/// Reads the bytes of one frame with `read`, and takes the handles up to that frame. False if
/// handles were lost.
pub(super) fn receive(
    incoming: &mut Incoming,
    memory: &mut [u8],
    passed: &mut VecDeque<Passed>,
    read: impl Fn(&mut [u8]) -> io::Result<usize>,
) -> io::Result<(usize, bool)> {
    let take = |head, info: &[u8]| taken(head, info).map(|handle| passed.extend(handle)).is_ok();
    incoming.receive(memory, take, read)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Reads all frames, at most `chunk` bytes at a time.
    fn receive(bytes: &[u8], chunk: usize) -> io::Result<(Vec<u8>, usize, bool)> {
        let rest = RefCell::new(bytes);
        let read = |memory: &mut [u8]| {
            let mut rest = rest.borrow_mut();
            let count = memory.len().min(rest.len()).min(chunk);
            let (now, later) = rest.split_at(count);
            memory[..count].copy_from_slice(now);
            *rest = later;
            Ok(count)
        };
        let (mut incoming, mut passed) = (Incoming::default(), VecDeque::new());
        let (mut all, mut whole) = (Vec::new(), true);
        loop {
            let mut memory = [0; 7];
            let (count, so_far) = super::receive(&mut incoming, &mut memory, &mut passed, read)?;
            whole &= so_far;
            if count == 0 {
                return Ok((all, passed.len(), whole));
            }
            all.extend_from_slice(&memory[..count]);
        }
    }

    #[test]
    fn frames_are_parsed_from_partial_reads() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let this = std::process::id();
        for chunk in [1, 3, 10_000] {
            let mut bytes = Vec::new();
            append(&mut bytes, &[], this, 10).unwrap();
            bytes.extend(b"0123456789");
            append(&mut bytes, &[RawSource::of(&socket); 2], this, 3).unwrap();
            bytes.extend(b"abc");
            assert_eq!(bytes.len(), 10 + 3 + 3 * HEAD + 2 * SOCKET_INFO);
            let received = receive(&bytes, chunk).unwrap();
            assert_eq!(received, (b"0123456789abc".to_vec(), 2, true));
        }
    }

    #[test]
    fn a_handle_for_another_process_is_lost_but_its_bytes_are_not() {
        let head = Head { flags: HAS_PIPE | HAS_BYTES, process: 1, length: 2 };
        let mut bytes = head.bytes().to_vec();
        bytes.extend(usize::MAX.to_le_bytes());
        bytes.extend(b"ok");
        assert_eq!(receive(&bytes, 100).unwrap(), (b"ok".to_vec(), 0, false));
    }

    #[test]
    fn invalid_headers_are_rejected() {
        for bytes in [*b"just some bytes.", Head { flags: 0, process: 0, length: 1 }.bytes()] {
            assert_eq!(receive(&bytes, 100).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
    }
}
