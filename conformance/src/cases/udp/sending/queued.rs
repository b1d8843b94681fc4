//! Sends that the kernel does not accept immediately.
//!
//! UDP drops datagrams instead. Linux blocks the sender of local datagrams, and a handle accepts
//! any kind of socket. The BSDs and Apple's systems refuse a send to a full local socket with
//! `ENOBUFS`: these cases are skipped there.

use std::io::{self, ErrorKind};
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;

use uv_core::{Handle, RunMode, Udp};

use crate::support::datagrams::code::{ECANCELED, EMSGSIZE};
use crate::support::datagrams::{finish, run_out};
use crate::support::loops::{new_loop, run};
use crate::support::trace::Log;
use crate::{Lab, Loop, Verdict};

/// More than the kernel accepts, and than one event sends.
const MANY: u32 = 400;

/// More bytes than any kernel accepts for one datagram.
const TOO_LONG: usize = 4_000_000;

/// The number of a send, and its error.
type Callbacks = Log<(u32, Option<i32>)>;

/// Skips a case where the kernel refuses a send that it cannot accept yet.
fn sends_wait() -> Result<(), crate::Skip> {
    if cfg!(target_os = "linux") {
        return Ok(());
    }
    Err(crate::Skip::because("a full local datagram socket refuses sends (ENOBUFS) on this system"))
}

/// Two handles connected to each other.
fn patient_pair(lp: &mut Loop) -> (Udp, Udp) {
    let (one, other) = UnixDatagram::pair().expect("a pair of local sockets");
    (opened(lp, one), opened(lp, other))
}

fn opened(lp: &mut Loop, socket: UnixDatagram) -> Udp {
    let udp = Udp::new(lp);
    udp.open(lp, UdpSocket::from(OwnedFd::from(socket))).expect("a handle that takes it");
    udp
}

/// Sends many numbered datagrams; `long` is longer than the kernel ever accepts.
fn send_many(lp: &mut Loop, udp: Udp, long: Option<u32>, callbacks: &Callbacks) {
    for number in 0..MANY {
        let callbacks = callbacks.clone();
        let callback = move |_: &mut Loop, _, result: io::Result<()>, _| {
            callbacks.push((number, result.err().and_then(|error| error.raw_os_error())));
        };
        let mut data = number.to_le_bytes().to_vec();
        data.resize(if long == Some(number) { TOO_LONG } else { 4_000 }, 0);
        udp.send(lp, data, None, callback).expect("a send that may wait");
    }
    assert_eq!(udp.send_queue_count(lp), MANY as usize);
    assert!(callbacks.len() == 0, "no callback runs inline");
}

/// Logs the numbers of `count` datagrams, then stops.
fn receive(lp: &mut Loop, udp: Udp, count: usize) -> Log<u32> {
    let got = Log::default();
    let log = got.clone();
    udp.recv_start(lp, move |lp, udp, datagram| {
        let number = datagram.expect("a datagram").data.first_chunk().expect("a number");
        log.push(u32::from_le_bytes(*number));
        if log.len() == count {
            udp.recv_stop(lp).unwrap();
        }
    })
    .expect("a handle that receives");
    got
}

/// Sends that the kernel does not accept stay queued and are sent in order, in any number.
/// Completed sends call back meanwhile.
pub fn queued_sends_keep_their_order(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    sends_wait()?;
    let ((sender, receiver), callbacks) = (patient_pair(&mut lp), Callbacks::default());
    send_many(&mut lp, sender, None, &callbacks);
    assert!(sender.is_active(&lp) && lp.is_alive());
    run(&mut lp, RunMode::NoWait);
    assert!((1..MANY as usize).contains(&callbacks.len()), "some are sent, and some are queued");
    assert_eq!(sender.send_queue_count(&lp), MANY as usize - callbacks.len());
    assert_eq!(sender.send_queue_size(&lp), 4_000 * (MANY as usize - callbacks.len()));
    let got = receive(&mut lp, receiver, MANY as usize);
    run_out(&mut lp);
    assert_eq!(got.take(), (0..MANY).collect::<Vec<_>>());
    assert_eq!(callbacks.take(), (0..MANY).map(|number| (number, None)).collect::<Vec<_>>());
    assert_eq!((sender.send_queue_size(&lp), sender.send_queue_count(&lp)), (0, 0));
    finish(lp);
    Ok(())
}

/// A queued send that fails does so alone: the sends behind it are still sent.
pub fn an_error_fails_one_queued_send_only(lab: &Lab) -> Verdict {
    for long in [MANY - 1, MANY - 40, MANY - 100] {
        let mut lp = new_loop(lab)?;
        sends_wait()?;
        let ((sender, receiver), callbacks) = (patient_pair(&mut lp), Callbacks::default());
        send_many(&mut lp, sender, Some(long), &callbacks);
        let got = receive(&mut lp, receiver, MANY as usize - 1);
        run_out(&mut lp);
        let others = (0..MANY).filter(|&number| number != long);
        assert_eq!(got.take(), others.collect::<Vec<_>>());
        let error = |number| (number, (number == long).then_some(EMSGSIZE));
        assert_eq!(callbacks.take(), (0..MANY).map(error).collect::<Vec<_>>());
        finish(lp);
    }
    Ok(())
}

