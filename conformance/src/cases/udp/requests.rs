//! Pulled receives, and receiving into memory that a callback allocates.

use std::io::{ErrorKind, IoSlice};

use uv_core::{Handle, RunMode, Udp, UdpBindFlags, is_cancelled};

use crate::support::datagrams::{
    bound, code, finish, outsider, receive_numbers, refused, run_out, send_numbers,
};
use crate::support::loops::{new_loop, panic_on_purpose, run, unwinds};
use crate::support::trace::{Count, Log};
use crate::{Lab, Loop, Verdict};

/// Receives a datagram of one byte, and logs it; -1 for a cancellation.
fn pull(lp: &mut Loop, udp: Udp, log: &Log<i32>) -> uv_core::RecvRequest {
    let log = log.clone();
    let request = udp.recv(lp, vec![7; 4], move |_, _, result, memory| {
        assert_eq!(memory.len(), 4, "the memory comes back");
        match result {
            Ok(received) => {
                assert!(received.len == 1 && !received.truncated, "{received:?}");
                log.push(memory[received.range()][0].into());
            }
            Err(error) => {
                assert!(is_cancelled(error.io_error()), "{error}");
                assert_eq!(memory, [7; 4], "unchanged");
                log.push(-1);
            }
        }
    });
    request.expect("a receive")
}

/// Requests are served in order, one datagram each. A request keeps the loop alive, and never calls
/// back inside the call.
pub fn requests_are_served_in_order(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (udp, to) = bound(&mut lp);
    let log = Log::default();
    send_numbers(to, 0..2);
    for _ in 0..4 {
        pull(&mut lp, udp, &log);
    }
    assert!(lp.is_alive() && udp.is_active(&lp) && log.len() == 0, "never inline");
    while log.len() < 2 {
        run(&mut lp, RunMode::Once);
    }
    send_numbers(to, 2..4);
    run_out(&mut lp);
    assert_eq!(log.take(), [0, 1, 2, 3]);
    assert!(!udp.is_active(&lp), "no request is left");
    finish(lp);
    Ok(())
}

/// Each callback queues the next request: all datagrams arrive, in order, and the backend may
/// receive ahead of the requests.
pub fn a_callback_may_queue_the_next_request(lab: &Lab) -> Verdict {
    fn next(lp: &mut Loop, udp: Udp, log: Log<u8>) {
        udp.recv(lp, vec![0; 4], move |lp, udp, result, memory| {
            result.expect("a datagram");
            log.push(memory[0]);
            match log.len() {
                100 => udp.close(lp).unwrap(),
                _ => next(lp, udp, log),
            }
        })
        .expect("a receive");
    }
    let mut lp = new_loop(lab)?;
    let (udp, to) = bound(&mut lp);
    let log = Log::default();
    next(&mut lp, udp, log.clone());
    send_numbers(to, 0..100);
    run_out(&mut lp);
    assert!(log.take().into_iter().eq(0..100), "in order");
    finish(lp);
    Ok(())
}

