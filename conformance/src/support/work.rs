//! A small example of every kind of operation.

use std::fs::{File, OpenOptions};
use std::io::{IoSlice, Read};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::ptr::NonNull;

use poll_core::{At, Interest, Op, OpKind, RawAddr, RawBuf, RawBufs, RawPath, RawSource};
use socket2::{Domain, Socket, Type};

use super::files::{Directory, c_path};
use super::observe::SOON;
use super::operations::{assert_poll, lent_slice};
use super::sources::{listener, send, tcp_pair};
pub(crate) use platform::Message;
use platform::{owned, owned_file, raw_file};

/// An operation that succeeds, and a check of its effect.
pub(crate) struct Work {
    pub(crate) op: Op,
    /// Checks the result. It owns everything that the operation names, so it must be kept until
    /// then.
    pub(crate) verify: Box<dyn FnOnce(Result<usize, i32>)>,
}

impl Work {
    /// One of this kind; `None` for kinds that need a group of buffers.
    pub(crate) fn of(kind: OpKind) -> Option<Work> {
        Some(match kind {
            OpKind::Accept => accept(|listener| Op::Accept { listener }),
            OpKind::AcceptMulti => accept(|listener| Op::AcceptMulti { listener }),
            OpKind::Connect => connect(),
            OpKind::Recv => receive(),
            OpKind::RecvMsg => receive_message(),
            OpKind::Send => send_bytes(),
            OpKind::SendMsg => send_message(),
            OpKind::Shutdown => shutdown(),
            OpKind::Poll => poll(),
            OpKind::Read => read(),
            OpKind::Write => write(),
            #[cfg(windows)]
            OpKind::ConnectNamedPipe => platform::connect_named_pipe(),
            OpKind::Fsync => on_file(|source| Op::Fsync { source, data_only: false }, 9),
            OpKind::Ftruncate => on_file(|source| Op::Ftruncate { source, len: 3 }, 3),
            OpKind::OpenAt => open(),
            OpKind::Close => close(),
            OpKind::Statx => stat(),
            OpKind::UnlinkAt => on_names(
                |from, _| Op::UnlinkAt { at: from, flags: 0 },
                |directory| assert!(!directory.path("old").exists(), "unlinked, but it exists"),
            ),
            OpKind::RenameAt => on_names(
                |from, to| Op::RenameAt { from, to, flags: 0 },
                |directory| {
                    assert!(directory.path("new").is_file() && !directory.path("old").exists())
                },
            ),
            OpKind::MkdirAt => on_names(
                |_, to| Op::MkdirAt { at: to, mode: 0o700 },
                |directory| {
                    assert!(directory.path("new").is_dir(), "created, but it does not exist")
                },
            ),
            OpKind::LinkAt => on_names(
                |from, to| Op::LinkAt { from, to, flags: 0 },
                |directory| {
                    assert!(directory.path("new").is_file(), "linked, but it does not exist")
                },
            ),
            OpKind::SymlinkAt => on_names(
                |from, to| Op::SymlinkAt { target: from.path, at: to },
                |directory| {
                    assert!(directory.path("new").is_symlink(), "linked, but it does not exist")
                },
            ),
            _ => return None,
        })
    }

    fn new(op: Op, verify: impl FnOnce(Result<usize, i32>) + 'static) -> Work {
        Work { op, verify: Box::new(verify) }
    }
}

fn accept(op: impl FnOnce(RawSource) -> Op) -> Work {
    let listener = listener();
    let client = TcpStream::connect(listener.local_addr().expect("an address")).expect("a client");
    Work::new(op(RawSource::of(&listener)), move |result| {
        let accepted = owned(result.expect("a connection accepted"));
        let peer = accepted.peer_addr().expect("a connected socket");
        assert_eq!(peer, client.local_addr().expect("an address"), "another connection");
        drop(listener);
    })
}

fn connect() -> Work {
    let listener = listener();
    let address = listener.local_addr().expect("an address");
    let (op, (socket, sockaddr)) = connect_to(address);
    Work::new(op, move |result| {
        assert_eq!(result, Ok(0), "a connect to a listener");
        let peer = socket.peer_addr().expect("a connected socket");
        assert_eq!(peer.as_socket(), Some(address));
        drop((listener, sockaddr));
    })
}

/// A connect, and the objects that must outlive it.
pub(crate) fn connect_to(address: SocketAddr) -> (Op, (Socket, Vec<u32>)) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_nonblocking(true).expect("a non-blocking socket");
    let sockaddr = sockaddr_of(address);
    let address = RawAddr { ptr: NonNull::from(&sockaddr[..]).cast(), len: 16 };
    (Op::Connect { source: RawSource::of(&socket), address }, (socket, sockaddr))
}

