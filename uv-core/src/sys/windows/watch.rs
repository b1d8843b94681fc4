//! File system events: one thread per handle waits in `ReadDirectoryChangesW`.
//!
//! The thread owns the memory that the kernel writes to, and ends the overlapped call before it
//! exits. It delivers changes to an inbox of the loop.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::windows::ffi::OsStringExt;
use std::os::windows::fs::OpenOptionsExt;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use poll_core::RawSource;
use windows_sys::Win32::Foundation::{ERROR_NOTIFY_ENUM_DIR, HANDLE, WAIT_FAILED, WAIT_OBJECT_0};
use windows_sys::Win32::Storage::FileSystem::{
    FILE_ACTION_MODIFIED, FILE_FLAG_BACKUP_SEMANTICS, FILE_FLAG_OVERLAPPED, FILE_LIST_DIRECTORY,
    FILE_NOTIFY_CHANGE_ATTRIBUTES, FILE_NOTIFY_CHANGE_CREATION, FILE_NOTIFY_CHANGE_DIR_NAME,
    FILE_NOTIFY_CHANGE_FILE_NAME, FILE_NOTIFY_CHANGE_LAST_WRITE, FILE_NOTIFY_CHANGE_SECURITY,
    FILE_NOTIFY_CHANGE_SIZE, FILE_SHARE_DELETE, FILE_SHARE_READ, FILE_SHARE_WRITE,
    ReadDirectoryChangesW,
};
use windows_sys::Win32::System::IO::{CancelIoEx, GetOverlappedResult, OVERLAPPED};
use windows_sys::Win32::System::Threading::{
    CreateEventW, INFINITE, ResetEvent, SetEvent, WaitForMultipleObjects,
};

use crate::event_loop::{Notification, Notifier};
use crate::handles::{Inbox, Notices, Watcher, What};

/// Every change that a handle reports.
const FILTER: u32 = FILE_NOTIFY_CHANGE_FILE_NAME
    | FILE_NOTIFY_CHANGE_DIR_NAME
    | FILE_NOTIFY_CHANGE_ATTRIBUTES
    | FILE_NOTIFY_CHANGE_SIZE
    | FILE_NOTIFY_CHANGE_LAST_WRITE
    | FILE_NOTIFY_CHANGE_CREATION
    | FILE_NOTIFY_CHANGE_SECURITY;

/// The size of the buffer for one call, in words: 64 KiB is the limit for network directories.
const BUFFER_WORDS: usize = 64 * 1024 / size_of::<u32>();

/// The watches of a loop.
#[derive(Debug, Default)]
pub(crate) struct Watching {
    inbox: Arc<Inbox>,
    threads: HashMap<Watcher, Thread>,
}

/// A thread that waits for changes, until this is dropped.
#[derive(Debug)]
struct Thread {
    stop: Arc<Signal>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.stop.set();
        // The thread exits as soon as it sees the signal, and does not panic.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A Windows event object.
#[derive(Debug)]
struct Signal(OwnedHandle);

impl Signal {
    fn new() -> io::Result<Signal> {
        // SAFETY: no memory is passed.
        let event = unsafe { CreateEventW(ptr::null(), 1, 0, ptr::null()) };
        if event.is_null() {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call created the handle, and no other code owns it.
        Ok(Signal(unsafe { OwnedHandle::from_raw_handle(event) }))
    }

    fn raw(&self) -> HANDLE {
        self.0.as_raw_handle()
    }

    fn set(&self) {
        // SAFETY: `self` keeps the handle open.
        unsafe { SetEvent(self.raw()) };
    }

    fn reset(&self) {
        // SAFETY: `self` keeps the handle open.
        unsafe { ResetEvent(self.raw()) };
    }
}

impl Watching {
    /// `None`: threads deliver to the inbox, there is no source to poll.
    pub(crate) fn source(&self) -> Option<RawSource> {
        None
    }

