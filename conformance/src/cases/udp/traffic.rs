//! Longer exchanges: closes in any callback, many datagrams, no leaks.

use std::io;
use std::time::Duration;

use uv_core::{Handle, RunMode, Timer, Udp, UdpBindFlags};

use crate::support::datagrams::{
    bound, finish, outsider, receive_numbers, run_out, send_numbers, sent, unused_address,
};
use crate::support::limits::leaks_no_descriptor;
use crate::support::loops::{new_loop, run};
use crate::support::streams::any_port;
use crate::support::syscalls;
use crate::support::trace::{Count, Log, Trace};
use crate::{Lab, Loop, Verdict};

/// A handle may be closed in any callback: of its own sends and datagrams, also queued ones, of a
/// close, or of another handle. Only its sends and its close call back afterwards.
pub fn any_callback_may_close(lab: &Lab) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    let [(one, to_one), (two, to_two), (three, _)] = [(); 3].map(|()| bound(&mut lp));
    send_numbers(to_one, 0..10);
    send_numbers(to_two, 0..10);
    let note = trace.clone();
    one.recv_start(&mut lp, move |lp, one, _| {
        note.note("one receives");
        let (closed, sent) = (note.clone(), note.clone());
        one.send(lp, "x", to_two, move |_: &mut Loop, _, _, _| sent.note("one sent")).unwrap();
        one.close_with(lp, move |lp, _| {
            closed.note("one closed");
            let also = closed.clone();
            three.close_with(lp, move |_, _| also.note("three closed")).unwrap();
        })
        .unwrap();
        two.close_with(lp, note.noting("two closed")).unwrap();
    })
    .unwrap();
    two.unreference(&mut lp).unwrap();
    three.recv_start(&mut lp, |_, _, _| panic!("nothing is sent to it")).unwrap();
    run_out(&mut lp);
    let expected = ["one receives", "one sent", "two closed", "one closed", "three closed"];
    trace.expect(&expected, "closed by a datagram and by a close");

    let (four, note) = (Udp::new(&mut lp), trace.clone());
    let first = move |lp: &mut Loop, four: Udp, result: io::Result<()>, _| {
        result.expect("sent before the close");
        note.note("first sent");
        four.close_with(lp, note.noting("four closed")).unwrap();
    };
    let (_outside, to) = outsider();
    four.send(&mut lp, "x", to, first).unwrap();
    let note = trace.clone();
    let second = move |_: &mut Loop, _, result: io::Result<()>, _| {
        note.note(if result.is_ok() { "second sent" } else { "second failed" });
    };
    four.send(&mut lp, "x", to, second).unwrap();
    run_out(&mut lp);
    trace.expect(&["first sent", "second sent", "four closed"], "closed by a send");
    finish(lp);
    Ok(())
}

/// The callback of a datagram that arrived while the handle was stopped may close it.
pub fn a_datagram_kept_while_stopped_may_close(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let ((udp, to), got) = (bound(&mut lp), Log::default());
    send_numbers(to, 0..60);
    let log = got.clone();
    udp.recv_start(&mut lp, move |lp, udp, datagram| {
        log.push(datagram.expect("a datagram").data[0]);
        if log.len() == 40 {
            udp.recv_stop(lp).unwrap();
        }
    })
    .unwrap();
    run_out(&mut lp);
    receive_numbers(&mut lp, udp, &got, 42);
    run_out(&mut lp);
    assert_eq!(got.take(), (0..42).collect::<Vec<_>>());
    finish(lp);
    Ok(())
}

