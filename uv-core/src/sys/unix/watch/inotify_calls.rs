//! The system calls of inotify.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use poll_core::RawSource;

/// The events that handles report.
const MASK: u32 = libc::IN_ATTRIB
    | libc::IN_CREATE
    | libc::IN_MODIFY
    | libc::IN_DELETE
    | libc::IN_DELETE_SELF
    | libc::IN_MOVE_SELF
    | libc::IN_MOVED_FROM
    | libc::IN_MOVED_TO;

/// A watch descriptor. The kernel allocates them cyclically, so that numbers are not reused soon.
pub(crate) type Number = i32;

/// An inotify instance.
#[derive(Debug)]
pub(crate) struct Inotify(OwnedFd);

/// An `inotify_event`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change<'a> {
    pub(crate) number: Number,
    pub(crate) mask: u32,
    /// The entry's name; empty for the watched file or directory itself.
    pub(crate) name: &'a OsStr,
}

impl Inotify {
    pub(crate) fn new() -> io::Result<Inotify> {
        // SAFETY: takes no pointer.
        let fd = unsafe { libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK) };
        if fd == -1 {
            let error = io::Error::last_os_error();
            if error.raw_os_error() == Some(libc::EMFILE) {
                let why = "no more descriptors or inotify instances (EMFILE): raise \
                           RLIMIT_NOFILE or fs.inotify.max_user_instances";
                return Err(io::Error::new(io::ErrorKind::QuotaExceeded, why));
            }
            return Err(error);
        }
        // SAFETY: the call has returned a new descriptor, which nothing else owns.
        Ok(Inotify(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub(crate) fn source(&self) -> RawSource {
        RawSource::from_fd(self.0.as_raw_fd())
    }

    /// Watches the file at `path`. Returns the existing watch if its inode is watched already.
    pub(crate) fn add(&self, path: &Path, more: u32) -> io::Result<Number> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: reads a NUL-terminated path, which `CString` guarantees.
        match unsafe { libc::inotify_add_watch(self.0.as_raw_fd(), path.as_ptr(), MASK | more) } {
            -1 => {
                let error = io::Error::last_os_error();
                if error.raw_os_error() == Some(libc::ENOSPC) {
                    let why = "no more inotify watches (ENOSPC): raise \
                               fs.inotify.max_user_watches";
                    return Err(io::Error::new(io::ErrorKind::QuotaExceeded, why));
                }
                Err(error)
            }
            number => Ok(number),
        }
    }

    /// Removes a watch. The error for one that the kernel has removed itself is ignored.
    pub(crate) fn remove(&self, number: Number) {
        // SAFETY: takes no pointer.
        unsafe { libc::inotify_rm_watch(self.0.as_raw_fd(), number as _) };
    }

    /// Reads pending events, as many as fit. Returns the number of bytes; 0 if none is pending.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let (fd, to) = (self.0.as_raw_fd(), buffer.as_mut_ptr().cast());
            // SAFETY: writes at most `buffer.len()` bytes, to memory borrowed exclusively.
            match unsafe { libc::read(fd, to, buffer.len()) } {
                -1 => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => {}
                    error if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
                    error => return Err(error),
                },
                count => return Ok(count as usize),
            }
        }
    }
}

/// Takes the first event off the bytes that were read.
pub(crate) fn next_change<'a>(bytes: &mut &'a [u8]) -> Option<Change<'a>> {
    /// The watch, the mask, a cookie, and the length of the name with its padding.
    const HEAD: usize = 16;
    let (head, rest) = bytes.split_at_checked(HEAD)?;
    let word = |index: usize| {
        let bytes =
            [head[index * 4], head[index * 4 + 1], head[index * 4 + 2], head[index * 4 + 3]];
        u32::from_ne_bytes(bytes)
    };
    let (name, rest) = rest.split_at_checked(word(3) as usize)?;
    *bytes = rest;
    let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    let name = OsStr::from_bytes(&name[..end]);
    Some(Change { number: word(0) as Number, mask: word(1), name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_parsed_one_by_one() {
        let change = |number: i32, mask: u32, name: &[u8]| {
            let words = [number as u32, mask, 0, name.len() as u32];
            let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            bytes.extend(name);
            bytes
        };
        let all = [change(1, 2, b"name\0\0\0\0"), change(-1, 4, b""), vec![1, 2, 3]].concat();
        let mut rest = &all[..];
        let expected = Change { number: 1, mask: 2, name: OsStr::new("name") };
        assert_eq!(next_change(&mut rest), Some(expected));
        let expected = Change { number: -1, mask: 4, name: OsStr::new("") };
        assert_eq!(next_change(&mut rest), Some(expected));
        assert_eq!(next_change(&mut rest), None, "an incomplete event");
    }
}