    pub(crate) fn start(
        &mut self,
        watcher: Watcher,
        path: &Path,
        recursive: bool,
        _notices: &mut Notices,
        notifier: &Arc<Notifier>,
    ) -> io::Result<()> {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_owned();
        let is_directory = std::fs::metadata(path)?.is_dir();
        // A file is watched through its parent directory.
        let directory = match path.parent() {
            _ if is_directory => path.to_owned(),
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let directory = OpenOptions::new()
            .access_mode(FILE_LIST_DIRECTORY)
            .share_mode(FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE)
            .custom_flags(FILE_FLAG_BACKUP_SEMANTICS | FILE_FLAG_OVERLAPPED)
            .open(directory)?;
        let stop = Arc::new(Signal::new()?);
        let watch = Watch {
            watcher,
            directory,
            recursive: recursive && is_directory,
            only: (!is_directory).then(|| name.clone()),
            name,
            completed: Signal::new()?,
            stop: Arc::clone(&stop),
            inbox: Arc::clone(&self.inbox),
            notifier: Arc::clone(notifier),
        };
        let (begun, has_begun) = mpsc::channel();
        let builder = thread::Builder::new().name("uv-watch".into());
        let thread = builder.spawn(move || watch.run(&begun))?;
        let thread = Thread { stop, thread: Some(thread) };
        // Every change after this function returns must be reported.
        has_begun.recv().unwrap_or_else(|_| {
            Err(io::Error::other("the watch thread exited before it started to watch"))
        })?;
        self.threads.insert(watcher, thread);
        Ok(())
    }

    pub(crate) fn stop(&mut self, watcher: Watcher) {
        self.threads.remove(&watcher);
    }

    /// Windows has no `fork`.
    pub(crate) fn forget(&mut self) {}

    pub(crate) fn collect(&mut self, notices: &mut Notices) -> io::Result<()> {
        self.inbox.empty(notices);
        Ok(())
    }
}

/// The state of a watch thread.
struct Watch {
    watcher: Watcher,
    directory: File,
    recursive: bool,
    /// The only entry to report, if a file is watched.
    only: Option<OsString>,
    /// The name to report when the directory itself is removed.
    name: OsString,
    /// Signalled by the kernel when the call completes.
    completed: Signal,
    stop: Arc<Signal>,
    inbox: Arc<Inbox>,
    notifier: Arc<Notifier>,
}

impl Watch {
    fn run(&self, begun: &mpsc::Sender<io::Result<()>>) {
        let mut buffer = vec![0_u32; BUFFER_WORDS];
        // SAFETY: plain data, for which all zeros are a valid value.
        let mut call: OVERLAPPED = unsafe { std::mem::zeroed() };
        call.hEvent = self.completed.raw();
        let mut begun = Some(begun);
        loop {
            match (self.begin(&mut buffer, &mut call), begun.take()) {
                // The receiver is gone only after the stop signal was set.
                (result, Some(begun)) => {
                    let failed = result.is_err();
                    let _ = begun.send(result);
                    if failed {
                        return;
                    }
                }
                (Err(error), None) => return self.on_error(error),
                (Ok(()), None) => {}
            }
            match self.wait(&mut call) {
                None => return,
                Some(Ok(0)) => self.deliver(What::Lost, OsString::new()),
                Some(Ok(length)) => self.deliver_all(&buffer, length),
                Some(Err(error)) if is_overflow(&error) => {
                    self.deliver(What::Lost, OsString::new())
                }
                Some(Err(error)) => return self.on_error(error),
            }
        }
    }

