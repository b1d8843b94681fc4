//! Forms of requests that report every error in one place: by the callback, or by the handler of
//! errors.

use std::io::{self, ErrorKind, Read as _};
use std::net::SocketAddr;

use uv_core::dns::Hints;
use uv_core::{
    AnyHandle, Command, Handle, Pipe, PipeFlags, Process, RunMode, Stdio, Stream, Tcp, Udp, fs,
    is_cancelled,
};

use super::errors_of;
use crate::support::datagrams::code::{EALREADY, EBADF, EDESTADDRREQ, EISCONN, EMSGSIZE};
use crate::support::datagrams::{bound, finish, numbers_of, outsider};
use crate::support::files::Directory;
use crate::support::loops::{new_loop, run, run_to_the_end};
use crate::support::pipes::piping_loop;
use crate::support::program::child;
use crate::support::streams::connected;
use crate::support::trace::Log;
use crate::{Lab, Loop, Verdict};

/// Longer than a datagram can be.
const TOO_LONG: usize = 70_000;

/// The numbers of the errors that the handler gets.
fn reports(lp: &mut Loop) -> Log<i32> {
    let reports = Log::default();
    let log = reports.clone();
    lp.on_error(move |_, handle, error| {
        assert!(matches!(handle, AnyHandle::Udp(_)), "{handle}");
        log.push(error.raw_os_error().unwrap_or_default());
    });
    reports
}

/// The callback of `Udp::send_with` gets every error, later, and always the buffer.
pub fn udp_send_with_reports_every_error(lab: &Lab) -> Verdict {
    let (mut lp, results) = (new_loop(lab)?, Log::default());
    let (outside, to) = outsider();
    let send = |lp: &mut Loop, udp: Udp, to: Option<SocketAddr>| {
        let log = results.clone();
        udp.send_with(lp, vec![7], to, move |_, _, result, buffer| {
            let code = result.err().map(|error| error.raw_os_error().ok_or(error.kind()));
            log.push((code, buffer));
        });
        assert_eq!(results.len(), 0, "never inline");
    };
    let udp = Udp::new(&mut lp);
    send(&mut lp, udp, None);
    run_to_the_end(&mut lp);
    assert_eq!(results.take(), [(Some(Ok(EDESTADDRREQ)), vec![7])]);
    udp.connect(&mut lp, to).unwrap();
    send(&mut lp, udp, None);
    run_to_the_end(&mut lp);
    assert_eq!((results.take(), numbers_of(&outside, 1)), (vec![(None, vec![7])], vec![7]));
    send(&mut lp, udp, Some(to));
    run_to_the_end(&mut lp);
    assert_eq!(results.take(), [(Some(Ok(EISCONN)), vec![7])]);
    udp.close(&mut lp).unwrap();
    for kind in [ErrorKind::InvalidInput, ErrorKind::NotFound] {
        send(&mut lp, udp, None);
        run_to_the_end(&mut lp);
        assert_eq!(results.take(), [(Some(Err(kind)), vec![7])]);
    }
    finish(lp);
    Ok(())
}

/// Each failed `Udp::send_to` is reported, and the handle goes on. A close cancels sends silently,
/// and a closed handle sends nothing.
pub fn an_error_of_a_datagram_leaves_the_socket_open(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (reports, (outside, to)) = (reports(&mut lp), outsider());
    let udp = Udp::new(&mut lp);
    udp.send_to(&mut lp, "no peer", None);
    udp.send_to(&mut lp, [1], to);
    udp.send_to(&mut lp, vec![0; TOO_LONG], to);
    udp.send_to(&mut lp, [2], to);
    assert_eq!(reports.len(), 0, "never inline");
    run_to_the_end(&mut lp);
    assert!(!udp.is_closing(&lp));
    assert_eq!(numbers_of(&outside, 2), [1, 2]);
    assert_eq!(reports.take(), [EDESTADDRREQ, EMSGSIZE]);
    // From a callback, a backend that performs sends queues them.
    lp.defer(move |lp| {
        udp.send_to(lp, vec![0; TOO_LONG], to);
        udp.send_to(lp, [3], to);
    });
    run_to_the_end(&mut lp);
    assert_eq!((numbers_of(&outside, 1), reports.take()), (vec![3], vec![EMSGSIZE]));
    lp.defer(move |lp| {
        udp.send_to(lp, vec![0; TOO_LONG], to);
        udp.close(lp).unwrap();
        udp.send_to(lp, "it is closing", None);
    });
    run_to_the_end(&mut lp);
    udp.send_to(&mut lp, "it is closed", None);
    assert!(!lp.is_alive());
    assert_eq!(reports.len(), 0);
    finish(lp);
    Ok(())
}

