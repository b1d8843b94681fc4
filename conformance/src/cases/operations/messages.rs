//! Datagram operations with addresses.

use std::net::{Ipv4Addr, UdpSocket};

use poll_core::{Backend, Event, Op, OpKind, RawSource};

use crate::support::observe::{A, B, SOON, quiet, wait_for};
use crate::support::operations::{lent_slice, submit};
use crate::support::work::{Message, sockaddr_of};
use crate::{Lab, Skip, Verdict};

/// A gathered datagram goes to the address in its header, and the receiver gets the sender's
/// address. Both operations are in flight together.
pub fn messages_carry_addresses(lab: &Lab) -> Verdict {
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
    // The kernel may complete either operation first.
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
    assert_eq!(sender[..2], from[..2], "the address of the sender");
    quiet(&mut backend);
    drop(backend);
    Ok(())
}
