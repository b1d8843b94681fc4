//! Writing and shutting down.

use std::io::{self, ErrorKind, IoSlice, Read as _};

use uv_core::{Handle, RunMode, Stream, Tcp};

use super::{Lp, connected, every, fill, is_cancelled, log};

#[test]
fn writes_call_back_in_order_and_never_at_once() {
    every(|lp| {
        let (one, other) = Tcp::pair(lp).unwrap();
        let order = log();
        for number in 0..100 {
            let order = order.clone();
            let told = move |_: &mut Lp, _, result: io::Result<()>, _| {
                result.unwrap();
                order.push(number);
            };
            one.write(lp, vec![number; 5000], told).unwrap();
        }
        assert!(order.is_empty());
        assert!(!one.is_active(lp), "writing does not make it active");
        let mut expected = (0..100).flat_map(|number| [number; 5000]);
        let mut left = 100 * 5000;
        let read = other.read_start(lp, move |lp, other, bytes| {
            let bytes = bytes.unwrap();
            assert!(bytes.iter().all(|byte| expected.next() == Some(*byte)));
            left -= bytes.len();
            if left == 0 {
                other.close(lp).unwrap();
                one.close(lp).unwrap();
            }
        });
        read.unwrap();
        lp.run(RunMode::Default).unwrap();
        assert_eq!(order.take(), (0..100).collect::<Vec<_>>());
    });
}

#[test]
fn writes_can_be_cancelled() {
    every(|lp| {
        let (tcp, mut peer) = connected(lp);
        let filled = fill(lp, tcp);
        let told = log();
        let note = |name: &'static str| {
            let told = told.clone();
            move |_: &mut Lp, _: Tcp, result: io::Result<()>, _: Vec<u8>| {
                told.push((name, is_cancelled(&result)));
            }
        };
        let first = tcp.write(lp, vec![1; 100], note("first")).unwrap();
        let second = tcp.write(lp, vec![2; 100], note("second")).unwrap();
        tcp.write(lp, vec![3; 100], note("third")).unwrap();
        assert_eq!(tcp.write_queue_size(lp), 300);
        assert_eq!(second.cancel(lp).unwrap(), 0);
        assert_eq!(second.cancel(lp).unwrap_err().kind(), ErrorKind::NotFound);
        lp.run(RunMode::NoWait).unwrap();
        assert_eq!(told.take(), [("second", true)], "at once, before those ahead");
        assert_eq!(tcp.write_queue_size(lp), 200);
        let half = first.cancel(lp).unwrap();
        tcp.shutdown(lp, |lp, tcp, _| tcp.close(lp).unwrap()).unwrap();
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            peer.read_to_end(&mut all).unwrap();
            all
        });
        lp.run(RunMode::Default).unwrap();
        let all = reader.join().unwrap();
        let count = |byte| all.iter().filter(|it| **it == byte).count();
        assert_eq!([count(7), count(1), count(2), count(3)], [filled, half, 0, 100]);
        assert_eq!(told.take(), [("first", true), ("third", false)]);
    });
}

#[test]
fn a_partly_written_write_can_be_cancelled() {
    every(|lp| {
        let (tcp, mut peer) = connected(lp);
        let told = log();
        let tell = told.clone();
        let size = 64 << 20;
        let write = tcp
            .write(lp, vec![1; size], move |_, _, result, buf| {
                tell.push((is_cancelled(&result), buf.len()));
            })
            .unwrap();
        let queued = tcp.write_queue_size(lp);
        assert!(queued > 0 && queued < size, "{queued}");
        let written = write.cancel(lp).unwrap();
        assert_eq!(written, size - queued);
        lp.run(RunMode::NoWait).unwrap();
        assert_eq!(told.take(), [(true, size)]);
        assert_eq!(tcp.write_queue_size(lp), 0);
        tcp.close(lp).unwrap();
        lp.run(RunMode::Default).unwrap();
        let mut all = Vec::new();
        peer.read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), written);
    });
}

