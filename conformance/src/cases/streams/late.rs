//! Reading into memory that comes late.

use std::io::Read as _;

use poll_core::Backend;
use uv_core::{Handle, Loop, Stream, Tcp};

use crate::support::loops::new_loop;
use crate::support::sources::{send, tcp_pair};
use crate::support::streams::{connected, finish, opened, outcome};
use crate::support::trace::Log;
use crate::{Lab, Verdict};

/// Memory that is allocated late comes back to exactly one callback, even if the allocation
/// stops the reading or closes the stream.
pub fn late_memory_comes_back_exactly_once<T: Backend>(lab: &Lab<T>) -> Verdict {
    for (how, expected) in [("read", "done"), ("stop", "cancelled"), ("close", "cancelled")] {
        let mut lp = new_loop(lab)?;
        let (tcp, peer) = connected(&mut lp);
        send(&peer, b"hello");
        let told = Log::default();
        let (tell, note) = (told.clone(), told.clone());
        let alloc = move |lp: &mut Loop<T>, tcp: Tcp, advised: usize| {
            note.push("alloc");
            assert_eq!(advised, 64 * 1024, "what is advised");
            match how {
                "stop" => tcp.read_stop(lp).unwrap(),
                "close" => tcp.close(lp).unwrap(),
                _ => {}
            }
            vec![0; advised]
        };
        tcp.read_start_with(&mut lp, alloc, move |lp, tcp, result, buffer| {
            tell.push(outcome(&result));
            assert!(result.is_err() || buffer[..result.unwrap()] == *b"hello");
            if !tcp.is_closing(lp) {
                tcp.close(lp).unwrap();
            }
        })
        .unwrap();
        finish(lp);
        assert_eq!(told.take(), ["alloc", expected], "{how}");
    }
    Ok(())
}

/// If there is no memory for a read, that is told, and reading goes on.
pub fn late_memory_may_be_missing<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    send(&peer, b"hello");
    let told = Log::default();
    let (tell, mut asked) = (told.clone(), 0);
    let alloc = move |_: &mut Loop<T>, _, _| {
        asked += 1;
        vec![0; if asked < 3 { 0 } else { 16 }]
    };
    tcp.read_start_with(&mut lp, alloc, move |lp, tcp, result, buffer| {
        tell.push(result.is_ok());
        match result {
            Ok(count) => {
                assert_eq!(buffer[..count], *b"hello", "nothing is lost");
                tcp.close(lp).unwrap();
            }
            Err(_) => assert!(tcp.is_active(lp) && tcp.is_readable(lp), "reading goes on"),
        }
    })
    .unwrap();
    finish(lp);
    assert_eq!(told.take(), [false, false, true]);
    Ok(())
}

/// If nothing is there after the memory was allocated, because another has read it, that is told
/// with the memory, once, and reading goes on.
pub fn late_memory_may_be_for_nothing<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (near, peer) = tcp_pair();
    let another = near.try_clone().expect("another of the same socket");
    let tcp = opened(&mut lp, near);
    send(&peer, b"first");
    let told = Log::default();
    let (tell, note, mut taken) = (told.clone(), told.clone(), false);
    let alloc = move |_: &mut Loop<T>, _, _| {
        note.push("alloc".to_owned());
        if !std::mem::replace(&mut taken, true) {
            (&another).read_exact(&mut [0; 5]).expect("what has come");
        }
        vec![0; 16]
    };
    tcp.read_start_with(&mut lp, alloc, move |lp, tcp, result, buffer| match result {
        Ok(count) => {
            tell.push(String::from_utf8_lossy(&buffer[..count]).into_owned());
            tcp.close(lp).unwrap();
        }
        Err(error) => {
            tell.push(format!("{:?}", error.kind()));
            send(&peer, b"second");
        }
    })
    .unwrap();
    finish(lp);
    assert_eq!(told.take(), ["alloc", "WouldBlock", "alloc", "second"]);
    Ok(())
}