/// The callback of `Udp::recv_with` gets every error, later, and always the memory.
pub fn udp_recv_with_reports_every_error(lab: &Lab) -> Verdict {
    let (mut lp, results) = (new_loop(lab)?, Log::default());
    let (udp, to) = bound(&mut lp);
    let receive = |lp: &mut Loop| {
        let log = results.clone();
        udp.recv_with(lp, vec![0; 4], move |_, _, result, memory| match result {
            Ok(received) => log.push(Ok(memory[received.range()].to_vec())),
            Err(error) => {
                assert_eq!(memory.len(), 4);
                let error = io::Error::from(error);
                log.push(Err(error.raw_os_error().ok_or(error.kind())));
            }
        });
        assert_eq!(results.len(), 0, "never inline");
    };
    receive(&mut lp);
    udp.try_send(&mut lp, b"one", to).unwrap();
    run_to_the_end(&mut lp);
    assert_eq!(results.take(), [Ok(b"one".to_vec())]);
    udp.on_recv(&mut lp, |_, _, _| Ok(())).unwrap();
    receive(&mut lp);
    run(&mut lp, RunMode::NoWait);
    assert_eq!(results.take(), [Err(Ok(EALREADY))]);
    udp.close(&mut lp).unwrap();
    for kind in [ErrorKind::InvalidInput, ErrorKind::NotFound] {
        receive(&mut lp);
        run_to_the_end(&mut lp);
        assert_eq!(results.take(), [Err(Err(kind))]);
    }
    finish(lp);
    Ok(())
}

/// An error that the callback of `Udp::on_recv` returns is reported, and the handle goes on
/// receiving.
pub fn an_error_of_a_receiver_leaves_the_socket_open(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (reports, got) = (reports(&mut lp), Log::default());
    let ((udp, to), log) = (bound(&mut lp), got.clone());
    udp.on_recv(&mut lp, move |lp, udp, datagram| {
        log.push(datagram.data[0]);
        match datagram.data {
            [1 | 2] => Err(io::Error::from_raw_os_error(EBADF)),
            _ => udp.close(lp),
        }
    })
    .unwrap();
    assert!(udp.on_recv(&mut lp, |_, _, _| Ok(())).is_err(), "it receives");
    for number in 1..=3 {
        udp.try_send(&mut lp, &[number], to).unwrap();
    }
    run_to_the_end(&mut lp);
    assert_eq!((got.take(), reports.take()), (vec![1, 2, 3], vec![EBADF; 2]));
    finish(lp);
    Ok(())
}

