//! Reading what is left.

use std::io::{ErrorKind, Write as _};
use std::net::TcpStream;

use poll_core::Backend;
use uv_core::{Handle, Loop, Stream, Tcp};

use crate::support::loops::new_loop;
use crate::support::streams::{connected, finish, run_until};
use crate::support::trace::Log;
use crate::{Lab, Verdict};

/// Much that has arrived is told to the end, though nothing new arrives that would tell of it:
/// also to readers that start anew in the middle of it, in the same way or in another.
pub fn what_is_left_of_much_is_told<T: Backend>(lab: &Lab<T>) -> Verdict {
    for alternates in [false, true] {
        let mut lp = new_loop(lab)?;
        let (tcp, peer) = connected(&mut lp);
        tcp.set_recv_buffer_size(&mut lp, 1 << 20).unwrap();
        peer.set_nonblocking(true).expect("a peer that does not wait");
        let counts = Log::default();
        lend_once(&mut lp, tcp, alternates, counts.clone());
        for size in [20_000, 150_000, 150_000] {
            let mut left = fill(&peer, size);
            run_until(&mut lp, "the rest of much", |_| {
                left -= counts.take().into_iter().sum::<usize>();
                left == 0
            });
        }
        tcp.close(&mut lp).unwrap();
        finish(lp);
    }
    Ok(())
}

/// Sends what there is room for, of so many bytes; returns how many that are.
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

/// Reads once and then anew: with late memory, if it `alternates`.
fn lend_once<T: Backend>(lp: &mut Loop<T>, tcp: Tcp, alternates: bool, counts: Log<usize>) {
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

fn read_late_once<T: Backend>(lp: &mut Loop<T>, tcp: Tcp, counts: Log<usize>) {
    let alloc = |_: &mut Loop<T>, _, _| vec![0; 30_000];
    let started = tcp.read_start_with(lp, alloc, move |lp, tcp, count, _| {
        // Nothing there is no read.
        let Ok(count) = count else { return };
        counts.push(count);
        tcp.read_stop(lp).unwrap();
        lend_once(lp, tcp, true, counts.clone());
    });
    started.unwrap();
}