/// While sends are queued, `try_send` would block, even if the kernel could accept the datagram: it
/// must not overtake them.
pub fn try_send_does_not_overtake_queued_sends(lab: &Lab) -> Verdict {
    const TAKEN: u32 = 5;
    let mut lp = new_loop(lab)?;
    sends_wait()?;
    let (socket, peer) = UnixDatagram::pair().expect("a pair of local sockets");
    let (sender, callbacks) = (opened(&mut lp, socket), Callbacks::default());
    send_many(&mut lp, sender, None, &callbacks);
    for _ in 0..TAKEN {
        peer.recv(&mut [0; 4_000]).expect("a datagram");
    }
    let error = sender.try_send(&mut lp, b"x", None).expect_err("sends are queued");
    assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
    let error = sender.try_send_many(&mut lp, &[(b"x", None)]).expect_err("sends are queued");
    assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
    assert_eq!(sender.send_queue_count(&lp), MANY as usize, "neither is queued");
    let receiver = opened(&mut lp, peer);
    let got = receive(&mut lp, receiver, (MANY - TAKEN) as usize);
    run_out(&mut lp);
    assert_eq!(got.take(), (TAKEN..MANY).collect::<Vec<_>>());
    assert_eq!(sender.try_send(&mut lp, b"x", None).expect("the queue is empty"), 1);
    finish(lp);
    Ok(())
}

/// A close cancels queued sends before its callback. Sends that were sent complete normally.
pub fn closing_cancels_queued_sends(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    sends_wait()?;
    let ((sender, _receiver), callbacks) = (patient_pair(&mut lp), Callbacks::default());
    send_many(&mut lp, sender, None, &callbacks);
    let log = callbacks.clone();
    sender
        .close_with(&mut lp, move |lp, sender| {
            assert_eq!(log.len(), MANY as usize, "all sends call back before the close callback");
            assert_eq!((sender.send_queue_size(lp), sender.send_queue_count(lp)), (0, 0));
        })
        .unwrap();
    assert_eq!(callbacks.len(), 0, "no callback runs inline");
    run_out(&mut lp);
    let callbacks = callbacks.take();
    assert!(callbacks.iter().map(|&(number, _)| number).eq(0..MANY), "in order");
    let went = callbacks.iter().take_while(|(_, error)| error.is_none()).count();
    assert!((1..MANY as usize).contains(&went), "some are sent, and some are queueded");
    let cancelled = |&(_, error): &(u32, Option<i32>)| error == Some(ECANCELED);
    assert!(callbacks[went..].iter().all(cancelled), "the others are cancelled");
    finish(lp);
    Ok(())
}

/// A close outside of `run`, with sends in flight, frees the address immediately. Each send is reported
/// once, with its buffer, before the close, when the loop runs again.
pub fn a_close_outside_of_run_ends_sends_in_flight(lab: &Lab) -> Verdict {
    sends_wait()?;
    let directory = crate::support::files::Directory::new();
    let path = directory.path("sender");
    for iterations in [0, 1, 3] {
        let (mut lp, callbacks) = (new_loop(lab)?, Callbacks::default());
        let (socket, peer) = (
            UnixDatagram::bind(&path).expect("a path to bind"),
            UnixDatagram::bind(directory.path("peer")).expect("a path to bind"),
        );
        socket.connect(directory.path("peer")).expect("a peer");
        let sender = opened(&mut lp, socket);
        send_many(&mut lp, sender, None, &callbacks);
        for _ in 0..iterations {
            run(&mut lp, RunMode::NoWait);
        }
        let (closed, log) = (Log::default(), callbacks.clone());
        let note = closed.clone();
        sender.close_with(&mut lp, move |_, _| note.push(log.len())).unwrap();
        // The socket is closed: its peer cannot reach it any more.
        let unreachable = peer.send_to(b"x", &path).map_err(|error| error.kind());
        assert_eq!(unreachable, Err(ErrorKind::ConnectionRefused), "after {iterations}");
        run_out(&mut lp);
        assert_eq!(closed.take(), [MANY as usize], "all sends have called back");
        assert!(callbacks.take().iter().map(|&(number, _)| number).eq(0..MANY), "in order");
        finish(lp);
        std::fs::remove_file(&path).and(std::fs::remove_file(directory.path("peer"))).unwrap();
    }
    Ok(())
}

/// A close cancels queued sends also after the loop has run, when the first of them may be in
/// flight.
pub fn closing_cancels_sends_in_flight(lab: &Lab) -> Verdict {
    for iterations in [1, 2, 5] {
        let mut lp = new_loop(lab)?;
        sends_wait()?;
        let ((sender, _receiver), callbacks) = (patient_pair(&mut lp), Callbacks::default());
        send_many(&mut lp, sender, None, &callbacks);
        for _ in 0..iterations {
            run(&mut lp, RunMode::NoWait);
        }
        let went = callbacks.len();
        assert!((1..MANY as usize).contains(&went), "some are sent, and some are queued");
        let (log, count_at_close) = (callbacks.clone(), Log::default());
        let note = count_at_close.clone();
        sender.close_with(&mut lp, move |_, _| note.push(log.len())).unwrap();
        assert_eq!(callbacks.len(), went, "no callback runs inline");
        run_out(&mut lp);
        assert_eq!(count_at_close.take(), [MANY as usize], "all sends have called back");
        let callbacks = callbacks.take();
        assert!(callbacks.iter().map(|&(number, _)| number).eq(0..MANY), "in order");
        assert!(callbacks[..went].iter().all(|(_, error)| error.is_none()));
        assert!(callbacks[went..].iter().all(|(_, error)| *error == Some(ECANCELED)));
        finish(lp);
    }
    Ok(())
}
