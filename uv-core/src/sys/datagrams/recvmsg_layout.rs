//! The layout of a datagram in a provided buffer, as [`Op::RecvMsgMulti`] writes it: a header of
//! four integers, the sender's address, control messages, and the payload.
//!
//! [`Op::RecvMsgMulti`]: poll_core::Op::RecvMsgMulti

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use super::{AF_INET, AF_INET6, Incoming, MAX_DATAGRAM, MSG_TRUNC, apply_controls};

/// Bytes reserved for the sender's address.
pub(crate) const ADDRESS: usize = 32;
/// Bytes reserved for control messages: the traffic class of IPv4 and of IPv6, and the segment
/// size.
pub(crate) const CONTROL: usize = 80;
/// Offset of the payload, which starts on a cache line of its own.
const PREFIX: usize = HEADER + ADDRESS + CONTROL;
const HEADER: usize = 4 * size_of::<u32>();
/// The buffer size for the largest datagram.
pub(crate) const MAX_LEN: usize = PREFIX + MAX_DATAGRAM;

/// Parses a datagram and truncates its payload to `largest` bytes. `None` if `bytes` are shorter
/// than the prefix.
#[inline]
pub(crate) fn parse(bytes: &[u8], largest: usize) -> Option<Incoming<'_>> {
    let (front, data) = bytes.split_first_chunk::<PREFIX>()?;
    let number = |index: usize| {
        let bytes = &front[index * size_of::<u32>()..][..size_of::<u32>()];
        bytes.try_into().map_or(0, u32::from_ne_bytes)
    };
    let [address_len, control_len, _, flags] = [0, 1, 2, 3].map(number);
    let name = &front[HEADER..][..ADDRESS.min(address_len as usize)];
    let mut incoming = Incoming {
        data: &data[..data.len().min(largest)],
        from: address(name).unwrap_or((Ipv4Addr::UNSPECIFIED, 0).into()),
        // Unix datagram sockets do not receive by operations.
        from_path: None,
        truncated: flags & MSG_TRUNC as u32 != 0 || data.len() > largest,
        ecn: None,
        segment_size: None,
    };
    if control_len > 0 {
        apply_controls(&mut incoming, &front[HEADER + ADDRESS..], control_len as usize);
    }
    Some(incoming)
}

/// Parses a `sockaddr_in` or `sockaddr_in6`; `None` for other families.
#[inline]
pub(crate) fn address(name: &[u8]) -> Option<SocketAddr> {
    let family: i32 = if cfg!(any(target_os = "linux", target_os = "android", windows)) {
        u16::from_ne_bytes(*name.first_chunk()?).into()
    } else {
        i32::from(*name.get(1)?) // The first byte is `sa_len`.
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

    /// A datagram as the backend writes it.
    fn lease(from: Option<SocketAddr>, flags: i32, data: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0xa5; PREFIX];
        let mut length = 0;
        if let Some(from) = from {
            let name = SockAddr::from(from);
            length = name.len() as usize;
            bytes[HEADER..][..length].copy_from_slice(&raw(from)[..length]);
        }
        let numbers = [length as u32, 0, data.len() as u32, flags as u32];
        for (place, number) in bytes.chunks_exact_mut(4).zip(numbers) {
            place.copy_from_slice(&number.to_ne_bytes());
        }
        bytes.extend_from_slice(data);
        bytes
    }

    /// The bytes of the address's `sockaddr`.
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
    fn sender_and_payload_are_parsed() {
        for text in ["1.2.3.4:5", "[1:2::3]:40000", "[fe80::1%7]:9"] {
            let from: SocketAddr = text.parse().unwrap();
            let bytes = lease(Some(from), 0, b"hello");
            let incoming = parse(&bytes, MAX_DATAGRAM).unwrap();
            assert_eq!((incoming.from, incoming.data), (from, &b"hello"[..]));
            assert!(!incoming.truncated && incoming.ecn.is_none());
        }
    }

    #[test]
    fn payload_beyond_the_limit_is_truncated() {
        let bytes = lease(None, 0, b"hello");
        let whole = parse(&bytes, 5).unwrap();
        assert_eq!((whole.data, whole.truncated), (&b"hello"[..], false));
        let cut = parse(&bytes, 4).unwrap();
        assert_eq!((cut.data, cut.truncated), (&b"hell"[..], true));
        let bytes = lease(None, MSG_TRUNC, b"hello");
        assert!(parse(&bytes, MAX_DATAGRAM).unwrap().truncated, "the kernel truncated it");
        assert_eq!(cut.from, "0.0.0.0:0".parse().unwrap(), "no sender");
    }

    #[test]
    fn buffer_shorter_than_the_prefix_is_rejected() {
        assert!(parse(&[0; PREFIX - 1], MAX_DATAGRAM).is_none());
        let nothing = lease(None, 0, b"");
        assert!(parse(&nothing, MAX_DATAGRAM).unwrap().data.is_empty());
    }
}