/// The callbacks of `read_with` and `send_file_with` get every error, later, and the buffer.
pub fn streams_report_every_error_by_the_callback(lab: &Lab) -> Verdict {
    let (mut lp, results, directory) = (new_loop(lab)?, Log::default(), Directory::new());
    let path = directory.file("sent", "content");
    let file = fs::open(path, fs::OpenOptions::new().read(true)).perform().unwrap();
    let tcp = Tcp::new(&mut lp);
    for kind in [ErrorKind::NotConnected, ErrorKind::NotFound] {
        let (read, sent) = (results.clone(), results.clone());
        tcp.read_with(&mut lp, vec![0; 5], move |_, _, count, buffer| {
            read.push((count.unwrap_err().kind(), buffer.len()));
        });
        tcp.send_file_with(&mut lp, &file, 0..7, move |_, _, result, count| {
            sent.push((result.unwrap_err().kind(), count as usize));
        });
        assert_eq!(results.len(), 0, "never inline");
        run_to_the_end(&mut lp);
        assert_eq!(results.take(), [(kind, 5), (kind, 0)]);
        tcp.close_if_open(&mut lp);
        run_to_the_end(&mut lp);
    }

    let (tcp, mut peer) = connected(&mut lp);
    let (empty, range) = (results.clone(), results.clone());
    tcp.read_with(&mut lp, Vec::<u8>::new(), move |_, _, count, buffer| {
        empty.push((count.unwrap_err().kind(), buffer.len()));
    });
    #[allow(clippy::reversed_empty_ranges, reason = "it is what is refused")]
    tcp.send_file_with(&mut lp, &file, 7..0, move |_, _, result, count| {
        range.push((result.unwrap_err().kind(), count as usize));
    });
    run_to_the_end(&mut lp);
    assert_eq!(results.take(), [(ErrorKind::InvalidInput, 0); 2]);
    tcp.send_file_with(&mut lp, &file, 0..7, |lp, tcp, result, count| {
        assert_eq!((result.unwrap(), count), ((), 7));
        tcp.shutdown(lp, |_, _, _| {}).unwrap();
        tcp.read_with(lp, vec![0; 5], |lp, tcp, count, _| {
            assert_eq!(count.unwrap(), 0, "the peer has ended");
            tcp.close(lp).unwrap();
        });
    });
    let reader = std::thread::spawn(move || {
        let mut all = String::new();
        peer.read_to_string(&mut all).map(|_| all)
    });
    run_to_the_end(&mut lp);
    assert_eq!(reader.join().unwrap().unwrap(), "content");
    finish(lp);
    Ok(())
}

/// Operations on files and lookups that cannot start call back with the error.
pub fn requests_that_cannot_start_call_back(lab: &Lab) -> Verdict {
    let (mut lp, kinds) = (new_loop(lab)?, Log::default());
    let (stat, found) = (kinds.clone(), kinds.clone());
    fs::stat("a\0b").start_with(&mut lp, move |_, result| stat.push(result.unwrap_err().kind()));
    lp.getaddrinfo_with(Some("a\0b"), None, Hints::default(), move |_, result| {
        found.push(result.unwrap_err().kind());
    });
    assert_eq!(kinds.len(), 0, "never inline");
    run_to_the_end(&mut lp);
    assert_eq!(kinds.take(), [ErrorKind::InvalidInput; 2]);

    let (stat, found) = (Log::default(), Log::default());
    let logs = (stat.clone(), found.clone());
    fs::stat(".").start_with(&mut lp, move |_, result| logs.0.push(result.unwrap().is_dir()));
    lp.getaddrinfo_with(Some("127.0.0.1"), Some("80"), Hints::default(), move |_, result| {
        logs.1.push(result.unwrap()[0].address);
    });
    run_to_the_end(&mut lp);
    assert_eq!((stat.take(), found.take()), (vec![true], vec![([127, 0, 0, 1], 80).into()]));
    finish(lp);
    Ok(())
}

/// `Process::spawn_with` calls back once: with the exit, or with the error of the spawn, after which
/// the pipes are at their end. A handle that was closed before does not call back.
pub fn spawn_with_calls_back_without_a_child(lab: &Lab) -> Verdict {
    let mut lp = piping_loop(lab)?;
    let (errors, exits, bytes) = (errors_of(&mut lp), Log::default(), Log::default());
    let (log, count, output) = (exits.clone(), bytes.clone(), Pipe::new(&mut lp));
    let missing = Command::new("no-such-program")
        .stdio([Stdio::Ignore, Stdio::Pipe(output, PipeFlags::WRITABLE)]);
    let process = Process::spawn_with(&mut lp, &missing, move |lp, process, exit| {
        log.push(exit.unwrap_err().kind());
        process.close(lp).unwrap();
    });
    output
        .on_read(&mut lp, move |lp, output, bytes| {
            count.push(bytes.len());
            output.close(lp)
        })
        .unwrap();
    assert_eq!((exits.len(), process.pid(&lp).unwrap()), (0, 0), "never inline");
    run_to_the_end(&mut lp);
    assert_eq!((exits.take(), bytes.take()), (vec![ErrorKind::NotFound], vec![0]));

    let missing = Command::new("no-such-program");
    let closed = Process::spawn_with(&mut lp, &missing, |_, _, _| panic!("it was closed"));
    closed.close(&mut lp).unwrap();
    run_to_the_end(&mut lp);

    let codes = Log::default();
    let log = codes.clone();
    let process = Process::spawn_with(&mut lp, &child(&["exit", "5"]), move |lp, process, exit| {
        log.push(exit.unwrap().code);
        process.close(lp).unwrap();
    });
    assert_ne!(process.pid(&lp).unwrap(), 0);
    run_to_the_end(&mut lp);
    assert_eq!((codes.take(), errors.len()), (vec![5], 0));
    finish(lp);
    Ok(())
}

