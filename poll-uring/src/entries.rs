//! Submission entries: one for each operation, and the opcodes that a kind of operation requires.

use std::ptr;

use io_uring::types::{Fd, FsyncFlags};
use io_uring::{Probe, opcode, squeue};
use poll_core::{At, Op, OpKind, RawBuf, RawBufs, RawSource, Shutdown, Token};

use crate::polls::to_poll;
use crate::user_data::UserData;

/// True if the kernel implements operations of this kind.
pub(crate) fn supports(probe: &Probe, kind: OpKind) -> bool {
    is_implemented(kind, |code| probe.is_supported(code))
}

/// True if a kernel with these opcodes implements operations of this kind.
fn is_implemented(kind: OpKind, has: impl Fn(u8) -> bool) -> bool {
    let required = required_opcodes(kind);
    !required.is_empty() && required.iter().all(|&code| has(code))
}

/// The opcodes that a kind of operation requires. Multishot variants are flags, which the probe
/// does not report: an opcode of the same release stands for them.
fn required_opcodes(kind: OpKind) -> &'static [u8] {
    match kind {
        OpKind::Accept => &[opcode::Accept::CODE],
        // `IORING_ACCEPT_MULTISHOT` and `IORING_OP_SOCKET` came with Linux 5.19.
        OpKind::AcceptMulti => &[opcode::Accept::CODE, opcode::Socket::CODE],
        OpKind::Connect => &[opcode::Connect::CODE],
        OpKind::Recv => &[opcode::Recv::CODE],
        // `IORING_RECV_MULTISHOT` and `IORING_OP_SEND_ZC` came with Linux 6.0.
        OpKind::RecvMulti => &[opcode::Recv::CODE, opcode::SendZc::CODE],
        OpKind::RecvMsg => &[opcode::RecvMsg::CODE],
        OpKind::RecvMsgMulti => &[opcode::RecvMsg::CODE, opcode::SendZc::CODE],
        OpKind::Send => &[opcode::Send::CODE],
        OpKind::SendMsg => &[opcode::SendMsg::CODE],
        OpKind::Shutdown => &[opcode::Shutdown::CODE],
        OpKind::Poll => &[opcode::PollAdd::CODE],
        OpKind::Read => &[opcode::Readv::CODE, opcode::Read::CODE],
        OpKind::Write => &[opcode::Writev::CODE, opcode::Write::CODE],
        OpKind::Fsync => &[opcode::Fsync::CODE],
        OpKind::Ftruncate => &[opcode::Ftruncate::CODE],
        OpKind::OpenAt => &[opcode::OpenAt::CODE],
        OpKind::Close => &[opcode::Close::CODE],
        OpKind::Statx => &[opcode::Statx::CODE],
        OpKind::UnlinkAt => &[opcode::UnlinkAt::CODE],
        OpKind::RenameAt => &[opcode::RenameAt::CODE],
        OpKind::MkdirAt => &[opcode::MkDirAt::CODE],
        OpKind::LinkAt => &[opcode::LinkAt::CODE],
        OpKind::SymlinkAt => &[opcode::SymlinkAt::CODE],
        _ => &[],
    }
}

/// A send with a copy. A closed peer is `EPIPE`, never a signal.
#[inline]
pub(crate) fn send(source: RawSource, buf: RawBuf) -> squeue::Entry {
    let send = opcode::Send::new(fd(source), buf.ptr.as_ptr(), buf.len);
    send.flags(libc::MSG_NOSIGNAL).build()
}

/// A send without a copy.
pub(crate) fn send_zero_copy(source: RawSource, buf: RawBuf) -> squeue::Entry {
    let send = opcode::SendZc::new(fd(source), buf.ptr.as_ptr(), buf.len);
    send.flags(libc::MSG_NOSIGNAL).build()
}

/// A multishot receive of messages. `header` has only lengths.
pub(crate) fn recv_msg_multi(
    source: RawSource,
    header: &libc::msghdr,
    group: u16,
) -> squeue::Entry {
    opcode::RecvMsgMulti::new(fd(source), header, group).build()
}

pub(crate) fn close(source: RawSource) -> squeue::Entry {
    opcode::Close::new(fd(source)).build()
}