/// Thousands of datagrams go back and forth between two handles, in batches, and all arrive in
/// order.
pub fn thousands_of_datagrams(lab: &Lab) -> Verdict {
    const MANY: u32 = 5_000;
    /// Per batch: fits every system's buffers.
    const WINDOW: u32 = 40;
    let mut lp = new_loop(lab)?;
    let ((server, to), (client, _)) = (bound(&mut lp), bound(&mut lp));
    let mut expected = 0;
    server
        .recv_start(&mut lp, move |lp, server, datagram| {
            let datagram = datagram.expect("a question");
            assert_eq!(datagram.data, u32::to_le_bytes(expected), "in order");
            expected += 1;
            server.send(lp, datagram.data.to_vec(), datagram.from, sent).unwrap();
            if expected == MANY {
                server.recv_stop(lp).unwrap();
            }
        })
        .unwrap();
    client.connect(&mut lp, to).unwrap();
    let (mut answered, callbacks) = (0, Log::default());
    let log = callbacks.clone();
    client
        .recv_start(&mut lp, move |lp, client, datagram| {
            assert_eq!(datagram.expect("an answer").data, u32::to_le_bytes(answered), "in order");
            let next = answered + WINDOW;
            if next < MANY {
                client.send(lp, next.to_le_bytes().to_vec(), None, sent).unwrap();
            }
            answered += 1;
            if answered == MANY {
                log.push(answered);
                client.close(lp).unwrap();
            }
        })
        .unwrap();
    for number in 0..WINDOW {
        client.send(&mut lp, number.to_le_bytes().to_vec(), None, sent).unwrap();
    }
    run_out(&mut lp);
    assert_eq!(callbacks.take(), [MANY]);
    assert_eq!((server.send_queue_size(&lp), server.send_queue_count(&lp)), (0, 0));
    finish(lp);
    Ok(())
}

/// A response to a datagram costs one wait, one receive and one send, also with an active timer.
pub fn a_ping_pong_costs_three_system_calls(lab: &Lab) -> Verdict {
    const ROUNDS: u64 = 200;
    const MINUTE: Duration = Duration::from_secs(60);
    let mut lp = new_loop(lab)?;
    let ((server, to), (client, _)) = (bound(&mut lp), bound(&mut lp));
    let timer = Timer::new(&mut lp);
    timer.start(&mut lp, MINUTE, MINUTE, |_, _| {}).unwrap();
    server
        .recv_start(&mut lp, |lp, server, datagram| {
            let datagram = datagram.expect("a ping");
            server.try_send(lp, datagram.data, datagram.from).unwrap();
        })
        .unwrap();
    client.connect(&mut lp, to).unwrap();
    let answered = Count::default();
    let count = answered.clone();
    client
        .recv_start(&mut lp, move |lp, client, datagram| {
            assert_eq!(datagram.expect("a pong").data, b"ping");
            count.count();
            client.try_send(lp, b"ping", None).unwrap();
        })
        .unwrap();
    client.try_send(&mut lp, b"ping", None).unwrap();
    let rounds = |lp: &mut Loop, until: u64| {
        while answered.get() < until {
            run(lp, RunMode::Once);
        }
    };
    // One-time costs are paid now, and the backend has adapted to the load.
    rounds(&mut lp, 400);
    let calls = syscalls::count(|| rounds(&mut lp, 400 + ROUNDS))?.1;
    let (datagrams, at_the_edges) = (2 * ROUNDS as u32, 3);
    assert!(calls.total() <= 3 * datagrams + at_the_edges, "{calls:?} for {datagrams} datagrams");
    server.close(&mut lp).unwrap();
    client.close(&mut lp).unwrap();
    timer.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// Sockets are closed with their handles and with their loop: closed, refused, open, receiving, and
/// with sends that never called back.
pub fn no_descriptor_leaks(lab: &Lab) -> Verdict {
    leaks_no_descriptor(|| {
        let mut lp = new_loop(lab)?;
        let ((closed, to), (receiving, _)) = (bound(&mut lp), bound(&mut lp));
        receiving.recv_start(&mut lp, |_, _, _| {}).unwrap();
        let refused = Udp::new(&mut lp);
        refused.bind(&mut lp, to, UdpBindFlags::empty()).expect_err("the address is in use");
        refused.open(&mut lp, outsider().0).unwrap();
        refused.open(&mut lp, outsider().0).expect_err("it has a socket");
        let reporting = Udp::new(&mut lp);
        let _ = reporting.bind(&mut lp, any_port(), UdpBindFlags::REPORT_ERRORS);
        let _ = reporting.try_send(&mut lp, b"x", unused_address());
        Udp::new(&mut lp).connect(&mut lp, to).unwrap();
        receiving.send(&mut lp, "x", to, sent).unwrap();
        run(&mut lp, RunMode::NoWait);
        closed.send(&mut lp, "x", to, sent).unwrap();
        closed.close(&mut lp).unwrap();
        receiving.send(&mut lp, "never completed", to, sent).unwrap();
        drop(lp);
        Ok(())
    })
}
