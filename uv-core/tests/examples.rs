//! The examples run, and end well.

// Each is a program of its own, with its own copy of what they share.
#![allow(clippy::duplicate_mod)]

#[path = "../examples/custom_backend.rs"]
#[allow(dead_code)]
mod custom_backend;
#[path = "../examples/echo.rs"]
#[allow(dead_code)]
mod echo;
#[path = "../examples/first.rs"]
mod first;
#[path = "../examples/proxy.rs"]
#[allow(dead_code)]
mod proxy;
#[path = "../examples/simulated_time.rs"]
#[allow(dead_code)]
mod simulated_time;
#[path = "../examples/udp_responder.rs"]
#[allow(dead_code)]
mod udp_responder;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

#[test]
fn a_first_program() {
    first::main().unwrap();
}

#[test]
fn a_backend_of_ones_own() {
    custom_backend::main().unwrap();
}

#[test]
fn a_day_in_an_instant() {
    simulated_time::main().unwrap();
}

#[test]
fn an_echo_server_on_every_backend() {
    for name in uv_core::backends::Auto::NAMES {
        let (tell, told) = std::sync::mpsc::channel();
        let server = std::thread::spawn(move || {
            echo::serve(name, 0, 2, |address| tell.send(address).unwrap())
        });
        let Ok(address) = told.recv() else {
            let error = server.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{name}: {error}");
            eprintln!("skip {name}: {error}");
            continue;
        };
        for _ in 0..2 {
            // More than fits into the kernel's buffers, so that the server has to wait.
            let (mut peer, size) = (TcpStream::connect(address).unwrap(), 16 << 20);
            let mut sender = peer.try_clone().unwrap();
            let sending = std::thread::spawn(move || {
                sender.write_all(&vec![5; size]).unwrap();
                sender.shutdown(Shutdown::Write).unwrap();
            });
            let mut all = Vec::new();
            std::thread::sleep(Duration::from_millis(20));
            peer.read_to_end(&mut all).unwrap();
            assert!(all.len() == size && all.iter().all(|byte| *byte == 5), "{name}");
            sending.join().unwrap();
        }
        server.join().unwrap().unwrap();
    }
}

#[test]
fn a_udp_responder_on_every_backend() {
    for name in uv_core::backends::Auto::NAMES {
        let (tell, told) = std::sync::mpsc::channel();
        let server = std::thread::spawn(move || {
            udp_responder::answer(name, 0, 3, |address| tell.send(address).unwrap())
        });
        let Ok(address) = told.recv() else {
            let error = server.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{name}: {error}");
            eprintln!("skip {name}: {error}");
            continue;
        };
        let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        for length in [5, 0, 60_000] {
            client.send_to(&vec![0; length], address).unwrap();
            let mut answer = [0; 64];
            let (count, from) = client.recv_from(&mut answer).unwrap();
            assert_eq!(from, address);
            assert_eq!(answer[..count], *format!("{length} bytes\n").as_bytes());
        }
        server.join().unwrap().unwrap();
    }
}

#[test]
fn a_proxy_on_every_backend() {
    // A server that says back what it has heard, once it has heard all.
    let behind = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = behind.local_addr().unwrap();
    std::thread::spawn(move || {
        for peer in behind.incoming() {
            let (mut peer, mut all) = (peer.unwrap(), Vec::new());
            // Slow at first, so that the proxy has to wait.
            std::thread::sleep(Duration::from_millis(20));
            if peer.read_to_end(&mut all).is_ok() {
                let _ = peer.write_all(&all);
            }
        }
    });
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for name in uv_core::backends::Auto::NAMES {
        for (to, answers) in [(to, true), (nobody, false)] {
            if !answers && cfg!(windows) {
                // Under Wine, the client's blocking send to a proxy that has closed already
                // never returns.
                continue;
            }
            let (tell, told) = std::sync::mpsc::channel();
            let server = std::thread::spawn(move || {
                proxy::serve(name, 0, 2, to, |address| tell.send(address).unwrap())
            });
            let Ok(address) = told.recv() else {
                let error = server.join().unwrap().unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{name}: {error}");
                eprintln!("skip {name}: {error}");
                continue;
            };
            for size in [16 << 20, 5] {
                let mut peer = TcpStream::connect(address).unwrap();
                let sent: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
                let mut all = Vec::new();
                let written = peer.write_all(&sent);
                let ended = written.and_then(|()| peer.shutdown(Shutdown::Write));
                let read = ended.and_then(|()| peer.read_to_end(&mut all));
                if answers {
                    read.unwrap();
                    assert!(all == sent, "{name}: {} of {size} bytes came back", all.len());
                } else {
                    assert!(all.is_empty(), "{name}: nobody could say anything");
                }
            }
            server.join().unwrap().unwrap();
        }
    }
}
