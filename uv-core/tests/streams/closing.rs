//! Whole connections, and how they end.

use std::io::{self, ErrorKind, Write as _};
use std::sync::Arc;

use uv_core::{Handle, Loop, RunMode, Stream, Tcp};

use super::{Auto, Log, Lp, bound, connected, every, is_cancelled, log, panics};

#[test]
fn an_echo_comes_back_whole() {
    every(|lp| {
        let (server, address) = bound(lp);
        server
            .listen(lp, 128, |lp, server, result| {
                result.unwrap();
                let peer = server.accept(lp).unwrap();
                let echo = peer.read_start(lp, |lp, peer, bytes| match bytes.unwrap() {
                    [] => peer.close(lp).unwrap(),
                    bytes => drop(peer.write(lp, bytes.to_vec(), |_, _, r, _| r.unwrap()).unwrap()),
                });
                echo.unwrap();
                server.close(lp).unwrap();
            })
            .unwrap();
        let sent: Arc<[u8]> = (0..1_000_000_u32).map(|number| (number % 251) as u8).collect();
        let (client, got, expected) = (Tcp::new(lp), log(), Arc::clone(&sent));
        let gathered = got.clone();
        client
            .connect(lp, address, move |lp, client, result| {
                result.unwrap();
                client.write(lp, sent, |_, _, result, _| result.unwrap()).unwrap();
                client.shutdown(lp, |_, _, result| result.unwrap()).unwrap();
                let read = client.read_start(lp, move |lp, client, bytes| match bytes.unwrap() {
                    [] => client.close(lp).unwrap(),
                    bytes => gathered.extend(bytes.iter().copied()),
                });
                read.unwrap();
            })
            .unwrap();
        lp.run(RunMode::Default).unwrap();
        assert!(got.take() == *expected);
    });
}

#[test]
fn closing_tells_what_was_written_and_cancels_the_rest_before_its_callback() {
    every(|lp| {
        let (one, other) = Tcp::pair(lp).unwrap();
        let order = log();
        let note = |name: &'static str| {
            let order = order.clone();
            move |_: &mut Lp, _: Tcp, result: io::Result<()>, _: Vec<u8>| {
                order.push((name, is_cancelled(&result)));
            }
        };
        one.write(lp, vec![1], note("small")).unwrap();
        one.write(lp, vec![2; 64 << 20], note("huge")).unwrap();
        one.write(lp, vec![3], note("behind")).unwrap();
        let (shut, closed) = (order.clone(), order.clone());
        let told = move |_: &mut Lp, _, result| shut.push(("shutdown", is_cancelled(&result)));
        one.shutdown(lp, told).unwrap();
        let read = order.clone();
        one.read(lp, vec![0; 8], move |_, _, result, _| {
            read.push(("read", is_cancelled(&result.map(drop))));
        })
        .unwrap();
        one.close_with(lp, move |_, _| closed.push(("close", false))).unwrap();
        other.close(lp).unwrap();
        assert!(order.is_empty());
        lp.run(RunMode::Default).unwrap();
        let told = order.take();
        let at = |name| told.iter().position(|(other, _)| *other == name).unwrap();
        assert_eq!(told[at("small")], ("small", false));
        for name in ["huge", "behind", "shutdown", "read"] {
            assert_eq!(told[at(name)], (name, true));
        }
        assert!(at("small") < at("huge") && at("huge") < at("behind"));
        assert!(at("behind") < at("shutdown"));
        assert_eq!(at("close"), 5, "the last");
    });
}

#[test]
fn a_connection_being_shut_down_cannot_be_reset() {
    every(|lp| {
        let (tcp, _peer) = connected(lp);
        tcp.shutdown(lp, |_, _, result| result.unwrap()).unwrap();
        assert_eq!(tcp.close_reset(lp).unwrap_err().kind(), ErrorKind::InvalidInput);
        lp.run(RunMode::Default).unwrap();
        tcp.close_reset_with(lp, |_, _| {}).unwrap();
        lp.run(RunMode::Default).unwrap();
    });
}

#[test]
fn a_panic_in_a_callback_leaves_the_rest_to_the_next_run() {
    every(|lp| {
        let (tcp, mut peer) = connected(lp);
        let told: Log<u8> = log();
        for number in 0..3 {
            let tell = told.clone();
            tcp.write(lp, vec![number], move |_, _, _, _| {
                tell.push(number);
                assert_ne!(number, 1, "on purpose");
            })
            .unwrap();
        }
        panics(lp);
        assert_eq!(told.take(), [0, 1]);
        lp.run(RunMode::Default).unwrap();
        assert_eq!(told.take(), [2]);

        tcp.read_start(lp, |_, _, _| panic!("on purpose")).unwrap();
        peer.write_all(b"x").unwrap();
        panics(lp);
        assert!(!tcp.is_active(lp), "reading is over");

        for number in 0..3 {
            let tell = told.clone();
            tcp.read(lp, vec![0], move |_, _, _, _| {
                tell.push(number);
                assert_ne!(number, 1, "on purpose");
            })
            .unwrap();
        }
        let closed = told.clone();
        tcp.close_with(lp, move |_, _| closed.push(99)).unwrap();
        panics(lp);
        lp.run(RunMode::Default).unwrap();
        assert_eq!(told.take(), [0, 1, 2, 99]);
    });
}

#[test]
fn a_dropped_loop_calls_nobody_and_leaves_nothing() {
    every(|lp| {
        let held = std::rc::Rc::new(());
        let mut other = Loop::new(Auto::named(lp.backend().name()).unwrap());
        let (tcp, _peer) = connected(&mut other);
        let (one, two, three) = (held.clone(), held.clone(), held.clone());
        tcp.write(&mut other, vec![1; 64 << 20], move |_, _, _, _| drop(one)).unwrap();
        tcp.read(&mut other, vec![1], move |_, _, _, _| drop(two)).unwrap();
        tcp.shutdown(&mut other, move |_, _, _| drop(three)).unwrap();
        assert_eq!(std::rc::Rc::strong_count(&held), 4);
        drop(other);
        assert_eq!(std::rc::Rc::strong_count(&held), 1);
    });
}
