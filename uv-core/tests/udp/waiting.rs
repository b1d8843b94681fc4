//! Sends that wait for the kernel, which UDP itself would rather lose.

use std::io::{self, ErrorKind};
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;

use uv_core::{Handle, Udp};

use super::code::{ECANCELED, EMSGSIZE};
use super::{Log, Lp, every, is, log, run};

/// Two ends that are connected to each other. A kernel that does not lose datagrams of local
/// sockets makes their sender wait instead.
fn patient_pair(lp: &mut Lp) -> (Udp, Udp) {
    let (one, other) = UnixDatagram::pair().unwrap();
    [one, other]
        .map(|socket| {
            let udp = Udp::new(lp);
            udp.open(lp, UdpSocket::from(OwnedFd::from(socket))).unwrap();
            udp
        })
        .into()
}

/// Sends more than the kernel takes; logs which sends went, or why not.
fn fill(lp: &mut Lp, udp: Udp, told: &Log<(u8, Option<i32>)>) {
    for number in 0..100 {
        let told = told.clone();
        let done = move |_: &mut Lp, _, result: io::Result<()>, _| {
            told.push((number, result.err().map(|error| error.raw_os_error().unwrap())));
        };
        // One of them is larger than the kernel ever takes.
        let length = if number == 90 { 4_000_000 } else { 10_000 };
        udp.send(lp, vec![number; length], None, done).unwrap();
    }
    let error = udp.try_send(lp, b"x", None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock, "not before those that wait");
}

#[test]
fn closing_cancels_what_waits_before_the_close_callback() {
    every(|lp| {
        let (sender, _) = patient_pair(lp);
        let told = log();
        fill(lp, sender, &told);
        let seen = told.clone();
        sender
            .close_with(lp, move |lp, sender| {
                assert_eq!(seen.len(), 100, "all sends are told before");
                assert_eq!(sender.send_queue_size(lp), 0);
            })
            .unwrap();
        assert_eq!(told.len(), 0, "nothing is told inside of close");
        run(lp);
        let told = told.take();
        assert!(told.is_sorted(), "in order, and those that went before those that did not");
        let is_cancelled = |code| is(&io::Error::from_raw_os_error(code), ECANCELED);
        let cancelled = told.iter().filter(|(_, error)| error.is_some_and(is_cancelled)).count();
        assert!((1..100).contains(&cancelled), "{cancelled} of 100 were cancelled");
    });
}

#[test]
fn sends_that_wait_arrive_in_order_and_an_error_is_that_of_one() {
    every(|lp| {
        let (sender, receiver) = patient_pair(lp);
        let (told, got) = (log(), log());
        fill(lp, sender, &told);
        let seen = got.clone();
        receiver
            .recv_start(lp, move |lp, receiver, datagram| {
                let data = datagram.unwrap().data;
                assert_eq!(data.len(), 10_000);
                seen.push(data[0]);
                if seen.len() == 99 {
                    receiver.recv_stop(lp).unwrap();
                }
            })
            .unwrap();
        run(lp);
        let (told, others) = (told.take(), (0..100).filter(|number| *number != 90));
        assert_eq!(got.take(), others.collect::<Vec<_>>());
        assert!(told.iter().map(|(number, _)| *number).eq(0..100), "called back in order");
        for (number, error) in told {
            let too_large = error.map(|code| is(&io::Error::from_raw_os_error(code), EMSGSIZE));
            assert_eq!(too_large, (number == 90).then_some(true), "number {number}");
        }
    });
}
