//! Datagrams in flight while the handle is stopped, started or closed. If the backend performs
//! receives and sends, operations are in flight then.

use std::net::SocketAddr;

use poll_core::{Backend, OpKind};
use uv_core::{Handle, RunMode, Udp};

use crate::support::datagrams::{
    bound, finish, numbers_of, outsider, receive_numbers, run_out, send_numbers, sent,
};
use crate::support::loops::{keep_alive, new_loop, run};
use crate::support::streams::run_until;
use crate::support::syscalls;
use crate::support::trace::{Count, Log};
use crate::{Lab, Loop, Verdict};

/// Several sockets have more pending datagrams than the loop has receive buffers. All are
/// delivered, in the order of each socket.
pub fn more_datagrams_than_buffers_are_delivered(lab: &Lab) -> Verdict {
    const EACH: u8 = 60;
    let mut lp = new_loop(lab)?;
    let mut logs = Vec::new();
    for _ in 0..5 {
        let ((udp, to), got) = (bound(&mut lp), Log::default());
        send_numbers(to, 0..EACH);
        receive_numbers(&mut lp, udp, &got, EACH.into());
        logs.push(got);
    }
    run_out(&mut lp);
    for got in logs {
        assert_eq!(got.take(), (0..EACH).collect::<Vec<_>>());
    }
    finish(lp);
    Ok(())
}