/// A `sockaddr_in`, aligned.
pub(crate) fn sockaddr_of(address: SocketAddr) -> Vec<u32> {
    let SocketAddr::V4(v4) = address else { unreachable!("sources are on 127.0.0.1") };
    let [high, low] = v4.port().to_be_bytes();
    let family = if cfg!(any(target_vendor = "apple", target_os = "freebsd", target_os = "netbsd"))
    {
        [16, 2]
    } else {
        2u16.to_ne_bytes()
    };
    vec![
        u32::from_ne_bytes([family[0], family[1], high, low]),
        u32::from_ne_bytes(v4.ip().octets()),
        0,
        0,
    ]
}

fn receive() -> Work {
    let (near, far) = tcp_pair();
    send(&far, b"hello");
    let mut memory = vec![0; 16];
    let op = Op::Recv { source: RawSource::of(&near), buf: RawBuf::filling(&mut memory) };
    Work::new(op, move |result| {
        assert_eq!((result, &memory[..5]), (Ok(5), &b"hello"[..]));
        drop((near, far));
    })
}

fn receive_message() -> Work {
    let (near, far) = tcp_pair();
    send(&far, b"hello");
    let mut memory = vec![0; 16];
    let mut message = Message::new(vec![lent_slice(&mut memory)]);
    let op = Op::RecvMsg { source: RawSource::of(&near), message: message.lend(), flags: 0 };
    Work::new(op, move |result| {
        assert_eq!((result, &memory[..5]), (Ok(5), &b"hello"[..]));
        drop((near, far, message));
    })
}

fn send_bytes() -> Work {
    let (near, far) = tcp_pair();
    let memory = b"hello".to_vec();
    let op = Op::Send { source: RawSource::of(&near), buf: RawBuf::sending(&memory) };
    Work::new(op, move |result| {
        assert_eq!(result, Ok(5), "five bytes fit any buffer");
        expect_hello(&far);
        drop((near, memory));
    })
}

fn send_message() -> Work {
    let (near, far) = tcp_pair();
    let mut memory = b"hello".to_vec();
    let mut message = Message::new(vec![lent_slice(&mut memory)]);
    let op = Op::SendMsg { source: RawSource::of(&near), message: message.lend(), flags: 0 };
    Work::new(op, move |result| {
        assert_eq!(result, Ok(5), "five bytes fit any buffer");
        expect_hello(&far);
        drop((near, memory, message));
    })
}

fn shutdown() -> Work {
    let (near, far) = tcp_pair();
    let op = Op::Shutdown { source: RawSource::of(&near), how: Shutdown::Write };
    Work::new(op, move |result| {
        assert_eq!(result, Ok(0));
        expect_end(&far);
        send(&far, b"the other direction is open");
        drop(near);
    })
}

fn poll() -> Work {
    let (near, far) = tcp_pair();
    send(&far, b"hello");
    let op = Op::Poll { source: RawSource::of(&near), interest: Interest::READ };
    Work::new(op, move |result| {
        assert_poll(result);
        drop((near, far));
    })
}

fn read() -> Work {
    let directory = Directory::new();
    let file = open_file(&directory.file("file", "0123456789"));
    let (mut first, mut second) = (vec![0; 3], vec![0; 10]);
    let mut list = vec![lent_slice(&mut first), lent_slice(&mut second)];
    let bufs = RawBufs::filling(&mut list);
    let op = Op::Read { source: raw_file(&file), bufs, offset: Some(2) };
    Work::new(op, move |result| {
        assert_eq!(result, Ok(8), "from the third of ten bytes on");
        assert_eq!((&first[..], &second[..5]), (&b"234"[..], &b"56789"[..]));
        drop((file, list, directory));
    })
}

fn write() -> Work {
    let directory = Directory::new();
    let path = directory.file("file", "0123456789");
    let file = open_file(&path);
    let list = vec![IoSlice::new(b"ab"), IoSlice::new(b"c")];
    let bufs = RawBufs::sending(&list);
    let op = Op::Write { source: raw_file(&file), bufs, offset: Some(4) };
    Work::new(op, move |result| {
        assert_eq!(result, Ok(3));
        assert_eq!(std::fs::read_to_string(&path).expect("the file"), "0123abc789");
        drop((file, list, directory));
    })
}

/// An operation on an open file of nine bytes, and its length afterwards.
fn on_file(op: impl FnOnce(RawSource) -> Op, len: u64) -> Work {
    let directory = Directory::new();
    let file = open_file(&directory.file("file", "some text"));
    Work::new(op(raw_file(&file)), move |result| {
        assert_eq!(result, Ok(0));
        assert_eq!(file.metadata().expect("the file's length").len(), len);
        drop(directory);
    })
}

