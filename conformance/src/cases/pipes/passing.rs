//! Passing handles over pipes.

#[cfg(unix)]
mod descriptors;
mod processes;

use std::io::{ErrorKind, Read};
use std::net::{TcpStream, UdpSocket};

use uv_core::{
    AnyHandle, Handle, Listener, PendingKind, Pipe, RunMode, Stream, Tcp, Timer, Udp, UdpBindFlags,
};

use crate::support::datagrams::code::EBADF;
use crate::support::loops::{run, run_to_the_end};
use crate::support::observe::SOON;
use crate::support::pipes::{Name, OVER_PIPE_BUFFERS, bound_to, piping_loop};
use crate::support::sources::tcp_pair;
use crate::support::streams::{
    any_port, bound, connected, finish, opened, outcome, refusal, run_until,
};
use crate::support::trace::Log;
use crate::{Lab, Loop, Verdict};

#[cfg(unix)]
pub use descriptors::*;
pub use processes::*;

/// Pipes of Windows have no immediate writes.
const WRITES_AT_ONCE: bool = cfg!(unix);

/// Writes immediately if possible, and with a request otherwise.
fn send(lp: &mut Loop, pipe: Pipe, bytes: &'static [u8], handles: &[AnyHandle]) {
    if WRITES_AT_ONCE {
        let written = pipe.try_write_with_handles(lp, bytes, handles);
        assert_eq!(written.expect("the pipe is not full"), bytes.len());
        return;
    }
    pipe.write_with_handles(lp, bytes, handles, |_, _, _, _| {}).expect("a write");
}

/// Two ends of one pipe that passes handles.
fn passing_pair(lp: &mut Loop) -> (Pipe, Pipe) {
    let (one, other) = Pipe::pair(lp).expect("a pair");
    one.enable_passing(lp).and(other.enable_passing(lp)).expect("sockets pass handles");
    (one, other)
}

/// Reads, and logs the bytes, the number of handles pending by then, and their kinds; accepts and
/// closes them.
fn take_and_close(lp: &mut Loop, pipe: Pipe, got: &Log<(Vec<u8>, Vec<PendingKind>)>) {
    let got = got.clone();
    let reading = pipe.read_start(lp, move |lp, pipe, bytes| {
        let bytes = bytes.expect("no error").to_vec();
        let mut kinds = Vec::new();
        for left in (0..pipe.pending_count(lp)).rev() {
            kinds.extend(pipe.pending_kind(lp));
            pipe.accept_pending(lp).expect("it waits").close(lp).expect("an open handle");
            assert_eq!(pipe.pending_count(lp), left);
        }
        got.push((bytes, kinds));
    });
    reading.expect("a connection is read");
}

