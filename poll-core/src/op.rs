//! Operations that a backend performs to completion, and the memory that they borrow.

use std::ffi::{CStr, c_char, c_void};
use std::io::{IoSlice, IoSliceMut};
use std::ptr::NonNull;

use crate::{Interest, RawSource};

/// Memory lent to the kernel; see the safety contract of
/// [`Backend::submit`](crate::Backend::submit).
#[derive(Clone, Copy, Debug)]
pub struct RawBuf {
    /// The first byte.
    pub ptr: NonNull<u8>,
    /// The length in bytes.
    pub len: u32,
}

impl RawBuf {
    /// Lends memory to be filled. Of more than 4 GiB, the first 4 GiB − 1.
    pub fn filling(memory: &mut [u8]) -> RawBuf {
        let len = memory.len().min(u32::MAX as usize) as u32;
        RawBuf { ptr: NonNull::from(memory).cast(), len }
    }

    /// Lends memory to be sent or written. Of more than 4 GiB, the first 4 GiB − 1.
    pub fn sending(memory: &[u8]) -> RawBuf {
        let len = memory.len().min(u32::MAX as usize) as u32;
        RawBuf { ptr: NonNull::from(memory).cast(), len }
    }
}

/// A list of buffers lent to the kernel, list and buffers alike.
///
/// It is the address of `std`'s [`IoSlice`]s or [`IoSliceMut`]s, which have the layout
/// of `iovec` on Unix and of `WSABUF` on Windows: a backend passes it to the kernel unchanged.
#[derive(Clone, Copy, Debug)]
pub struct RawBufs {
    /// The first entry: an `iovec` or a `WSABUF`.
    pub ptr: NonNull<c_void>,
    /// The number of entries. Kernels take at most 1,024.
    pub count: u32,
}

