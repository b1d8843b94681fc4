//! Reading, pushed and pulled.

use std::io::{ErrorKind, Write as _};
use std::net::Shutdown;
use std::time::Duration;

use uv_core::{Handle, RunMode, Stream, Tcp, Timer};

use super::{Lp, bound, connected, every, is_cancelled, log};

#[test]
fn the_end_of_file_stops_reading_and_can_be_read_again() {
    every(|lp| {
        let (tcp, peer) = connected(lp);
        peer.shutdown(Shutdown::Write).unwrap();
        let ends = log();
        let tell = ends.clone();
        tcp.read_start(lp, move |lp, tcp, bytes| {
            assert_eq!(bytes.unwrap(), b"");
            assert!(!tcp.is_active(lp), "stopped before the callback");
            assert!(tcp.is_readable(lp) && tcp.is_writable(lp));
            tell.push(1);
            let tell = tell.clone();
            let again = tcp.read_start(lp, move |lp, tcp, bytes| {
                assert_eq!(bytes.unwrap(), b"");
                tell.push(2);
                tcp.close(lp).unwrap();
            });
            again.unwrap();
        })
        .unwrap();
        assert!(tcp.is_active(lp));
        lp.run(RunMode::Default).unwrap();
        assert_eq!(ends.take(), [1, 2]);
    });
}

