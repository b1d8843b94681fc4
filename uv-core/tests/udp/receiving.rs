//! Receiving.

use std::cell::Cell;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::rc::Rc;
use std::time::Duration;

use uv_core::{Handle, RunMode, Timer, Udp};

use super::code::EALREADY;
use super::{Log, Lp, bound, every, is, local, log, numbers, run};

#[test]
fn a_datagram_arrives_with_its_senders_address() {
    every(|lp| {
        let (server, to) = bound(lp);
        let (client, from) = bound(lp);
        let told = log();
        let seen = told.clone();
        server
            .recv_start(lp, move |lp, server, datagram| {
                let datagram = datagram.unwrap();
                assert!(!datagram.truncated);
                assert_eq!(datagram.segments().collect::<Vec<_>>(), [b"PING"]);
                seen.push((datagram.data.to_vec(), datagram.from));
                server.close(lp).unwrap();
            })
            .unwrap();
        client
            .send(lp, "PING", to, |lp, client, result, _| {
                result.unwrap();
                client.close(lp).unwrap();
            })
            .unwrap();
        run(lp);
        assert_eq!(told.take(), [(b"PING".to_vec(), from)]);
    });
}

#[test]
fn an_empty_datagram_is_a_datagram() {
    every(|lp| {
        let (server, to) = bound(lp);
        let told = Rc::new(Cell::new(0));
        let seen = told.clone();
        server
            .recv_start(lp, move |lp, server, datagram| {
                let datagram = datagram.unwrap();
                assert_eq!((datagram.data, datagram.truncated), (&[][..], false));
                assert_eq!(datagram.segments().count(), 1);
                seen.set(seen.get() + 1);
                server.close(lp).unwrap();
            })
            .unwrap();
        let client = Udp::new(lp);
        client.send(lp, Vec::<u8>::new(), to, |_, _, result, _| result.unwrap()).unwrap();
        assert_eq!((client.send_queue_size(lp), client.send_queue_count(lp)), (0, 1));
        run(lp);
        assert_eq!(told.get(), 1);
    });
}

#[test]
fn receiving_twice_is_an_error_and_stopping_twice_is_not() {
    every(|lp| {
        let udp = Udp::new(lp);
        udp.recv_stop(lp).unwrap();
        udp.recv_start(lp, |_, _, _| {}).unwrap();
        assert!(is(&udp.recv_start(lp, |_, _, _| {}).unwrap_err(), EALREADY));
        udp.recv_stop(lp).unwrap();
        udp.recv_stop(lp).unwrap();
        assert!(!lp.run(RunMode::Default).unwrap());
        udp.recv_start(lp, |_, _, _| {}).unwrap();
    });
}

#[test]
fn a_callback_may_replace_itself() {
    every(|lp| {
        let (server, to) = bound(lp);
        numbers(to, 0..3);
        let told = log();
        let (first, second) = (told.clone(), told.clone());
        server
            .recv_start(lp, move |lp, server, datagram| {
                first.push(("first", datagram.unwrap().data[0]));
                server.recv_stop(lp).unwrap();
                let second = second.clone();
                server
                    .recv_start(lp, move |lp, server, datagram| {
                        second.push(("second", datagram.unwrap().data[0]));
                        if second.len() == 3 {
                            server.close(lp).unwrap();
                        }
                    })
                    .unwrap();
            })
            .unwrap();
        run(lp);
        assert_eq!(told.take(), [("first", 0), ("second", 1), ("second", 2)]);
    });
}

#[test]
fn nothing_is_lost_when_a_callback_stops_in_the_middle_of_many() {
    every(|lp| {
        let (server, to) = bound(lp);
        numbers(to, 0..40);
        let told = log();
        // The first ones in one go, so that batches are large; then one at a time.
        fn receive(lp: &mut Lp, server: Udp, told: Log<u8>) {
            server
                .recv_start(lp, move |lp, server, datagram| {
                    told.push(datagram.unwrap().data[0]);
                    let count = told.len();
                    if count == 40 {
                        server.close(lp).unwrap();
                    } else if count > 20 {
                        server.recv_stop(lp).unwrap();
                        let told = told.clone();
                        let timer = Timer::new(lp);
                        let later = move |lp: &mut Lp, timer: Timer| {
                            receive(lp, server, told.clone());
                            timer.close(lp).unwrap();
                        };
                        timer.start(lp, Duration::ZERO, Duration::ZERO, later).unwrap();
                    }
                })
                .unwrap();
        }
        receive(lp, server, told.clone());
        run(lp);
        assert_eq!(told.take(), (0..40).collect::<Vec<u8>>());
    });
}

