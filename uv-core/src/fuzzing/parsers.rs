//! Parsers of what a kernel, a peer or a caller has written: nothing makes them panic or read
//! beyond the input, and what they accept has the form that they promise.

#![allow(unsafe_code)]

use std::cell::RefCell;
use std::net::{SocketAddr, SocketAddrV6};

use super::Input;
use crate::Datagram;
use crate::dns::to_ascii;
use crate::sys::cmsg;
use crate::sys::datagrams::{MAX_DATAGRAM, recvmsg_layout as layout, sockaddr};
use crate::sys::pipe_frames::{HEAD, Head, Incoming};
use crate::sys::watch::inotify_calls::next_change;

/// Control messages of `recvmsg`.
pub fn control_messages(data: &[u8]) {
    let mut total = 0;
    for (_, _, bytes) in cmsg::messages(data) {
        assert!(data.as_ptr_range().contains(&bytes.as_ptr()) || bytes.is_empty());
        total += bytes.len() + size_of::<libc::cmsghdr>();
    }
    assert!(total <= data.len(), "messages overlap");
}

/// A datagram with its sender and control messages, as `io_uring` lays it out.
pub fn recvmsg_layout(data: &[u8]) {
    let mut input = Input(data);
    let largest = input.word() as usize % (MAX_DATAGRAM + 1);
    if let Some(incoming) = layout::parse(input.0, largest) {
        assert!(incoming.data.len() <= largest && incoming.data.len() <= input.0.len());
        let datagram = Datagram::new(incoming);
        let pieces: Vec<_> = datagram.segments().collect();
        assert_eq!(pieces.concat(), datagram.data);
    }
}

/// Addresses: any bytes are parsed, and what is written is read back.
pub fn addresses(data: &[u8]) {
    let _ = layout::address(data);
    // SAFETY: an address structure of integers; zero is valid for each.
    let mut name: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let len = data.len().min(size_of_val(&name));
    let to: *mut libc::sockaddr_storage = &mut name;
    // SAFETY: `len` is at most the size of either, and every bit pattern is valid.
    unsafe { to.cast::<u8>().copy_from_nonoverlapping(data.as_ptr(), len) };
    let _ = sockaddr::address(&name);
    if let Some(path) = sockaddr::path(&name, data.len() as libc::socklen_t) {
        assert!(path.as_os_str().len() <= data.len());
    }
    let mut input = Input(data);
    let (ip, port) = ([0; 16].map(|_: u8| input.byte()), input.word() as u16);
    let address = match input.byte() % 2 {
        0 => SocketAddr::from(([ip[0], ip[1], ip[2], ip[3]], port)),
        _ => {
            let (flow, scope) = (input.word() as u32, input.word() as u32);
            SocketAddrV6::new(ip.into(), port, flow, scope).into()
        }
    };
    let to: *mut libc::sockaddr_storage = &mut name;
    match &address {
        // SAFETY: a `sockaddr_storage` is as large and as aligned as any address.
        SocketAddr::V4(v4) => unsafe {
            to.cast::<libc::sockaddr_in>().write(sockaddr::name_v4(v4))
        },
        // SAFETY: as above.
        SocketAddr::V6(v6) => unsafe {
            to.cast::<libc::sockaddr_in6>().write(sockaddr::name_v6(v6))
        },
    }
    assert_eq!(sockaddr::address(&name), Some(address));
    // SAFETY: the structure has only integers, and lives longer than the slice.
    let bytes = unsafe { std::slice::from_raw_parts(to.cast::<u8>(), layout::ADDRESS) };
    assert_eq!(layout::address(bytes), Some(address));
}

/// Events of inotify.
pub fn inotify(data: &[u8]) {
    let mut rest = data;
    loop {
        let before = rest.len();
        let Some(name) = next_change(&mut rest).map(|change| change.name) else { break };
        assert!(before - rest.len() >= 16 + name.len(), "an event has a header and its name");
        assert!(!name.as_encoded_bytes().contains(&0));
    }
    assert!(rest.len() <= data.len());
}

