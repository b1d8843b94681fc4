//! Datagrams, with their addresses.

use std::net::{Ipv4Addr, UdpSocket};

use poll_core::{Backend, Event, Op, OpKind, RawSource};

use crate::support::observe::{A, B, SOON, quiet, wait_for};
use crate::support::operations::{lent_slice, submit};
use crate::support::work::{Message, sockaddr_of};
use crate::{Lab, Skip, Verdict};

/// A datagram of several pieces goes to the address in its header, and whoever receives it is
/// told who has sent it. Both are in flight at once.
pub fn messages_go_with_their_addresses<T: Backend>(lab: &Lab<T>) -> Verdict {
    let bind = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a UDP port");
    let (near, far) = (bind(), bind());
    let (to, from) = (near.local_addr().expect("an address"), far.local_addr());
    let (mut to, from) = (sockaddr_of(to), sockaddr_of(from.expect("an address")));
    let (mut first, mut second) = (b"hello, ".to_vec(), b"world".to_vec());
    let sent = Message::new(vec![lent_slice(&mut first), lent_slice(&mut second)]);
    let mut sent = sent.with_address(&mut to);
    let (mut memory, mut sender) = (vec![0; 32], vec![0; from.len()]);
    let received = Message::new(vec![lent_slice(&mut memory)]);
    let mut received = received.with_address(&mut sender);

    let mut backend = lab.backend()?;
    if !backend.supports(OpKind::SendMsg) || !backend.supports(OpKind::RecvMsg) {
        return Err(Skip::because("does not perform SendMsg and RecvMsg"));
    }
    let receive = Op::RecvMsg { source: RawSource::of(&near), message: received.lend(), flags: 0 };
    submit(&mut backend, A, receive);
    quiet(&mut backend);
    let send = Op::SendMsg { source: RawSource::of(&far), message: sent.lend(), flags: 0 };
    submit(&mut backend, B, send);
    // Which of the two is told first is the kernel's affair.
    let (mut sent_count, mut received_count) = (None, None);
    while sent_count.is_none() || received_count.is_none() {
        let events = wait_for(&mut backend, SOON);
        assert!(!events.is_empty(), "sent: {sent_count:?}, received: {received_count:?}");
        for event in events {
            let Event::Done { token, result, more: false, .. } = event else { continue };
            *(if token == A { &mut received_count } else { &mut sent_count }) = Some(result);
        }
    }
    assert_eq!(sent_count, Some(Ok(12)), "the send");
    assert_eq!(received_count, Some(Ok(12)), "the receive");
    assert_eq!(&memory[..12], b"hello, world");
    assert_eq!(sender[..2], from[..2], "the address of who has sent it");
    quiet(&mut backend);
    drop(backend);
    Ok(())
}
