//! Receives: truncation, messages, buffer groups, and sources that skip packets.

use std::io::{Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::ptr::NonNull;

use poll_core::{Backend, BufferLease, Op, RawAddr, RawBuf, RawMessage, RawSource, Token};
use windows_sys::Win32::Networking::WinSock::{AF_INET, MSG_TRUNC, SOCKADDR_IN, WSABUF, WSAMSG};
use windows_sys::Win32::Storage::FileSystem::SetFileCompletionNotificationModes;

use super::operations::{A, B, end, lent_slice, quiet, reports, submit, tcp_pair};
use crate::Iocp;
use crate::ops::ABORTED;

fn sockaddr(address: SocketAddr) -> SOCKADDR_IN {
    let SocketAddr::V4(v4) = address else { unreachable!("tests are on 127.0.0.1") };
    let mut sockaddr = SOCKADDR_IN { sin_family: AF_INET, ..Default::default() };
    sockaddr.sin_port = v4.port().to_be();
    sockaddr.sin_addr.S_un.S_addr = u32::from_ne_bytes(v4.ip().octets());
    sockaddr
}

#[test]
fn a_datagram_that_does_not_fit_is_truncated() {
    for arrives_first in [true, false] {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let send = || socket.send_to(b"a long datagram", address).unwrap();
        let (mut memory, mut list) = (vec![0; 6], Vec::new());
        list.push(lent_slice(&mut memory));
        let mut from = SOCKADDR_IN::default();
        let mut message = WSAMSG {
            name: (&raw mut from).cast(),
            namelen: size_of::<SOCKADDR_IN>() as i32,
            lpBuffers: list.as_mut_ptr().cast::<WSABUF>(),
            dwBufferCount: 1,
            ..Default::default()
        };
        let mut iocp = Iocp::new().unwrap();
        if arrives_first {
            send();
        }
        let source = RawSource::of(&socket);
        let raw = RawMessage(NonNull::from(&mut message).cast());
        submit(&mut iocp, A, Op::RecvMsg { source, message: raw, flags: 0 });
        if !arrives_first {
            quiet(&mut iocp);
            send();
        }
        assert_eq!(end(&mut iocp, A), Ok(6));
        assert_eq!((&memory[..], message.dwFlags), (&b"a long"[..], MSG_TRUNC));
        assert_eq!(from.sin_port, address.port().to_be());
        // The rest of the datagram is discarded, and the call's slot is free.
        quiet(&mut iocp);
        assert_eq!(iocp.ops.in_flight(), 0);
    }
}

#[test]
fn messages_are_sent_to_their_address() {
    let (near, far) = (UdpSocket::bind("127.0.0.1:0"), UdpSocket::bind("127.0.0.1:0"));
    let (near, far) = (near.unwrap(), far.unwrap());
    let mut to = sockaddr(far.local_addr().unwrap());
    let (mut one, mut two) = (b"hel".to_vec(), b"lo".to_vec());
    let mut list = [lent_slice(&mut one), lent_slice(&mut two)];
    let mut message = WSAMSG {
        name: (&raw mut to).cast(),
        namelen: size_of::<SOCKADDR_IN>() as i32,
        lpBuffers: list.as_mut_ptr().cast::<WSABUF>(),
        dwBufferCount: 2,
        ..Default::default()
    };
    let mut iocp = Iocp::new().unwrap();
    let raw = RawMessage(NonNull::from(&mut message).cast());
    submit(&mut iocp, A, Op::SendMsg { source: RawSource::of(&near), message: raw, flags: 0 });
    assert_eq!(end(&mut iocp, A), Ok(5));
    let mut text = [0; 16];
    let (count, from) = far.recv_from(&mut text).unwrap();
    assert_eq!((&text[..count], from), (&b"hello"[..], near.local_addr().unwrap()));

    // Connecting a datagram socket stores its peer.
    let address = RawAddr { ptr: NonNull::from(&mut to).cast(), len: 16 };
    submit(&mut iocp, A, Op::Connect { source: RawSource::of(&near), address });
    assert_eq!(end(&mut iocp, A), Ok(0));
    assert_eq!(near.peer_addr().unwrap(), far.local_addr().unwrap());
}

/// A buffer group of eight buffers.
struct Group(Box<[std::cell::UnsafeCell<u8>; 8 * Group::SIZE]>);

impl Group {
    const SIZE: usize = 128;

    fn new() -> Group {
        Group(Box::new([const { std::cell::UnsafeCell::new(0) }; 8 * Group::SIZE]))
    }

    fn register_buffers(&self, iocp: &mut Iocp) {
        let start = NonNull::from(&self.0[..]).cast();
        // SAFETY: the tests declare the group before the backend, which is dropped first.
        unsafe { iocp.register_buffers(3, start, Group::SIZE as u32, 8) }.unwrap();
    }

    fn lease(&self, lease: BufferLease, len: usize) -> &[u8] {
        assert_eq!((lease.group, lease.offset), (3, 0));
        let start = self.0[usize::from(lease.buffer) * Group::SIZE].get();
        // SAFETY: the backend does not write to a lent buffer until `release_buffer`.
        unsafe { std::slice::from_raw_parts(start, len) }
    }
}

#[test]
fn messages_are_received_into_groups_with_their_addresses() {
    const ADDRESS_LEN: u32 = size_of::<SOCKADDR_IN>() as u32;
    let (near, far) = (UdpSocket::bind("127.0.0.1:0"), UdpSocket::bind("127.0.0.1:0"));
    let (near, far) = (near.unwrap(), far.unwrap());
    let group = Group::new();
    let mut iocp = Iocp::new().unwrap();
    group.register_buffers(&mut iocp);
    let op = Op::RecvMsgMulti {
        source: RawSource::of(&near),
        group: 3,
        address_len: ADDRESS_LEN,
        control_len: 0,
    };
    submit(&mut iocp, A, op);
    quiet(&mut iocp);
    let long = [b'x'; 2 * Group::SIZE];
    let texts: [&[u8]; 4] = [b"first", b"", b"third", &long];
    for text in texts {
        far.send_to(text, near.local_addr().unwrap()).unwrap();
    }
    let mut received = Vec::new();
    while received.len() < texts.len() {
        for (result, more, lease) in reports(&mut iocp, A) {
            assert!(more, "{result:?}");
            let (total, lease) = (result.unwrap(), lease.unwrap());
            let message = group.lease(lease, total);
            let numbers: Vec<u32> = (0..4)
                .map(|index| u32::from_ne_bytes(message[4 * index..][..4].try_into().unwrap()))
                .collect();
            let payload = &message[16 + ADDRESS_LEN as usize..];
            assert_eq!(
                (numbers[0], numbers[1], numbers[2] as usize),
                (ADDRESS_LEN, 0, payload.len())
            );
            assert_eq!(message[18..20], far.local_addr().unwrap().port().to_be_bytes());
            received.push((payload.to_vec(), numbers[3] & MSG_TRUNC != 0));
            iocp.release_buffer(lease);
        }
    }
    let max_len = Group::SIZE - 16 - ADDRESS_LEN as usize;
    let expected =
        texts.map(|text| (text[..text.len().min(max_len)].to_vec(), text.len() > max_len));
    assert_eq!(received, expected);
    iocp.cancel(A).unwrap();
    assert_eq!(end(&mut iocp, A), Err(ABORTED));
    drop(iocp);
}

#[test]
fn an_idle_receive_holds_no_buffer() {
    let (near, mut far) = tcp_pair();
    let others: Vec<_> = (0..20).map(|_| tcp_pair()).collect();
    let group = Group::new();
    let mut iocp = Iocp::new().unwrap();
    group.register_buffers(&mut iocp);
    for (index, (idle, _)) in others.iter().enumerate() {
        let op = Op::RecvMulti { source: RawSource::of(idle), group: 3 };
        submit(&mut iocp, Token::new(index as u32 + 10, 0), op);
    }
    submit(&mut iocp, A, Op::RecvMulti { source: RawSource::of(&near), group: 3 });
    quiet(&mut iocp);
    let sent: Vec<u8> = (0..6 * Group::SIZE).map(|index| (index % 251) as u8).collect();
    far.write_all(&sent).unwrap();
    let (mut received, mut lent_out) = (Vec::new(), Vec::new());
    while received.len() < sent.len() {
        for (result, more, lease) in reports(&mut iocp, A) {
            assert!(more, "eight buffers suffice for all data: {result:?}");
            received.extend_from_slice(group.lease(lease.unwrap(), result.unwrap()));
            lent_out.push(lease.unwrap());
        }
    }
    assert_eq!(received, sent);
    lent_out.into_iter().for_each(|lease| iocp.release_buffer(lease));
    // A cancel between two receives loses no data.
    iocp.cancel(A).unwrap();
    assert_eq!(end(&mut iocp, A), Err(ABORTED));
    far.write_all(b"late").unwrap();
    submit(&mut iocp, B, Op::RecvMulti { source: RawSource::of(&near), group: 3 });
    let [(result, true, Some(lease))] = reports(&mut iocp, B)[..] else {
        panic!("one buffer is expected")
    };
    assert_eq!(group.lease(lease, result.unwrap()), b"late");
}

/// Other code may have set `FILE_SKIP_COMPLETION_PORT_ON_SUCCESS`.
#[test]
fn operations_complete_on_sources_that_skip_packets() {
    let (near, mut far) = tcp_pair();
    let mut memory = vec![0; 16];
    let (sent, buf) = (b"hello".to_vec(), RawBuf::filling(&mut memory));
    let source = RawSource::of(&near);
    let group = Group::new();
    let mut iocp = Iocp::new().unwrap();
    group.register_buffers(&mut iocp);
    // SAFETY: `near` owns the handle, and the call takes no pointer.
    let set = unsafe { SetFileCompletionNotificationModes(source.handle(), 1) };
    assert_ne!(set, 0);
    for _ in 0..3 {
        submit(&mut iocp, A, Op::Send { source, buf: RawBuf::sending(&sent) });
        assert_eq!(end(&mut iocp, A), Ok(5));
        far.read_exact(&mut [0; 5]).unwrap();
        far.write_all(b"answer").unwrap();
        submit(&mut iocp, B, Op::Recv { source, buf });
        assert_eq!(end(&mut iocp, B), Ok(6));
    }
    submit(&mut iocp, A, Op::RecvMulti { source, group: 3 });
    for _ in 0..3 {
        far.write_all(b"more").unwrap();
        let [(Ok(4), true, Some(lease))] = reports(&mut iocp, A)[..] else {
            panic!("one buffer is expected")
        };
        iocp.release_buffer(lease);
    }
    quiet(&mut iocp);
}
