//! Sends that the kernel does not take at once.
//!
//! UDP would rather lose datagrams. Those of local sockets are not lost: their sender waits,
//! and a handle does not mind what kind of socket it was given.

use std::io::{self, ErrorKind};
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;

use poll_core::Backend;
use uv_core::{Handle, Loop, RunMode, Udp};

use crate::support::datagrams::code::{ECANCELED, EMSGSIZE};
use crate::support::datagrams::{finish, run_out};
use crate::support::loops::{new_loop, run};
use crate::support::trace::Log;
use crate::{Lab, Verdict};

/// More than a kernel takes at once, and than one event sends.
const MANY: u32 = 400;

/// More bytes than any kernel takes for one datagram.
const TOO_LONG: usize = 4_000_000;

/// The number of a send, and the error that it ended with.
type Told = Log<(u32, Option<i32>)>;

/// Two handles that are connected to each other.
fn patient_pair<T: Backend>(lp: &mut Loop<T>) -> (Udp, Udp) {
    let (one, other) = UnixDatagram::pair().expect("a pair of local sockets");
    (opened(lp, one), opened(lp, other))
}

fn opened<T: Backend>(lp: &mut Loop<T>, socket: UnixDatagram) -> Udp {
    let udp = Udp::new(lp);
    udp.open(lp, UdpSocket::from(OwnedFd::from(socket))).expect("a handle that takes it");
    udp
}

/// Sends many numbered datagrams; `long` is longer than the kernel ever takes.
fn send_many<T: Backend>(lp: &mut Loop<T>, udp: Udp, long: Option<u32>, told: &Told) {
    for number in 0..MANY {
        let told = told.clone();
        let callback = move |_: &mut Loop<T>, _, result: io::Result<()>, _| {
            told.push((number, result.err().and_then(|error| error.raw_os_error())));
        };
        let mut data = number.to_le_bytes().to_vec();
        data.resize(if long == Some(number) { TOO_LONG } else { 4_000 }, 0);
        udp.send(lp, data, None, callback).expect("a send that may wait");
    }
    assert_eq!(udp.send_queue_count(lp), MANY as usize);
    assert!(told.len() == 0, "nothing is told inside of the calls");
}

/// Notes the numbers of `count` datagrams, then stops.
fn receive<T: Backend>(lp: &mut Loop<T>, udp: Udp, count: usize) -> Log<u32> {
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

/// Sends that the kernel does not take at once wait, and go out in order, however many there
/// are. Those that went are told meanwhile.
pub fn what_waits_goes_in_order<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let ((sender, receiver), told) = (patient_pair(&mut lp), Told::default());
    send_many(&mut lp, sender, None, &told);
    assert!(sender.is_active(&lp) && lp.alive());
    run(&mut lp, RunMode::NoWait);
    assert!((1..MANY as usize).contains(&told.len()), "some went, and some wait");
    assert_eq!(sender.send_queue_count(&lp), MANY as usize - told.len());
    assert_eq!(sender.send_queue_size(&lp), 4_000 * (MANY as usize - told.len()));
    let got = receive(&mut lp, receiver, MANY as usize);
    run_out(&mut lp);
    assert_eq!(got.take(), (0..MANY).collect::<Vec<_>>());
    assert_eq!(told.take(), (0..MANY).map(|number| (number, None)).collect::<Vec<_>>());
    assert_eq!((sender.send_queue_size(&lp), sender.send_queue_count(&lp)), (0, 0));
    finish(lp);
    Ok(())
}

/// One that waits and then fails does so alone: those behind it are tried all the same.
pub fn an_error_of_what_waits_is_that_of_one<T: Backend>(lab: &Lab<T>) -> Verdict {
    for long in [MANY - 1, MANY - 40, MANY - 100] {
        let mut lp = new_loop(lab)?;
        let ((sender, receiver), told) = (patient_pair(&mut lp), Told::default());
        send_many(&mut lp, sender, Some(long), &told);
        let got = receive(&mut lp, receiver, MANY as usize - 1);
        run_out(&mut lp);
        let others = (0..MANY).filter(|&number| number != long);
        assert_eq!(got.take(), others.collect::<Vec<_>>());
        let error = |number| (number, (number == long).then_some(EMSGSIZE));
        assert_eq!(told.take(), (0..MANY).map(error).collect::<Vec<_>>());
        finish(lp);
    }
    Ok(())
}