/// A cancelled request calls back with `ECANCELED` and its memory. The datagrams that arrive go to
/// the requests behind it, in order.
pub fn a_cancelled_request_takes_no_datagram(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (udp, to) = bound(&mut lp);
    let log = Log::default();
    let requests: Vec<_> = (0..4).map(|_| pull(&mut lp, udp, &log)).collect();
    run(&mut lp, RunMode::NoWait);
    send_numbers(to, 0..2);
    requests[0].cancel(&mut lp).expect("it waits");
    requests[2].cancel(&mut lp).expect("it waits");
    assert_eq!(requests[0].cancel(&mut lp).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(log.len(), 0, "never inline");
    run_out(&mut lp);
    let mut results = log.take();
    results.sort_unstable();
    assert_eq!(results, [-1, -1, 0, 1]);
    assert_eq!(requests[1].cancel(&mut lp).unwrap_err().kind(), ErrorKind::NotFound, "over");
    // All are cancelled: what arrives then is for the next.
    let last = pull(&mut lp, udp, &log);
    run(&mut lp, RunMode::NoWait);
    last.cancel(&mut lp).expect("it waits");
    send_numbers(to, 5..7);
    run_out(&mut lp);
    assert_eq!(log.take(), [-1]);
    let got = Log::default();
    receive_numbers(&mut lp, udp, &got, 2);
    run_out(&mut lp);
    assert_eq!(got.take(), [5, 6]);
    finish(lp);
    Ok(())
}

/// Closing the handle cancels its requests, before the close callback runs.
pub fn closing_cancels_requests(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (udp, _) = bound(&mut lp);
    let log = Log::default();
    let request = pull(&mut lp, udp, &log);
    pull(&mut lp, udp, &log);
    run(&mut lp, RunMode::NoWait);
    let closed = log.clone();
    udp.close_with(&mut lp, move |_, _| closed.push(100)).unwrap();
    assert_eq!(log.len(), 0, "never inline");
    assert_eq!(request.cancel(&mut lp).unwrap_err().kind(), ErrorKind::NotFound);
    run_out(&mut lp);
    assert_eq!(log.take(), [-1, -1, 100]);
    finish(lp);
    Ok(())
}

/// A receiver and requests exclude each other: `EALREADY`. A stopped receiver leaves its unread
/// datagrams to the requests.
pub fn receivers_and_requests_exclude_each_other(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (udp, to) = bound(&mut lp);
    let log = Log::default();
    let waiting = pull(&mut lp, udp, &log);
    refused(udp.recv_start(&mut lp, |_, _, _| ()), code::EALREADY, "a request is queued");
    waiting.cancel(&mut lp).expect("it waits");
    run_out(&mut lp);
    log.take();
    let got = log.clone();
    udp.recv_start(&mut lp, move |lp, udp, datagram| {
        got.push(datagram.expect("a datagram").data[0].into());
        udp.recv_stop(lp).unwrap();
    })
    .unwrap();
    refused(udp.recv(&mut lp, vec![0; 4], |_, _, _, _| ()), code::EALREADY, "it receives");
    refused(udp.try_recv(&mut lp, &mut [0; 4]), code::EALREADY, "it receives");
    send_numbers(to, 0..10);
    run_out(&mut lp);
    for _ in 0..9 {
        pull(&mut lp, udp, &log);
    }
    run_out(&mut lp);
    assert!(log.take().into_iter().eq(0..10), "in order");
    finish(lp);
    Ok(())
}

/// A panic in the callback of a request leaves the other requests and the datagrams.
pub fn a_panic_affects_one_request_only(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (udp, to) = bound(&mut lp);
    let log = Log::default();
    udp.recv(&mut lp, vec![0; 4], |_, _, _, _| panic_on_purpose()).expect("a receive");
    pull(&mut lp, udp, &log);
    pull(&mut lp, udp, &log);
    send_numbers(to, 0..3);
    unwinds(&mut lp, RunMode::Default);
    run_out(&mut lp);
    assert_eq!(log.take(), [1, 2]);
    finish(lp);
    Ok(())
}

/// `try_recv` takes what has arrived, in order with held datagrams, and truncates it to the memory.
/// Otherwise it is `WouldBlock`.
pub fn try_recv_takes_what_has_arrived(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let fresh = Udp::new(&mut lp);
    refused(fresh.try_recv(&mut lp, &mut [0; 4]), code::EBADF, "no socket");
    let (udp, to) = bound(&mut lp);
    let mut memory = [0; 4];
    let none = |lp: &mut Loop| udp.try_recv(lp, &mut [0; 4]).unwrap_err().kind();
    assert_eq!(none(&mut lp), ErrorKind::WouldBlock);
    let (outside, from) = outsider();
    outside.send_to(b"longer", to).unwrap();
    let received = udp.try_recv(&mut lp, &mut memory).expect("a datagram");
    assert_eq!((&memory[received.range()], received.from), (&b"long"[..], from));
    assert!(received.truncated);
    // Requests go first.
    let log = Log::default();
    pull(&mut lp, udp, &log);
    outside.send_to(b"1", to).unwrap();
    assert_eq!(none(&mut lp), ErrorKind::WouldBlock);
    outside.send_to(b"2", to).unwrap();
    run_out(&mut lp);
    assert_eq!(log.take(), [i32::from(b'1')]);
    // The second is in the socket, or was received by an operation and is held by now.
    let second = loop {
        match udp.try_recv(&mut lp, &mut memory) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                run(&mut lp, RunMode::NoWait);
            }
            result => break result.expect("a datagram"),
        }
    };
    assert_eq!(&memory[second.range()], b"2");
    assert_eq!(none(&mut lp), ErrorKind::WouldBlock);
    finish(lp);
    Ok(())
}