/// Each kind of handle arrives with the bytes of its write, reports its kind, and works at the
/// receiver after the sender has closed its own.
pub fn handles_arrive_with_their_bytes(lab: &Lab) -> Verdict {
    let mut lp = piping_loop(lab)?;
    let (one, other) = passing_pair(&mut lp);
    let (tcp, mut tcp_peer) = connected(&mut lp);
    let (pipe, pipe_peer) = Pipe::pair(&mut lp).unwrap();
    let (fifo_reader, fifo_writer) = Pipe::one_way(&mut lp).unwrap();
    let udp = Udp::new(&mut lp);
    udp.bind(&mut lp, any_port(), UdpBindFlags::empty()).unwrap();
    let port = udp.local_addr(&lp).unwrap();
    let sent: [AnyHandle; 4] = [tcp.into(), udp.into(), pipe.into(), fifo_writer.into()];
    let (arrived, callbacks) = (accept_each(&mut lp, other), Log::default());
    for (handle, byte) in sent.into_iter().zip(["t", "u", "p", "f"]) {
        let log = callbacks.clone();
        one.write_with_handles(&mut lp, byte, &[handle], move |lp, _, result, buffer| {
            assert_eq!((outcome(&result), buffer), ("done", byte));
            handle.close(lp).unwrap();
            log.push(byte);
        })
        .unwrap();
    }
    run_until(&mut lp, "all handles", |_| arrived.len() == 4 && callbacks.len() == 4);
    assert_eq!(callbacks.take(), ["t", "u", "p", "f"]);
    let arrived = arrived.take();
    let kinds: Vec<_> = arrived.iter().map(|(byte, kind, _)| (*byte, *kind)).collect();
    let (t, u, p) = (PendingKind::Tcp, PendingKind::Udp, PendingKind::Pipe);
    assert_eq!(kinds, [(b't', t), (b'u', u), (b'p', p), (b'f', p)]);
    let handles: Vec<_> = arrived.into_iter().map(|(_, _, handle)| handle).collect();
    let [
        AnyHandle::Tcp(tcp),
        AnyHandle::Udp(udp),
        AnyHandle::Pipe(pipe),
        AnyHandle::Pipe(fifo_writer),
    ] = handles[..]
    else {
        panic!("{handles:?} have come");
    };

    tcp.write(&mut lp, "hello", |lp, tcp, result, _| {
        result.unwrap();
        tcp.close(lp).unwrap();
    })
    .unwrap();
    let received = Log::default();
    let log = received.clone();
    udp.recv_start(&mut lp, move |lp, udp, datagram| {
        log.push(datagram.unwrap().data.to_vec());
        udp.close(lp).unwrap();
    })
    .unwrap();
    let client = UdpSocket::bind(any_port()).unwrap();
    client.send_to(b"datagram", port).unwrap();
    for (writer, reader) in [(pipe, pipe_peer), (fifo_writer, fifo_reader)] {
        writer.write(&mut lp, "by pipe", |lp, writer, _, _| writer.close(lp).unwrap()).unwrap();
        let log = received.clone();
        reader
            .read(&mut lp, vec![0; 64], move |lp, reader, count, buffer| {
                log.push(buffer[..count.unwrap()].to_vec());
                reader.close(lp).unwrap();
            })
            .unwrap();
    }
    run_until(&mut lp, "three messages", |_| received.len() == 3);
    let mut received = received.take();
    received.sort_unstable();
    assert_eq!(received, [&b"by pipe"[..], b"by pipe", b"datagram"]);
    let mut text = String::new();
    tcp_peer.read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello", "and then the end: no other descriptor is left");
    one.close(&mut lp).unwrap();
    other.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// Accepts each handle that arrives with its byte. Returns the bytes, kinds and handles.
fn accept_each(lp: &mut Loop, other: Pipe) -> Log<(u8, PendingKind, AnyHandle)> {
    let arrived = Log::default();
    let log = arrived.clone();
    other
        .read_start(lp, move |lp, other, bytes| {
            let bytes = bytes.unwrap();
            assert_eq!(other.pending_count(lp), bytes.len(), "one a byte");
            for byte in bytes.iter().copied() {
                let kind = other.pending_kind(lp).unwrap();
                log.push((byte, kind, other.accept_pending(lp).unwrap()));
            }
            assert_eq!((other.pending_count(lp), other.pending_kind(lp)), (0, None));
            assert_eq!(refusal(other.accept_pending(lp)), ErrorKind::WouldBlock);
        })
        .unwrap();
    arrived
}

/// One write passes several handles, up to the kernel's limit, in order. The same handle may occur
/// twice.
pub fn one_write_passes_several_handles(lab: &Lab) -> Verdict {
    let mut lp = piping_loop(lab)?;
    let (one, other) = passing_pair(&mut lp);
    let got = Log::default();
    take_and_close(&mut lp, other, &got);
    let ((tcp, _), (pipe, end)) = (bound(&mut lp), Pipe::pair(&mut lp).unwrap());
    let (t, p) = (PendingKind::Tcp, PendingKind::Pipe);
    let three: [AnyHandle; 3] = [tcp.into(), pipe.into(), tcp.into()];
    one.write_with_handles(&mut lp, ["", "a", "b"], &three, |_, _, result, _| result.unwrap())
        .unwrap();
    run_until(&mut lp, "three", |_| got.len() > 0);
    assert_eq!(got.take(), [(b"ab".to_vec(), vec![t, p, t])]);
    if cfg!(windows) {
        let refused = pipe.read_start(&mut lp, |_, _, _| {});
        assert_eq!(refusal(refused), ErrorKind::BrokenPipe, "it is the other side's");
    }

    let most: Vec<AnyHandle> =
        (0..253).map(|at| if at % 3 == 0 { tcp.into() } else { pipe.into() }).collect();
    one.write_with_handles(&mut lp, "many", &most, |_, _, result, _| result.unwrap()).unwrap();
    run_until(&mut lp, "the most there can be", |_| got.len() > 0);
    let (bytes, kinds) = got.take().pop().unwrap();
    assert_eq!((bytes.as_slice(), kinds.len()), (&b"many"[..], 253));
    assert!(kinds.iter().enumerate().all(|(at, kind)| *kind == if at % 3 == 0 { t } else { p }));
    assert!(!other.has_lost_handles(&mut lp).unwrap());
    for handle in lp.walk() {
        let _ = handle.close(&mut lp);
    }
    let _ = (end, one);
    finish(lp);
    Ok(())
}

/// Handles keep the order of their writes, and arrive exactly with their bytes, whether they are
/// accepted immediately or later.
pub fn handles_keep_their_order(lab: &Lab) -> Verdict {
    const WRITES: u8 = 40;
    let mut lp = piping_loop(lab)?;
    let (one, other) = passing_pair(&mut lp);
    let ports: Vec<_> = (0..WRITES).map(|_| bound(&mut lp)).collect();
    for (number, (tcp, _)) in ports.iter().enumerate() {
        let handle = if number % 4 == 3 { vec![] } else { vec![AnyHandle::from(*tcp)] };
        if handle.is_empty() {
            one.write(&mut lp, vec![number as u8], |_, _, result, _| result.unwrap()).unwrap();
        } else {
            let sent = one.write_with_handles(&mut lp, vec![number as u8], &handle, {
                |_, _, result, _| result.unwrap()
            });
            sent.unwrap();
        }
    }
    let (got, taken) = (Log::default(), Log::default());
    let (note, take) = (got.clone(), taken.clone());
    other
        .read_start(&mut lp, move |lp, other, bytes| {
            note.extend(bytes.unwrap().iter().copied());
            let passed = note.len() - note.len() / 4;
            let come = other.pending_count(lp) + take.len();
            assert_eq!(come, passed, "with their bytes");
            // Some handles are accepted only after the last has arrived.
            while other.pending_count(lp) > 5 || note.len() == usize::from(WRITES) {
                let Ok(AnyHandle::Tcp(tcp)) = other.accept_pending(lp) else { break };
                take.push(tcp.local_addr(lp).unwrap());
                tcp.close(lp).unwrap();
            }
        })
        .unwrap();
    run_until(&mut lp, "all of them", |_| got.len() == usize::from(WRITES));
    assert_eq!(got.take(), (0..WRITES).collect::<Vec<_>>());
    let expected = ports.iter().enumerate().filter(|(number, _)| number % 4 != 3);
    assert_eq!(taken.take(), expected.map(|(_, (_, address))| *address).collect::<Vec<_>>());
    for handle in lp.walk() {
        let _ = handle.close(&mut lp);
    }
    finish(lp);
    Ok(())
}

/// A write sent in many parts passes its handles once, with the first part.
pub fn a_large_write_passes_its_handles_once(lab: &Lab) -> Verdict {
    let mut lp = piping_loop(lab)?;
    let (one, other) = passing_pair(&mut lp);
    let ((tcp, _), callbacks, got) = (bound(&mut lp), Log::default(), Log::default());
    let handles = [tcp.into(), tcp.into()];
    one.write(&mut lp, vec![0; OVER_PIPE_BUFFERS], callbacks.written("before")).unwrap();
    one.write_with_handles(
        &mut lp,
        vec![1; OVER_PIPE_BUFFERS],
        &handles,
        callbacks.written("large"),
    )
    .unwrap();
    one.write(&mut lp, vec![2; 3], callbacks.written("after")).unwrap();
    let (note, mut read) = (got.clone(), 0);
    other
        .read_start(&mut lp, move |lp, other, bytes| {
            let bytes = bytes.unwrap();
            while other.accept_pending(lp).is_ok_and(|handle| handle.close(lp).is_ok()) {
                note.push((read..read + bytes.len()).contains(&OVER_PIPE_BUFFERS));
            }
            read += bytes.len();
            if read == 2 * OVER_PIPE_BUFFERS + 3 {
                other.close(lp).unwrap();
            }
        })
        .unwrap();
    run_until(&mut lp, "all of it", |lp| other.is_closing(lp));
    assert_eq!(got.take(), [true; 2], "with the first byte of their write");
    assert_eq!(callbacks.take(), [("before", "done"), ("large", "done"), ("after", "done")]);
    one.close(&mut lp).unwrap();
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A listener can be passed: the receiver listens and accepts. A listening named pipe of Windows is
/// refused.
pub fn listeners_can_be_passed(lab: &Lab) -> Verdict {
    let mut lp = piping_loop(lab)?;
    let (one, other) = passing_pair(&mut lp);
    let ((tcp, address), name) = (bound(&mut lp), Name::new());
    let pipe = bound_to(&mut lp, &name);
    tcp.listen_without_callback(&mut lp, 8).unwrap();
    pipe.listen_without_callback(&mut lp, 8).unwrap();
    let mut both = vec![AnyHandle::from(tcp), pipe.into()];
    if cfg!(windows) {
        let refused = one.write_with_handles(&mut lp, "x", &both, |_, _, _, _| {});
        assert_eq!(refusal(refused), ErrorKind::InvalidInput);
        both.pop();
    }
    send(&mut lp, one, b"x", &both);
    tcp.close(&mut lp).unwrap();
    one.close(&mut lp).unwrap();
    let served = Log::default();
    let note = served.clone();
    other
        .read_start(&mut lp, move |lp, other, _| {
            while other.pending_count(lp) > 0 {
                match other.accept_pending(lp).unwrap() {
                    AnyHandle::Tcp(tcp) => serve_one(lp, tcp, "tcp", &note),
                    AnyHandle::Pipe(pipe) => serve_one(lp, pipe, "pipe", &note),
                    handle => panic!("{handle:?} has come"),
                }
            }
            other.close(lp).unwrap();
        })
        .unwrap();
    let _client = TcpStream::connect(address).unwrap();
    #[cfg(unix)]
    let _client = std::os::unix::net::UnixStream::connect(name.as_ref()).unwrap();
    run_until(&mut lp, "all", |_| served.len() == both.len());
    pipe.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// Accepts one connection, and is closed.
fn serve_one<S: Listener>(
    lp: &mut Loop,
    listener: S,
    name: &'static str,
    served: &Log<&'static str>,
) {
    let log = served.clone();
    let listening = listener.listen(lp, 8, move |lp, listener, _| {
        listener.accept(lp).expect("a connection").close(lp).expect("an open handle");
        listener.close(lp).expect("an open handle");
        log.push(name);
    });
    listening.expect("it listened before");
}

/// A closing handle is refused. A handle closed before its write is sent fails that write with
/// `EBADF`, and no other.
pub fn a_closed_handle_is_not_passed(lab: &Lab) -> Verdict {
    let mut lp = piping_loop(lab)?;
    let (one, other) = passing_pair(&mut lp);
    let ((tcp, _), (kept, _), callbacks) = (bound(&mut lp), bound(&mut lp), Log::default());
    one.write(&mut lp, vec![0; OVER_PIPE_BUFFERS], callbacks.written("before")).unwrap();
    let log = callbacks.clone();
    let both = [kept.into(), tcp.into()];
    one.write_with_handles(&mut lp, "gone", &both, move |_, _, result, _| {
        assert_eq!(result.unwrap_err().raw_os_error(), Some(EBADF));
        log.push(("gone", "failed"));
    })
    .unwrap();
    one.write_with_handles(&mut lp, "kept", &[kept.into()], callbacks.written("after")).unwrap();
    tcp.close(&mut lp).unwrap();
    let refused = one.write_with_handles(&mut lp, "x", &[tcp.into()], |_, _, _, _| {});
    assert_eq!(refused.unwrap_err().raw_os_error(), Some(EBADF), "it is closing");
    run(&mut lp, RunMode::NoWait);
    let refused = one.write_with_handles(&mut lp, "x", &[tcp.into()], |_, _, _, _| {});
    assert_eq!(refusal(refused), ErrorKind::NotFound, "it is closed");

    let (got, mut tail) = (Log::default(), Vec::<u8>::new());
    let note = got.clone();
    other
        .read_start(&mut lp, move |lp, other, bytes| {
            tail.extend(bytes.unwrap().iter().filter(|byte| **byte != 0));
            if tail == b"kept" {
                note.push(other.pending_count(lp));
            }
        })
        .unwrap();
    run_until(&mut lp, "the last", |_| got.len() == 1);
    assert_eq!(got.take(), [1]);
    assert_eq!(callbacks.take(), [("before", "done"), ("gone", "failed"), ("after", "done")]);
    for handle in [one, other] {
        handle.close(&mut lp).unwrap();
    }
    kept.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A write cancelled before it is sent passes no handle. Later writes pass theirs.
pub fn a_cancelled_write_passes_nothing(lab: &Lab) -> Verdict {
    let mut lp = piping_loop(lab)?;
    let (one, other) = passing_pair(&mut lp);
    let ((tcp, _), (pipe, end), callbacks) =
        (bound(&mut lp), Pipe::pair(&mut lp).unwrap(), Log::default());
    one.write(&mut lp, vec![0; OVER_PIPE_BUFFERS], callbacks.written("before")).unwrap();
    let handles = [tcp.into()];
    let cancelled =
        one.write_with_handles(&mut lp, "never", &handles, callbacks.written("never")).unwrap();
    one.write_with_handles(&mut lp, "x", &[pipe.into()], callbacks.written("after")).unwrap();
    assert_eq!(cancelled.cancel(&mut lp).unwrap(), 0);
    let got = Log::default();
    let note = got.clone();
    other
        .read_start(&mut lp, move |lp, other, bytes| {
            assert!(bytes.unwrap().iter().all(|byte| [0, b'x'].contains(byte)));
            while let Some(kind) = other.pending_kind(lp) {
                other.accept_pending(lp).unwrap().close(lp).unwrap();
                note.push(kind);
            }
        })
        .unwrap();
    run_until(&mut lp, "the last", |_| got.len() == 1);
    assert_eq!(got.take(), [PendingKind::Pipe]);
    run_until(&mut lp, "all callbacks", |_| callbacks.len() == 3);
    assert_eq!(callbacks.take(), [("never", "cancelled"), ("before", "done"), ("after", "done")]);
    for pipe in [one, other, pipe, end] {
        pipe.close(&mut lp).unwrap();
    }
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// Handles that cannot be passed, and pipes that cannot pass them, are refused with an error and
/// without effect.
pub fn invalid_handle_passing_is_refused(lab: &Lab) -> Verdict {
    let mut lp = piping_loop(lab)?;
    let (one, other) = Pipe::pair(&mut lp).unwrap();
    let (tcp, _) = bound(&mut lp);
    let attempt = |lp: &mut Loop, bytes: &'static str, handles: &[AnyHandle]| {
        let tried = one.try_write_with_handles(lp, bytes.as_bytes(), handles);
        let written = one.write_with_handles(lp, bytes, handles, |_, _, _, _| {
            panic!("a refused write has called back")
        });
        let (tried, written) = (tried.unwrap_err(), written.unwrap_err());
        assert_eq!(tried.to_string(), written.to_string());
        tried
    };
    assert_eq!(attempt(&mut lp, "x", &[tcp.into()]).kind(), ErrorKind::InvalidInput, "enable it");
    one.enable_passing(&mut lp).unwrap();
    one.enable_passing(&mut lp).expect("once more changes nothing");
    assert_eq!(attempt(&mut lp, "", &[tcp.into()]).kind(), ErrorKind::InvalidInput, "no byte");
    let many = vec![AnyHandle::from(tcp); 254];
    assert_eq!(attempt(&mut lp, "x", &many).kind(), ErrorKind::InvalidInput, "too many");
    let timer = Timer::new(&mut lp);
    let error = attempt(&mut lp, "x", &[tcp.into(), timer.into()]);
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "timers cannot go");
    let no_socket = Tcp::new(&mut lp);
    let error = attempt(&mut lp, "x", &[no_socket.into()]);
    assert_eq!(error.raw_os_error(), Some(EBADF), "there is no socket");

    if cfg!(windows) {
        let (read, end) = Pipe::pair(&mut lp).unwrap();
        read.read_start(&mut lp, |_, _, _| {}).unwrap();
        let error = attempt(&mut lp, "x", &[read.into()]);
        assert_eq!(error.kind(), ErrorKind::ResourceBusy, "it is being read");
        read.close(&mut lp).and(end.close(&mut lp)).unwrap();
    }

    let (name, (reader, writer)) = (Name::new(), Pipe::one_way(&mut lp).unwrap());
    assert_eq!(refusal(reader.enable_passing(&mut lp)), ErrorKind::InvalidInput, "no socket");
    let server = bound_to(&mut lp, &name);
    server.enable_passing(&mut lp).unwrap();
    assert_eq!(refusal(server.listen_without_callback(&mut lp, 1)), ErrorKind::InvalidInput);
    let second = Name::new();
    let listener = bound_to(&mut lp, &second);
    listener.listen_without_callback(&mut lp, 1).unwrap();
    assert_eq!(refusal(listener.enable_passing(&mut lp)), ErrorKind::InvalidInput);
    for pipe in [one, other, reader, writer, server, listener] {
        pipe.close(&mut lp).unwrap();
        assert_eq!(refusal(pipe.enable_passing(&mut lp)), ErrorKind::InvalidInput);
    }
    for handle in [AnyHandle::from(tcp), timer.into(), no_socket.into()] {
        handle.close(&mut lp).unwrap();
    }
    finish(lp);
    Ok(())
}

/// An immediate write passes its handles if it writes any byte, and none otherwise. It does not
/// overtake queued writes.
pub fn an_immediate_write_passes_handles(lab: &Lab) -> Verdict {
    let mut lp = piping_loop(lab)?;
    let (one, other) = passing_pair(&mut lp);
    let ((tcp, _), got) = (bound(&mut lp), Log::default());
    let handles = [AnyHandle::from(tcp)];
    match one.try_write_with_handles(&mut lp, b"abc", &handles) {
        Ok(count) if WRITES_AT_ONCE => assert_eq!(count, 3),
        refused => assert_eq!(refusal(refused), ErrorKind::WouldBlock),
    }
    one.write(&mut lp, vec![0; OVER_PIPE_BUFFERS], |_, _, result, _| result.unwrap()).unwrap();
    let refused = one.try_write_with_handles(&mut lp, b"x", &handles);
    assert_eq!(refusal(refused), ErrorKind::WouldBlock);
    tcp.close(&mut lp).unwrap();
    take_and_close(&mut lp, other, &got);
    let mut passed = Vec::new();
    run_until(&mut lp, "all of it", |lp| {
        passed.extend(got.take().into_iter().flat_map(|(_, kinds)| kinds));
        one.write_queue_size(lp) == 0
    });
    assert_eq!(passed, vec![PendingKind::Tcp; usize::from(WRITES_AT_ONCE)], "once, if at all");
    one.close(&mut lp).unwrap();
    other.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// Handles that are not accepted are closed immediately with their pipe, and with its loop. Handles
/// in transit when the peer closes are closed too.
pub fn unaccepted_handles_are_closed_with_the_pipe(lab: &Lab) -> Verdict {
    for how in ["closed", "dropped", "not read"] {
        let mut lp = piping_loop(lab)?;
        let (pipe, far) = passing_pair(&mut lp);
        let (near, end) = tcp_pair();
        let tcp = opened(&mut lp, near);
        end.set_nonblocking(false).unwrap();
        end.set_read_timeout(Some(SOON)).unwrap();
        let come = Log::default();
        let note = come.clone();
        if how != "not read" {
            pipe.read_start(&mut lp, move |lp, pipe, _| note.push(pipe.pending_count(lp))).unwrap();
        }
        send(&mut lp, far, b"x", &[tcp.into(), tcp.into()]);
        tcp.close(&mut lp).unwrap();
        if how != "not read" {
            run_until(&mut lp, "the sent data", |_| come.len() > 0);
            assert_eq!(come.take(), [2]);
        }
        match how {
            "closed" => {
                pipe.close(&mut lp).unwrap();
                assert_eq!(pipe.pending_count(&lp), 0);
                assert!(pipe.take_pending(&mut lp).is_err());
            }
            "dropped" => {}
            _ => pipe.close(&mut lp).unwrap(),
        }
        if how == "dropped" {
            drop(lp);
        } else {
            run_to_the_end(&mut lp);
        }
        assert_eq!((&end).read(&mut [0]).unwrap(), 0, "no process has it open: {how}");
    }
    Ok(())
}

/// Read requests, and reads with an allocation callback, receive the handles that arrived with
/// their bytes.
pub fn read_requests_receive_handles(lab: &Lab) -> Verdict {
    let mut lp = piping_loop(lab)?;
    let (one, other) = passing_pair(&mut lp);
    let ((tcp, _), come) = (bound(&mut lp), Log::default());
    send(&mut lp, one, b"abc", &[tcp.into()]);
    for expected in [b"a", b"b", b"c"] {
        let note = come.clone();
        other
            .read(&mut lp, vec![0], move |lp, other, count, buffer| {
                assert_eq!((count.unwrap(), &buffer), (1, &expected.to_vec()));
                note.push(other.pending_count(lp));
            })
            .unwrap();
        run_to_the_end(&mut lp);
    }
    assert_eq!(come.take(), [1, 1, 1], "with the first byte, until it is accepted");
    other.accept_pending(&mut lp).unwrap().close(&mut lp).unwrap();
    one.write_with_handles(&mut lp, "d", &[tcp.into()], |_, _, result, _| result.unwrap()).unwrap();
    let note = come.clone();
    let alloc = |_: &mut Loop, _, _| vec![0; 8];
    other
        .read_start_with(&mut lp, alloc, move |lp, other, count, _| {
            assert_eq!(count.unwrap(), 1);
            note.push(other.pending_count(lp));
            other.close(lp).unwrap();
        })
        .unwrap();
    run_to_the_end(&mut lp);
    assert_eq!(come.take(), [1]);
    one.close(&mut lp).unwrap();
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}
