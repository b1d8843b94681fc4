//! A datagram in memory that was provided to the backend, as [`Op::RecvMsgMulti`] lays it out:
//! four numbers, the sender's address, control messages, and what it says.
//!
//! [`Op::RecvMsgMulti`]: poll_core::Op::RecvMsgMulti

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use super::{AF_INET, AF_INET6, Incoming, LARGEST, MSG_TRUNC, note_controls};

/// Room for the sender's address.
pub(crate) const ADDRESS: usize = 32;
/// Room for the traffic class, in both versions of it, and the segment size.
pub(crate) const CONTROL: usize = 80;
/// Where the datagram begins: on a line of the cache of its own.
const FRONT: usize = NUMBERS + ADDRESS + CONTROL;
const NUMBERS: usize = 4 * size_of::<u32>();
/// What the largest datagram takes.
pub(crate) const ROOM: usize = FRONT + LARGEST;

/// Reads a datagram, of which no more than `largest` bytes are wanted. `None` if it is not one.
#[inline]
pub(crate) fn parse(bytes: &[u8], largest: usize) -> Option<Incoming<'_>> {
    let (front, data) = bytes.split_first_chunk::<FRONT>()?;
    let number = |index: usize| {
        let bytes = &front[index * size_of::<u32>()..][..size_of::<u32>()];
        bytes.try_into().map_or(0, u32::from_ne_bytes)
    };
    let [address_len, control_len, _, flags] = [0, 1, 2, 3].map(number);
    let name = &front[NUMBERS..][..ADDRESS.min(address_len as usize)];
    let mut incoming = Incoming {
        data: &data[..data.len().min(largest)],
        from: address(name).unwrap_or((Ipv4Addr::UNSPECIFIED, 0).into()),
        truncated: flags & MSG_TRUNC as u32 != 0 || data.len() > largest,
        ecn: None,
        segment_size: None,
    };
    if control_len > 0 {
        note_controls(&mut incoming, &front[NUMBERS + ADDRESS..], control_len as usize);
    }
    Some(incoming)
}

/// The address in the kernel's form, if it is one of the Internet.
#[inline]
fn address(name: &[u8]) -> Option<SocketAddr> {
    let family: i32 = if cfg!(any(target_os = "linux", target_os = "android", windows)) {
        u16::from_ne_bytes(*name.first_chunk()?).into()
    } else {
        i32::from(*name.get(1)?) // The length comes first.
    };
    let port = u16::from_be_bytes(*name.get(2..)?.first_chunk()?);
    if family == AF_INET {
        let ip = Ipv4Addr::from(*name.get(4..)?.first_chunk::<4>()?);
        return Some((IpAddr::from(ip), port).into());
    }
    if family != AF_INET6 {
        return None;
    }
    let flow_info = u32::from_ne_bytes(*name.get(4..)?.first_chunk()?);
    let ip = Ipv6Addr::from(*name.get(8..)?.first_chunk::<16>()?);
    let scope = u32::from_ne_bytes(*name.get(24..)?.first_chunk()?);
    Some(SocketAddrV6::new(ip, port, flow_info, scope).into())
}

#[cfg(test)]
mod tests {
    use socket2::SockAddr;

    use super::*;

    /// The bytes of a lent datagram.
    fn lent(from: Option<SocketAddr>, flags: i32, data: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0xa5; FRONT];
        let mut length = 0;
        if let Some(from) = from {
            let name = SockAddr::from(from);
            length = name.len() as usize;
            bytes[NUMBERS..][..length].copy_from_slice(&raw(from)[..length]);
        }
        let numbers = [length as u32, 0, data.len() as u32, flags as u32];
        for (place, number) in bytes.chunks_exact_mut(4).zip(numbers) {
            place.copy_from_slice(&number.to_ne_bytes());
        }
        bytes.extend_from_slice(data);
        bytes
    }

    /// An address in the kernel's form.
    fn raw(address: SocketAddr) -> Vec<u8> {
        let family = if address.is_ipv4() { AF_INET } else { AF_INET6 };
        let mut bytes = match cfg!(any(target_os = "linux", target_os = "android", windows)) {
            true => (family as u16).to_ne_bytes().to_vec(),
            false => vec![0, family as u8],
        };
        bytes.extend(address.port().to_be_bytes());
        match address {
            SocketAddr::V4(v4) => bytes.extend(v4.ip().octets()),
            SocketAddr::V6(v6) => {
                bytes.extend(v6.flowinfo().to_ne_bytes());
                bytes.extend(v6.ip().octets());
                bytes.extend(v6.scope_id().to_ne_bytes());
            }
        }
        bytes.resize(ADDRESS, 0);
        bytes
    }

    #[test]
    fn the_sender_and_the_bytes_are_found() {
        for text in ["1.2.3.4:5", "[1:2::3]:40000", "[fe80::1%7]:9"] {
            let from: SocketAddr = text.parse().unwrap();
            let bytes = lent(Some(from), 0, b"hello");
            let incoming = parse(&bytes, LARGEST).unwrap();
            assert_eq!((incoming.from, incoming.data), (from, &b"hello"[..]));
            assert!(!incoming.truncated && incoming.ecn.is_none());
        }
    }

    #[test]
    fn what_is_too_long_is_cut() {
        let bytes = lent(None, 0, b"hello");
        let whole = parse(&bytes, 5).unwrap();
        assert_eq!((whole.data, whole.truncated), (&b"hello"[..], false));
        let cut = parse(&bytes, 4).unwrap();
        assert_eq!((cut.data, cut.truncated), (&b"hell"[..], true));
        let bytes = lent(None, MSG_TRUNC, b"hello");
        assert!(parse(&bytes, LARGEST).unwrap().truncated, "the kernel has cut it");
        assert_eq!(cut.from, "0.0.0.0:0".parse().unwrap(), "from nobody");
    }

    #[test]
    fn less_than_a_datagram_is_none() {
        assert!(parse(&[0; FRONT - 1], LARGEST).is_none());
        let nothing = lent(None, 0, b"");
        assert!(parse(&nothing, LARGEST).unwrap().data.is_empty());
    }
}
