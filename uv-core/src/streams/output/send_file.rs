//! Files among the writes of a stream.
//!
//! A file is a write whose bytes are loaded when it is the first in the queue. The loop's thread
//! sends them by calls, so that the number of sent bytes is exact at any time, and a close waits for
//! nothing. The disk is read elsewhere:
//!
//! ```text
//!                    ┌─ large, cached: sendfile(2) (Linux) ────────────┐
//!  first in queue ─▶ ├─ cached: a chunk is read in place (Linux) ──────┼─▶ sent ─▶ next chunk, or done
//!                    └─ else: a task reads a chunk (READS_FILE) ─▶ send(2) ┘
//! ```
//!
//! The task is an operation of the backend, where it performs reads, or runs on the pool. While a
//! stream has files to send, its other writes are sent by calls as well, in order.

use std::io::{self, IoSlice};
use std::ops::Range;

use poll_core::{Backend, Token};

use super::write::{Progress, WriteRequest, send};
use super::{Output, write};
use crate::fs::{Action, File, actions::Reading};
use crate::pool::Task;
use crate::requests::task;
use crate::streams::buffered_request::BufferedRequest;
use crate::streams::request_queue::{IoRequest, State};
use crate::streams::{Flags, Stream, StreamSlot, Streams, arm, uninterrupted};
use crate::sys::SendCached;
use crate::{Loop, error, sys};

/// The most bytes that are loaded at a time: as many as are read in the loop's thread if they are
/// cached.
const CHUNK: usize = 64 * 1024;

/// The most bytes of one `sendfile(2)`.
const SENDFILE_MAX: usize = 256 * 1024;

/// The most chunks that one event sends, so that a fast reader does not starve other streams.
const CHUNKS_PER_EVENT: usize = 4;

/// A file to send: the part of a write that a buffer is otherwise.
#[derive(Debug)]
pub(in crate::streams) struct FileSend {
    write: Token,
    file: File,
    /// Where the next byte to send is in the file.
    offset: u64,
    /// Large parts are sent by the kernel if they are cached.
    by_kernel: bool,
    chunk: Vec<u8>,
    /// Bytes of the chunk that are not sent yet.
    loaded: Range<usize>,
    loading: Loading,
}

/// How a file is being read.
#[derive(Debug)]
enum Loading {
    Idle,
    /// A task has the memory of the chunk.
    Reading,
    /// The file is shorter than the range.
    Ended,
    Failed(io::Error),
}

/// The result of loading the next bytes of a file.
pub(in crate::streams) enum Load {
    Loaded,
    /// A task reads them.
    Waits,
    /// There are none.
    Ended,
    Failed(io::Error),
}

impl FileSend {
    /// A read has ended.
    fn loaded(&mut self, (result, memory): (io::Result<usize>, Vec<u8>)) {
        self.chunk = memory;
        self.loaded = 0..0;
        self.loading = Loading::Idle;
        match result {
            Ok(0) => self.loading = Loading::Ended,
            Ok(count) => self.loaded = 0..count,
            // In a forked child, whose parent has the task: it is read again.
            Err(error) if error::is_cancelled(&error) => {}
            Err(error) => self.loading = Loading::Failed(error),
        }
    }
}

pub(in crate::streams) fn send_file<S: Stream, B: Backend>(
    stream: S,
    lp: &mut Loop<B>,
    file: &File,
    range: Range<u64>,
    callback: impl FnOnce(&mut Loop<B>, S, io::Result<()>, u64) + 'static,
) -> io::Result<WriteRequest> {
    let key = stream.stream_key();
    let lengths = check(lp, key, &range)?;
    let complete = move |lp: &mut Loop<B>, key, result, []: [&'static [u8]; 0]| {
        let sent = lp.streams.reported_write.map_or(0, |(_, sent)| sent);
        let stream = S::from_stream_key(lp, key);
        callback(lp, stream, result, sent as u64);
    };
    let buffered = BufferedRequest::writing([], complete);
    queue_file(lp, key, buffered, file, range.start, lengths).map(WriteRequest)
}

/// Checks that a stream takes a range of a file; returns its length and that of the queue with it.
pub(in crate::streams) fn check<B: Backend>(
    lp: &mut Loop<B>,
    key: Token,
    range: &Range<u64>,
) -> io::Result<(usize, usize)> {
    lp.streams.check_write(key, 1)?;
    let len = range.end.checked_sub(range.start).and_then(|len| usize::try_from(len).ok());
    let len = len.ok_or_else(invalid_range)?;
    let queued = lp.streams.open(key)?.write_queue_size.checked_add(len);
    Ok((len, queued.ok_or_else(invalid_range)?))
}

