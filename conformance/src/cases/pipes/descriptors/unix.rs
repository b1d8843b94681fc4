//! What only Unix tells of its descriptors.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use poll_core::Backend;
use uv_core::{Handle, Pipe, PipeEnd, Stream, pipe_pair, socket_pair};

use crate::support::child::Child;
use crate::support::files::Directory;
use crate::support::loops::new_loop;
use crate::support::observe::SOON;
use crate::support::pipes::read_all;
use crate::support::streams::{finish, refusal, run_until};
use crate::support::trace::Log;
use crate::{Lab, Verdict};

/// Its flags, by a command of `fcntl` that asks.
fn flags(fd: RawFd, command: libc::c_int) -> libc::c_int {
    // SAFETY: asking about any number is harmless.
    unsafe { libc::fcntl(fd, command) }
}

/// How a descriptor was opened says whether its handle can be read and written. It becomes
/// non-blocking, and is closed with the handle.
pub fn a_descriptor_says_what_it_can_do<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let directory = Directory::new();
    let fifo = directory.path("fifo");
    let path = crate::support::files::c_path(&fifo);
    // SAFETY: the path ends with a NUL.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0, "mkfifo");
    let (reader, writer) = io::pipe().unwrap();
    let (socket, mut peer) = UnixStream::pair().unwrap();
    let both = File::options().read(true).write(true).open(&fifo).unwrap();
    let cases: [(OwnedFd, bool, bool); 4] = [
        (reader.into(), true, false),
        (writer.into(), false, true),
        (socket.into(), true, true),
        (both.into(), true, true),
    ];
    let mut pipes = Vec::new();
    for (fd, readable, writable) in cases {
        let (pipe, number) = (Pipe::new(&mut lp), fd.as_raw_fd());
        pipe.open(&mut lp, fd).unwrap();
        assert_eq!((pipe.is_readable(&lp), pipe.is_writable(&lp)), (readable, writable));
        assert_eq!(pipe.descriptor(&lp).unwrap().fd(), number);
        assert_ne!(flags(number, libc::F_GETFL) & libc::O_NONBLOCK, 0, "it does not block");
        pipes.push(pipe);
    }
    let [reader, writer, socket, both] = pipes[..] else { unreachable!("four were made") };
    assert_eq!(refusal(reader.write(&mut lp, "x", |_, _, _, _| {})), ErrorKind::BrokenPipe);
    assert_eq!(refusal(writer.read(&mut lp, vec![0], |_, _, _, _| {})), ErrorKind::NotConnected);
    let all = Log::default();
    read_all(&mut lp, reader, &all);
    writer.write(&mut lp, "by a pipe", |lp, writer, _, _| writer.close(lp).unwrap()).unwrap();
    read_all(&mut lp, socket, &all);
    peer.write_all(b"by a socket").unwrap();
    drop(peer);
    both.write(&mut lp, "by a fifo", |_, _, result, _| result.unwrap()).unwrap();
    let read = all.clone();
    both.read(&mut lp, vec![0; 64], move |lp, both, count, buffer| {
        read.push(buffer[..count.unwrap()].to_vec());
        both.close(lp).unwrap();
    })
    .unwrap();
    finish(lp);
    let mut all = all.take();
    all.sort_unstable();
    assert_eq!(all, [&b"by a fifo"[..], b"by a pipe", b"by a socket"]);
    Ok(())
}

/// Pairs that are made without a loop block or not, each end as it was asked for. None
/// is inherited by other programs.
pub fn raw_pairs_block_or_not<T: Backend>(_lab: &Lab<T>) -> Verdict {
    let check = |fd: RawFd, end: PipeEnd| {
        let blocks = flags(fd, libc::F_GETFL) & libc::O_NONBLOCK == 0;
        assert_eq!(blocks, end == PipeEnd::Blocking, "{end:?}");
        assert_ne!(flags(fd, libc::F_GETFD) & libc::FD_CLOEXEC, 0, "closed by exec");
    };
    let ends = [PipeEnd::Blocking, PipeEnd::NonBlocking];
    for (first, second) in ends.into_iter().flat_map(|first| ends.map(|second| (first, second))) {
        let (reader, writer) = pipe_pair(first, second).unwrap();
        check(reader.as_raw_fd(), first);
        check(writer.as_raw_fd(), second);
        File::from(writer).write_all(b"one way").unwrap();
        let mut got = String::new();
        File::from(reader).read_to_string(&mut got).unwrap();
        assert_eq!(got, "one way");

        let (one, other) = socket_pair(first, second).unwrap();
        check(one.as_raw_fd(), first);
        check(other.as_raw_fd(), second);
        let (mut one, mut other) = (UnixStream::from(one), UnixStream::from(other));
        for _ in 0..2 {
            one.write_all(b"both ways").unwrap();
            let mut got = [0; 9];
            other.read_exact(&mut got).unwrap();
            assert_eq!(&got, b"both ways");
            std::mem::swap(&mut one, &mut other);
        }
    }
    Ok(())
}

/// A standard stream that a handle takes over is the process's: it stays open when the
/// handle is closed.
pub fn standard_streams_stay_open<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (reader, mut writer) = io::pipe().unwrap();
    // A child has standard streams that nobody else uses.
    let child = Child::fork(|| {
        // SAFETY: both are open, and what the number named before is not used here.
        let standard = unsafe { libc::dup2(reader.as_raw_fd(), libc::STDIN_FILENO) };
        assert_eq!(standard, libc::STDIN_FILENO);
        drop(reader);
        for how in ["closed", "dropped with its loop"] {
            let mut lp = new_loop(lab)?;
            let (pipe, told) = (Pipe::new(&mut lp), Log::default());
            // SAFETY: nobody else of this process uses standard input.
            let stdin = unsafe { OwnedFd::from_raw_fd(libc::STDIN_FILENO) };
            pipe.open(&mut lp, stdin).unwrap();
            let tell = told.clone();
            pipe.read(&mut lp, vec![0; 1], move |_, _, count, buffer| {
                tell.push((count.unwrap(), buffer[0]));
            })
            .unwrap();
            run_until(&mut lp, "a byte", |_| told.len() == 1);
            assert_eq!(told.take(), [(1, b'x')]);
            if how == "closed" {
                pipe.close(&mut lp).unwrap();
                finish(lp);
            } else {
                drop(lp);
            }
            assert!(flags(libc::STDIN_FILENO, libc::F_GETFD) >= 0, "it stays open: {how}");
        }
        Ok(())
    });
    writer.write_all(b"xx").unwrap();
    child.join(SOON)
}