/// A cancel of the operation with this token.
pub(crate) fn cancel(token: Token) -> squeue::Entry {
    opcode::AsyncCancel::new(UserData::Operation(token).to_u64()).build()
}

#[inline]
pub(crate) fn read(source: RawSource, bufs: RawBufs, offset: Option<u64>) -> squeue::Entry {
    match single(bufs) {
        Some((buf, len)) => {
            opcode::Read::new(fd(source), buf, len).offset(position(offset)).build()
        }
        None => opcode::Readv::new(fd(source), bufs.ptr.as_ptr().cast(), bufs.count)
            .offset(position(offset))
            .build(),
    }
}

/// The entry of an operation on a socket. `None` for other operations.
pub(crate) fn socket(op: Op) -> Option<squeue::Entry> {
    Some(match op {
        Op::Send { source, buf } => send(source, buf),
        Op::RecvMulti { source, group } => opcode::RecvMulti::new(fd(source), group).build(),
        Op::Poll { source, interest } => {
            opcode::PollAdd::new(fd(source), to_poll(interest)).build()
        }
        Op::Accept { listener } => {
            opcode::Accept::new(fd(listener), ptr::null_mut(), ptr::null_mut())
                .flags(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK)
                .build()
        }
        Op::AcceptMulti { listener } => opcode::AcceptMulti::new(fd(listener))
            .flags(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK)
            .build(),
        Op::Connect { source, address } => {
            opcode::Connect::new(fd(source), address.ptr.as_ptr().cast(), address.len).build()
        }
        Op::Recv { source, buf } => {
            opcode::Recv::new(fd(source), buf.ptr.as_ptr(), buf.len).build()
        }
        Op::RecvMsg { source, message, flags } => {
            let message = message.0.as_ptr().cast();
            opcode::RecvMsg::new(fd(source), message).flags(flags as u32).build()
        }
        Op::SendMsg { source, message, flags } => {
            let flags = (flags | libc::MSG_NOSIGNAL) as u32;
            opcode::SendMsg::new(fd(source), message.0.as_ptr().cast()).flags(flags).build()
        }
        Op::Shutdown { source, how } => {
            let how = match how {
                Shutdown::Read => libc::SHUT_RD,
                Shutdown::Write => libc::SHUT_WR,
                Shutdown::Both => libc::SHUT_RDWR,
            };
            opcode::Shutdown::new(fd(source), how).build()
        }
        _ => return None,
    })
}

/// The entry of an operation on a file or a path. `None` for other operations.
pub(crate) fn file(op: Op) -> Option<squeue::Entry> {
    Some(match op {
        Op::Read { source, bufs, offset } => read(source, bufs, offset),
        Op::Write { source, bufs, offset } => match single(bufs) {
            Some((buf, len)) => {
                opcode::Write::new(fd(source), buf, len).offset(position(offset)).build()
            }
            None => opcode::Writev::new(fd(source), bufs.ptr.as_ptr().cast(), bufs.count)
                .offset(position(offset))
                .build(),
        },
        Op::Fsync { source, data_only } => {
            let flags = if data_only { FsyncFlags::DATASYNC } else { FsyncFlags::empty() };
            opcode::Fsync::new(fd(source)).flags(flags).build()
        }
        Op::Ftruncate { source, len } => opcode::Ftruncate::new(fd(source), len).build(),
        Op::OpenAt { at, flags, mode } => opcode::OpenAt::new(dir(at), at.path.0.as_ptr())
            .flags(flags | libc::O_CLOEXEC)
            .mode(mode)
            .build(),
        Op::Statx { at, flags, mask, out } => {
            opcode::Statx::new(dir(at), at.path.0.as_ptr(), out.as_ptr().cast())
                .flags(flags)
                .mask(mask)
                .build()
        }
        Op::UnlinkAt { at, flags } => {
            opcode::UnlinkAt::new(dir(at), at.path.0.as_ptr()).flags(flags).build()
        }
        Op::RenameAt { from, to, flags } => {
            let (old, new) = (from.path.0.as_ptr(), to.path.0.as_ptr());
            opcode::RenameAt::new(dir(from), old, dir(to), new).flags(flags).build()
        }
        Op::MkdirAt { at, mode } => {
            opcode::MkDirAt::new(dir(at), at.path.0.as_ptr()).mode(mode).build()
        }
        Op::LinkAt { from, to, flags } => {
            let (old, new) = (from.path.0.as_ptr(), to.path.0.as_ptr());
            opcode::LinkAt::new(dir(from), old, dir(to), new).flags(flags).build()
        }
        Op::SymlinkAt { target, at } => {
            opcode::SymlinkAt::new(dir(at), target.0.as_ptr(), at.path.0.as_ptr()).build()
        }
        _ => return None,
    })
}

