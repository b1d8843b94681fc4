//! The overlapped system calls, one function each.
//!
//! Each function takes the memory of a slot, which stays at its address until the packet of the
//! call is dequeued (see `slots.rs`). In the safety comments, "the caller" keeps the promise in
//! the function's own safety section.

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

/// The state of a call right after it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallStatus {
    /// In flight. A packet is queued when it ends.
    Pending,
    /// Completed synchronously, with this count. A packet is queued all the same, unless the
    /// source has `FILE_SKIP_COMPLETION_PORT_ON_SUCCESS`.
    Completed(usize),
    /// Completed synchronously, with this count, and a message was truncated. A packet is
    /// always queued.
    Truncated(usize),
    /// Failed with this error. No packet is queued.
    Failed(i32),
}

/// The space that `AcceptEx` needs for an address of any family.
const ADDRESS_SPACE: u32 = size_of::<SOCKADDR_STORAGE>() as u32 + 16;

/// The buffer for the addresses that `AcceptEx` writes. They are never read, so all calls share
/// one buffer.
#[repr(C, align(8))]
struct Addresses(UnsafeCell<[u8; 2 * ADDRESS_SPACE as usize]>);

// SAFETY: this process never accesses the contents; only the kernel writes to them.
unsafe impl Sync for Addresses {}

static ADDRESSES: Addresses = Addresses(UnsafeCell::new([0; 2 * ADDRESS_SPACE as usize]));

/// `AcceptEx`: accepts a connection as `socket`.
///
/// # Safety
///
/// `memory` is that of a slot that was just taken and is not released before the call ends. The
/// same holds for `socket`, which is not closed before.
pub(crate) unsafe fn accept(
    extensions: &mut Extensions,
    listener: RawSocket,
    socket: &OwnedSocket,
    memory: NonNull<Memory>,
) -> CallStatus {
    let accept = match extensions.accept(listener) {
        Ok(accept) => accept,
        Err(error) => return failed(error),
    };
    let mut count = 0;
    // SAFETY: the buffer is static; the caller keeps the sockets and the slot.
    let done = unsafe {
        accept(
            listener as SOCKET,
            socket.as_raw_socket() as SOCKET,
            ADDRESSES.0.get().cast(),
            0,
            ADDRESS_SPACE,
            ADDRESS_SPACE,
            &mut count,
            overlapped(memory),
        )
    };
    call_status(done != FALSE, count, memory)
}

