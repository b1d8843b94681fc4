//! What goes over a pipe that passes handles.
//!
//! Bytes go in frames, each with a head and at most one handle. They are libuv's, as far as
//! libuv has them: bytes and TCP sockets. Those with something else are refused there.
//!
//! ```text
//!  0       4       8         12      16
//!  ┌───────┬───────┬─────────┬───────┬───────────────┬───────────┐
//!  │ flags │ pid   │ length  │ 0     │ handle        │ bytes …   │
//!  └───────┴───────┴─────────┴───────┴───────────────┴───────────┘
//!   1 bytes · 2 a socket: 632 bytes (WSAPROTOCOL_INFOW, a number) · 4 that is connected
//!   ours: 8 the socket is a datagram socket · 16 a pipe: 8 bytes (its HANDLE)
//! ```
//!
//! Handles are made for the peer before they are sent, and are of use in its process only. So
//! the number of that process is in the head, and another takes none of them; without a handle
//! it is the number of the sender. libuv ignores it, and writes 0.

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

const HAS_BYTES: u32 = 1;
const HAS_SOCKET: u32 = 2;
const IS_CONNECTED: u32 = 4;
const HAS_DATAGRAMS: u32 = 8;
const HAS_PIPE: u32 = 16;

/// The length of a head.
const HEAD: usize = 16;

/// What follows it for a socket: the number is an error of libuv's.
const SOCKET_INFO: usize = size_of::<WSAPROTOCOL_INFOW>() + 4;
const _: () = assert!(SOCKET_INFO == 632);

/// What follows it for a pipe.
const PIPE_INFO: usize = 8;

/// Frames without bytes that are taken at once.
const MOST_FRAMES: usize = 1024;

#[derive(Clone, Copy, Debug)]
struct Head {
    flags: u32,
    process: u32,
    length: u32,
}

impl Head {
    fn bytes(self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        for (place, number) in
            bytes.chunks_exact_mut(4).zip([self.flags, self.process, self.length])
        {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    fn of(bytes: &[u8; HEAD]) -> io::Result<Head> {
        let number = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let head = Head { flags: number(0), process: number(4), length: number(8) };
        let has = |flag| head.flags & flag != 0;
        let known = HAS_BYTES | HAS_SOCKET | IS_CONNECTED | HAS_DATAGRAMS | HAS_PIPE;
        let is_wrong = head.flags & !known != 0
            || number(12) != 0
            || !has(HAS_BYTES) && head.length != 0
            || !has(HAS_SOCKET) && has(IS_CONNECTED | HAS_DATAGRAMS)
            || has(HAS_SOCKET) && has(HAS_PIPE);
        if is_wrong {
            let why = "what comes over the pipe is not in frames: both sides have to pass handles, \
                       from the first byte on";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        Ok(head)
    }

    /// How much follows before the bytes.
    fn info(self) -> usize {
        match self.flags & (HAS_SOCKET | HAS_PIPE) {
            HAS_SOCKET => SOCKET_INFO,
            HAS_PIPE => PIPE_INFO,
            _ => 0,
        }
    }
}

/// Appends the frames of a message, up to its bytes, which are to follow.
///
/// # Errors
///
/// The system's. What was appended then is for nobody: see [`discard`].
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
        // With the last, so that none comes after the bytes.
        let is_last = number + 1 == sources.len();
        let (has_bytes, length) = if is_last { (HAS_BYTES, length as u32) } else { (0, 0) };
        append_handle(bytes, *source, peer, |flags| {
            Head { flags: flags | has_bytes, process: peer, length }.bytes()
        })?;
    }
    Ok(())
}

/// Makes a handle for the peer.
fn append_handle(
    bytes: &mut Vec<u8>,
    source: RawSource,
    peer: u32,
    head: impl FnOnce(u32) -> [u8; HEAD],
) -> io::Result<()> {
    // SAFETY: its owner, a handle of the loop, keeps it open meanwhile; a pipe is only asked
    // whether it is a socket.
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
    // SAFETY: the socket is open, and the information lives across the call.
    if unsafe { WSADuplicateSocketW(source.socket() as SOCKET, peer, &mut info) } != 0 {
        return Err(io::Error::last_os_error());
    }
    bytes.extend(head(HAS_SOCKET | kind));
    let from: *const WSAPROTOCOL_INFOW = &info;
    // SAFETY: plain numbers, without gaps, as long as `info`.
    let info = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), size_of_val(&info)) };
    bytes.extend_from_slice(info);
    bytes.extend([0; 4]);
    Ok(())
}

/// A handle in another process, by its number there.
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
        // SAFETY: Windows has just given it to us.
        opened = unsafe { OwnedHandle::from_raw_handle(process) };
        opened.as_raw_handle()
    };
    let (mut copy, options) = (ptr::null_mut(), DUPLICATE_SAME_ACCESS);
    // SAFETY: a wrong handle is an error; the duplicate lives across the call.
    match unsafe { DuplicateHandle(this, handle, process, &raw mut copy, 0, 0, options) } {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(copy as usize),
    }
}

/// Closes the handles in frames that were not sent, if they are this process's.
pub(super) fn discard(mut bytes: &[u8]) {
    while let Some((head, rest)) = bytes.split_first_chunk::<HEAD>()
        && let Ok(head) = Head::of(head)
        && let Some((info, rest)) = rest.split_at_checked(head.info())
    {
        drop(taken(head, info));
        bytes = rest.get(head.length as usize..).unwrap_or_default();
    }
}