    /// Starts a call, which uses `buffer` and `call` until [`Watch::wait`] returns.
    fn begin(&self, buffer: &mut [u32], call: &mut OVERLAPPED) -> io::Result<()> {
        self.completed.reset();
        let (directory, recursive) = (self.directory.as_raw_handle(), i32::from(self.recursive));
        let (to, size) = (buffer.as_mut_ptr().cast(), size_of_val(buffer) as u32);
        // SAFETY: `run` owns the buffer and the call, and accesses neither until `wait` has seen
        // the end of the call.
        let begun = unsafe {
            ReadDirectoryChangesW(
                directory,
                to,
                size,
                recursive,
                FILTER,
                ptr::null_mut(),
                call,
                None,
            )
        };
        if begun == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Waits for the end of the call. Returns the number of bytes, or `None` if the thread must
    /// exit.
    fn wait(&self, call: &mut OVERLAPPED) -> Option<io::Result<usize>> {
        let handles = [self.stop.raw(), self.completed.raw()];
        // SAFETY: `self` keeps both handles open.
        let which = unsafe { WaitForMultipleObjects(2, handles.as_ptr(), 0, INFINITE) };
        let stops = which == WAIT_OBJECT_0 || which == WAIT_FAILED;
        if stops {
            // SAFETY: the directory is open, and `call` is in flight or completed.
            unsafe { CancelIoEx(self.directory.as_raw_handle(), call) };
        }
        let mut length = 0;
        // SAFETY: `call` was started on this handle; the call returns when the kernel is done with
        // it.
        let ok =
            unsafe { GetOverlappedResult(self.directory.as_raw_handle(), call, &mut length, 1) };
        if stops {
            return None;
        }
        Some(if ok == 0 { Err(io::Error::last_os_error()) } else { Ok(length as usize) })
    }

    fn deliver(&self, what: What, name: OsString) {
        self.inbox.put(self.watcher, what, name);
        // If the wake fails, the next iteration of the loop still finds the change.
        let _ = self.notifier.notify(Notification::CHANGES);
    }

    /// Reports the failure; the thread exits and delivers nothing more.
    fn on_error(&self, error: io::Error) {
        if self.only.is_some() {
            return self.deliver(What::Failed(error), OsString::new());
        }
        // The directory itself was removed; versions of Windows return different errors for it.
        self.deliver(What::Renamed, self.name.clone());
    }

    fn deliver_all(&self, buffer: &[u32], length: usize) {
        // Wine does not align records to words.
        let bytes: Vec<u8> =
            buffer.iter().flat_map(|word| word.to_ne_bytes()).take(length).collect();
        let mut rest = &bytes[..];
        while let Some((record, next)) = first_record(rest) {
            let wanted = self.only.as_ref().is_none_or(|only| is_same_name(only, &record.name));
            if wanted {
                let changed = record.action == FILE_ACTION_MODIFIED;
                self.deliver(if changed { What::Changed } else { What::Renamed }, record.name);
            }
            rest = next;
        }
    }
}

/// A `FILE_NOTIFY_INFORMATION`.
#[derive(Debug, PartialEq, Eq)]
struct Record {
    action: u32,
    name: OsString,
}

/// Parses the first record; returns it with the remaining bytes.
fn first_record(bytes: &[u8]) -> Option<(Record, &[u8])> {
    // The layout: offset of the next record, action, length of the name, name.
    let (head, name) = bytes.split_at_checked(12)?;
    let word = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let (next, action, length) = (word(0) as usize, word(4), word(8) as usize);
    let units = name.get(..length)?.chunks_exact(2);
    let units: Vec<u16> = units.map(|unit| u16::from_ne_bytes([unit[0], unit[1]])).collect();
    let behind = if next == 0 { &[] } else { bytes.get(next..).unwrap_or(&[]) };
    Some((Record { action, name: OsString::from_wide(&units) }, behind))
}

/// True if the changes did not fit into the buffer.
fn is_overflow(error: &io::Error) -> bool {
    error.raw_os_error() == Some(ERROR_NOTIFY_ENUM_DIR as i32)
}

/// Compares file names without regard to case.
fn is_same_name(one: &OsStr, other: &OsStr) -> bool {
    one.to_string_lossy().to_lowercase() == other.to_string_lossy().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_parsed_one_by_one() {
        let record = |next: u32, action: u32, name: &str| {
            let name: Vec<u8> = name.encode_utf16().flat_map(u16::to_ne_bytes).collect();
            let words = [next, action, name.len() as u32];
            let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            bytes.extend(name);
            bytes
        };
        let all = [record(18, 1, "old"), record(20, 2, "four"), record(0, 3, "x")].concat();
        let (first, rest) = first_record(&all).unwrap();
        assert_eq!(first, Record { action: 1, name: "old".into() });
        let (second, rest) = first_record(rest).unwrap();
        assert_eq!(second, Record { action: 2, name: "four".into() });
        let (third, rest) = first_record(rest).unwrap();
        assert_eq!(third, Record { action: 3, name: "x".into() });
        assert_eq!(first_record(rest), None);
        assert_eq!(first_record(&record(0, 1, "cut")[..14]), None);
    }
}
