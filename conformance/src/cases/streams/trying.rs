//! Reading without waiting.

use std::io::ErrorKind;
use std::time::Instant;

use uv_core::{Async, Handle, RunMode, Stream, Tcp, error_name};

use crate::support::loops::{new_loop, run};
use crate::support::observe::SOON;
use crate::support::sources::{half_close, send};
use crate::support::streams::{connected, finish, refusal, run_until};
use crate::support::trace::Log;
use crate::{Lab, Verdict};

/// `try_read` returns the bytes that are there, `WouldBlock` if there are none, and 0 at the end of
/// file. It is refused while the stream is read.
pub fn try_read_returns_what_is_there(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    let mut buffer = [0; 4];
    assert_eq!(refusal(tcp.try_read(&mut lp, &mut buffer)), ErrorKind::WouldBlock);
    assert_eq!(refusal(tcp.try_read(&mut lp, &mut [])), ErrorKind::InvalidInput, "no memory");
    let unconnected = Tcp::new(&mut lp);
    assert_eq!(refusal(unconnected.try_read(&mut lp, &mut buffer)), ErrorKind::NotConnected);
    send(&peer, b"hello");
    let mut got = Vec::new();
    run_until(&mut lp, "five bytes", |lp| {
        match tcp.try_read(lp, &mut buffer) {
            Ok(count) => got.extend_from_slice(&buffer[..count]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        lp.defer(|_| {}); // Nothing else wakes the loop.
        got.len() >= 5
    });
    assert_eq!(got, b"hello");
    tcp.read_start(&mut lp, |_, _, _| {}).unwrap();
    let error = tcp.try_read(&mut lp, &mut buffer).unwrap_err();
    assert_eq!(error_name(&error), Some("EALREADY"), "it is read");
    tcp.read_stop(&mut lp).unwrap();
    tcp.read(&mut lp, vec![0; 1], |_, _, count, _| assert_eq!(count.unwrap(), 0)).unwrap();
    let error = tcp.try_read(&mut lp, &mut buffer).unwrap_err();
    assert_eq!(error_name(&error), Some("EALREADY"), "a read is queued");
    half_close(&peer);
    run_until(&mut lp, "the end of file", |lp| tcp.try_read(lp, &mut [0]).is_ok_and(|it| it == 0));
    assert_eq!(tcp.try_read(&mut lp, &mut buffer).unwrap(), 0, "again");
    assert!(tcp.is_writable(&lp), "only input has ended");
    [tcp, unconnected].into_iter().for_each(|it| it.close(&mut lp).unwrap());
    assert_eq!(refusal(tcp.try_read(&mut lp, &mut buffer)), ErrorKind::InvalidInput, "closing");
    finish(lp);
    Ok(())
}

/// After `read_stop`, `try_read` returns what the loop has received already before what is in the
/// kernel, without a run in between.
pub fn try_read_follows_received_data(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    let (first, mut got) = (Log::default(), Vec::new());
    for round in 0..20_u8 {
        let log = first.clone();
        let reading = tcp.read_start(&mut lp, move |lp, tcp, bytes| {
            log.extend(bytes.unwrap().to_vec());
            tcp.read_stop(lp).unwrap();
        });
        reading.unwrap();
        send(&peer, &[round]);
        run_until(&mut lp, "a byte", |_| first.len() > 0);
        assert_eq!(first.take(), [round]);
        // An operation may receive some of these.
        for byte in 0..3 {
            send(&peer, &[100 + byte]);
            if round % 2 == 0 {
                run(&mut lp, RunMode::NoWait);
            }
        }
        let mut buffer = [0; 2];
        let deadline = Instant::now() + SOON;
        while got.len() < 3 {
            match tcp.try_read(&mut lp, &mut buffer) {
                Ok(count) => got.extend_from_slice(&buffer[..count]),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            assert!(Instant::now() < deadline, "{got:?} without a run");
        }
        assert_eq!(got, [100, 101, 102]);
        got.clear();
    }
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// `try_read` may fetch events of other handles. They are delivered, even if it is called by the
/// callback of an async, which runs after the events of the iteration.
pub fn try_read_loses_no_event(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let ((tried, _tried_peer), (read, read_peer)) = (connected(&mut lp), connected(&mut lp));
    let got = Log::default();
    let log = got.clone();
    read.read_start(&mut lp, move |_, _, bytes| log.extend(bytes.unwrap().to_vec())).unwrap();
    // An operation that receives goes on after the stop.
    tried.read_start(&mut lp, |_, _, _| {}).unwrap();
    run(&mut lp, RunMode::NoWait);
    tried.read_stop(&mut lp).unwrap();
    let (signal, sender) = Async::new(&mut lp, move |lp, _| {
        send(&read_peer, b"x");
        assert_eq!(refusal(tried.try_read(lp, &mut [0])), ErrorKind::WouldBlock);
    });
    for round in 1..=20 {
        sender.send().unwrap();
        run_until(&mut lp, "a byte of the other stream", |_| got.len() == round);
    }
    [tried, read].into_iter().for_each(|it| it.close(&mut lp).unwrap());
    signal.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A wake that `try_read` meets in the kernel is not lost: the loop runs the callback of its send.
pub fn try_read_loses_no_wake(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, _peer) = connected(&mut lp);
    // An operation that receives goes on after the stop.
    tcp.read_start(&mut lp, |_, _, _| {}).unwrap();
    run(&mut lp, RunMode::NoWait);
    tcp.read_stop(&mut lp).unwrap();
    let sent = Log::default();
    let log = sent.clone();
    let (handle, sender) = Async::new(&mut lp, move |_, _| log.push(()));
    sender.send().unwrap();
    assert_eq!(refusal(tcp.try_read(&mut lp, &mut [0])), ErrorKind::WouldBlock);
    run(&mut lp, RunMode::Once);
    assert_eq!(sent.len(), 1);
    handle.close(&mut lp).unwrap();
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}