#[test]
fn many_pieces_are_one_write() {
    every(|lp| {
        let (tcp, mut peer) = connected(lp);
        let pieces: Vec<Vec<u8>> = (0..300).map(|number| vec![number as u8; number]).collect();
        let expected: Vec<u8> = pieces.iter().flatten().copied().collect();
        tcp.write(lp, pieces, |_, _, result, pieces| {
            result.unwrap();
            assert_eq!(pieces.len(), 300);
        })
        .unwrap();
        tcp.write(lp, ["a", "", "bc"], |_, _, result, _| result.unwrap()).unwrap();
        tcp.write(lp, "", |_, _, result, _| result.unwrap()).unwrap();
        let none = tcp.write(lp, Vec::<Vec<u8>>::new(), |_, _, _, _| {}).unwrap_err();
        assert_eq!(none.kind(), ErrorKind::InvalidInput);
        lp.run(RunMode::Default).unwrap();
        let sent = tcp.try_write_vectored(lp, &[IoSlice::new(b"de"), IoSlice::new(b"f")]).unwrap();
        assert_eq!(sent, 3);
        tcp.close(lp).unwrap();
        lp.run(RunMode::Default).unwrap();
        let mut all = Vec::new();
        peer.read_to_end(&mut all).unwrap();
        assert_eq!(all, [expected, b"abcdef".to_vec()].concat());
    });
}

#[test]
fn trying_to_write_never_queues() {
    every(|lp| {
        let (tcp, peer) = connected(lp);
        assert!(fill(lp, tcp) > 0);
        assert_eq!(tcp.write_queue_size(lp), 0);
        assert!(!lp.alive());
        tcp.write(lp, vec![1; 64 << 20], |_, _, _, _| {}).unwrap();
        assert_eq!(tcp.try_write(lp, b"x").unwrap_err().kind(), ErrorKind::WouldBlock);
        drop(peer);
        tcp.close(lp).unwrap();
        lp.run(RunMode::Default).unwrap();
    });
}

#[test]
fn a_shutdown_waits_for_the_queue_and_happens_once() {
    every(|lp| {
        let (tcp, mut peer) = connected(lp);
        let order = log();
        let (written, shut) = (order.clone(), order.clone());
        let size = 8 << 20;
        tcp.write(lp, vec![1; size], move |_, _, result, _| {
            result.unwrap();
            written.push("written");
        })
        .unwrap();
        tcp.shutdown(lp, move |lp, tcp, result| {
            result.unwrap();
            shut.push("shut down");
            assert!(!tcp.is_writable(lp));
            assert!(tcp.is_readable(lp), "the other direction goes on");
            let again = tcp.shutdown(lp, |_, _, _| {}).unwrap_err();
            assert_eq!(again.kind(), ErrorKind::NotConnected);
            tcp.close(lp).unwrap();
        })
        .unwrap();
        assert!(!tcp.is_writable(lp), "from now on");
        let twice = tcp.shutdown(lp, |_, _, _| unreachable!()).unwrap_err();
        assert_eq!(twice.kind(), ErrorKind::NotConnected);
        let late = tcp.write(lp, "late", |_, _, _, _| unreachable!()).unwrap_err();
        assert_eq!(late.kind(), ErrorKind::BrokenPipe);
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            peer.read_to_end(&mut all).unwrap();
            all.len()
        });
        lp.run(RunMode::Default).unwrap();
        assert_eq!(reader.join().unwrap(), size);
        assert_eq!(order.take(), ["written", "shut down"]);
    });
}

#[test]
fn a_blocking_stream_writes_all_at_once() {
    every(|lp| {
        let (tcp, mut peer) = connected(lp);
        tcp.set_blocking(lp, true).unwrap();
        let size = 8 << 20;
        let reader = std::thread::spawn(move || {
            let mut all = vec![0; size];
            peer.read_exact(&mut all).unwrap();
        });
        tcp.write(lp, vec![1; size], |_, _, result, _| result.unwrap()).unwrap();
        assert_eq!(tcp.write_queue_size(lp), 0);
        tcp.close(lp).unwrap();
        lp.run(RunMode::Default).unwrap();
        reader.join().unwrap();
    });
}

#[test]
fn writing_to_a_peer_that_is_gone_fails_all_that_is_queued() {
    every(|lp| {
        let (tcp, peer) = connected(lp);
        fill(lp, tcp);
        let told = log();
        for _ in 0..3 {
            let tell = told.clone();
            tcp.write(lp, vec![1; 1000], move |lp, tcp, result, _| {
                tell.push(result.is_err());
                if tell.len() == 3 {
                    assert_eq!(tcp.write_queue_size(lp), 0);
                    tcp.close(lp).unwrap();
                }
            })
            .unwrap();
        }
        // With data unread, closing is a reset.
        drop(peer);
        lp.run(RunMode::Default).unwrap();
        assert_eq!(told.take(), [true; 3]);
    });
}
