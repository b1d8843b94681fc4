//! What must be known of a socket, and the calls that are reached through one.

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

use crate::errors::explained;

/// More layers than anyone has ever put over a socket.
const LAYERS: usize = 16;

/// The driver's own socket. Layered service providers (firewalls, proxies) may hand
/// out sockets of their own, which the driver does not know.
pub(crate) fn base_socket(socket: RawSocket) -> io::Result<RawSocket> {
    check_socket(socket)?;
    let mut layer = socket;
    for _ in 0..LAYERS {
        let error = match layer_below(layer, SIO_BASE_HANDLE) {
            Ok(base) => return Ok(base),
            Err(error) => error,
        };
        // Some providers refuse that, against the rules, but go down by one layer.
        let ways = [SIO_BSP_HANDLE_SELECT, SIO_BSP_HANDLE_POLL, SIO_BSP_HANDLE];
        let below = ways.iter().find_map(|&way| layer_below(layer, way).ok());
        match below.filter(|&below| below != layer) {
            Some(below) => layer = below,
            None => return Err(error),
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "the socket has no end of layers"))
}

/// Tells sockets from everything else. `SIO_BASE_HANDLE` does so too on Windows,
/// but under Wine it takes any handle.
fn check_socket(socket: RawSocket) -> io::Result<()> {
    let Err(error) = type_of(socket) else { return Ok(()) };
    if error.raw_os_error() != Some(WSAENOTSOCK) {
        return Err(error);
    }
    let why = "not an open socket: on Windows only sockets have readiness; files and pipes \
               are for operations";
    Err(explained(io::ErrorKind::InvalidInput, why, error))
}

fn layer_below(socket: RawSocket, way: u32) -> io::Result<RawSocket> {
    let (mut below, mut len): (SOCKET, u32) = (0, 0);
    // SAFETY: the output buffer is `below`, of the size given; the call is synchronous.
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

/// `SOCK_STREAM`, `SOCK_DGRAM`…
fn type_of(socket: RawSocket) -> io::Result<i32> {
    option(socket, SO_TYPE)
}

/// True if what the socket receives comes in messages, not as a stream.
pub(crate) fn has_messages(socket: RawSocket) -> io::Result<bool> {
    type_of(socket).map(|kind| [SOCK_DGRAM, SOCK_RAW].contains(&kind))
}

/// True if the socket listens.
pub(crate) fn listens(socket: RawSocket) -> io::Result<bool> {
    option(socket, SO_ACCEPTCONN).map(|listens: i32| listens != 0)
}

/// True if there is something to receive. False also for an empty message.
pub(crate) fn has_more(socket: RawSocket) -> bool {
    let mut count = 0;
    // SAFETY: the pointer is to a local variable.
    let result = unsafe { ioctlsocket(socket as SOCKET, FIONREAD, &mut count) };
    result != SOCKET_ERROR && count > 0
}

fn option<T: Default>(socket: RawSocket, name: i32) -> io::Result<T> {
    let (mut value, mut len) = (T::default(), size_of::<T>() as i32);
    let value_ptr = (&raw mut value).cast();
    // SAFETY: the output buffer is `value`, of the size given.
    let result = unsafe { getsockopt(socket as SOCKET, SOL_SOCKET, name, value_ptr, &mut len) };
    if result == SOCKET_ERROR { Err(io::Error::last_os_error()) } else { Ok(value) }
}

/// What it takes to make another socket like a given one.
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

    /// A new socket, not inherited by children.
    pub(crate) fn socket(self) -> io::Result<OwnedSocket> {
        let flags = WSA_FLAG_OVERLAPPED | WSA_FLAG_NO_HANDLE_INHERIT;
        // SAFETY: the null pointer stands for no particular provider.
        let socket =
            unsafe { WSASocketW(self.family, self.kind, self.protocol, ptr::null(), 0, flags) };
        if socket == INVALID_SOCKET {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the socket was just made, and nobody else has it.
        Ok(unsafe { OwnedSocket::from_raw_socket(socket as RawSocket) })
    }
}

/// Calls that are not in a library, but in the provider of a socket. There is one
/// provider below all layers, so they are asked for once.
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
            // SAFETY: the identifier is that of a call of this type.
            let call = unsafe { mem::transmute::<*const c_void, $type>(call) };
            self.$field = Some(call);
            Ok(call)
        }
    };
}

/// The type of a call, of which `windows-sys` has the optional form only.
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
/// As above.
type Connect = unsafe extern "system" fn(
    SOCKET,
    *const SOCKADDR,
    i32,
    *const c_void,
    u32,
    *mut u32,
    *mut OVERLAPPED,
) -> BOOL;
/// As above.
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
    // SAFETY: the buffers are the identifier and `call`, of the sizes given; the call is
    // synchronous.
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
