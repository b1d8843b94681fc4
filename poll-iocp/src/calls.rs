//! The overlapped calls: each starts one, and says how that went.
//!
//! All of them are given the memory of a slot, which stays where it is until their packet
//! has been dequeued.

use std::cell::UnsafeCell;
use std::io;
use std::os::windows::io::{AsRawSocket, OwnedSocket, RawSocket};
use std::ptr::{self, NonNull};

use poll_core::{RawAddr, RawBuf};
use windows_sys::Win32::Foundation::{
    ERROR_IO_PENDING, ERROR_MORE_DATA, FALSE, GetLastError, HANDLE, STATUS_PENDING,
};
use windows_sys::Win32::Networking::WinSock::{
    SO_UPDATE_ACCEPT_CONTEXT, SO_UPDATE_CONNECT_CONTEXT, SOCKADDR, SOCKADDR_STORAGE, SOCKET,
    SOCKET_ERROR, SOL_SOCKET, WSABUF, WSAEINVAL, WSAEMSGSIZE, WSAGetOverlappedResult, WSAMSG,
    WSARecv, WSARecvFrom, WSASend, WSASendMsg, WSASendTo, bind, connect, setsockopt,
};
use windows_sys::Win32::Storage::FileSystem::{ReadFile, WriteFile};
use windows_sys::Win32::System::IO::{CancelIoEx, OVERLAPPED, OVERLAPPED_0, OVERLAPPED_0_0};
use windows_sys::Win32::System::Pipes::ConnectNamedPipe;

use crate::slots::{self, Memory};
use crate::sockets::Extensions;

/// How a call began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Issued {
    /// It goes on. A packet comes when it has ended.
    Pending,
    /// It is over, with this count. A packet comes all the same, unless the source skips
    /// those.
    Now(usize),
    /// It is over, with this count, and a message did not fit. A packet comes always.
    Truncated(usize),
    /// It failed. No packet comes.
    Failed(i32),
}

/// What `AcceptEx` needs for an address of any family.
const ADDRESS_ROOM: u32 = size_of::<SOCKADDR_STORAGE>() as u32 + 16;

/// Where `AcceptEx` writes addresses. Nobody reads them: one place does for all calls.
#[repr(C, align(8))]
struct Addresses(UnsafeCell<[u8; 2 * ADDRESS_ROOM as usize]>);

// SAFETY: only the kernel looks at it.
unsafe impl Sync for Addresses {}

static ADDRESSES: Addresses = Addresses(UnsafeCell::new([0; 2 * ADDRESS_ROOM as usize]));

/// `AcceptEx`: waits for a connection, to be `socket`.
///
/// # Safety
///
/// `memory` is a slot's that was just taken, and outlives the call.
pub(crate) unsafe fn accept(
    extensions: &mut Extensions,
    listener: RawSocket,
    socket: &OwnedSocket,
    memory: NonNull<Memory>,
) -> Issued {
    let accept = match extensions.accept(listener) {
        Ok(accept) => accept,
        Err(error) => return failed(error),
    };
    let mut count = 0;
    // SAFETY: both sockets are open; the rest is what our caller vouches for.
    let done = unsafe {
        accept(
            listener as SOCKET,
            socket.as_raw_socket() as SOCKET,
            ADDRESSES.0.get().cast(),
            0,
            ADDRESS_ROOM,
            ADDRESS_ROOM,
            &mut count,
            overlapped(memory),
        )
    };
    issued(done != FALSE, count, memory)
}