#[test]
fn a_callback_may_close_its_handle_in_the_middle_of_many() {
    every(|lp| {
        let (server, to) = bound(lp);
        numbers(to, 0..30);
        let told = Rc::new(Cell::new(0));
        let seen = told.clone();
        server
            .recv_start(lp, move |lp, server, _| {
                seen.set(seen.get() + 1);
                if seen.get() == 20 {
                    server.close(lp).unwrap();
                }
            })
            .unwrap();
        run(lp);
        assert_eq!(told.get(), 20);
    });
}

#[test]
fn a_panic_stops_receiving_and_loses_only_its_datagram() {
    every(|lp| {
        let (server, to) = bound(lp);
        numbers(to, 0..20);
        let told = log();
        let seen = told.clone();
        server
            .recv_start(lp, move |_, _, datagram| {
                seen.push(datagram.unwrap().data[0]);
                assert_ne!(seen.len(), 10, "on purpose");
            })
            .unwrap();
        let run_once = std::panic::AssertUnwindSafe(|| lp.run(RunMode::Default));
        std::panic::catch_unwind(run_once).unwrap_err();
        assert!(!server.is_active(lp));
        let seen = told.clone();
        server
            .recv_start(lp, move |lp, server, datagram| {
                seen.push(datagram.unwrap().data[0]);
                if seen.len() == 20 {
                    server.close(lp).unwrap();
                }
            })
            .unwrap();
        run(lp);
        assert_eq!(told.take(), (0..20).collect::<Vec<u8>>());
    });
}

#[test]
fn a_long_datagram_is_truncated_where_a_limit_is_set() {
    every(|lp| {
        let (server, to) = bound(lp);
        server.set_largest_datagram(lp, 4).unwrap();
        let client = Udp::new(lp);
        client.try_send(lp, b"too long", to).unwrap();
        client.try_send(lp, b"fits", to).unwrap();
        let told = log();
        let seen = told.clone();
        server
            .recv_start(lp, move |lp, server, datagram| {
                let datagram = datagram.unwrap();
                seen.push((datagram.data.to_vec(), datagram.truncated));
                if seen.len() == 2 {
                    server.close(lp).unwrap();
                }
            })
            .unwrap();
        run(lp);
        assert_eq!(told.take(), [(b"too ".to_vec(), true), (b"fits".to_vec(), false)]);
    });
}

#[test]
fn the_largest_datagram_comes_whole() {
    every(|lp| {
        let (server, to) = bound(lp);
        let sent: Vec<u8> = (0..65_507_u32).map(|index| index as u8).collect();
        let wanted = sent.clone();
        server
            .recv_start(lp, move |lp, server, datagram| {
                let datagram = datagram.unwrap();
                assert!(datagram.data == wanted && !datagram.truncated);
                server.close(lp).unwrap();
            })
            .unwrap();
        let client = Udp::new(lp);
        client.send(lp, sent, to, |_, _, result, _| result.unwrap()).unwrap();
        run(lp);
    });
}

#[test]
fn a_flood_does_not_starve_a_timer() {
    every(|lp| {
        let (server, to) = bound(lp);
        // Every datagram makes another, so that there is always one.
        numbers(to, 0..50);
        server
            .recv_start(lp, move |lp, server, datagram| {
                datagram.unwrap();
                server.try_send(lp, b"x", to).unwrap();
            })
            .unwrap();
        let timer = Timer::new(lp);
        timer
            .start(lp, Duration::from_millis(20), Duration::ZERO, move |lp, timer| {
                server.close(lp).unwrap();
                timer.close(lp).unwrap();
            })
            .unwrap();
        run(lp);
    });
}

#[test]
fn a_refused_datagram_is_told_to_a_connected_receiver() {
    every(|lp| {
        if cfg!(windows) {
            return eprintln!("skipped: Wine tells of no refusals");
        }
        let nobody = UdpSocket::bind(local()).unwrap().local_addr().unwrap();
        let client = Udp::new(lp);
        client.connect(lp, nobody).unwrap();
        let told = Rc::new(Cell::new(false));
        let seen = told.clone();
        client
            .recv_start(lp, move |lp, client, datagram| {
                let error = datagram.unwrap_err();
                assert_eq!(error.io_error().kind(), ErrorKind::ConnectionRefused);
                assert!(!error.is_report() && error.offender().is_none());
                seen.set(true);
                client.close(lp).unwrap();
            })
            .unwrap();
        client.send(lp, "x", None, |_, _, result, _| result.unwrap()).unwrap();
        run(lp);
        assert!(told.get());
    });
}
