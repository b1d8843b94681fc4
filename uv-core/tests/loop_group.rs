//! Groups of loops, on every backend and by both ways of distribution.
#![cfg(unix)]

use std::collections::HashSet;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use uv_core::backends::Auto;
use uv_core::{Distribution, Handle, LoopGroup, RunMode, Stream, Timer};

/// Serves echoes by a group; returns the number of connections of each thread.
fn serve(backend: &'static str, way: Distribution, clients: usize) -> Option<Vec<usize>> {
    let group = match LoopGroup::new(3, move || Auto::named(backend)) {
        Ok(group) => group,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{backend}: {error}");
            eprintln!("skip {backend}: {error}");
            return None;
        }
    };
    let served = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&served);
    let address = group.listen_by(way, "127.0.0.1:0", move |lp, peer| {
        log.lock().unwrap().push(thread::current().id());
        peer.on_read(lp, |lp, peer, bytes| match bytes {
            [] => peer.close(lp),
            bytes => {
                peer.send(lp, bytes.to_vec());
                Ok(())
            }
        })
    });
    let address = address.unwrap();
    for number in 0..clients {
        let mut peer = TcpStream::connect(address).unwrap();
        peer.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let text = format!("client {number}");
        peer.write_all(text.as_bytes()).unwrap();
        let mut echo = vec![0; text.len()];
        peer.read_exact(&mut echo).unwrap();
        assert_eq!(echo, text.as_bytes());
    }
    group.stop_listening();
    group.join().unwrap();
    let served = served.lock().unwrap();
    let threads: HashSet<_> = served.iter().copied().collect();
    Some(threads.iter().map(|thread| served.iter().filter(|it| *it == thread).count()).collect())
}

#[test]
fn connections_are_handed_over_in_turn() {
    for name in Auto::NAMES {
        if let Some(counts) = serve(name, Distribution::HandOver, 9) {
            assert_eq!(counts, [3, 3, 3], "{name}");
        }
    }
}

#[test]
fn every_connection_is_served_by_one_loop() {
    for name in Auto::NAMES {
        if let Some(counts) = serve(name, Distribution::Kernel, 24) {
            assert_eq!(counts.iter().sum::<usize>(), 24, "{name}");
            // The kernel distributes by a hash of the addresses: 24 ports almost never meet in
            // one of three loops, but no number is certain.
            assert!(counts.len() <= 3, "{name}");
        }
    }
}

#[test]
fn functions_run_in_their_loop_and_keep_it_alive() {
    let group = LoopGroup::with_default_backend(2).unwrap();
    let log = Arc::new(Mutex::new(Vec::new()));
    for index in 0..2 {
        let log = Arc::clone(&log);
        let run = group.run_in(index, move |lp| {
            assert!(lp.run(RunMode::NoWait).is_err(), "the loop is running");
            Timer::after(lp, Duration::from_millis(1), move |lp, timer| {
                log.lock().unwrap().push((index, thread::current().name().map(str::to_owned)));
                timer.close_if_open(lp);
            });
        });
        run.unwrap();
    }
    assert_eq!(group.run_in(2, |_| {}).unwrap_err().kind(), ErrorKind::NotFound);
    group.join().unwrap();
    let mut log = log.lock().unwrap().clone();
    log.sort();
    assert_eq!(log, [(0, Some("uv-loop-0".into())), (1, Some("uv-loop-1".into()))]);
}

#[test]
fn an_error_of_a_backend_is_returned() {
    let made = std::sync::atomic::AtomicUsize::new(0);
    let group =
        LoopGroup::new(3, move || match made.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 => Auto::new(),
            _ => Err(ErrorKind::OutOfMemory.into()),
        });
    assert_eq!(group.unwrap_err().kind(), ErrorKind::OutOfMemory);
}

#[test]
fn a_panic_is_an_error_of_join() {
    let group = LoopGroup::with_default_backend(2).unwrap();
    group.run_in(0, |_| std::panic::resume_unwind(Box::new("on purpose"))).unwrap();
    assert!(group.join().is_err());
}