#[test]
fn a_reset_ends_both_directions() {
    every(|lp| {
        let (one, other) = {
            let (server, address) = bound(lp);
            server.listen_quietly(lp, 1).unwrap();
            let client = Tcp::new(lp);
            client.connect(lp, address, |_, _, result| result.unwrap()).unwrap();
            lp.run(RunMode::Once).unwrap();
            let peer = loop {
                match server.accept(lp) {
                    Ok(peer) => break peer,
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
                lp.run(RunMode::NoWait).unwrap();
            };
            server.close(lp).unwrap();
            (client, peer)
        };
        let told = log();
        let tell = told.clone();
        one.read_start(lp, move |lp, one, bytes| {
            // Wine's server may collect the error itself, and then this is an end of file.
            let wine = cfg!(windows) && bytes.as_ref().is_ok_and(|bytes| bytes.is_empty());
            let told = match bytes {
                Err(error) => error.kind(),
                Ok(_) if wine => ErrorKind::ConnectionReset,
                Ok(bytes) => panic!("{} bytes", bytes.len()),
            };
            assert!(wine || (!one.is_readable(lp) && !one.is_writable(lp)));
            assert!(!one.is_active(lp));
            tell.push(told);
            one.close(lp).unwrap();
        })
        .unwrap();
        lp.run(RunMode::NoWait).unwrap();
        other.close_reset(lp).unwrap();
        lp.run(RunMode::Default).unwrap();
        assert_eq!(told.take(), [ErrorKind::ConnectionReset]);
    });
}

#[test]
fn reading_can_stop_start_and_close_in_its_callback() {
    every(|lp| {
        let (tcp, mut peer) = connected(lp);
        peer.write_all(b"one").unwrap();
        let told = log();
        let tell = told.clone();
        tcp.read_start(lp, move |lp, tcp, bytes| {
            tell.push(bytes.unwrap().to_vec());
            tcp.read_stop(lp).unwrap();
            tcp.read_stop(lp).unwrap();
            assert!(!tcp.is_active(lp));
            let tell = tell.clone();
            let again = tcp.read_start(lp, move |lp, tcp, bytes| {
                tell.push(bytes.unwrap().to_vec());
                tcp.close(lp).unwrap();
            });
            again.unwrap();
            peer.write_all(b"two").unwrap();
        })
        .unwrap();
        let twice = tcp.read_start(lp, |_, _, _| unreachable!()).unwrap_err();
        assert_eq!(twice.kind(), ErrorKind::AlreadyExists);
        lp.run(RunMode::Default).unwrap();
        assert_eq!(told.take(), [b"one", b"two"]);
    });
}

#[test]
fn a_stopped_reader_lets_the_loop_sleep() {
    every(|lp| {
        let (tcp, mut peer) = connected(lp);
        let (got, timer) = (log(), Timer::new(lp));
        let gathered = got.clone();
        tcp.read_start(lp, move |lp, tcp, bytes| {
            gathered.extend(bytes.unwrap().iter().copied());
            tcp.read_stop(lp).unwrap();
        })
        .unwrap();
        peer.write_all(b"seen").unwrap();
        lp.run(RunMode::Default).unwrap();
        peer.write_all(b"unseen").unwrap();
        let turns = lp.metrics().loop_count();
        timer
            .start(lp, Duration::from_millis(30), Duration::ZERO, move |lp, timer| {
                timer.close(lp).unwrap();
                tcp.close(lp).unwrap();
            })
            .unwrap();
        lp.run(RunMode::Default).unwrap();
        assert_eq!(got.take(), b"seen");
        assert!(lp.metrics().loop_count() - turns < 5, "it did not spin");
    });
}

#[test]
fn pulled_reads_are_served_in_order_one_callback_each() {
    every(|lp| {
        let (tcp, mut peer) = connected(lp);
        let told = log();
        for name in ["first", "second", "cancelled", "last"] {
            let tell = told.clone();
            let request = tcp
                .read(lp, vec![0; 3], move |_, _, count, buffer| match count {
                    Ok(count) => tell.push((name, buffer[..count].to_vec())),
                    Err(error) => tell.push((name, error.to_string().into_bytes())),
                })
                .unwrap();
            if name == "cancelled" {
                request.cancel(lp).unwrap();
                assert_eq!(request.cancel(lp).unwrap_err().kind(), ErrorKind::NotFound);
            }
        }
        let both = tcp.read_start(lp, |_, _, _| unreachable!()).unwrap_err();
        assert_eq!(both.kind(), ErrorKind::AlreadyExists);
        assert!(!tcp.is_active(lp) && lp.alive(), "requests keep the loop alive");
        peer.write_all(b"12345").unwrap();
        peer.shutdown(Shutdown::Write).unwrap();
        lp.run(RunMode::Default).unwrap();
        let told = told.take();
        assert_eq!(told[0].0, "cancelled");
        let expected = [("first", b"123".to_vec()), ("second", b"45".to_vec()), ("last", vec![])];
        assert_eq!(told[1..], expected);
        let empty = tcp.read(lp, vec![], |_, _, _, _| unreachable!()).unwrap_err();
        assert_eq!(empty.kind(), ErrorKind::InvalidInput);
        tcp.close(lp).unwrap();
        lp.run(RunMode::Default).unwrap();
    });
}

#[test]
fn late_memory_comes_back_exactly_once() {
    every(|lp| {
        for how in ["read", "stop", "close", "nothing"] {
            let (tcp, mut peer) = connected(lp);
            peer.write_all(b"hello").unwrap();
            let (order, told) = (log(), log());
            let (allocated, tell) = (order.clone(), told.clone());
            let alloc = move |lp: &mut Lp, tcp: Tcp, advised: usize| {
                allocated.push("alloc");
                assert!(advised > 0);
                match how {
                    "stop" => tcp.read_stop(lp).unwrap(),
                    "close" => tcp.close(lp).unwrap(),
                    "nothing" if allocated.len() == 1 => return vec![],
                    _ => {}
                }
                vec![0; 1024]
            };
            let read = order.clone();
            tcp.read_start_with(lp, alloc, move |lp, tcp, result, buffer| {
                read.push("read");
                let done = result.is_ok() || how != "nothing";
                tell.push(result.map(|count| buffer[..count].to_vec()));
                if done && !tcp.is_closing(lp) {
                    tcp.close(lp).unwrap();
                }
            })
            .unwrap();
            lp.run(RunMode::Default).unwrap();
            let told = told.take();
            match how {
                "read" => assert_eq!(told[0].as_ref().unwrap(), b"hello"),
                "nothing" => {
                    assert!(told[0].is_err());
                    assert_eq!(told[1].as_ref().unwrap(), b"hello");
                }
                _ => assert!(is_cancelled(&told.into_iter().next().unwrap().map(drop))),
            }
            let expected = if how == "nothing" { 4 } else { 2 };
            let order = order.take();
            assert_eq!(order.len(), expected);
            assert!(order.chunks(2).all(|pair| pair == ["alloc", "read"]));
        }
    });
}
