//! Data that is buffered when a reader starts.

use std::io::{ErrorKind, Write as _};
use std::net::TcpStream;

use uv_core::{Handle, Stream, Tcp};

use crate::support::loops::new_loop;
use crate::support::streams::{connected, finish, run_until};
use crate::support::trace::Log;
use crate::{Lab, Loop, Verdict};

/// A large amount of buffered data is delivered to the end without a new readiness event, also to
/// readers that restart in between with the same or the other interface.
pub fn buffered_data_is_delivered_without_a_new_event(lab: &Lab) -> Verdict {
    for alternates in [false, true] {
        let mut lp = new_loop(lab)?;
        let (tcp, peer) = connected(&mut lp);
        tcp.set_recv_buffer_size(&mut lp, 1 << 20).unwrap();
        peer.set_nonblocking(true).expect("a peer that does not wait");
        let counts = Log::default();
        lend_once(&mut lp, tcp, alternates, counts.clone());
        for size in [20_000, 150_000, 150_000] {
            let mut left = fill(&peer, size);
            run_until(&mut lp, "the rest of the data", |_| {
                left -= counts.take().into_iter().sum::<usize>();
                left == 0
            });
        }
        tcp.close(&mut lp).unwrap();
        finish(lp);
    }
    Ok(())
}

/// Sends as much of `bytes` as the socket accepts; returns the number of bytes.
fn fill(mut peer: &TcpStream, size: usize) -> usize {
    let (bytes, mut sent) = (vec![7; size], 0);
    while sent < size {
        match peer.write(&bytes[sent..]) {
            Ok(count) => sent += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("a peer that can send: {error}"),
        }
    }
    sent
}

/// Reads once and restarts: alternately with an allocation callback, if it `alternates`.
fn lend_once(lp: &mut Loop, tcp: Tcp, alternates: bool, counts: Log<usize>) {
    let started = tcp.read_start(lp, move |lp, tcp, bytes| {
        counts.push(bytes.unwrap().len());
        tcp.read_stop(lp).unwrap();
        if alternates {
            read_late_once(lp, tcp, counts.clone());
        } else {
            lend_once(lp, tcp, alternates, counts.clone());
        }
    });
    started.unwrap();
}

fn read_late_once(lp: &mut Loop, tcp: Tcp, counts: Log<usize>) {
    let alloc = |_: &mut Loop, _, _| vec![0; 30_000];
    let started = tcp.read_start_with(lp, alloc, move |lp, tcp, count, _| {
        // `WouldBlock` is not a read.
        let Ok(count) = count else { return };
        counts.push(count);
        tcp.read_stop(lp).unwrap();
        lend_once(lp, tcp, true, counts.clone());
    });
    started.unwrap();
}