/// Datagrams that arrive while a handle is stopped and the loop runs are delivered when it starts
/// again, before later ones.
pub fn datagrams_received_while_stopped_are_kept(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let ((udp, to), got) = (bound(&mut lp), Log::default());
    let (alive, outside) = (keep_alive(&mut lp), outsider().0);
    let mut next = 0;
    for count in [1, 2, 40, 0, 1] {
        receive(&mut lp, udp, &got);
        run_until_received(&mut lp, &got, next.into());
        udp.recv_stop(&mut lp).unwrap();
        for _ in 0..count {
            outside.send_to(&[next], to).unwrap();
            next += 1;
            run(&mut lp, RunMode::NoWait);
        }
        assert_eq!(
            got.len(),
            usize::from(next - count),
            "no datagram is delivered while it is stopped"
        );
        // Started and stopped again before the loop runs, and then started for good.
        receive(&mut lp, udp, &got);
        udp.recv_stop(&mut lp).unwrap();
        receive(&mut lp, udp, &got);
        outside.send_to(&[next], to).unwrap();
        next += 1;
        run_until_received(&mut lp, &got, next.into());
        udp.recv_stop(&mut lp).unwrap();
    }
    assert_eq!(got.take(), (0..next).collect::<Vec<_>>(), "each once, and in order");
    alive.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// Logs the first byte of each datagram.
fn receive(lp: &mut Loop, udp: Udp, got: &Log<u8>) {
    let log = got.clone();
    udp.recv_start(lp, move |_, _, datagram| log.push(datagram.expect("a datagram").data[0]))
        .expect("a handle that is stopped");
}

fn run_until_received(lp: &mut Loop, got: &Log<u8>, count: usize) {
    let log = got.clone();
    run_until(lp, "all of them", move |_| log.len() == count);
}

/// Handles closed while datagrams arrive deliver none of them, free their ports immediately, and
/// run each close callback once.
pub fn closing_cancels_receives_in_flight(lab: &Lab) -> Verdict {
    const MANY: u64 = 20;
    let (mut lp, closed) = (new_loop(lab)?, Count::default());
    for round in 0..MANY {
        let (udp, address) = bound(&mut lp);
        udp.recv_start(&mut lp, |_, _, _| panic!("called although it is closed")).unwrap();
        // Both submitted to the kernel and not.
        if round % 2 == 0 {
            run(&mut lp, RunMode::NoWait);
        }
        send_numbers(address, 0..3);
        let count = closed.clone();
        udp.close_with(&mut lp, move |_, _| count.count()).unwrap();
        let (again, got) = (Udp::new(&mut lp), Log::default());
        again.bind(&mut lp, address, uv_core::UdpBindFlags::empty()).expect("the port is free");
        send_numbers(address, 7..8);
        if cfg!(any(target_os = "linux", windows)) {
            receive_numbers(&mut lp, again, &got, 1);
            run_until_received(&mut lp, &got, 1);
            assert_eq!(got.take(), [7], "earlier datagrams were for the closed handle");
        } else {
            // The BSDs queue loopback packets: earlier ones may arrive after the second bind.
            receive(&mut lp, again, &got);
            let log = got.clone();
            run_until(&mut lp, "the last datagram", move |_| log.take().contains(&7));
            again.close(&mut lp).unwrap();
        }
    }
    run_out(&mut lp);
    assert_eq!(closed.get(), MANY);
    finish(lp);
    Ok(())
}

/// A loop may be dropped while its handles receive and send, and datagrams arrive.
pub fn a_loop_may_be_dropped_in_flight(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let ((udp, to), (outside, from)) = (bound(&mut lp), outsider());
    let received = Count::default();
    let count = received.clone();
    udp.recv_start(&mut lp, move |lp, udp, datagram| {
        datagram.expect("a datagram");
        count.count();
        udp.send(lp, vec![1], from, sent).unwrap();
    })
    .unwrap();
    send_numbers(to, 0..50);
    run_until(&mut lp, "some of them", {
        let received = received.clone();
        move |_| received.get() > 0
    });
    send_numbers(to, 0..50);
    drop(lp);
    assert_eq!(numbers_of(&outside, 1), [1], "earlier sends are sent");
    Ok(())
}

/// A response sent with a callback costs one wait, one receive and one send. If the backend
/// performs receives and sends, it costs one wait and one send, and many sockets share one wait
/// that does everything.
pub fn responses_with_callbacks_share_system_calls(lab: &Lab) -> Verdict {
    const ROUNDS: u64 = 200;
    fn answer(lp: &mut Loop, udp: Udp, to: Option<SocketAddr>) {
        udp.send(lp, &b"ping"[..], to, sent).unwrap();
    }
    for (pairs, by_itself) in [(1, 2 * ROUNDS * 2), (16, ROUNDS * 2 / 4)] {
        let mut lp = new_loop(lab)?;
        let performs =
            [OpKind::RecvMsgMulti, OpKind::SendMsg].map(|kind| lp.backend().supports(kind));
        let datagrams = 2 * ROUNDS;
        let most = if performs == [true, true] { by_itself } else { 3 * datagrams };
        let answered = Count::default();
        for _ in 0..pairs {
            let ((server, to), (client, _)) = (bound(&mut lp), bound(&mut lp));
            server
                .recv_start(&mut lp, |lp, server, datagram| {
                    answer(lp, server, Some(datagram.expect("a ping").from));
                })
                .unwrap();
            client.connect(&mut lp, to).unwrap();
            let answered = answered.clone();
            client
                .recv_start(&mut lp, move |lp, client, datagram| {
                    assert_eq!(datagram.expect("a pong").data, b"ping");
                    if answered.add().is_multiple_of(ROUNDS) {
                        lp.stop();
                    }
                    answer(lp, client, None);
                })
                .unwrap();
            answer(&mut lp, client, None);
        }
        // One-time costs are paid now, and the backend has adapted to the load.
        run(&mut lp, RunMode::Default);
        run(&mut lp, RunMode::Default);
        let calls = syscalls::count(|| run(&mut lp, RunMode::Default))?.1;
        // A run that stops sends the datagrams left for the next wait, each by its own call.
        let at_the_edges = 3 + 2 * pairs;
        assert!(
            u64::from(calls.total()) <= most + at_the_edges,
            "{calls:?} for {datagrams} datagrams between {pairs} pairs"
        );
        for handle in lp.walk() {
            handle.close(&mut lp).unwrap();
        }
        finish(lp);
    }
    Ok(())
}