fn invalid_range() -> io::Error {
    let why = "the range ends before it starts, or has more bytes than this machine can address";
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

impl<B: Backend> StreamSlot<B> {
    /// The event that the output side waits for while files are in the queue.
    pub(super) fn wanted_to_send_files(&self) -> Output {
        match self.output {
            // It sends the writes before the first file.
            Some(_) => Output::Operation,
            None if self.flags.contains(Flags::READS_FILE) => Output::Nothing,
            None => Output::Ready,
        }
    }

    /// The file of a write that is the first in the queue.
    fn file_mut(&mut self, write: Token) -> Option<&mut FileSend> {
        self.rare.as_mut()?.files.front_mut().filter(|file| file.write == write)
    }

    /// True if the first write, which is `write`, is a file.
    #[inline]
    pub(in crate::streams) fn is_file(&mut self, write: Token) -> bool {
        self.flags.contains(Flags::SENDS_FILES) && self.file_mut(write).is_some()
    }

    /// The write has left the queue. True if it was a file.
    #[inline]
    pub(super) fn forget_file(&mut self, write: Token) -> bool {
        self.flags.contains(Flags::SENDS_FILES) && self.end_file(write)
    }

    #[cold]
    fn end_file(&mut self, write: Token) -> bool {
        let Some(rare) = &mut self.rare else { return false };
        let Some(index) = rare.files.iter().position(|file| file.write == write) else {
            return false;
        };
        let ended = rare.files.remove(index);
        if ended.is_some_and(|file| matches!(file.loading, Loading::Reading)) {
            self.flags -= Flags::READS_FILE;
        }
        if rare.files.is_empty() {
            self.flags -= Flags::SENDS_FILES;
        }
        true
    }

    /// Bytes of a file that are loaded and not sent.
    pub(in crate::streams) fn file_bytes(&self) -> &[u8] {
        let file = self.rare.as_ref().and_then(|rare| rare.files.front());
        file.map_or(&[], |file| &file.chunk[file.loaded.clone()])
    }
}

impl<B: Backend> Streams<B> {
    /// Has the kernel send bytes that are cached: the result, and how many bytes were to be sent.
    /// `None` if the bytes have to be loaded.
    fn push_cached_file(
        &mut self,
        key: Token,
        write: Token,
        left: usize,
    ) -> Option<(io::Result<usize>, usize)> {
        let slot = self.slots.get_mut(key)?;
        let socket = slot.socket.as_ref()?;
        let file = slot.rare.as_mut()?.files.front_mut().filter(|file| file.write == write)?;
        if !file.by_kernel || !file.loaded.is_empty() || !matches!(file.loading, Loading::Idle) {
            return None;
        }
        let offered = left.min(SENDFILE_MAX);
        match uninterrupted(|| sys::send_cached(socket, &file.file, file.offset, offered)) {
            Ok(SendCached::Sent(sent)) => Some((Ok(sent), offered)),
            Ok(SendCached::NotCached) => None,
            Ok(SendCached::Unsupported) => {
                file.by_kernel = false;
                None
            }
            Err(error) => Some((Err(error), offered)),
        }
    }

    /// Counts `sent` bytes of a file as sent.
    pub(in crate::streams) fn file_sent(&mut self, key: Token, write: Token, sent: usize) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        slot.write_queue_size -= sent;
        if let Some(file) = slot.file_mut(write) {
            file.offset += sent as u64;
            file.loaded.start = file.loaded.end.min(file.loaded.start + sent);
        }
        if let Some(request) = self.requests.get_mut(write) {
            request.moved += sent;
            request.left -= sent;
        }
    }
}

fn queue_file<B: Backend>(
    lp: &mut Loop<B>,
    key: Token,
    buffered: BufferedRequest<B>,
    file: &File,
    start: u64,
    (len, queued): (usize, usize),
) -> io::Result<Token> {
    let (slot, requests) = lp.streams.open_with_requests(key)?;
    slot.write_queue_size = queued;
    let write = requests.insert(IoRequest::new(buffered, key, State::Writing, len));
    slot.writes.push(requests, write);
    slot.flags |= Flags::SENDS_FILES;
    // Another process may make a shared socket block.
    let shared = slot.flags.intersects(Flags::GIVEN | Flags::SHARED);
    let is_socket = slot.socket.as_ref().is_some_and(|socket| socket.is_socket());
    let by_kernel = len > CHUNK && is_socket && !shared && sys::sends_files();
    lp.active_requests += 1;
    if let Some(rare) = lp.streams.rare(key) {
        rare.files.push_back(FileSend {
            write,
            file: file.clone(),
            offset: start,
            by_kernel,
            chunk: Vec::new(),
            loaded: 0..0,
            loading: Loading::Idle,
        });
    }
    write::push_writes(lp, key);
    arm::update_or_fail(lp, key);
    Ok(write)
}