/// The handle of a frame. `None` if there is none; an error if it is lost.
fn taken(head: Head, info: &[u8]) -> Result<Option<Passed>, ()> {
    if info.is_empty() {
        return Ok(None);
    }
    // Made for another process, its number means something else here.
    if head.process != 0 && head.process != std::process::id() {
        return Err(());
    }
    if head.flags & HAS_PIPE != 0 {
        let number = info.first_chunk::<PIPE_INFO>().map_or(0, |it| u64::from_le_bytes(*it));
        let handle = number as usize as HANDLE;
        // SAFETY: what is no handle is of no type.
        if unsafe { GetFileType(handle) } != FILE_TYPE_PIPE {
            return Err(());
        }
        // SAFETY: the peer has made it for us, and told nobody else.
        return Ok(Some(Passed::Pipe(unsafe { OwnedHandle::from_raw_handle(handle) })));
    }
    let from: *const WSAPROTOCOL_INFOW = info.as_ptr().cast();
    // SAFETY: there are as many bytes, and any are valid numbers.
    let info = unsafe { from.read_unaligned() };
    let flags = WSA_FLAG_OVERLAPPED | WSA_FLAG_NO_HANDLE_INHERIT;
    // SAFETY: the information lives across the call. -1 is what it says in it.
    let socket = unsafe { WSASocketW(-1, -1, -1, &info, 0, flags) };
    if socket == INVALID_SOCKET {
        return Err(());
    }
    // SAFETY: the peer has made it for us, and told nobody else.
    let socket = unsafe { OwnedSocket::from_raw_socket(socket as RawSocket) };
    let has_datagrams = head.flags & HAS_DATAGRAMS != 0;
    Ok(Some(if has_datagrams { Passed::Udp(socket) } else { Passed::Tcp(socket) }))
}

/// Where in the frames a reader is.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    /// What has come of a head and the handle behind it.
    head: Vec<u8>,
    /// How many bytes of a frame are still to come.
    left: usize,
    /// A handle did not come.
    lost: bool,
    /// Who sends, if it has said so.
    sender: Option<u32>,
}

impl Incoming {
    /// Reads the bytes of one frame, by `read`, and takes the handles of those before it and its
    /// own. False if some are lost.
    pub(super) fn receive(
        &mut self,
        memory: &mut [u8],
        passed: &mut VecDeque<Passed>,
        read: impl Fn(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<(usize, bool)> {
        for _ in 0..MOST_FRAMES {
            if self.left > 0 {
                let room = memory.len().min(self.left);
                let count = read(&mut memory[..room])?;
                self.left -= count;
                return Ok((count, !std::mem::take(&mut self.lost)));
            }
            let Some(head) = self.read_head(&read)? else {
                return Ok((0, !std::mem::take(&mut self.lost)));
            };
            match taken(head, &self.head[HEAD..]) {
                Ok(handle) => passed.extend(handle),
                Err(()) => self.lost = true,
            }
            if head.info() == 0 && head.process != 0 {
                self.sender = Some(head.process);
            }
            self.head.clear();
            self.left = head.length as usize;
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Who sends, if it has said so.
    pub(super) fn sender(&self) -> Option<u32> {
        self.sender
    }

    /// Reads up to the bytes of the next frame. `None` at the end of file.
    fn read_head(
        &mut self,
        read: impl Fn(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<Option<Head>> {
        loop {
            let head = self.head.first_chunk().map(Head::of).transpose()?;
            let wanted = HEAD + head.map_or(0, Head::info);
            let come = self.head.len();
            if let Some(head) = head.filter(|_| come == wanted) {
                return Ok(Some(head));
            }
            self.head.resize(wanted, 0);
            let result = read(&mut self.head[come..]);
            self.head.truncate(come + result.as_ref().map_or(0, |count| *count));
            if result? == 0 {
                return Ok(None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Reads all that there is, some bytes at a time.
    fn receive(bytes: &[u8], at_once: usize) -> io::Result<(Vec<u8>, usize, bool)> {
        let rest = RefCell::new(bytes);
        let read = |memory: &mut [u8]| {
            let mut rest = rest.borrow_mut();
            let count = memory.len().min(rest.len()).min(at_once);
            let (now, later) = rest.split_at(count);
            memory[..count].copy_from_slice(now);
            *rest = later;
            Ok(count)
        };
        let (mut incoming, mut passed) = (Incoming::default(), VecDeque::new());
        let (mut all, mut whole) = (Vec::new(), true);
        loop {
            let mut memory = [0; 7];
            let (count, so_far) = incoming.receive(&mut memory, &mut passed, read)?;
            whole &= so_far;
            if count == 0 {
                return Ok((all, passed.len(), whole));
            }
            all.extend_from_slice(&memory[..count]);
        }
    }

    #[test]
    fn frames_can_come_in_pieces() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let this = std::process::id();
        for at_once in [1, 3, 10_000] {
            let mut bytes = Vec::new();
            append(&mut bytes, &[], this, 10).unwrap();
            bytes.extend(b"0123456789");
            append(&mut bytes, &[RawSource::of(&socket); 2], this, 3).unwrap();
            bytes.extend(b"abc");
            assert_eq!(bytes.len(), 10 + 3 + 3 * HEAD + 2 * SOCKET_INFO);
            let received = receive(&bytes, at_once).unwrap();
            assert_eq!(received, (b"0123456789abc".to_vec(), 2, true));
        }
    }

    #[test]
    fn what_is_for_others_is_lost_and_nothing_else() {
        let head = Head { flags: HAS_PIPE | HAS_BYTES, process: 1, length: 2 };
        let mut bytes = head.bytes().to_vec();
        bytes.extend(usize::MAX.to_le_bytes());
        bytes.extend(b"ok");
        assert_eq!(receive(&bytes, 100).unwrap(), (b"ok".to_vec(), 0, false));
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        for bytes in [*b"just some bytes.", Head { flags: 0, process: 0, length: 1 }.bytes()] {
            assert_eq!(receive(&bytes, 100).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
    }
}