/// Sets `SO_UPDATE_ACCEPT_CONTEXT`: without it, calls such as `getpeername` and `shutdown` fail
/// on a socket that `AcceptEx` has connected.
pub(crate) fn finish_accept(listener: RawSocket, socket: &OwnedSocket) -> io::Result<()> {
    let listener = listener as SOCKET;
    let value = (&raw const listener).cast();
    let len = size_of::<SOCKET>() as i32;
    let socket = socket.as_raw_socket() as SOCKET;
    // SAFETY: `value` and `len` describe a local variable.
    let result = unsafe { setsockopt(socket, SOL_SOCKET, SO_UPDATE_ACCEPT_CONTEXT, value, len) };
    if result == SOCKET_ERROR { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// `ConnectEx`, which needs a bound socket: an unbound one is bound to any address first.
///
/// # Safety
///
/// `memory` is that of a slot that was just taken and is not released before the call ends. The
/// address is valid until then.
pub(crate) unsafe fn connect_stream(
    extensions: &mut Extensions,
    socket: RawSocket,
    address: RawAddr,
    memory: NonNull<Memory>,
) -> CallStatus {
    let connect = match extensions.connect(socket) {
        Ok(connect) => connect,
        Err(error) => return failed(error),
    };
    // SAFETY: the caller keeps the address valid.
    if let Err(error) = unsafe { bind_to_any(socket, address) } {
        return failed(error);
    }
    let (name, len, mut count) = (address.ptr.as_ptr().cast_const().cast(), address.len, 0);
    // SAFETY: there is no send buffer; the caller keeps the address and the slot.
    let done = unsafe {
        connect(socket as SOCKET, name, len as i32, ptr::null(), 0, &mut count, overlapped(memory))
    };
    call_status(done != FALSE, count, memory)
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
    // SAFETY: the caller keeps the address valid; it begins with its family, and its length was
    // checked above.
    any.ss_family = unsafe { ptr::read_unaligned(peer.ptr.as_ptr().cast()) };
    // SAFETY: `any` is a local variable that is not shorter than `peer.len`, as checked above.
    let result =
        unsafe { bind(socket as SOCKET, (&raw const any).cast::<SOCKADDR>(), peer.len as i32) };
    if result != SOCKET_ERROR {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    // WSAEINVAL: the socket is bound already.
    if error.raw_os_error() == Some(WSAEINVAL) { Ok(()) } else { Err(error) }
}

/// Sets `SO_UPDATE_CONNECT_CONTEXT`: without it, calls such as `getpeername` and `shutdown` fail
/// on a socket that `ConnectEx` has connected.
pub(crate) fn finish_connect(socket: RawSocket) -> io::Result<()> {
    let socket = socket as SOCKET;
    // SAFETY: the option takes no value, so null and 0 describe it.
    let result =
        unsafe { setsockopt(socket, SOL_SOCKET, SO_UPDATE_CONNECT_CONTEXT, ptr::null(), 0) };
    if result == SOCKET_ERROR { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// `connect` of a datagram socket, which stores the peer and does not block.
///
/// # Safety
///
/// The address is valid.
pub(crate) unsafe fn connect_datagrams(socket: RawSocket, address: RawAddr) -> Result<usize, i32> {
    let name = address.ptr.as_ptr().cast_const().cast();
    // SAFETY: the caller keeps the address valid.
    let result = unsafe { connect(socket as SOCKET, name, address.len as i32) };
    if result == SOCKET_ERROR { Err(last_error()) } else { Ok(0) }
}

/// `WSARecv` into `buf`.
///
/// # Safety
///
/// `memory` is that of a slot that was just taken. It is not released and `buf` is valid until
/// the call ends; the kernel has exclusive access to a buffer that it fills.
pub(crate) unsafe fn receive(
    socket: RawSocket,
    buf: RawBuf,
    memory: NonNull<Memory>,
) -> CallStatus {
    let list = single(buf, memory);
    // SAFETY: the list is in the slot; the caller keeps the slot and the buffer.
    unsafe { receive_list(socket, list, 1, memory) }
}

/// `WSARecv` into several buffers, with the flags in `memory`.
///
/// # Safety
///
/// As for [`receive`]; the list and its buffers are valid until the call ends.
pub(crate) unsafe fn receive_list(
    socket: RawSocket,
    list: *const WSABUF,
    len: u32,
    memory: NonNull<Memory>,
) -> CallStatus {
    // SAFETY: `memory` is that of a slot, so the field is in bounds.
    let flags = unsafe { &raw mut (*memory.as_ptr()).flags };
    let (mut count, overlapped) = (0, overlapped(memory));
    // SAFETY: the caller keeps the slot and all memory that the call names.
    let result =
        unsafe { WSARecv(socket as SOCKET, list, len, &mut count, flags, overlapped, None) };
    call_status(result != SOCKET_ERROR, count, memory)
}

/// Receives a message: with `WSARecvMsg` if it has space for control data, with `WSARecvFrom` if
/// it has space for an address, else with `WSARecv`. The last two also work on streams.
///
/// # Safety
///
/// As for [`receive`]; the message and all memory that it names are valid until the call ends.
pub(crate) unsafe fn receive_message(
    extensions: &mut Extensions,
    socket: RawSocket,
    message: NonNull<WSAMSG>,
    memory: NonNull<Memory>,
) -> CallStatus {
    // SAFETY: the caller keeps the message valid.
    let WSAMSG { name, namelen, lpBuffers, dwBufferCount, Control, dwFlags } =
        unsafe { message.read() };
    let (mut count, overlapped) = (0, overlapped(memory));
    if Control.len > 0 {
        let receive = match extensions.receive_message(socket) {
            Ok(receive) => receive,
            Err(error) => return failed(error),
        };
        // SAFETY: the caller keeps the slot and all memory that the call names.
        let result =
            unsafe { receive(socket as SOCKET, message.as_ptr(), &mut count, overlapped, None) };
        return call_status(result != SOCKET_ERROR, count, memory);
    }
    // SAFETY: `memory` is that of a slot, so the field is in bounds.
    let flags = unsafe { &raw mut (*memory.as_ptr()).flags };
    // SAFETY: the slot was just taken, and the kernel does not use it before the call.
    unsafe { flags.write(dwFlags) };
    if name.is_null() || namelen == 0 {
        // SAFETY: the caller keeps the slot and all memory that the call names.
        return unsafe { receive_list(socket, lpBuffers, dwBufferCount, memory) };
    }
    // SAFETY: the caller keeps the message valid, so the field is in bounds.
    let name_len = unsafe { &raw mut (*message.as_ptr()).namelen };
    // SAFETY: the caller keeps the slot, the message and all memory that it names.
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
    call_status(result != SOCKET_ERROR, count, memory)
}

/// `WSASend` of `buf`.
///
/// # Safety
///
/// As for [`receive`].
pub(crate) unsafe fn send(socket: RawSocket, buf: RawBuf, memory: NonNull<Memory>) -> CallStatus {
    let (list, mut count, overlapped) = (single(buf, memory), 0, overlapped(memory));
    // SAFETY: the list is in the slot; the caller keeps the slot and the buffer.
    let result = unsafe { WSASend(socket as SOCKET, list, 1, &mut count, 0, overlapped, None) };
    call_status(result != SOCKET_ERROR, count, memory)
}

/// Sends a message: with `WSASendMsg` if it has control data, with `WSASendTo` if it has an
/// address, else with `WSASend`.
///
/// # Safety
///
/// As for [`receive_message`].
pub(crate) unsafe fn send_message(
    socket: RawSocket,
    message: NonNull<WSAMSG>,
    flags: u32,
    memory: NonNull<Memory>,
) -> CallStatus {
    // SAFETY: the caller keeps the message valid.
    let WSAMSG { name, namelen, lpBuffers: list, dwBufferCount: len, Control, .. } =
        unsafe { message.read() };
    let (socket, mut count, overlapped) = (socket as SOCKET, 0, overlapped(memory));
    let result = if Control.len > 0 {
        let message = message.as_ptr();
        // SAFETY: the caller keeps the slot and all memory that the call names.
        unsafe { WSASendMsg(socket, message, flags, &mut count, overlapped, None) }
    } else if name.is_null() || namelen == 0 {
        // SAFETY: the caller keeps the slot and all memory that the call names.
        unsafe { WSASend(socket, list, len, &mut count, flags, overlapped, None) }
    } else {
        let name = name.cast_const();
        // SAFETY: the caller keeps the slot and all memory that the call names.
        unsafe { WSASendTo(socket, list, len, &mut count, flags, name, namelen, overlapped, None) }
    };
    call_status(result != SOCKET_ERROR, count, memory)
}

/// `ReadFile` at `offset`, which pipes ignore.
///
/// # Safety
///
/// As for [`receive`].
pub(crate) unsafe fn read(
    file: HANDLE,
    buf: RawBuf,
    offset: u64,
    memory: NonNull<Memory>,
) -> CallStatus {
    let overlapped = overlapped_at(memory, offset);
    // SAFETY: the caller keeps the slot and all memory that the call names.
    let done = unsafe { ReadFile(file, buf.ptr.as_ptr(), buf.len, ptr::null_mut(), overlapped) };
    call_status(done != FALSE, slots::status(memory).1 as u32, memory)
}

/// `WriteFile` at `offset`, which pipes ignore.
///
/// # Safety
///
/// As for [`receive`].
pub(crate) unsafe fn write(
    file: HANDLE,
    buf: RawBuf,
    offset: u64,
    memory: NonNull<Memory>,
) -> CallStatus {
    let overlapped = overlapped_at(memory, offset);
    // SAFETY: the caller keeps the slot and all memory that the call names.
    let done = unsafe { WriteFile(file, buf.ptr.as_ptr(), buf.len, ptr::null_mut(), overlapped) };
    call_status(done != FALSE, slots::status(memory).1 as u32, memory)
}

/// `ConnectNamedPipe`.
///
/// # Safety
///
/// `memory` is that of a slot that was just taken and is not released before the call ends.
pub(crate) unsafe fn connect_pipe(pipe: HANDLE, memory: NonNull<Memory>) -> CallStatus {
    // SAFETY: the caller keeps the slot and all memory that the call names.
    let done = unsafe { ConnectNamedPipe(pipe, overlapped(memory)) };
    call_status(done != FALSE, 0, memory)
}

/// `CancelIoEx`: cancels a call. It fails only if the call has already ended; its packet is
/// queued in both cases.
pub(crate) fn cancel(file: HANDLE, memory: NonNull<Memory>) {
    // SAFETY: the kernel only compares the address with those of its requests.
    let _ = unsafe { CancelIoEx(file, overlapped(memory)) };
}

/// Returns the error of a socket call that has ended. Winsock maps the kernel's status to its
/// own error codes, which differ from those of `RtlNtStatusToDosError`.
pub(crate) fn socket_error(socket: RawSocket, memory: NonNull<Memory>) -> i32 {
    let (mut count, mut flags) = (0, 0);
    // SAFETY: the call of the slot has ended, so no other code writes to it; the other pointers
    // are to local variables.
    let succeeded = unsafe {
        WSAGetOverlappedResult(socket as SOCKET, overlapped(memory), &mut count, 0, &mut flags)
    };
    if succeeded != FALSE { 0 } else { last_error() }
}

/// Writes a list of one buffer to the slot.
fn single(buf: RawBuf, memory: NonNull<Memory>) -> *const WSABUF {
    // SAFETY: `memory` is that of a slot, so the field is in bounds.
    let list = unsafe { &raw mut (*memory.as_ptr()).buffer };
    // SAFETY: the slot was just taken, and the kernel does not use it before the call.
    unsafe { list.write(WSABUF { len: buf.len, buf: buf.ptr.as_ptr() }) };
    list
}

fn overlapped(memory: NonNull<Memory>) -> *mut OVERLAPPED {
    memory.cast().as_ptr()
}

fn overlapped_at(memory: NonNull<Memory>, offset: u64) -> *mut OVERLAPPED {
    let (low, high) = (offset as u32, (offset >> 32) as u32);
    let at = OVERLAPPED_0 { Anonymous: OVERLAPPED_0_0 { Offset: low, OffsetHigh: high } };
    // SAFETY: `memory` is that of a slot, so the field is in bounds.
    let field = unsafe { &raw mut (*memory.as_ptr()).overlapped.Anonymous };
    // SAFETY: the slot was just taken, and the kernel does not use it before the call.
    unsafe { field.write(at) };
    overlapped(memory)
}

/// Returns the state of a call. It must directly follow the call: it reads the thread's last
/// error.
fn call_status(succeeded: bool, count: u32, memory: NonNull<Memory>) -> CallStatus {
    if succeeded {
        return CallStatus::Completed(count as usize);
    }
    match last_error() {
        code if code == ERROR_IO_PENDING as i32 => CallStatus::Pending,
        // A message was longer than the buffer. For the kernel this is a warning: it writes to
        // the slot and queues a packet. If it has not written, the call has failed.
        code if code == WSAEMSGSIZE || code == ERROR_MORE_DATA as i32 => {
            match slots::status(memory) {
                (STATUS_PENDING, _) => CallStatus::Failed(code),
                (_, count) => CallStatus::Truncated(count),
            }
        }
        code => CallStatus::Failed(code),
    }
}

fn failed(error: io::Error) -> CallStatus {
    CallStatus::Failed(error.raw_os_error().unwrap_or(WSAEINVAL))
}

fn last_error() -> i32 {
    // SAFETY: `GetLastError` takes no pointer.
    unsafe { GetLastError() as i32 }
}