/// `write_handles_with` reports every error by its callback and gives the buffer back.
/// `send_with_handles` closes the handles in any case, and the pipe after an error.
pub fn handles_that_are_given_away_are_closed(lab: &Lab) -> Verdict {
    let mut lp = piping_loop(lab)?;
    let (errors, results) = (errors_of(&mut lp), Log::default());
    let (one, other) = Pipe::pair(&mut lp).unwrap();
    let ((near, far), log) = (connected(&mut lp), results.clone());
    let handles = [near.into()];
    one.write_handles_with(&mut lp, *b"x", &handles, move |_, _, result, buffer: Box<[u8; 1]>| {
        log.push((result.unwrap_err().kind(), buffer));
    });
    assert_eq!(results.len(), 0, "never inline");
    run_to_the_end(&mut lp);
    assert_eq!(results.take(), [(ErrorKind::InvalidInput, Box::new(*b"x"))], "it passes none");
    assert!(!near.is_closing(&lp) && !one.is_closing(&lp));

    one.enable_passing(&mut lp).and(other.enable_passing(&mut lp)).unwrap();
    one.send_with_handles(&mut lp, *b"take it", &handles);
    one.finish(&mut lp);
    other
        .on_read(&mut lp, |lp, other, bytes| {
            while other.pending_count(lp) > 0 {
                let AnyHandle::Tcp(peer) = other.accept_pending(lp)? else { continue };
                peer.send(lp, "welcome");
                peer.finish(lp);
            }
            if bytes.is_empty() { other.close(lp) } else { Ok(()) }
        })
        .unwrap();
    let reader = std::thread::spawn(move || {
        let (mut far, mut all) = (far, String::new());
        far.read_to_string(&mut all).map(|_| all)
    });
    run_to_the_end(&mut lp);
    assert_eq!(reader.join().unwrap().unwrap(), "welcome");
    assert!(near.is_closing(&lp) && errors.len() == 0);

    let ((one, other), (tcp, peer)) = (Pipe::pair(&mut lp).unwrap(), connected(&mut lp));
    one.send_with_handles(&mut lp, "refused", &[tcp.into()]);
    run_to_the_end(&mut lp);
    assert!(tcp.is_closing(&lp) && one.is_closing(&lp));
    assert_eq!(errors.take(), [("pipe", ErrorKind::InvalidInput)]);
    let (tcp, second) = connected(&mut lp);
    one.send_with_handles(&mut lp, "it is closed", &[tcp.into()]);
    run_to_the_end(&mut lp);
    assert!(tcp.is_closing(&lp) && errors.len() == 0);
    for mut peer in [peer, second] {
        assert_eq!(peer.read(&mut [0]).unwrap_or(0), 0, "the connections are closed");
    }
    other.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A read that a close cancels gives its buffer back, as one that cannot start does.
pub fn read_with_is_cancelled_by_a_close(lab: &Lab) -> Verdict {
    let (mut lp, results) = (new_loop(lab)?, Log::default());
    let ((tcp, _peer), log) = (connected(&mut lp), results.clone());
    tcp.read_with(&mut lp, vec![0; 5], move |_, _, count, buffer| {
        log.push((is_cancelled(&count.unwrap_err()), buffer.len()));
    });
    run(&mut lp, RunMode::NoWait);
    tcp.close(&mut lp).unwrap();
    run_to_the_end(&mut lp);
    assert_eq!(results.take(), [(true, 5)]);
    finish(lp);
    Ok(())
}
