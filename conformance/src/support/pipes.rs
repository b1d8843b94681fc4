//! Pipes of a loop, their names and their traffic.

use std::path::{Path, PathBuf};

use uv_core::{AnyHandle, Handle, Pipe, Stream};

#[cfg(unix)]
use super::files::Directory;
use super::loops::new_loop;
use super::streams;
use super::trace::Log;
use crate::{Lab, Loop, Skip};

/// A loop whose backend supports pipes.
pub(crate) fn piping_loop(lab: &Lab) -> Result<Loop, Skip> {
    let (mut lp, mut probe) = (new_loop(lab)?, new_loop(lab)?);
    match Pipe::pair(&mut probe) {
        Ok((one, other)) => {
            one.close(&mut probe).and(other.close(&mut probe)).expect("open handles");
            let _ = probe.run(uv_core::RunMode::Default);
            lp.update_time();
            Ok(lp)
        }
        Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {
            Err(Skip::because(error.to_string()))
        }
        Err(error) => panic!("a pair of pipes: {error}"),
    }
}

/// More than any kernel buffers for one pipe.
pub(crate) const OVER_PIPE_BUFFERS: usize = 4 << 20;

/// A unique name for one pipe.
#[derive(Debug)]
pub(crate) struct Name {
    path: PathBuf,
    /// The directory of its file, removed on drop.
    #[cfg(unix)]
    _directory: Directory,
}

impl Name {
    #[cfg(unix)]
    pub(crate) fn new() -> Name {
        let directory = Directory::new();
        Name { path: directory.path("pipe"), _directory: directory }
    }

    #[cfg(windows)]
    pub(crate) fn new() -> Name {
        use std::sync::atomic::{AtomicU32, Ordering};
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!(r"\\.\pipe\conformance-{}-{count}", std::process::id());
        Name { path: name.into() }
    }
}

impl AsRef<Path> for Name {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

/// A bound handle.
pub(crate) fn bound_to(lp: &mut Loop, name: &Name) -> Pipe {
    let server = Pipe::new(lp);
    server.bind(lp, name).expect("a free name");
    server
}

/// Connects to the listener at `name` for one echo of `message`.
pub(crate) fn one_echo(lp: &mut Loop, name: &Path, message: &'static str) {
    streams::one_echo::<Pipe>(lp, message, |lp, asks| Pipe::new(lp).connect(lp, name, asks));
}

/// True if both ends of a pipe can be read and written, as on FreeBSD.
pub(crate) fn pipes_are_bidirectional() -> bool {
    #[cfg(unix)]
    {
        use std::os::fd::AsRawFd;
        let (reader, _writer) = std::io::pipe().expect("a pipe");
        // SAFETY: `F_GETFL` takes no pointer, and `reader` is open.
        let flags = unsafe { libc::fcntl(reader.as_raw_fd(), libc::F_GETFL) };
        flags & libc::O_ACCMODE == libc::O_RDWR
    }
    #[cfg(not(unix))]
    false
}

/// Reads to the end of file, logs all bytes, then closes the pipe.
pub(crate) fn read_all(lp: &mut Loop, pipe: Pipe, all: &Log<Vec<u8>>) {
    let (all, mut got) = (all.clone(), Vec::new());
    let reading = pipe.read_start(lp, move |lp, pipe, bytes| match bytes.expect("no error") {
        [] => {
            all.push(std::mem::take(&mut got));
            pipe.close(lp).expect("an open handle");
        }
        bytes => got.extend_from_slice(bytes),
    });
    reading.expect("a connection is read");
}

/// The part of a process that receives a TCP connection over a pipe: it writes to the connection
/// and sends back a pipe of its own.
pub(crate) fn answer_with_a_handle(lp: &mut Loop, pipe: Pipe) {
    let reading = pipe.read_start(lp, |lp, pipe, bytes| match bytes.unwrap() {
        [] => pipe.close(lp).unwrap(),
        bytes => {
            assert_eq!((bytes, pipe.pending_count(lp)), (&b"for you"[..], 1));
            let Ok(AnyHandle::Tcp(tcp)) = pipe.accept_pending(lp) else { panic!("no TCP") };
            tcp.write(lp, "from the other", |lp, tcp, _, _| tcp.close(lp).unwrap()).unwrap();
            let (one, other) = Pipe::pair(lp).unwrap();
            other.write(lp, "made there", |lp, it, _, _| it.close(lp).unwrap()).unwrap();
            let back = move |lp: &mut Loop, _, result: std::io::Result<()>, _| {
                result.unwrap();
                one.close(lp).unwrap();
            };
            pipe.write_with_handles(lp, "back", &[one.into()], back).unwrap();
        }
    });
    reading.expect("a connection is read");
}