/// While sends wait, an immediate one would block, even if the kernel could take it: it must
/// not be there before them.
pub fn try_send_does_not_overtake<T: Backend>(lab: &Lab<T>) -> Verdict {
    const TAKEN: u32 = 5;
    let mut lp = new_loop(lab)?;
    let (socket, peer) = UnixDatagram::pair().expect("a pair of local sockets");
    let (sender, told) = (opened(&mut lp, socket), Told::default());
    send_many(&mut lp, sender, None, &told);
    for _ in 0..TAKEN {
        peer.recv(&mut [0; 4_000]).expect("a datagram");
    }
    let error = sender.try_send(&mut lp, b"x", None).expect_err("others wait");
    assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
    let error = sender.try_send_many(&mut lp, &[(b"x", None)]).expect_err("others wait");
    assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
    assert_eq!(sender.send_queue_count(&lp), MANY as usize, "neither is queued");
    let receiver = opened(&mut lp, peer);
    let got = receive(&mut lp, receiver, (MANY - TAKEN) as usize);
    run_out(&mut lp);
    assert_eq!(got.take(), (TAKEN..MANY).collect::<Vec<_>>());
    assert_eq!(sender.try_send(&mut lp, b"x", None).expect("nobody waits any more"), 1);
    finish(lp);
    Ok(())
}

/// A close cancels what waits, before its callback; what had been sent is told as such.
pub fn closing_cancels_what_waits<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let ((sender, _receiver), told) = (patient_pair(&mut lp), Told::default());
    send_many(&mut lp, sender, None, &told);
    let log = told.clone();
    sender
        .close_with(&mut lp, move |lp, sender| {
            assert_eq!(log.len(), MANY as usize, "all are told before the close callback");
            assert_eq!((sender.send_queue_size(lp), sender.send_queue_count(lp)), (0, 0));
        })
        .unwrap();
    assert_eq!(told.len(), 0, "nothing is told inside of the close");
    run_out(&mut lp);
    let told = told.take();
    assert!(told.iter().map(|&(number, _)| number).eq(0..MANY), "in order");
    let went = told.iter().take_while(|(_, error)| error.is_none()).count();
    assert!((1..MANY as usize).contains(&went), "some went, and some waited");
    let cancelled = |&(_, error): &(u32, Option<i32>)| error == Some(ECANCELED);
    assert!(told[went..].iter().all(cancelled), "the others are cancelled");
    finish(lp);
    Ok(())
}

/// A close cancels what waits also when the loop has run meanwhile, and the kernel may have got
/// the first of it.
pub fn closing_cancels_what_is_in_flight<T: Backend>(lab: &Lab<T>) -> Verdict {
    for turns in [1, 2, 5] {
        let mut lp = new_loop(lab)?;
        let ((sender, _receiver), told) = (patient_pair(&mut lp), Told::default());
        send_many(&mut lp, sender, None, &told);
        for _ in 0..turns {
            run(&mut lp, RunMode::NoWait);
        }
        let went = told.len();
        assert!((1..MANY as usize).contains(&went), "some went, and some wait");
        let (log, told_at_close) = (told.clone(), Log::default());
        let note = told_at_close.clone();
        sender.close_with(&mut lp, move |_, _| note.push(log.len())).unwrap();
        assert_eq!(told.len(), went, "nothing is told inside of the close");
        run_out(&mut lp);
        assert_eq!(told_at_close.take(), [MANY as usize], "all are told before");
        let told = told.take();
        assert!(told.iter().map(|&(number, _)| number).eq(0..MANY), "in order");
        assert!(told[..went].iter().all(|(_, error)| error.is_none()));
        assert!(told[went..].iter().all(|(_, error)| *error == Some(ECANCELED)));
        finish(lp);
    }
    Ok(())
}
