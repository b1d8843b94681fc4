//! Sending.

use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::net::UdpSocket;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use uv_core::{Check, Handle, RunMode, Udp};

use super::code::EMSGSIZE;
use super::{Lp, bound, every, is, local, log, run};

#[test]
fn the_callback_of_a_send_never_runs_inside_the_call() {
    every(|lp| {
        let (_, to) = bound(lp);
        let (client, inside) = (Udp::new(lp), Rc::new(Cell::new(true)));
        let (flag, told) = (Rc::clone(&inside), Rc::new(Cell::new(false)));
        let seen = told.clone();
        client
            .send(lp, "x", to, move |_, _, result, _| {
                result.unwrap();
                seen.set(!flag.get());
            })
            .unwrap();
        inside.set(false);
        run(lp);
        assert!(told.get());
    });
}

#[test]
fn the_queue_is_counted_until_the_callback() {
    every(|lp| {
        let (_, to) = bound(lp);
        let client = Udp::new(lp);
        let left = log();
        for _ in 0..3 {
            let left = left.clone();
            client
                .send(lp, "four", to, move |lp, client, result, _| {
                    result.unwrap();
                    left.push((client.send_queue_size(lp), client.send_queue_count(lp)));
                })
                .unwrap();
        }
        assert_eq!((client.send_queue_size(lp), client.send_queue_count(lp)), (12, 3));
        run(lp);
        assert_eq!(left.take(), [(8, 2), (4, 1), (0, 0)]);
    });
}

#[test]
fn buffers_of_all_kinds_are_handed_back() {
    every(|lp| {
        let (server, to) = bound(lp);
        let told = log();
        let seen = told.clone();
        server
            .recv_start(lp, move |lp, server, datagram| {
                seen.push(datagram.unwrap().data.to_vec());
                if seen.len() == 4 {
                    server.close(lp).unwrap();
                }
            })
            .unwrap();
        let client = Udp::new(lp);
        client.send(lp, vec![1], to, |_, _, _, buffer| assert_eq!(buffer, [1])).unwrap();
        let boxed = Box::<[u8]>::from([2]);
        client.send(lp, boxed, to, |_, _, _, buffer| assert_eq!(*buffer, [2])).unwrap();
        let shared = Arc::<[u8]>::from([3]);
        client.send(lp, shared, to, |_, _, _, buffer| assert_eq!(*buffer, [3])).unwrap();
        client.send(lp, &[4_u8][..], to, |_, _, _, buffer| assert_eq!(buffer, [4])).unwrap();
        run(lp);
        assert_eq!(told.take(), [[1], [2], [3], [4]]);
    });
}

