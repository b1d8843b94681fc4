//! Properties of sockets, and the extension functions of their provider.

use std::ffi::c_void;
use std::io;
use std::mem;
use std::os::windows::io::{FromRawSocket, OwnedSocket, RawSocket};
use std::ptr;

use windows_sys::Win32::Networking::WinSock::{
    FIONREAD, INVALID_SOCKET, LPWSAOVERLAPPED_COMPLETION_ROUTINE, SIO_BASE_HANDLE, SIO_BSP_HANDLE,
    SIO_BSP_HANDLE_POLL, SIO_BSP_HANDLE_SELECT, SIO_GET_EXTENSION_FUNCTION_POINTER, SO_ACCEPTCONN,
    SO_PROTOCOL_INFOW, SO_TYPE, SOCK_DGRAM, SOCK_RAW, SOCKADDR, SOCKET, SOCKET_ERROR, SOL_SOCKET,
    WSA_FLAG_NO_HANDLE_INHERIT, WSA_FLAG_OVERLAPPED, WSAENOTSOCK, WSAID_ACCEPTEX, WSAID_CONNECTEX,
    WSAID_WSARECVMSG, WSAIoctl, WSAMSG, WSAPROTOCOL_INFOW, WSASocketW, getsockopt, ioctlsocket,
};
use windows_sys::Win32::System::IO::OVERLAPPED;
use windows_sys::core::{BOOL, GUID};

use crate::errors::with_remedy;

/// The number of layered providers that are tried before a loop among them is assumed.
const MAX_LAYERS: usize = 16;

/// Returns the socket of the AFD driver. Layered service providers (firewalls, proxies) may
/// return sockets of their own, which the driver does not know.
pub(crate) fn base_socket(socket: RawSocket) -> io::Result<RawSocket> {
    check_socket(socket)?;
    let mut layer = socket;
    for _ in 0..MAX_LAYERS {
        let error = match layer_below(layer, SIO_BASE_HANDLE) {
            Ok(base) => return Ok(base),
            Err(error) => error,
        };
        // Some providers fail SIO_BASE_HANDLE, against its specification, but return the socket
        // of the layer below.
        let ways = [SIO_BSP_HANDLE_SELECT, SIO_BSP_HANDLE_POLL, SIO_BSP_HANDLE];
        let below = ways.iter().find_map(|&way| layer_below(layer, way).ok());
        match below.filter(|&below| below != layer) {
            Some(below) => layer = below,
            None => return Err(error),
        }
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        "the layered service providers of this socket form a loop; remove them with netsh winsock reset",
    ))
}

/// Fails unless the handle is an open socket. On Windows `SIO_BASE_HANDLE` fails too, but under
/// Wine 8 it succeeds for any handle.
fn check_socket(socket: RawSocket) -> io::Result<()> {
    let Err(error) = type_of(socket) else { return Ok(()) };
    if error.raw_os_error() != Some(WSAENOTSOCK) {
        return Err(error);
    }
    let why = "not an open socket: on Windows only sockets have readiness; use operations for \
               files and pipes";
    Err(with_remedy(io::ErrorKind::InvalidInput, why, error))
}

fn layer_below(socket: RawSocket, way: u32) -> io::Result<RawSocket> {
    let (mut below, mut len): (SOCKET, u32) = (0, 0);
    // SAFETY: the output buffer is the local variable `below`, of the given size; without an
    // OVERLAPPED the call is synchronous.
    let result = unsafe {
        WSAIoctl(
            socket as SOCKET,
            way,
            ptr::null(),
            0,
            (&raw mut below).cast(),
            size_of::<SOCKET>() as u32,
            &mut len,
            ptr::null_mut(),
            None,
        )
    };
    if result == SOCKET_ERROR { Err(io::Error::last_os_error()) } else { Ok(below as RawSocket) }
}

/// Returns the type: `SOCK_STREAM`, `SOCK_DGRAM`…
fn type_of(socket: RawSocket) -> io::Result<i32> {
    option(socket, SO_TYPE)
}

/// True if the socket receives datagrams, not a stream.
pub(crate) fn is_datagram(socket: RawSocket) -> io::Result<bool> {
    type_of(socket).map(|kind| [SOCK_DGRAM, SOCK_RAW].contains(&kind))
}

/// True if the socket is a listener.
pub(crate) fn is_listening(socket: RawSocket) -> io::Result<bool> {
    option(socket, SO_ACCEPTCONN).map(|listens: i32| listens != 0)
}

/// True if data is pending. False for a pending empty datagram.
pub(crate) fn has_pending_data(socket: RawSocket) -> bool {
    let mut count = 0;
    // SAFETY: `count` is a local variable.
    let result = unsafe { ioctlsocket(socket as SOCKET, FIONREAD, &mut count) };
    result != SOCKET_ERROR && count > 0
}

