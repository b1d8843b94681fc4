//! Read, write and sendfile.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::windows::fs::FileExt;
use std::slice;

use poll_core::Op;

use super::Way;
use crate::fs::File;
use crate::sys::Slices;

/// Runs `body`, then restores the file position: calls with an offset move it.
fn keep_position<T>(file: &File, body: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let before = file.std().stream_position();
    let result = body();
    if let Ok(before) = before {
        file.std().seek(SeekFrom::Start(before))?;
    }
    result
}

fn position(offset: u64) -> io::Result<u64> {
    let why = "the file offset must not exceed i64::MAX";
    let wrong = |_| io::Error::new(io::ErrorKind::InvalidInput, why);
    i64::try_from(offset).map(|_| offset).map_err(wrong)
}

/// Transfers the buffers one by one until a short transfer. An error after the first buffer is
/// left to the next call.
fn each(
    slices: &Slices,
    mut piece: impl FnMut(*mut u8, usize, u64) -> io::Result<usize>,
) -> io::Result<usize> {
    let mut done = 0;
    for slice in slices.remaining() {
        let count = match piece(slice.iov_base.cast(), slice.iov_len, done as u64) {
            Ok(count) => count,
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        };
        done += count;
        if count < slice.iov_len {
            break;
        }
    }
    Ok(done)
}

pub(crate) fn read(file: &File, slices: &Slices, offset: Option<u64>) -> io::Result<usize> {
    let read = |offset: Option<u64>| {
        each(slices, |memory, len, done| {
            // SAFETY: the owner of the buffers lends the slices for writing until the operation
            // ends.
            let piece = unsafe { slice::from_raw_parts_mut(memory, len) };
            match offset {
                Some(offset) => file.std().seek_read(piece, offset + done),
                None => file.std().read(piece),
            }
        })
    };
    match offset.map(position).transpose()? {
        Some(offset) => keep_position(file, || read(Some(offset))),
        None => read(None),
    }
}

pub(crate) fn write(file: &File, slices: &Slices, offset: Option<u64>) -> io::Result<usize> {
    let write = |offset: Option<u64>| {
        each(slices, |memory, len, done| {
            // SAFETY: the owner of the buffers lends the slices for reading until the operation
            // ends.
            let piece = unsafe { slice::from_raw_parts(memory, len) };
            match offset {
                Some(offset) => file.std().seek_write(piece, offset + done),
                None => file.std().write(piece),
            }
        })
    };
    match offset.map(position).transpose()? {
        Some(offset) => keep_position(file, || write(Some(offset))),
        None => write(None),
    }
}

pub(crate) fn is_short(_: &Slices) -> bool {
    false
}

/// Windows has no call that reads only without blocking.
pub(crate) fn read_cached(_: &File, _: &Slices, _: u64) -> Option<usize> {
    None
}

/// A pool thread reads: the handles are not overlapped.
pub(crate) fn read_op(_: &File, _: &Slices, _: Option<u64>) -> Option<Op> {
    None
}

/// A pool thread writes: the handles are not overlapped.
pub(crate) fn write_op(_: &File, _: &Slices, _: Option<u64>) -> Option<Op> {
    None
}

/// No Windows backend uses the file position.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Start(());

impl Start {
    pub(crate) fn of(_: &File, _: Option<u64>) -> Start {
        Start(())
    }

    pub(crate) fn is_known(self) -> bool {
        false
    }

    pub(crate) fn moved(self, _: &File, _: usize) {}
}

/// The arguments of a sendfile.
#[derive(Debug)]
pub struct SendFile {
    pub(crate) to: File,
    pub(crate) from: File,
    pub(crate) offset: u64,
    pub(crate) len: usize,
}

/// Copies in chunks. An error after the first chunk is left to the next call.
pub(crate) const SENDFILE: Way<SendFile, usize> = Way::blocking(|sending| {
    let SendFile { to, from, offset, len } = sending;
    let offset = position(*offset)?;
    keep_position(from, || {
        let mut piece = vec![0; (64 * 1024).min(*len)];
        let mut sent = 0;
        while sent < *len {
            let wanted = piece.len().min(*len - sent);
            let copied = from
                .std()
                .seek_read(&mut piece[..wanted], offset + sent as u64)
                .and_then(|count| to.std().write_all(&piece[..count]).map(|()| count));
            match copied {
                Ok(0) => break,
                Ok(count) => sent += count,
                Err(error) if sent == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(sent)
    })
});