/// Sends the next bytes of a file, as many as the kernel takes.
pub(super) fn push_file<B: Backend>(lp: &mut Loop<B>, key: Token, write: Token) -> Progress {
    let slot = lp.streams.slots.get(key);
    let blocking = slot.is_some_and(|slot| slot.flags.contains(Flags::BLOCKING));
    let chunks = if blocking { usize::MAX } else { CHUNKS_PER_EVENT };
    // After the last of them the stream is still ready, and the next event goes on.
    let progress = (0..chunks).find_map(|_| push_chunk(lp, key, write));
    progress.unwrap_or(Progress::Blocked)
}

/// Sends a chunk of a file. `None` if the stream may take more.
fn push_chunk<B: Backend>(lp: &mut Loop<B>, key: Token, write: Token) -> Option<Progress> {
    let left = lp.streams.requests.get(write).map_or(0, |request| request.left);
    if left == 0 {
        return Some(Progress::Complete);
    }
    let (sent, offered) = match lp.streams.push_cached_file(key, write, left) {
        Some((Ok(0), _)) => return Some(Progress::Complete), // The end of the file.
        Some(sent) => sent,
        None => {
            match load_file(lp, key, write, left) {
                Load::Loaded => {}
                Load::Waits => return Some(Progress::Blocked),
                Load::Ended => return Some(Progress::Complete),
                Load::Failed(error) => return Some(Progress::Failed(error)),
            }
            let slot = lp.streams.slots.get(key)?;
            let bytes = slot.file_bytes();
            (send(slot.socket.as_ref()?, &[IoSlice::new(bytes)]), bytes.len())
        }
    };
    match sent {
        Ok(sent) => {
            lp.streams.file_sent(key, write, sent);
            let blocking = lp.streams.slots.get(key)?.flags.contains(Flags::BLOCKING);
            (sent < offered && !blocking).then_some(Progress::Blocked)
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Some(Progress::Blocked),
        Err(error) => Some(Progress::Failed(error)),
    }
}

/// Loads the next bytes of a file, of which `left` are to be sent, unless some are loaded.
pub(in crate::streams) fn load_file<B: Backend>(
    lp: &mut Loop<B>,
    key: Token,
    write: Token,
    left: usize,
) -> Load {
    let Some(slot) = lp.streams.slots.get_mut(key) else { return Load::Waits };
    let blocking = slot.flags.contains(Flags::BLOCKING);
    let Some(file) = slot.file_mut(write) else { return Load::Waits };
    if matches!(file.loading, Loading::Idle) && file.loaded.is_empty() {
        let mut memory = std::mem::take(&mut file.chunk);
        memory.resize(left.min(CHUNK), 0);
        let mut reading = Reading::new(&file.file, memory, Some(file.offset));
        let read = if blocking { Some(reading.perform()) } else { reading.try_perform().map(Ok) };
        let Some(read) = read else {
            file.loading = Loading::Reading;
            slot.flags |= Flags::READS_FILE;
            task::queue(lp, None, reading, move |lp, reading, read| {
                file_read(lp, key, write, reading.output(read));
            });
            return Load::Waits;
        };
        file.loaded(reading.output(read));
    }
    match std::mem::replace(&mut file.loading, Loading::Idle) {
        Loading::Idle => Load::Loaded,
        Loading::Reading => {
            file.loading = Loading::Reading;
            Load::Waits
        }
        Loading::Ended => Load::Ended,
        Loading::Failed(error) => Load::Failed(error),
    }
}

/// A task has read a chunk of a file, whose write may be over.
fn file_read<B: Backend>(
    lp: &mut Loop<B>,
    key: Token,
    write: Token,
    read: (io::Result<usize>, Vec<u8>),
) {
    let Some(slot) = lp.streams.slots.get_mut(key) else { return };
    let Some(file) = slot.file_mut(write) else { return };
    file.loaded(read);
    slot.flags -= Flags::READS_FILE;
    write::ready(lp, key);
    arm::update_or_fail(lp, key);
}