/// Datagrams are received into memory that a callback allocates: each buffer comes back once, and
/// one buffer holds several datagrams where the system receives several at once.
pub fn datagrams_fill_allocated_memory(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (udp, to) = bound(&mut lp);
    let (log, allocated, returned) = (Log::default(), Count::default(), Count::default());
    let (sink, counted, back) = (log.clone(), allocated.clone(), returned.clone());
    let alloc = move |_: &mut Loop, _, suggested| {
        assert!(suggested >= 65_507, "the longest datagram fits");
        counted.count();
        vec![0; 40]
    };
    udp.recv_start_with(&mut lp, 10, alloc, move |lp, udp, result, memory| {
        back.count();
        for datagram in result.expect("datagrams") {
            assert_eq!((datagram.offset % 10, datagram.len), (0, 1), "each in its part");
            sink.push(memory[datagram.range()][0]);
        }
        if sink.len() == 100 {
            udp.close(lp).unwrap();
        }
    })
    .unwrap();
    refused(udp.recv_start(&mut lp, |_, _, _| ()), code::EALREADY, "it receives");
    send_numbers(to, 0..100);
    run_out(&mut lp);
    assert!(log.take().into_iter().eq(0..100), "in order");
    assert_eq!(allocated.get(), returned.get(), "each buffer comes back once");
    finish(lp);
    Ok(())
}

/// Allocated memory that is too short truncates a datagram; a buffer without memory is `ENOBUFS`.
/// Stopping in a callback leaves the other datagrams to the next receiver.
pub fn allocated_memory_may_be_short(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (udp, to) = bound(&mut lp);
    let zero = udp.recv_start_with(&mut lp, 0, |_, _, _| vec![0], |_, _, _, _| ());
    assert_eq!(zero.unwrap_err().kind(), ErrorKind::InvalidInput);
    let outside = outsider().0;
    outside.send_to(b"longer", to).unwrap();
    send_numbers(to, 1..4);
    udp.recv_start_with(
        &mut lp,
        usize::MAX,
        |_, _, _| vec![0; 4],
        |lp, udp, result, memory| {
            let [received] = result.expect("a datagram") else { panic!("one") };
            assert!(received.truncated && memory == b"long");
            udp.recv_stop(lp).unwrap();
        },
    )
    .unwrap();
    run_out(&mut lp);
    let no_memory = Log::default();
    let log = no_memory.clone();
    udp.recv_start_with(
        &mut lp,
        usize::MAX,
        |_, _, _| Vec::<u8>::new(),
        move |lp, udp, result, _| {
            log.push(result.map(<[_]>::len).map_err(|error| error.io_error().raw_os_error()));
            udp.recv_stop(lp).unwrap();
        },
    )
    .unwrap();
    run_out(&mut lp);
    assert!(matches!(no_memory.take()[..], [Err(Some(_))]), "ENOBUFS");
    let got = Log::default();
    receive_numbers(&mut lp, udp, &got, 3);
    run_out(&mut lp);
    assert_eq!(got.take(), [1, 2, 3], "nothing else was taken");
    finish(lp);
    Ok(())
}

/// Allocating receivers take over what an operation or a batch has received before. A panic in
/// `alloc` stops receiving, as one in the callback does, and the next receiver goes on.
pub fn allocating_receivers_lose_nothing(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (udp, to) = bound(&mut lp);
    let log = Log::default();
    let got = log.clone();
    udp.recv_start(&mut lp, move |lp, udp, datagram| {
        got.push(datagram.expect("a datagram").data[0]);
        udp.recv_stop(lp).unwrap();
    })
    .unwrap();
    send_numbers(to, 0..10);
    run_out(&mut lp);
    let sink = log.clone();
    let alloc = |_: &mut Loop, _, _| vec![0; 4];
    udp.recv_start_with(&mut lp, usize::MAX, alloc, move |lp, udp, result, memory| {
        if result.expect("datagrams").len() == 1 {
            sink.push(memory[0]);
        }
        if sink.len() == 10 {
            udp.recv_stop(lp).unwrap();
        }
    })
    .unwrap();
    run_out(&mut lp);
    assert!(log.take().into_iter().eq(0..10), "in order");

    let panics = |_: &mut Loop, _, _| -> Vec<u8> { panic_on_purpose() };
    udp.recv_start_with(&mut lp, usize::MAX, panics, |_, _, _, _| ()).unwrap();
    send_numbers(to, 3..4);
    unwinds(&mut lp, RunMode::Default);
    assert!(!udp.is_active(&lp), "stopped");
    receive_numbers(&mut lp, udp, &log, 1);
    run_out(&mut lp);
    assert_eq!(log.take(), [3], "it was not received");
    finish(lp);
    Ok(())
}

