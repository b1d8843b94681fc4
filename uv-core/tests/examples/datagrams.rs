//! The UDP responder and its client.

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::sync::mpsc;
use std::time::Duration;

use uv_core::backends::Auto;

use crate::{is_missing, udp_client, udp_responder};

#[test]
fn udp_responder_works_on_every_backend() {
    for name in Auto::NAMES {
        let (sender, receiver) = mpsc::channel();
        let server = std::thread::spawn(move || {
            udp_responder::answer(name, 0, 3, |address| sender.send(address).unwrap())
        });
        let Ok(address) = receiver.recv() else {
            is_missing(name, server.join().unwrap());
            continue;
        };
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        client.send_to(b"x", address).unwrap(); // No query: without an answer.
        let long = format!("..{}", "x".repeat(60_000));
        for (query, answer) in [
            ("..blue", "..192.0.2.3"),
            ("\u{1}~red\n", "\u{1}~192.0.2.1"),
            (&*long, "..no such name"),
        ] {
            client.send_to(query.as_bytes(), address).unwrap();
            let mut received = [0; 64];
            let (count, from) = client.recv_from(&mut received).unwrap();
            assert_eq!(from, address);
            assert_eq!(str::from_utf8(&received[..count]), Ok(answer), "{name}");
        }
        server.join().unwrap().unwrap();
    }
}

#[test]
fn udp_client_asks_again_and_recognizes_its_answers() {
    for name in Auto::NAMES {
        // A server that ignores the first attempt of each query, and repeats the answer to the last.
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        server.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let serving = std::thread::spawn(move || {
            let (mut buffer, mut attempts) = ([0; 64], [0, 0]);
            while let Ok((count, from)) = server.recv_from(&mut buffer) {
                let number = usize::from(buffer[1]);
                assert_eq!(buffer[..count], *[b"\0\0one", b"\0\x01two"][number]);
                attempts[number] += 1;
                if attempts[number] > 1 {
                    server.send_to(b"\0\0ONE", from).unwrap(); // Again and again.
                    server.send_to([b"\0\0ONE", b"\0\x01TWO"][number], from).unwrap();
                }
                if attempts[1] == 2 {
                    return;
                }
            }
        });
        let wait = Duration::from_millis(200);
        match udp_client::ask(name, address, vec!["one".into(), "two".into()], wait) {
            Ok(results) => {
                let results: Vec<_> = results.into_iter().map(Result::unwrap).collect();
                assert_eq!(results, ["ONE", "TWO"], "{name}");
                serving.join().unwrap();
            }
            missing => is_missing(name, missing),
        }
    }
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let wait = Duration::from_millis(1);
    let results =
        udp_client::ask("auto", silent.local_addr().unwrap(), vec!["x".into()], wait).unwrap();
    assert_eq!(results[0].as_ref().unwrap_err().kind(), ErrorKind::TimedOut);
}