fn open() -> Work {
    let directory = Directory::new();
    let path = c_path(&directory.file("file", "some text"));
    let at = At { dir: None, path: RawPath::of(&path) };
    Work::new(Op::OpenAt { at, flags: 0, mode: 0 }, move |result| {
        let mut text = String::new();
        let mut file = owned_file(result.expect("a file opened"));
        file.read_to_string(&mut text).expect("a file open for reading");
        assert_eq!(text, "some text");
        drop((path, directory));
    })
}

fn close() -> Work {
    let (near, far) = tcp_pair();
    Work::new(Op::Close { source: RawSource::of(&near) }, move |result| {
        std::mem::forget(near);
        assert_eq!(result, Ok(0));
        expect_end(&far);
    })
}

fn stat() -> Work {
    // The mask bit of `struct statx` for the size, and the offset of the size in units of 8 bytes.
    const STATX_SIZE: u32 = 0x200;
    const SIZE_AT: usize = 5;
    let directory = Directory::new();
    let path = c_path(&directory.file("file", "some text"));
    let mut answer = vec![0u64; 64];
    let op = Op::Statx {
        at: At { dir: None, path: RawPath::of(&path) },
        flags: 0,
        mask: STATX_SIZE,
        out: NonNull::from(&mut answer[..]).cast(),
    };
    Work::new(op, move |result| {
        assert_eq!((result, answer[SIZE_AT]), (Ok(0), 9), "a file of nine bytes");
        drop((path, directory));
    })
}

/// An operation on two names: an existing file and an unused name.
fn on_names(op: impl FnOnce(At, At) -> Op, verify: impl FnOnce(&Directory) + 'static) -> Work {
    let directory = Directory::new();
    let (old, new) = (c_path(&directory.file("old", "text")), c_path(&directory.path("new")));
    let at = |path| At { dir: None, path: RawPath::of(path) };
    Work::new(op(at(&old), at(&new)), move |result| {
        assert_eq!(result, Ok(0));
        verify(&directory);
        drop((old, new));
    })
}

fn expect_hello(mut far: &TcpStream) {
    far.set_nonblocking(false).expect("a blocking stream");
    far.set_read_timeout(Some(SOON)).expect("a timeout");
    let mut received = [0; 5];
    far.read_exact(&mut received).expect("what was sent");
    assert_eq!(&received, b"hello");
}

fn expect_end(mut far: &TcpStream) {
    far.set_nonblocking(false).expect("a blocking stream");
    far.set_read_timeout(Some(SOON)).expect("a timeout");
    assert_eq!(far.read(&mut [0; 1]).expect("the end of file"), 0);
}

/// A file for reading and writing, opened as a backend of this platform requires.
fn open_file(path: &std::path::Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    #[cfg(windows)]
    {
        use std::os::windows::fs::OpenOptionsExt;
        const FILE_FLAG_OVERLAPPED: u32 = 0x4000_0000;
        options.custom_flags(FILE_FLAG_OVERLAPPED);
    }
    options.open(path).expect("a temporary file")
}

#[cfg(unix)]
mod platform {
    use std::fs::File;
    use std::io::IoSliceMut;
    use std::net::TcpStream;
    use std::os::fd::{FromRawFd, OwnedFd, RawFd};
    use std::ptr::NonNull;

    use poll_core::{RawMessage, RawSource};

    /// A message header and the list that it names.
    pub(crate) struct Message {
        header: Vec<libc::msghdr>,
        _list: Vec<IoSliceMut<'static>>,
    }

    impl Message {
        pub(crate) fn new(mut list: Vec<IoSliceMut<'static>>) -> Message {
            // SAFETY: `msghdr` is plain data; all zeros mean no address, no data and no control
            // data.
            let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
            header.msg_iov = list.as_mut_ptr().cast();
            header.msg_iovlen = list.len() as _;
            Message { header: vec![header], _list: list }
        }

        /// Sets the destination address, or space for the sender's.
        pub(crate) fn with_address(mut self, sockaddr: &mut [u32]) -> Message {
            self.header[0].msg_name = sockaddr.as_mut_ptr().cast();
            self.header[0].msg_namelen = size_of_val(sockaddr) as _;
            self
        }

        pub(crate) fn lend(&mut self) -> RawMessage {
            RawMessage(NonNull::from(&mut self.header[..]).cast())
        }
    }

    pub(super) fn raw_file(file: &File) -> RawSource {
        RawSource::of(file)
    }