/// A datagram of several pieces is sent by one call, as one datagram; so are several of them.
pub fn pieces_are_sent_as_one_datagram(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (udp, _) = bound(&mut lp);
    let (outside, to) = outsider();
    let pieces = [IoSlice::new(b"one "), IoSlice::new(b""), IoSlice::new(b"datagram")];
    assert_eq!(udp.try_send_vectored(&mut lp, &pieces, to).expect("sent"), 12);
    let many = vec![IoSlice::new(b"x"); 100];
    assert_eq!(udp.try_send_vectored(&mut lp, &many, to).expect("sent"), 100);
    assert_eq!(udp.try_send_vectored(&mut lp, &[], to).expect("sent"), 0);
    let list = [(&pieces[..], Some(to)), (&pieces[2..], Some(to)), (&many[..], Some(to))];
    assert_eq!(udp.try_send_many_vectored(&mut lp, &list).expect("sent"), 3);
    let mut memory = [0; 200];
    for expected in [&b"one datagram"[..], &[b'x'; 100], b"", b"one datagram", b"datagram"] {
        let count = outside.recv(&mut memory).expect("a datagram");
        assert_eq!(&memory[..count], expected);
    }
    assert_eq!(outside.recv(&mut memory).expect("a datagram"), 100);
    let wrong = udp.try_send_vectored(&mut lp, &pieces, None);
    refused(wrong, code::EDESTADDRREQ, "not connected");
    finish(lp);
    Ok(())
}

/// An opened socket gets the options of the flags.
pub fn an_opened_socket_gets_options(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let open = |lp: &mut Loop, flags| {
        let udp = Udp::new(lp);
        udp.open_with(lp, outsider().0, flags).map(|()| udp)
    };
    let wrong = open(&mut lp, UdpBindFlags::IPV6_ONLY).expect_err("it is bound");
    assert_eq!(wrong.kind(), ErrorKind::InvalidInput);
    let udp = open(&mut lp, UdpBindFlags::REUSE_ADDRESS).expect("an open handle");
    assert!(udp.local_addr(&lp).is_ok());
    #[cfg(target_os = "linux")]
    {
        // A second socket binds the address, because both have the option.
        let to = udp.local_addr(&lp).expect("its address");
        let other = Udp::new(&mut lp);
        other.bind(&mut lp, to, UdpBindFlags::REUSE_ADDRESS).expect("a shared address");
        let plain = Udp::new(&mut lp);
        let taken = plain.bind(&mut lp, to, UdpBindFlags::empty()).expect_err("not shared");
        assert_eq!(taken.kind(), ErrorKind::AddrInUse);
    }
    finish(lp);
    Ok(())
}

/// The address of a handle that is closed outside of `run` is free immediately, while it receives
/// and with requests.
pub fn a_close_outside_of_run_frees_the_address(lab: &Lab) -> Verdict {
    for pulled in [false, true] {
        let mut lp = new_loop(lab)?;
        let (udp, address) = bound(&mut lp);
        match pulled {
            true => assert!(udp.recv(&mut lp, vec![0; 4], |_, _, _, _| ()).is_ok()),
            false => udp.recv_start(&mut lp, |_, _, _| ()).unwrap(),
        }
        run(&mut lp, RunMode::NoWait);
        udp.close(&mut lp).unwrap();
        std::net::UdpSocket::bind(address).expect("the address is free");
        finish(lp);
    }
    Ok(())
}