/// The frames of a Windows pipe that passes handles, read in pieces of any size.
pub fn pipe_frames(data: &[u8]) {
    let mut input = Input(data);
    let (chunk, memory) = (1 + usize::from(input.byte()), 1 + usize::from(input.byte()));
    let rest = RefCell::new(input.0);
    let read = |memory: &mut [u8]| {
        let mut rest = rest.borrow_mut();
        let count = memory.len().min(rest.len()).min(chunk);
        let (now, later) = rest.split_at(count);
        memory[..count].copy_from_slice(now);
        *rest = later;
        Ok(count)
    };
    let (mut incoming, mut memory) = (Incoming::default(), vec![0; memory]);
    let (mut received, mut infos) = (0, 0);
    loop {
        let take = |head: Head, info: &[u8]| {
            assert_eq!(info.len(), head.info());
            infos += HEAD + info.len();
            true
        };
        match incoming.receive(&mut memory, take, read) {
            Ok((0, _)) => break,
            Ok((count, _)) => received += count,
            // Frames without bytes: the caller reads again later.
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return assert_eq!(error.kind(), std::io::ErrorKind::InvalidData),
        }
    }
    assert!(received + infos <= input.0.len(), "more came out than went in");
    assert_ne!(incoming.sender(), Some(0));
}

/// Host names: what is accepted is ASCII, short, and decodes to the same name.
pub fn idna(data: &[u8]) {
    let Ok(host) = std::str::from_utf8(data) else { return };
    let Ok(ascii) = to_ascii(host) else { return };
    assert!(ascii.is_ascii() && !ascii.is_empty() && ascii.len() <= 255);
    assert_eq!(to_ascii(&ascii).ok().as_ref(), Some(&ascii), "converting again changes nothing");
    if host.is_ascii() {
        return assert_eq!(ascii, host);
    }
    let dots = ['.', '\u{3002}', '\u{ff0e}', '\u{ff61}'];
    let labels: Vec<_> = host.split(dots).collect();
    assert_eq!(ascii.split('.').count(), labels.len());
    for (label, encoded) in labels.iter().zip(ascii.split('.')) {
        match label.is_ascii() {
            true => assert_eq!(*label, encoded),
            false => {
                let decoded = encoded.strip_prefix("xn--").and_then(decode);
                assert_eq!(decoded.as_deref(), Some(*label), "{encoded}");
            }
        }
    }
}

/// Decodes Punycode by the procedure of RFC 3492, section 6.2.
fn decode(encoded: &str) -> Option<String> {
    let (basic, rest) = encoded.rsplit_once('-').unwrap_or(("", encoded));
    let mut letters: Vec<char> = basic.chars().collect();
    let (mut point, mut at, mut bias) = (128_u32, 0_u32, 72_u32);
    let mut digits = rest.bytes().peekable();
    while digits.peek().is_some() {
        let (before, mut weight, mut position) = (at, 1_u32, 36_u32);
        loop {
            let digit = match digits.next()? {
                letter @ b'a'..=b'z' => u32::from(letter - b'a'),
                number @ b'0'..=b'9' => u32::from(number - b'0') + 26,
                _ => return None,
            };
            at = at.checked_add(digit.checked_mul(weight)?)?;
            let threshold = position.saturating_sub(bias).clamp(1, 26);
            if digit < threshold {
                break;
            }
            weight = weight.checked_mul(36 - threshold)?;
            position += 36;
        }
        let count = letters.len() as u32 + 1;
        let mut delta = if before == 0 { (at - before) / 700 } else { (at - before) / 2 };
        delta += delta / count;
        let mut steps = 0;
        while delta > 455 {
            delta /= 35;
            steps += 36;
        }
        bias = steps + 36 * delta / (delta + 38);
        point = point.checked_add(at / count)?;
        letters.insert((at % count) as usize, char::from_u32(point)?);
        at = at % count + 1;
    }
    Some(letters.into_iter().collect())
}
