//! Control messages: ancillary data of `sendmsg` and `recvmsg` (`cmsg(3)`).

/// Control memory of one message, aligned for `cmsghdr`.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(crate) struct Control<const N: usize>(pub(crate) [u8; N]);

/// One control message: its level, its type, and its bytes.
pub(crate) type Message<'a> = (i32, i32, &'a [u8]);

/// The control messages in what the kernel has written. Ends at a message that is not whole.
pub(crate) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    // SAFETY: arithmetic on an integer.
    let head_len = unsafe { libc::CMSG_LEN(0) } as usize;
    std::iter::from_fn(move || {
        let (head, rest) = bytes.split_at_checked(head_len.max(size_of::<libc::cmsghdr>()))?;
        // SAFETY: `head` is at least as long as the structure, the read is unaligned, and the
        // structure has only integers: every bit pattern is valid.
        let head: libc::cmsghdr = unsafe { std::ptr::read_unaligned(head.as_ptr().cast()) };
        let len: usize = head.cmsg_len as _;
        let len = len.checked_sub(head_len)?;
        // Some kernels leave the original length in a message that they have truncated.
        let data = &rest[..len.min(rest.len())];
        // SAFETY: arithmetic on an integer.
        let padded = unsafe { libc::CMSG_SPACE(data.len() as libc::c_uint) } as usize - head_len;
        bytes = rest.get(padded..).unwrap_or_default();
        Some((head.cmsg_level, head.cmsg_type, data))
    })
}

/// The part of control memory that the kernel has written for `header`.
pub(crate) fn written<'a>(control: &'a [u8], header: &libc::msghdr) -> &'a [u8] {
    let length: usize = header.msg_controllen as _;
    &control[..control.len().min(length)]
}

/// The data as an `int`; `None` if it is shorter.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn integer(data: &[u8]) -> Option<i32> {
    data.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message as the kernel writes it, with a length that may be wrong.
    fn message(len: usize, level: i32, kind: i32, data: &[u8]) -> Vec<u8> {
        // SAFETY: a C structure of integers; zero is valid for each.
        let mut head: libc::cmsghdr = unsafe { std::mem::zeroed() };
        (head.cmsg_len, head.cmsg_level, head.cmsg_type) = (len as _, level, kind);
        // SAFETY: arithmetic on an integer.
        let space = unsafe { libc::CMSG_SPACE(data.len() as libc::c_uint) } as usize;
        let mut bytes = vec![0; space];
        // SAFETY: the memory is at least as long as the structure, and the write is unaligned.
        unsafe { std::ptr::write_unaligned(bytes.as_mut_ptr().cast(), head) };
        bytes[head_len()..][..data.len()].copy_from_slice(data);
        bytes
    }

    fn head_len() -> usize {
        // SAFETY: arithmetic on an integer.
        (unsafe { libc::CMSG_LEN(0) }) as usize
    }

    #[test]
    fn messages_are_parsed_one_by_one() {
        let one = message(head_len() + 3, 1, 2, b"abc");
        let two = message(head_len() + 8, 3, 4, b"12345678");
        let all = [one, two].concat();
        let parsed: Vec<_> = messages(&all).collect();
        assert_eq!(parsed, [(1, 2, &b"abc"[..]), (3, 4, &b"12345678"[..])]);
    }

    #[test]
    fn wrong_lengths_stay_inside_the_memory() {
        for len in [0, 1, head_len() - 1] {
            assert_eq!(messages(&message(len, 1, 2, b"abc")).count(), 0, "length {len}");
        }
        for len in [head_len() + 100, usize::MAX / 2, usize::MAX] {
            let bytes = message(len, 1, 2, b"12345678");
            let parsed: Vec<_> = messages(&bytes).collect();
            assert_eq!(parsed, [(1, 2, &b"12345678"[..])], "length {len}");
        }
        let cut = &message(head_len() + 8, 1, 2, b"12345678")[..head_len() - 1];
        assert_eq!(messages(cut).count(), 0);
    }
}