fn option<T: Default>(socket: RawSocket, name: i32) -> io::Result<T> {
    let (mut value, mut len) = (T::default(), size_of::<T>() as i32);
    let value_ptr = (&raw mut value).cast();
    // SAFETY: the output buffer is the local variable `value`, of the given size. All callers
    // use integers or structs of integers, for which every bit pattern is valid.
    let result = unsafe { getsockopt(socket as SOCKET, SOL_SOCKET, name, value_ptr, &mut len) };
    if result == SOCKET_ERROR { Err(io::Error::last_os_error()) } else { Ok(value) }
}

/// The parameters of a socket, to create another one like it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Protocol {
    family: i32,
    kind: i32,
    protocol: i32,
}

impl Protocol {
    pub(crate) fn of(socket: RawSocket) -> io::Result<Protocol> {
        let info: WSAPROTOCOL_INFOW = option(socket, SO_PROTOCOL_INFOW)?;
        Ok(Protocol {
            family: info.iAddressFamily,
            kind: info.iSocketType,
            protocol: info.iProtocol,
        })
    }

    /// Creates an overlapped socket that child processes do not inherit.
    pub(crate) fn socket(self) -> io::Result<OwnedSocket> {
        let flags = WSA_FLAG_OVERLAPPED | WSA_FLAG_NO_HANDLE_INHERIT;
        // SAFETY: a null protocol info selects the default provider.
        let socket =
            unsafe { WSASocketW(self.family, self.kind, self.protocol, ptr::null(), 0, flags) };
        if socket == INVALID_SOCKET {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `WSASocketW` has just returned the socket, so it has no other owner.
        Ok(unsafe { OwnedSocket::from_raw_socket(socket as RawSocket) })
    }
}

/// Functions that Winsock exports through the provider of a socket only. All sockets share the
/// provider below all layers, so each function is looked up once.
#[derive(Debug, Default)]
pub(crate) struct Extensions {
    accept: Option<Accept>,
    connect: Option<Connect>,
    receive_message: Option<ReceiveMessage>,
}

macro_rules! extension {
    ($name:ident, $field:ident, $guid:expr, $type:ty) => {
        pub(crate) fn $name(&mut self, socket: RawSocket) -> io::Result<$type> {
            if let Some(call) = self.$field {
                return Ok(call);
            }
            let call = extension(socket, $guid)?;
            // SAFETY: Windows defines the identifier for a function of this type.
            let call = unsafe { mem::transmute::<*const c_void, $type>(call) };
            self.$field = Some(call);
            Ok(call)
        }
    };
}

/// `LPFN_ACCEPTEX`, which `windows-sys` defines as an `Option` only.
type Accept = unsafe extern "system" fn(
    SOCKET,
    SOCKET,
    *mut c_void,
    u32,
    u32,
    u32,
    *mut u32,
    *mut OVERLAPPED,
) -> BOOL;
/// `LPFN_CONNECTEX`, without the `Option`.
type Connect = unsafe extern "system" fn(
    SOCKET,
    *const SOCKADDR,
    i32,
    *const c_void,
    u32,
    *mut u32,
    *mut OVERLAPPED,
) -> BOOL;
/// `LPFN_WSARECVMSG`, without the `Option`.
type ReceiveMessage = unsafe extern "system" fn(
    SOCKET,
    *mut WSAMSG,
    *mut u32,
    *mut OVERLAPPED,
    LPWSAOVERLAPPED_COMPLETION_ROUTINE,
) -> i32;

impl Extensions {
    extension!(accept, accept, WSAID_ACCEPTEX, Accept);
    extension!(connect, connect, WSAID_CONNECTEX, Connect);
    extension!(receive_message, receive_message, WSAID_WSARECVMSG, ReceiveMessage);
}

fn extension(socket: RawSocket, identifier: GUID) -> io::Result<*const c_void> {
    let (mut call, mut len): (*const c_void, u32) = (ptr::null(), 0);
    // SAFETY: the buffers are the local variables `identifier` and `call`, of the given sizes;
    // without an OVERLAPPED the call is synchronous.
    let result = unsafe {
        WSAIoctl(
            socket as SOCKET,
            SIO_GET_EXTENSION_FUNCTION_POINTER,
            (&raw const identifier).cast(),
            size_of::<GUID>() as u32,
            (&raw mut call).cast(),
            size_of::<*const c_void>() as u32,
            &mut len,
            ptr::null_mut(),
            None,
        )
    };
    if result == SOCKET_ERROR || call.is_null() {
        return Err(io::Error::last_os_error());
    }
    Ok(call)
}