/// The buffer of a list of one: the kernel need not read the list.
fn single(bufs: RawBufs) -> Option<(*mut u8, u32)> {
    if bufs.count != 1 {
        return None;
    }
    // SAFETY: the submitter keeps the list valid until the operation has ended, and it has one
    // element.
    let buf = unsafe { bufs.ptr.cast::<libc::iovec>().read() };
    Some((buf.iov_base.cast(), u32::try_from(buf.iov_len).ok()?))
}

fn fd(source: RawSource) -> Fd {
    Fd(source.fd())
}

fn dir(at: At) -> Fd {
    Fd(at.dir.map_or(libc::AT_FDCWD, RawSource::fd))
}

/// The kernel's offset; -1 is the file's current position.
fn position(offset: Option<u64>) -> u64 {
    offset.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_linux_operation_has_required_opcodes() {
        let on_linux = OpKind::ALL.iter().filter(|&&kind| kind != OpKind::ConnectNamedPipe);
        assert!(on_linux.into_iter().all(|&kind| !required_opcodes(kind).is_empty()));
    }

    /// The kinds that a kernel with these opcodes implements.
    fn implemented(has: impl Fn(u8) -> bool) -> Vec<OpKind> {
        OpKind::ALL.iter().copied().filter(|kind| is_implemented(*kind, &has)).collect()
    }

    #[test]
    fn older_kernels_implement_fewer_kinds() {
        let all = implemented(|_| true);
        assert_eq!(all.len(), OpKind::ALL.len() - 1, "all but those of Windows");
        assert_eq!(implemented(|_| false), [], "an empty probe");
        let missing = |without: &[u8]| -> Vec<OpKind> {
            let left = implemented(|code| !without.contains(&code));
            all.iter().copied().filter(|kind| !left.contains(kind)).collect()
        };
        // Linux 5.19 has no multishot receives, and 5.18 has no multishot accepts either.
        let receives = [OpKind::RecvMulti, OpKind::RecvMsgMulti];
        assert!(receives.iter().all(|kind| missing(&[opcode::SendZc::CODE]).contains(kind)));
        assert_eq!(missing(&[opcode::SendZc::CODE]).len(), 2);
        assert_eq!(missing(&[opcode::Socket::CODE]), [OpKind::AcceptMulti]);
        // Without the opcode itself none of its kinds is implemented.
        let accepts = missing(&[opcode::Accept::CODE]);
        assert!(accepts.contains(&OpKind::Accept) && accepts.contains(&OpKind::AcceptMulti));
        assert_eq!(missing(&[opcode::Ftruncate::CODE]), [OpKind::Ftruncate], "Linux 6.8");
        // Vectored reads (5.1) are older than reads of one buffer (5.6): both are required.
        assert_eq!(missing(&[opcode::Read::CODE]), [OpKind::Read]);
        assert_eq!(missing(&[opcode::Readv::CODE]), [OpKind::Read]);
    }

    #[test]
    fn an_empty_probe_supports_nothing() {
        assert!(OpKind::ALL.iter().all(|kind| !supports(&Probe::new(), *kind)));
    }

    #[test]
    fn paths_are_relative_to_their_directory_or_the_current_one() {
        let path = poll_core::RawPath::of(c"x");
        assert_eq!(dir(At { dir: None, path }).0, libc::AT_FDCWD);
        assert_eq!(dir(At { dir: Some(RawSource::from_fd(7)), path }).0, 7);
    }

    #[test]
    fn missing_offset_is_the_current_position() {
        assert_eq!(position(None) as i64, -1);
        assert_eq!(position(Some(3)), 3);
    }
}