/// Makes a socket that `AcceptEx` has connected like any other: until then even its
/// addresses are unknown to it.
pub(crate) fn finish_accept(listener: RawSocket, socket: &OwnedSocket) -> io::Result<()> {
    let listener = listener as SOCKET;
    let value = (&raw const listener).cast();
    let len = size_of::<SOCKET>() as i32;
    let socket = socket.as_raw_socket() as SOCKET;
    // SAFETY: the value is a local variable, of the size given.
    let result = unsafe { setsockopt(socket, SOL_SOCKET, SO_UPDATE_ACCEPT_CONTEXT, value, len) };
    if result == SOCKET_ERROR { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// `ConnectEx`, of a socket that it binds first if need be, as the call demands.
///
/// # Safety
///
/// `memory` is a slot's that was just taken, and outlives the call; so does the address.
pub(crate) unsafe fn connect_stream(
    extensions: &mut Extensions,
    socket: RawSocket,
    address: RawAddr,
    memory: NonNull<Memory>,
) -> Issued {
    let connect = match extensions.connect(socket) {
        Ok(connect) => connect,
        Err(error) => return failed(error),
    };
    // SAFETY: our caller vouches for the address.
    if let Err(error) = unsafe { bind_to_any(socket, address) } {
        return failed(error);
    }
    let (name, len, mut count) = (address.ptr.as_ptr().cast_const().cast(), address.len, 0);
    // SAFETY: nothing is sent along; the rest is what our caller vouches for.
    let done = unsafe {
        connect(socket as SOCKET, name, len as i32, ptr::null(), 0, &mut count, overlapped(memory))
    };
    issued(done != FALSE, count, memory)
}

/// Binds a socket to any address of the family of `peer`, unless it is bound.
///
/// # Safety
///
/// `peer` is valid.
unsafe fn bind_to_any(socket: RawSocket, peer: RawAddr) -> io::Result<()> {
    let mut any = SOCKADDR_STORAGE::default();
    if (peer.len as usize) < size_of_val(&any.ss_family) || peer.len as usize > size_of_val(&any) {
        return Err(io::Error::from_raw_os_error(WSAEINVAL));
    }
    // SAFETY: every address begins with its family, and this one is long enough.
    any.ss_family = unsafe { ptr::read_unaligned(peer.ptr.as_ptr().cast()) };
    // SAFETY: the address is a local variable, at least as long as said.
    let result =
        unsafe { bind(socket as SOCKET, (&raw const any).cast::<SOCKADDR>(), peer.len as i32) };
    if result != SOCKET_ERROR {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    // Bound already.
    if error.raw_os_error() == Some(WSAEINVAL) { Ok(()) } else { Err(error) }
}

/// Makes a socket that `ConnectEx` has connected like any other.
pub(crate) fn finish_connect(socket: RawSocket) -> io::Result<()> {
    let socket = socket as SOCKET;
    // SAFETY: the option has no value.
    let result =
        unsafe { setsockopt(socket, SOL_SOCKET, SO_UPDATE_CONNECT_CONTEXT, ptr::null(), 0) };
    if result == SOCKET_ERROR { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// `connect` of a socket whose peer is only noted.
///
/// # Safety
///
/// The address is valid.
pub(crate) unsafe fn connect_datagrams(socket: RawSocket, address: RawAddr) -> Result<usize, i32> {
    let name = address.ptr.as_ptr().cast_const().cast();
    // SAFETY: our caller vouches for the address.
    let result = unsafe { connect(socket as SOCKET, name, address.len as i32) };
    if result == SOCKET_ERROR { Err(last_error()) } else { Ok(0) }
}

/// `WSARecv` into `buf`.
///
/// # Safety
///
/// `memory` is a slot's that was just taken. It and what `buf` names outlive the call.
pub(crate) unsafe fn receive(socket: RawSocket, buf: RawBuf, memory: NonNull<Memory>) -> Issued {
    let list = single(buf, memory);
    // SAFETY: the list is in the slot; the rest is what our caller vouches for.
    unsafe { receive_list(socket, list, 1, memory) }
}

/// `WSARecv` into several buffers, with the flags in `memory`.
///
/// # Safety
///
/// As for [`receive`]; the list and its buffers outlive the call.
pub(crate) unsafe fn receive_list(
    socket: RawSocket,
    list: *const WSABUF,
    len: u32,
    memory: NonNull<Memory>,
) -> Issued {
    // SAFETY: the field lies within the memory.
    let flags = unsafe { &raw mut (*memory.as_ptr()).flags };
    let (mut count, overlapped) = (0, overlapped(memory));
    // SAFETY: our caller vouches for the memory.
    let result =
        unsafe { WSARecv(socket as SOCKET, list, len, &mut count, flags, overlapped, None) };
    issued(result != SOCKET_ERROR, count, memory)
}

/// Receives a message, by the simplest call that fills all of it: `WSARecvMsg`,
/// `WSARecvFrom` or `WSARecv`, of which the last two are for streams, too.
///
/// # Safety
///
/// As for [`receive`]; the message and all that it names outlive the call.
pub(crate) unsafe fn receive_message(
    extensions: &mut Extensions,
    socket: RawSocket,
    message: NonNull<WSAMSG>,
    memory: NonNull<Memory>,
) -> Issued {
    // SAFETY: our caller vouches for the message.
    let WSAMSG { name, namelen, lpBuffers, dwBufferCount, Control, dwFlags } =
        unsafe { message.read() };
    let (mut count, overlapped) = (0, overlapped(memory));
    if Control.len > 0 {
        let receive = match extensions.receive_message(socket) {
            Ok(receive) => receive,
            Err(error) => return failed(error),
        };
        // SAFETY: our caller vouches for the memory.
        let result =
            unsafe { receive(socket as SOCKET, message.as_ptr(), &mut count, overlapped, None) };
        return issued(result != SOCKET_ERROR, count, memory);
    }
    // SAFETY: the field lies within the memory.
    let flags = unsafe { &raw mut (*memory.as_ptr()).flags };
    // SAFETY: the slot is ours until the call.
    unsafe { flags.write(dwFlags) };
    if name.is_null() || namelen == 0 {
        // SAFETY: our caller vouches for the memory.
        return unsafe { receive_list(socket, lpBuffers, dwBufferCount, memory) };
    }
    // SAFETY: the field lies within the message.
    let name_len = unsafe { &raw mut (*message.as_ptr()).namelen };
    // SAFETY: our caller vouches for the memory; the length lives as long as the message.
    let result = unsafe {
        WSARecvFrom(
            socket as SOCKET,
            lpBuffers,
            dwBufferCount,
            &mut count,
            flags,
            name,
            name_len,
            overlapped,
            None,
        )
    };
    issued(result != SOCKET_ERROR, count, memory)
}

/// `WSASend` of `buf`.
///
/// # Safety
///
/// As for [`receive`].
pub(crate) unsafe fn send(socket: RawSocket, buf: RawBuf, memory: NonNull<Memory>) -> Issued {
    let (list, mut count, overlapped) = (single(buf, memory), 0, overlapped(memory));
    // SAFETY: the list is in the slot; the rest is what our caller vouches for.
    let result = unsafe { WSASend(socket as SOCKET, list, 1, &mut count, 0, overlapped, None) };
    issued(result != SOCKET_ERROR, count, memory)
}

/// Sends a message, by the simplest call that takes all of it: `WSASendMsg`, `WSASendTo`
/// or `WSASend`.
///
/// # Safety
///
/// As for [`receive_message`].
pub(crate) unsafe fn send_message(
    socket: RawSocket,
    message: NonNull<WSAMSG>,
    flags: u32,
    memory: NonNull<Memory>,
) -> Issued {
    // SAFETY: our caller vouches for the message.
    let WSAMSG { name, namelen, lpBuffers: list, dwBufferCount: len, Control, .. } =
        unsafe { message.read() };
    let (socket, mut count, overlapped) = (socket as SOCKET, 0, overlapped(memory));
    let result = if Control.len > 0 {
        let message = message.as_ptr();
        // SAFETY: our caller vouches for the memory.
        unsafe { WSASendMsg(socket, message, flags, &mut count, overlapped, None) }
    } else if name.is_null() || namelen == 0 {
        // SAFETY: our caller vouches for the memory.
        unsafe { WSASend(socket, list, len, &mut count, flags, overlapped, None) }
    } else {
        let name = name.cast_const();
        // SAFETY: our caller vouches for the memory.
        unsafe { WSASendTo(socket, list, len, &mut count, flags, name, namelen, overlapped, None) }
    };
    issued(result != SOCKET_ERROR, count, memory)
}

/// `ReadFile` from `offset` on, which pipes ignore.
///
/// # Safety
///
/// As for [`receive`].
pub(crate) unsafe fn read(
    file: HANDLE,
    buf: RawBuf,
    offset: u64,
    memory: NonNull<Memory>,
) -> Issued {
    let overlapped = overlapped_at(memory, offset);
    // SAFETY: our caller vouches for the memory.
    let done = unsafe { ReadFile(file, buf.ptr.as_ptr(), buf.len, ptr::null_mut(), overlapped) };
    issued(done != FALSE, slots::status(memory).1 as u32, memory)
}

/// `WriteFile` from `offset` on, which pipes ignore.
///
/// # Safety
///
/// As for [`receive`].
pub(crate) unsafe fn write(
    file: HANDLE,
    buf: RawBuf,
    offset: u64,
    memory: NonNull<Memory>,
) -> Issued {
    let overlapped = overlapped_at(memory, offset);
    // SAFETY: our caller vouches for the memory.
    let done = unsafe { WriteFile(file, buf.ptr.as_ptr(), buf.len, ptr::null_mut(), overlapped) };
    issued(done != FALSE, slots::status(memory).1 as u32, memory)
}

/// `ConnectNamedPipe`.
///
/// # Safety
///
/// `memory` is a slot's that was just taken, and outlives the call.
pub(crate) unsafe fn connect_pipe(pipe: HANDLE, memory: NonNull<Memory>) -> Issued {
    // SAFETY: our caller vouches for the memory.
    let done = unsafe { ConnectNamedPipe(pipe, overlapped(memory)) };
    issued(done != FALSE, 0, memory)
}

/// `CancelIoEx`: has a call end soon. It fails only if that has ended already; either way
/// its packet comes.
pub(crate) fn cancel(file: HANDLE, memory: NonNull<Memory>) {
    // SAFETY: the kernel compares the address with those of its requests.
    let _ = unsafe { CancelIoEx(file, overlapped(memory)) };
}

/// Why a call of a socket failed that has ended. The kernel has a status, of which Winsock
/// knows what it calls it.
pub(crate) fn socket_error(socket: RawSocket, memory: NonNull<Memory>) -> i32 {
    let (mut count, mut flags) = (0, 0);
    // SAFETY: the slot's call has ended, and the other pointers are to local variables.
    let fine = unsafe {
        WSAGetOverlappedResult(socket as SOCKET, overlapped(memory), &mut count, 0, &mut flags)
    };
    if fine != FALSE { 0 } else { last_error() }
}

/// A list of one buffer, in the slot.
fn single(buf: RawBuf, memory: NonNull<Memory>) -> *const WSABUF {
    // SAFETY: the field lies within the memory.
    let list = unsafe { &raw mut (*memory.as_ptr()).buffer };
    // SAFETY: the slot is ours until the call.
    unsafe { list.write(WSABUF { len: buf.len, buf: buf.ptr.as_ptr() }) };
    list
}

fn overlapped(memory: NonNull<Memory>) -> *mut OVERLAPPED {
    memory.cast().as_ptr()
}

fn overlapped_at(memory: NonNull<Memory>, offset: u64) -> *mut OVERLAPPED {
    let (low, high) = (offset as u32, (offset >> 32) as u32);
    let at = OVERLAPPED_0 { Anonymous: OVERLAPPED_0_0 { Offset: low, OffsetHigh: high } };
    // SAFETY: the field lies within the memory.
    let field = unsafe { &raw mut (*memory.as_ptr()).overlapped.Anonymous };
    // SAFETY: the slot is ours until the call.
    unsafe { field.write(at) };
    overlapped(memory)
}

/// Reads what a call has returned. Call it at once: the error is the thread's last.
fn issued(fine: bool, count: u32, memory: NonNull<Memory>) -> Issued {
    if fine {
        return Issued::Now(count as usize);
    }
    match last_error() {
        code if code == ERROR_IO_PENDING as i32 => Issued::Pending,
        // A message was longer than the buffer. For the kernel that is a warning, not an
        // error, and it sends a packet; if so, the slot has been written to.
        code if code == WSAEMSGSIZE || code == ERROR_MORE_DATA as i32 => {
            match slots::status(memory) {
                (STATUS_PENDING, _) => Issued::Failed(code),
                (_, count) => Issued::Truncated(count),
            }
        }
        code => Issued::Failed(code),
    }
}

fn failed(error: io::Error) -> Issued {
    Issued::Failed(error.raw_os_error().unwrap_or(WSAEINVAL))
}

fn last_error() -> i32 {
    // SAFETY: the call takes no pointer.
    unsafe { GetLastError() as i32 }
}
