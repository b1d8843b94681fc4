//! Reading into memory from an allocation callback.

use std::io::Read as _;

use uv_core::{Handle, Stream, Tcp};

use crate::support::loops::new_loop;
use crate::support::sources::{send, tcp_pair};
use crate::support::streams::{connected, finish, opened, outcome};
use crate::support::trace::Log;
use crate::{Lab, Loop, Verdict};

/// Memory from the allocation callback returns to exactly one read callback, even if the allocation
/// stops the reading or closes the stream.
pub fn allocated_memory_is_returned_exactly_once(lab: &Lab) -> Verdict {
    for (how, expected) in [("read", "done"), ("stop", "cancelled"), ("close", "cancelled")] {
        let mut lp = new_loop(lab)?;
        let (tcp, peer) = connected(&mut lp);
        send(&peer, b"hello");
        let callbacks = Log::default();
        let (log, note) = (callbacks.clone(), callbacks.clone());
        let alloc = move |lp: &mut Loop, tcp: Tcp, advised: usize| {
            note.push("alloc");
            assert_eq!(advised, 64 * 1024, "the suggested size");
            match how {
                "stop" => tcp.read_stop(lp).unwrap(),
                "close" => tcp.close(lp).unwrap(),
                _ => {}
            }
            vec![0; advised]
        };
        tcp.read_start_with(&mut lp, alloc, move |lp, tcp, result, buffer| {
            log.push(outcome(&result));
            assert!(result.is_err() || buffer[..result.unwrap()] == *b"hello");
            if !tcp.is_closing(lp) {
                tcp.close(lp).unwrap();
            }
        })
        .unwrap();
        finish(lp);
        assert_eq!(callbacks.take(), ["alloc", expected], "{how}");
    }
    Ok(())
}

/// An allocation that returns no memory is reported, and reading continues.
pub fn a_failed_allocation_is_reported_and_reading_continues(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    send(&peer, b"hello");
    let callbacks = Log::default();
    let (log, mut asked) = (callbacks.clone(), 0);
    let alloc = move |_: &mut Loop, _, _| {
        asked += 1;
        vec![0; if asked < 3 { 0 } else { 16 }]
    };
    tcp.read_start_with(&mut lp, alloc, move |lp, tcp, result, buffer| {
        log.push(result.is_ok());
        match result {
            Ok(count) => {
                assert_eq!(buffer[..count], *b"hello", "nothing is lost");
                tcp.close(lp).unwrap();
            }
            Err(_) => assert!(tcp.is_active(lp) && tcp.is_readable(lp), "reading continues"),
        }
    })
    .unwrap();
    finish(lp);
    assert_eq!(callbacks.take(), [false, false, true]);
    Ok(())
}

/// If another reader has taken the data after the allocation, the memory is returned once with
/// `WouldBlock`, and reading continues.
pub fn allocated_memory_is_returned_if_no_data_is_left(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (near, peer) = tcp_pair();
    let another = near.try_clone().expect("another of the same socket");
    let tcp = opened(&mut lp, near);
    send(&peer, b"first");
    let callbacks = Log::default();
    let (log, note, mut taken) = (callbacks.clone(), callbacks.clone(), false);
    let alloc = move |_: &mut Loop, _, _| {
        note.push("alloc".to_owned());
        if !std::mem::replace(&mut taken, true) {
            (&another).read_exact(&mut [0; 5]).expect("the received bytes");
        }
        vec![0; 16]
    };
    tcp.read_start_with(&mut lp, alloc, move |lp, tcp, result, buffer| match result {
        Ok(count) => {
            log.push(String::from_utf8_lossy(&buffer[..count]).into_owned());
            tcp.close(lp).unwrap();
        }
        Err(error) => {
            log.push(format!("{:?}", error.kind()));
            send(&peer, b"second");
        }
    })
    .unwrap();
    finish(lp);
    assert_eq!(callbacks.take(), ["alloc", "WouldBlock", "alloc", "second"]);
    Ok(())
}