impl RawBufs {
    /// Lends buffers to be filled.
    pub fn filling(buffers: &mut [IoSliceMut<'_>]) -> RawBufs {
        RawBufs { count: buffers.len() as u32, ptr: NonNull::from(buffers).cast() }
    }

    /// Lends buffers to be sent or written.
    pub fn sending(buffers: &[IoSlice<'_>]) -> RawBufs {
        RawBufs { count: buffers.len() as u32, ptr: NonNull::from(buffers).cast() }
    }
}

/// A socket address lent to the kernel: a `sockaddr` of any family.
#[derive(Clone, Copy, Debug)]
pub struct RawAddr {
    /// The `sockaddr`.
    pub ptr: NonNull<c_void>,
    /// Its length in bytes.
    pub len: u32,
}

/// A message header, lent to the kernel with the memory that it points to: a `msghdr` on
/// Unix, a `WSAMSG` on Windows.
#[derive(Clone, Copy, Debug)]
pub struct RawMessage(pub NonNull<c_void>);

/// A path lent to the kernel: bytes terminated by NUL.
#[derive(Clone, Copy, Debug)]
pub struct RawPath(pub NonNull<c_char>);

impl RawPath {
    /// Lends a path.
    pub fn of(path: &CStr) -> RawPath {
        RawPath(NonNull::from(path).cast())
    }
}

/// A path and the directory it starts from.
#[derive(Clone, Copy, Debug)]
pub struct At {
    /// An open directory, or `None` for the current one.
    pub dir: Option<RawSource>,
    /// The path; an absolute one ignores `dir`.
    pub path: RawPath,
}

/// Which direction of a connection [`Op::Shutdown`] ends.
pub use std::net::Shutdown;

macro_rules! operations {
    ($( $(#[$doc:meta])* $name:ident { $( $(#[$field_doc:meta])* $field:ident: $type:ty ),* $(,)? } )*) => {
        /// An operation that the backend performs to completion.
        ///
        /// Each ends with exactly one [`Event::Done`](crate::Event::Done) whose
        /// `more` is false. Those named `…Multi` report many times before it.
        /// [`Backend::supports`](crate::Backend::supports) returns which ones a backend
        /// performs; flags and modes are the operating system's own numbers.
        #[derive(Clone, Copy, Debug)]
        #[non_exhaustive]
        pub enum Op {
            $( $(#[$doc])* $name { $( $(#[$field_doc])* $field: $type ),* }, )*
        }

        /// The kind of an [`Op`], as the argument of
        /// [`Backend::supports`](crate::Backend::supports).
        ///
        /// ```
        /// use poll_core::{Op, OpKind, RawSource};
        ///
        /// # let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
        /// let op = Op::Close { source: RawSource::of(&socket) };
        /// assert_eq!(op.kind(), OpKind::Close);
        /// assert!(OpKind::ALL.contains(&OpKind::Close));
        /// # std::io::Result::Ok(())
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum OpKind {
            $(
                #[doc = concat!("The kind of [`Op::", stringify!($name), "`].")]
                $name,
            )*
        }

        impl OpKind {
            /// Every kind.
            pub const ALL: &'static [OpKind] = &[$(OpKind::$name),*];
        }

        impl Op {
            /// The kind of this operation.
            #[inline]
            pub const fn kind(&self) -> OpKind {
                match self {
                    $( Op::$name { .. } => OpKind::$name, )*
                }
            }
        }
    };
}

operations! {
    /// Accepts one connection. The result is the new source, not inherited by other
    /// programs; on Unix it is non-blocking.
    Accept {
        /// A listening socket.
        listener: RawSource,
    }
    /// Accepts connections until it fails or is cancelled, one result each.
    AcceptMulti {
        /// A listening socket.
        listener: RawSource,
    }
    /// Connects a socket. The result is 0.
    Connect {
        /// The socket.
        source: RawSource,
        /// The address to connect to.
        address: RawAddr,
    }
    /// Receives into `buf`. The result is a count; 0 is the end of file.
    Recv {
        /// A connected socket.
        source: RawSource,
        /// Memory to fill.
        buf: RawBuf,
    }
    /// Receives into buffers of `group` as data arrives, until the end of file, an
    /// error, a cancel, or `ENOBUFS` when the group is empty.
    RecvMulti {
        /// A connected socket.
        source: RawSource,
        /// A group given with [`Backend::register_buffers`](crate::Backend::register_buffers).
        group: u16,
    }
    /// Receives a message: data, address and control data.
    RecvMsg {
        /// A socket.
        source: RawSource,
        /// The header, whose buffers are filled.
        message: RawMessage,
        /// `MSG_*` flags.
        flags: i32,
    }
    /// Receives messages into buffers of `group`. Each lent piece starts with four
    /// native `u32`s: the lengths of the address, the control data and the payload,
    /// then the `MSG_*` flags. The three parts follow; the first two take the space that
    /// `address_len` and `control_len` reserve.
    RecvMsgMulti {
        /// A socket.
        source: RawSource,
        /// A group given with [`Backend::register_buffers`](crate::Backend::register_buffers).
        group: u16,
        /// Space to reserve for each message's address, in bytes.
        address_len: u32,
        /// Space to reserve for each message's control data, in bytes.
        control_len: u32,
    }
    /// Sends `buf` or a prefix of it. The result is a count. If the first `Done`
    /// has `more`, the send is zero-copy and the kernel uses the memory until the
    /// last one.
    Send {
        /// A connected socket.
        source: RawSource,
        /// Memory to send.
        buf: RawBuf,
    }
    /// Sends a message: data from several buffers, optionally an address and control
    /// data. As for [`Op::Send`], the memory is in use until the last `Done`.
    SendMsg {
        /// A socket.
        source: RawSource,
        /// The header with the buffers to send.
        message: RawMessage,
        /// `MSG_*` flags.
        flags: i32,
    }
    /// Ends one or both directions of a connection. The result is 0.
    Shutdown {
        /// A connected socket.
        source: RawSource,
        /// The directions to end.
        how: Shutdown,
    }
    /// Waits once for a condition. The result is the bits of a
    /// [`Readiness`](crate::Readiness).
    Poll {
        /// A source that can be polled.
        source: RawSource,
        /// The conditions to wait for.
        interest: Interest,
    }
    /// Reads from a file or a pipe into several buffers. The result is a count.
    Read {
        /// A file or a pipe.
        source: RawSource,
        /// Memory to fill.
        bufs: RawBufs,
        /// The offset in the file; `None` is the current position, which then advances.
        offset: Option<u64>,
    }
    /// Writes several buffers to a file or a pipe. The result is a count.
    Write {
        /// A file or a pipe.
        source: RawSource,
        /// Memory to write.
        bufs: RawBufs,
        /// The offset in the file; `None` is the current position, which then advances.
        offset: Option<u64>,
    }
    /// Waits until a client opens an instance of a Windows named pipe. The result
    /// is 0, also if a client is connected already.
    ConnectNamedPipe {
        /// The server's end of the instance.
        pipe: RawSource,
    }
    /// Flushes a file to its device. The result is 0.
    Fsync {
        /// The file.
        source: RawSource,
        /// Only the data and the metadata needed to read it back (`fdatasync`).
        data_only: bool,
    }
    /// Sets the length of a file. The result is 0.
    Ftruncate {
        /// The file.
        source: RawSource,
        /// Its new length.
        len: u64,
    }
    /// Opens a file. The result is the new source, close-on-exec.
    OpenAt {
        /// The file.
        at: At,
        /// `O_*` flags.
        flags: i32,
        /// Permissions of a file that is created.
        mode: u32,
    }
    /// Closes a source. The result is 0.
    Close {
        /// The source to close.
        source: RawSource,
    }
    /// Reads the metadata of a file (`statx`). The result is 0.
    Statx {
        /// The file.
        at: At,
        /// `AT_*` flags.
        flags: i32,
        /// The requested fields, as `STATX_*` bits.
        mask: u32,
        /// A `struct statx` to fill.
        out: NonNull<c_void>,
    }
    /// Removes a directory entry. The result is 0.
    UnlinkAt {
        /// The path of the entry.
        at: At,
        /// `AT_*` flags.
        flags: i32,
    }
    /// Renames a file. The result is 0.
    RenameAt {
        /// The old name.
        from: At,
        /// The new name.
        to: At,
        /// `RENAME_*` flags.
        flags: u32,
    }
    /// Creates a directory. The result is 0.
    MkdirAt {
        /// The path of the new directory.
        at: At,
        /// Its permissions.
        mode: u32,
    }
    /// Creates a hard link. The result is 0.
    LinkAt {
        /// The file.
        from: At,
        /// Its new name.
        to: At,
        /// `AT_*` flags.
        flags: i32,
    }
    /// Creates a symbolic link. The result is 0.
    SymlinkAt {
        /// The path that the link contains.
        target: RawPath,
        /// The link.
        at: At,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lent_memory_keeps_its_address_and_length() {
        let mut memory = [0u8; 16];
        let expected = memory.as_ptr();
        let buf = RawBuf::filling(&mut memory);
        assert_eq!((buf.ptr.as_ptr().cast_const(), buf.len), (expected, 16));
        let list = [IoSlice::new(&memory), IoSlice::new(&memory[..3])];
        let bufs = RawBufs::sending(&list);
        assert_eq!(bufs.count, 2);
        assert_eq!(bufs.ptr.as_ptr().cast_const(), list.as_ptr().cast());
    }
}
