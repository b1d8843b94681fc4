//! Descriptors on Unix.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use uv_core::{Handle, Pipe, PipeEnd, Stream, pipe_pair, socket_pair};

use crate::support::child::Child;
use crate::support::files::Directory;
use crate::support::loops::new_loop;
use crate::support::observe::SOON;
use crate::support::pipes::{pipes_are_bidirectional, read_all};
use crate::support::streams::{finish, refusal, run_until};
use crate::support::trace::Log;
use crate::{Lab, Verdict};

/// The result of a query command of `fcntl`.
fn flags(fd: RawFd, command: libc::c_int) -> libc::c_int {
    // SAFETY: the call passes no memory, and a query of any number is harmless.
    unsafe { libc::fcntl(fd, command) }
}

/// The access mode of a descriptor determines whether its handle is readable and writable. On Unix
/// it becomes non-blocking, and is closed with the handle. On Windows a synchronous handle is
/// refused, because its calls would block the loop.
pub fn the_access_mode_sets_the_directions(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let directory = Directory::new();
    let fifo = directory.path("fifo");
    let path = crate::support::files::c_path(&fifo);
    // SAFETY: the path ends with a NUL.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0, "mkfifo");
    let (reader, writer) = io::pipe().unwrap();
    let (socket, mut peer) = UnixStream::pair().unwrap();
    let both = File::options().read(true).write(true).open(&fifo).unwrap();
    let bidirectional = pipes_are_bidirectional();
    let cases: [(OwnedFd, bool, bool); 4] = [
        (reader.into(), true, bidirectional),
        (writer.into(), bidirectional, true),
        (socket.into(), true, true),
        (both.into(), true, true),
    ];
    let mut pipes = Vec::new();
    for (fd, readable, writable) in cases {
        let (pipe, number) = (Pipe::new(&mut lp), fd.as_raw_fd());
        pipe.open(&mut lp, fd).unwrap();
        assert_eq!((pipe.is_readable(&lp), pipe.is_writable(&lp)), (readable, writable));
        assert_eq!(pipe.raw_source(&lp).unwrap().fd(), number);
        assert_ne!(flags(number, libc::F_GETFL) & libc::O_NONBLOCK, 0, "it does not block");
        pipes.push(pipe);
    }
    let [reader, writer, socket, both] = pipes[..] else { unreachable!("four were made") };
    if !bidirectional {
        let refused = refusal(reader.write(&mut lp, "x", |_, _, _, _| {}));
        assert_eq!(refused, ErrorKind::BrokenPipe);
        let refused = refusal(writer.read(&mut lp, vec![0], |_, _, _, _| {}));
        assert_eq!(refused, ErrorKind::NotConnected);
    }
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

/// Each end of a pair created without a loop is blocking or non-blocking, as requested, and is not
/// inherited by other programs.
pub fn raw_pairs_block_or_not(_lab: &Lab) -> Verdict {
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

/// A pipe taken by a handle stays blocking for the other owners of its open file description, as a
/// shell shares its standard streams, and stays the same pipe.
#[cfg(target_os = "linux")]
pub fn shared_pipes_stay_blocking_for_other_owners(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (reader, writer) = io::pipe().unwrap();
    let (mut their_reader, mut their_writer) =
        (reader.try_clone().unwrap(), writer.try_clone().unwrap());
    let blocks = |fd: RawFd| flags(fd, libc::F_GETFL) & libc::O_NONBLOCK == 0;
    let numbers = [reader.as_raw_fd(), writer.as_raw_fd()];
    let [to_read, to_write] = [(); 2].map(|()| Pipe::new(&mut lp));
    to_read.open(&mut lp, reader).unwrap();
    to_write.open(&mut lp, writer).unwrap();
    assert!(!numbers.into_iter().any(blocks), "the handles do not block");
    for number in numbers {
        assert_ne!(flags(number, libc::F_GETFD) & libc::FD_CLOEXEC, 0, "closed by exec as before");
    }
    assert!(
        blocks(their_reader.as_raw_fd()) && blocks(their_writer.as_raw_fd()),
        "the other owners' ends block"
    );
    to_write.write(&mut lp, "out", |lp, pipe, _, _| pipe.close(lp).unwrap()).unwrap();
    run_until(&mut lp, "the write", |lp| to_write.is_closing(lp));
    let mut got = [0; 3];
    their_reader.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"out");
    their_writer.write_all(b"in").unwrap();
    drop(their_writer);
    let all = Log::default();
    read_all(&mut lp, to_read, &all);
    finish(lp);
    assert_eq!(all.take(), [b"in"], "and then the end, as no writer is left");
    Ok(())
}

/// A pipe taken by a handle stays blocking for the other owners of its open file description, as a
/// shell shares its standard streams, and stays the same pipe.
#[cfg(not(target_os = "linux"))]
pub fn shared_pipes_stay_blocking_for_other_owners(_lab: &Lab) -> Verdict {
    Err(crate::Skip::because("this system has no path to reopen a pipe"))
}

/// A standard stream taken by a handle belongs to the process: it stays open when the handle is
/// closed.
pub fn standard_streams_stay_open(lab: &Lab) -> Verdict {
    let (reader, mut writer) = io::pipe().unwrap();
    // A child has standard streams that nothing else uses.
    let child = Child::fork(|| {
        // SAFETY: both are open, and nothing here uses the previous file of this number.
        let standard = unsafe { libc::dup2(reader.as_raw_fd(), libc::STDIN_FILENO) };
        assert_eq!(standard, libc::STDIN_FILENO);
        drop(reader);
        for how in ["closed", "dropped with its loop"] {
            let mut lp = new_loop(lab)?;
            let (pipe, callbacks) = (Pipe::new(&mut lp), Log::default());
            // SAFETY: nothing else in this process uses standard input.
            let stdin = unsafe { OwnedFd::from_raw_fd(libc::STDIN_FILENO) };
            pipe.open(&mut lp, stdin).unwrap();
            let log = callbacks.clone();
            pipe.read(&mut lp, vec![0; 1], move |_, _, count, buffer| {
                log.push((count.unwrap(), buffer[0]));
            })
            .unwrap();
            run_until(&mut lp, "a byte", |_| callbacks.len() == 1);
            assert_eq!(callbacks.take(), [(1, b'x')]);
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

/// Two handles use one standard descriptor by turns: a stopped one leaves it, with its unread bytes,
/// to the other.
pub fn handles_share_a_standard_stream_by_turns(lab: &Lab) -> Verdict {
    let (reader, mut writer) = io::pipe().unwrap();
    let child = Child::fork(|| {
        // SAFETY: both are open, and nothing here uses the previous file of this number.
        let standard = unsafe { libc::dup2(reader.as_raw_fd(), libc::STDIN_FILENO) };
        assert_eq!(standard, libc::STDIN_FILENO);
        drop(reader);
        let mut lp = new_loop(lab)?;
        let pipes = [(); 2].map(|()| {
            let pipe = Pipe::new(&mut lp);
            // SAFETY: standard input belongs to the process, and no handle closes it.
            let stdin = unsafe { OwnedFd::from_raw_fd(libc::STDIN_FILENO) };
            pipe.open(&mut lp, stdin).expect("a standard stream can be opened again");
            pipe
        });
        let callbacks = Log::default();
        for turn in 0..6 {
            let log = callbacks.clone();
            let read = pipes[turn % 2].read(&mut lp, vec![0; 1], move |_, _, count, buffer| {
                log.push((count.unwrap(), buffer[0]));
            });
            read.expect("the other handle is idle");
            run_until(&mut lp, "a byte", |_| callbacks.len() == 1);
            assert_eq!(callbacks.take(), [(1, b'a' + turn as u8)]);
        }
        for pipe in pipes {
            pipe.close(&mut lp).unwrap();
        }
        finish(lp);
        assert!(flags(libc::STDIN_FILENO, libc::F_GETFD) >= 0, "it stays open");
        Ok(())
    });
    writer.write_all(b"abcdef").unwrap();
    child.join(SOON)
}