#[test]
fn pieces_make_one_datagram() {
    every(|lp| {
        let (server, to) = bound(lp);
        let told = log();
        let seen = told.clone();
        server
            .recv_start(lp, move |lp, server, datagram| {
                seen.push(datagram.unwrap().data.to_vec());
                if seen.len() == 3 {
                    server.close(lp).unwrap();
                }
            })
            .unwrap();
        let client = Udp::new(lp);
        client.send(lp, ["a", "", "bc"], to, |_, _, result, _| result.unwrap()).unwrap();
        client.send(lp, vec!["x"; 100], to, |_, _, result, _| result.unwrap()).unwrap();
        client.send(lp, Vec::<&'static str>::new(), to, |_, _, result, _| result.unwrap()).unwrap();
        run(lp);
        assert_eq!(told.take(), [&b"abc"[..], &[b'x'; 100], b""]);
    });
}

#[test]
fn an_oversized_datagram_fails_alone() {
    every(|lp| {
        let (server, to) = bound(lp);
        server
            .recv_start(lp, |lp, server, datagram| {
                assert_eq!(datagram.unwrap().data, b"small");
                server.close(lp).unwrap();
            })
            .unwrap();
        let (client, told) = (Udp::new(lp), log());
        for buffer in [vec![0; 70_000], b"small".to_vec()] {
            let told = told.clone();
            client
                .send(lp, buffer, to, move |_, _, result, buffer| {
                    told.push((buffer.len(), result.map_err(|error| is(&error, EMSGSIZE))));
                })
                .unwrap();
        }
        run(lp);
        assert_eq!(told.take(), [(70_000, Err(true)), (5, Ok(()))]);
        let sent = client.try_send(lp, b"x", to);
        assert_eq!(sent.unwrap_err().kind(), ErrorKind::NotFound);
    });
}

#[test]
fn a_send_keeps_the_loop_alive_even_unreferenced() {
    every(|lp| {
        let (_, to) = bound(lp);
        let (udp, told) = (Udp::new(lp), Rc::new(Cell::new(false)));
        udp.unreference(lp).unwrap();
        let seen = told.clone();
        udp.send(lp, "x", to, move |_, _, _, _| seen.set(true)).unwrap();
        assert!(lp.alive());
        assert!(!lp.run(RunMode::Default).unwrap());
        assert!(told.get());
    });
}

#[test]
fn a_panic_in_a_send_callback_leaves_the_others() {
    every(|lp| {
        let (_, to) = bound(lp);
        let (client, told) = (Udp::new(lp), log());
        for number in 0..3 {
            let told = told.clone();
            client
                .send(lp, "x", to, move |_, _, _, _| {
                    told.push(number);
                    assert_ne!(number, 0, "on purpose");
                })
                .unwrap();
        }
        let run_once = std::panic::AssertUnwindSafe(|| lp.run(RunMode::Default));
        std::panic::catch_unwind(run_once).unwrap_err();
        run(lp);
        assert_eq!(told.take(), [0, 1, 2]);
    });
}

#[test]
fn closing_in_the_check_phase_tells_sends_first() {
    every(|lp| {
        let (_, to) = bound(lp);
        let (udp, order) = (Udp::new(lp), log());
        let check = Check::new(lp);
        let seen = order.clone();
        check
            .start(lp, move |lp, check| {
                let (sent, closed) = (seen.clone(), seen.clone());
                udp.send(lp, "x", to, move |_, _, _, _| sent.push("sent")).unwrap();
                udp.close_with(lp, move |_, _| closed.push("closed")).unwrap();
                check.close(lp).unwrap();
            })
            .unwrap();
        lp.run(RunMode::NoWait).unwrap();
        assert_eq!(order.take(), ["sent", "closed"]);
    });
}

#[test]
fn try_send_sends_now_or_not_at_all() {
    every(|lp| {
        let (server, to) = bound(lp);
        let client = Udp::new(lp);
        assert_eq!(client.try_send(lp, b"now", to).unwrap(), 3);
        let error = client.try_send(lp, &[0; 70_000], to).unwrap_err();
        assert!(is(&error, EMSGSIZE));
        assert_eq!((client.send_queue_size(lp), client.send_queue_count(lp)), (0, 0));
        assert!(!client.is_active(lp));
        server
            .recv_start(lp, |lp, server, datagram| {
                assert_eq!(datagram.unwrap().data, b"now");
                server.close(lp).unwrap();
            })
            .unwrap();
        run(lp);
    });
}

/// libuv's `uv_udp_try_send2` skipped 20 of 50 and said that all were sent.
#[test]
fn try_send_many_sends_every_one() {
    every(|lp| {
        let (server, to) = bound(lp);
        let client = Udp::new(lp);
        assert_eq!(client.try_send_many(lp, &[]).unwrap(), 0);
        let bytes: Vec<u8> = (0..100).collect();
        let datagrams: Vec<_> = bytes.chunks(1).map(|byte| (byte, Some(to))).collect();
        assert_eq!(client.try_send_many(lp, &datagrams).unwrap(), 100);
        let told = log();
        let seen = told.clone();
        server
            .recv_start(lp, move |lp, server, datagram| {
                seen.push(datagram.unwrap().data[0]);
                if seen.len() == 100 {
                    server.close(lp).unwrap();
                }
            })
            .unwrap();
        run(lp);
        assert_eq!(told.take(), bytes);

        let large = vec![0; 70_000];
        let some = [(&b"x"[..], Some(to)), (&large[..], Some(to)), (&b"y"[..], Some(to))];
        let client = Udp::new(lp);
        assert_eq!(client.try_send_many(lp, &some).unwrap(), 1);
        assert!(is(&client.try_send_many(lp, &some[1..]).unwrap_err(), EMSGSIZE));
    });
}

/// A server that gets 40 numbers at once, and a client that waits for answers.
fn many_questions(lp: &mut Lp) -> (Udp, UdpSocket) {
    let (server, to) = bound(lp);
    let client = UdpSocket::bind(local()).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    for number in 0..40 {
        client.send_to(&[number], to).unwrap();
    }
    (server, client)
}

fn answers(client: &UdpSocket, count: usize) -> Vec<u8> {
    let mut answer = [0; 16];
    (0..count).map(|_| (client.recv(&mut answer).unwrap(), answer[0]).1).collect()
}

#[test]
fn answers_to_many_go_out_in_order_with_what_is_tried_between() {
    every(|lp| {
        let (server, client) = many_questions(lp);
        let told = log();
        let seen = told.clone();
        server
            .recv_start(lp, move |lp, server, datagram| {
                let datagram = datagram.unwrap();
                let (number, from, seen) = (datagram.data[0], datagram.from, seen.clone());
                let done = move |lp: &mut Lp, server: Udp, result: io::Result<()>, _| {
                    result.unwrap();
                    seen.push(number);
                    if seen.len() == 40 {
                        server.close(lp).unwrap();
                    }
                };
                server.send(lp, vec![number], from, done).unwrap();
                if number % 3 == 0 {
                    assert_eq!(server.try_send(lp, &[100 + number], from).unwrap(), 1);
                }
            })
            .unwrap();
        run(lp);
        assert_eq!(told.take(), (0..40).collect::<Vec<_>>());
        let all: Vec<_> = (0..40)
            .flat_map(|number| match number % 3 {
                0 => vec![number, 100 + number],
                _ => vec![number],
            })
            .collect();
        assert_eq!(answers(&client, all.len()), all);
    });
}

#[test]
fn what_was_sent_before_a_close_or_a_panic_is_sent() {
    every(|lp| {
        let (server, client) = many_questions(lp);
        let told = log();
        let seen = told.clone();
        server
            .recv_start(lp, move |lp, server, datagram| {
                let datagram = datagram.unwrap();
                let (number, from, seen) = (datagram.data[0], datagram.from, seen.clone());
                let done =
                    move |_: &mut Lp, _, result: io::Result<()>, _| seen.push(result.is_ok());
                server.send(lp, vec![number], from, done).unwrap();
                assert_ne!(number, 20, "on purpose");
            })
            .unwrap();
        let run_once = std::panic::AssertUnwindSafe(|| lp.run(RunMode::Default));
        std::panic::catch_unwind(run_once).unwrap_err();
        let seen = told.clone();
        server
            .recv_start(lp, move |lp, server, datagram| {
                let datagram = datagram.unwrap();
                let (number, from, seen) = (datagram.data[0], datagram.from, seen.clone());
                let done =
                    move |_: &mut Lp, _, result: io::Result<()>, _| seen.push(result.is_ok());
                server.send(lp, vec![number], from, done).unwrap();
                if number == 39 {
                    server.close(lp).unwrap();
                }
            })
            .unwrap();
        run(lp);
        assert_eq!(told.take(), [true; 40]);
        assert_eq!(answers(&client, 40), (0..40).collect::<Vec<_>>());
    });
}