    /// Takes a socket that an operation created.
    pub(super) fn owned(result: usize) -> TcpStream {
        // SAFETY: the operation created the socket for its caller, which takes it once.
        unsafe { TcpStream::from_raw_fd(result as RawFd) }
    }

    /// Takes a file that an operation opened.
    pub(super) fn owned_file(result: usize) -> File {
        // SAFETY: the operation opened the file for its caller, which takes it once.
        File::from(unsafe { OwnedFd::from_raw_fd(result as RawFd) })
    }
}

#[cfg(windows)]
mod platform {
    use std::ffi::c_void;
    use std::fs::{File, OpenOptions};
    use std::io::{IoSliceMut, Read, Write};
    use std::net::TcpStream;
    use std::os::windows::io::{FromRawHandle, FromRawSocket, RawHandle, RawSocket};
    use std::ptr::{NonNull, null_mut};
    use std::sync::atomic::{AtomicU32, Ordering};

    use poll_core::{Op, RawMessage, RawSource};
    use windows_sys::Win32::Foundation::INVALID_HANDLE_VALUE;
    use windows_sys::Win32::Storage::FileSystem::{FILE_FLAG_OVERLAPPED, PIPE_ACCESS_DUPLEX};
    use windows_sys::Win32::System::Pipes::{CreateNamedPipeW, PIPE_TYPE_BYTE};

    use super::Work;

    /// A client opens the pipe later, from another thread.
    pub(super) fn connect_named_pipe() -> Work {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!(r"\\.\pipe\conformance-{}-{count}", std::process::id());
        let wide: Vec<u16> = name.encode_utf16().chain([0]).collect();
        let access = PIPE_ACCESS_DUPLEX | FILE_FLAG_OVERLAPPED;
        // SAFETY: the name is NUL-terminated, and null attributes select the defaults.
        let pipe = unsafe {
            CreateNamedPipeW(wide.as_ptr(), access, PIPE_TYPE_BYTE, 1, 4096, 4096, 0, null_mut())
        };
        assert_ne!(pipe, INVALID_HANDLE_VALUE, "{}", std::io::Error::last_os_error());
        let mut pipe = owned_file(pipe as usize);
        let op = Op::ConnectNamedPipe { pipe: RawSource::of_handle(&pipe) };
        let client = std::thread::spawn(move || {
            OpenOptions::new().read(true).write(true).open(name).expect("a pipe to open")
        });
        Work::new(op, move |result| {
            assert_eq!(result, Ok(0), "a client for a named pipe");
            let mut client = client.join().expect("the client's thread");
            client.write_all(b"hello").expect("a pipe with a server");
            let mut text = [0; 5];
            pipe.read_exact(&mut text).expect("a pipe with a client");
            assert_eq!(&text, b"hello");
        })
    }

    /// A `WSAMSG`.
    #[repr(C)]
    struct Header {
        name: *mut c_void,
        name_len: i32,
        buffers: *mut c_void,
        buffer_count: u32,
        control_len: u32,
        control: *mut c_void,
        flags: u32,
    }

    /// A message header and the list that it names.
    pub(crate) struct Message {
        header: Vec<Header>,
        _list: Vec<IoSliceMut<'static>>,
    }

    impl Message {
        pub(crate) fn new(mut list: Vec<IoSliceMut<'static>>) -> Message {
            let header = Header {
                name: null_mut(),
                name_len: 0,
                buffers: list.as_mut_ptr().cast(),
                buffer_count: list.len() as u32,
                control_len: 0,
                control: null_mut(),
                flags: 0,
            };
            Message { header: vec![header], _list: list }
        }

        /// Sets the destination address, or space for the sender's.
        pub(crate) fn with_address(mut self, sockaddr: &mut [u32]) -> Message {
            self.header[0].name = sockaddr.as_mut_ptr().cast();
            self.header[0].name_len = size_of_val(sockaddr) as i32;
            self
        }

        pub(crate) fn lend(&mut self) -> RawMessage {
            RawMessage(NonNull::from(&mut self.header[..]).cast())
        }
    }

    pub(super) fn raw_file(file: &File) -> RawSource {
        RawSource::of_handle(file)
    }

    /// Takes a socket that an operation created.
    pub(super) fn owned(result: usize) -> TcpStream {
        // SAFETY: the operation created the socket for its caller, which takes it once.
        unsafe { TcpStream::from_raw_socket(result as RawSocket) }
    }

    /// Takes a file that an operation opened.
    pub(super) fn owned_file(result: usize) -> File {
        // SAFETY: the operation opened the file for its caller, which takes it once.
        unsafe { File::from_raw_handle(result as RawHandle) }
    }
}
