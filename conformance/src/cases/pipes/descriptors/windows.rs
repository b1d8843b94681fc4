//! Handles on Windows.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::windows::fs::OpenOptionsExt;

use uv_core::{Handle, Listener, Pipe, PipeEnd, PipeFlags, Stdio, Stream, pipe_pair, socket_pair};
use windows_sys::Win32::Storage::FileSystem::FILE_FLAG_OVERLAPPED;

use crate::support::children::{code, spawn};
use crate::support::loops::run_to_the_end;
use crate::support::pipes::{Name, bound_to, piping_loop, read_all};
use crate::support::program::child;
use crate::support::streams::{echo_one, finish, refusal, run_until};
use crate::support::trace::Log;
use crate::{Lab, Verdict};

/// The access mode of a descriptor determines whether its handle is readable and writable. On Unix
/// it becomes non-blocking, and is closed with the handle. On Windows a synchronous handle is
/// refused, because its calls would block the loop.
pub fn the_access_mode_sets_the_directions(lab: &Lab) -> Verdict {
    let mut lp = piping_loop(lab)?;
    let (name, ends) = (Name::new(), Log::default());
    let server = bound_to(&mut lp, &name);
    server.listen_without_callback(&mut lp, 8).unwrap();
    let echoes = ends.clone();
    server.accept_with(&mut lp, move |lp, _, peer| echo_one(lp, peer.unwrap(), &echoes)).unwrap();
    let open = |flags| {
        let mut how = File::options();
        how.read(true).write(true).custom_flags(flags).open(name.as_ref()).expect("a server")
    };
    let (reader, writer) = pipe_pair(PipeEnd::NonBlocking, PipeEnd::NonBlocking).unwrap();
    let cases = [
        (reader, true, false),
        (writer, false, true),
        (open(FILE_FLAG_OVERLAPPED).into(), true, true),
    ];
    let mut pipes = Vec::new();
    for (handle, readable, writable) in cases {
        let pipe = Pipe::new(&mut lp);
        pipe.open(&mut lp, handle).unwrap();
        assert_eq!((pipe.is_readable(&lp), pipe.is_writable(&lp)), (readable, writable));
        pipes.push(pipe);
    }
    let [reader, writer, both] = pipes[..] else { unreachable!("three were made") };
    assert_eq!(refusal(reader.write(&mut lp, "x", |_, _, _, _| {})), ErrorKind::BrokenPipe);
    assert_eq!(refusal(writer.read(&mut lp, vec![0], |_, _, _, _| {})), ErrorKind::NotConnected);
    let all = Log::default();
    read_all(&mut lp, reader, &all);
    writer.write(&mut lp, "one way", |lp, writer, _, _| writer.close(lp).unwrap()).unwrap();
    both.write(&mut lp, "and back", |_, _, result, _| result.unwrap()).unwrap();
    let read = all.clone();
    both.read(&mut lp, vec![0; 64], move |lp, both, count, buffer| {
        read.push(buffer[..count.unwrap()].to_vec());
        both.close(lp).unwrap();
    })
    .unwrap();
    run_until(&mut lp, "both", |_| all.len() == 2 && ends.len() == 1);
    let mut all = all.take();
    all.sort_unstable();
    assert_eq!(all, [&b"and back"[..], b"one way"]);
    let blocks = Pipe::new(&mut lp);
    assert_eq!(refusal(blocks.open(&mut lp, open(0))), ErrorKind::Unsupported);
    for pipe in [server, blocks] {
        pipe.close(&mut lp).unwrap();
    }
    finish(lp);
    Ok(())
}

/// Each end of a pair created without a loop is blocking or non-blocking, as requested, and is not
/// inherited by other programs.
pub fn raw_pairs_block_or_not(lab: &Lab) -> Verdict {
    let mut lp = piping_loop(lab)?;
    let ends = [PipeEnd::Blocking, PipeEnd::NonBlocking];
    for (first, second) in ends.into_iter().flat_map(|first| ends.map(|second| (first, second))) {
        let (reader, writer) = pipe_pair(first, second).unwrap();
        for (handle, end) in [(&reader, first), (&writer, second)] {
            let pipe = Pipe::new(&mut lp);
            let opened = pipe.open(&mut lp, handle.try_clone().unwrap());
            let expected =
                if end == PipeEnd::Blocking { Err(ErrorKind::Unsupported) } else { Ok(()) };
            assert_eq!(opened.map_err(|error| error.kind()), expected, "{end:?}");
            pipe.close(&mut lp).unwrap();
        }
        File::from(writer).write_all(b"one way").unwrap();
        let mut got = String::new();
        File::from(reader).read_to_string(&mut got).unwrap();
        assert_eq!(got, "one way");

        let (one, other) = socket_pair(first, second).unwrap();
        let (mut one, mut other) = (TcpStream::from(one), TcpStream::from(other));
        for (socket, end) in [(&mut one, first), (&mut other, second)] {
            if end == PipeEnd::NonBlocking {
                assert_eq!(refusal(socket.read(&mut [0])), ErrorKind::WouldBlock);
                socket.set_nonblocking(false).unwrap();
            }
        }
        for _ in 0..2 {
            one.write_all(b"both ways").unwrap();
            let mut got = [0; 9];
            other.read_exact(&mut got).unwrap();
            assert_eq!(&got, b"both ways");
            std::mem::swap(&mut one, &mut other);
        }
    }
    finish(lp);
    Ok(())
}

/// A standard stream taken by a handle belongs to the process: it stays open when the handle is
/// closed.
pub fn standard_streams_stay_open(lab: &Lab) -> Verdict {
    let mut lp = piping_loop(lab)?;
    let (input, ends) = (Pipe::new(&mut lp), Log::default());
    let flags = PipeFlags::READABLE | PipeFlags::NON_BLOCKING;
    spawn(&mut lp, &child(&["open standard input"]).stdio([Stdio::Pipe(input, flags)]), &ends);
    input
        .write(&mut lp, "x", |lp, input, result, _| {
            result.unwrap();
            input.close(lp).unwrap();
        })
        .unwrap();
    run_to_the_end(&mut lp);
    assert_eq!(ends.take(), [code(0)]);
    finish(lp);
    Ok(())
}

/// A pipe taken by a handle stays blocking for the other owners of its open file description, as a
/// shell shares its standard streams, and stays the same pipe.
pub fn shared_pipes_stay_blocking_for_other_owners(_lab: &Lab) -> Verdict {
    Err(crate::Skip::because("Windows has no flag for it that processes share"))
}

/// Two handles use one standard descriptor by turns: a stopped one leaves it, with its unread bytes,
/// to the other.
pub fn handles_share_a_standard_stream_by_turns(_lab: &Lab) -> Verdict {
    Err(crate::Skip::because("a pipe of Windows belongs to one completion port for good"))
}
