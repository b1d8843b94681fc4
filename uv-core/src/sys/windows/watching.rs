//! Who watches what: a thread for each handle, which waits for the system to tell of changes
//! to a directory.
//!
//! Its calls are its own, so the memory that it lends to the system is too: the thread ends
//! the call before it ends itself. What it is told goes to an inbox of the loop's.

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

use crate::handles::{Inbox, Notices, Watcher, What};
use crate::notify::{Notes, Notifier};

/// All that a handle can be told of.
const FILTER: u32 = FILE_NOTIFY_CHANGE_FILE_NAME
    | FILE_NOTIFY_CHANGE_DIR_NAME
    | FILE_NOTIFY_CHANGE_ATTRIBUTES
    | FILE_NOTIFY_CHANGE_SIZE
    | FILE_NOTIFY_CHANGE_LAST_WRITE
    | FILE_NOTIFY_CHANGE_CREATION
    | FILE_NOTIFY_CHANGE_SECURITY;

/// Room for what is told at once, in words: as much as works for directories on the network.
const ROOM: usize = 64 * 1024 / size_of::<u32>();

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
        // It ends as soon as it has seen the signal, and does not panic.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// An event that threads wait for.
#[derive(Debug)]
struct Signal(OwnedHandle);

impl Signal {
    fn new() -> io::Result<Signal> {
        // SAFETY: no memory is passed.
        let event = unsafe { CreateEventW(ptr::null(), 1, 0, ptr::null()) };
        if event.is_null() {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the system has just given it to us.
        Ok(Signal(unsafe { OwnedHandle::from_raw_handle(event) }))
    }

    fn raw(&self) -> HANDLE {
        self.0.as_raw_handle()
    }

    fn set(&self) {
        // SAFETY: the handle is open.
        unsafe { SetEvent(self.raw()) };
    }

    fn reset(&self) {
        // SAFETY: the handle is open.
        unsafe { ResetEvent(self.raw()) };
    }
}

impl Watching {
    /// Threads leave notes: there is nothing to poll.
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
        // A file is watched by way of the directory that it is in.
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
            told: Signal::new()?,
            stop: Arc::clone(&stop),
            inbox: Arc::clone(&self.inbox),
            notifier: Arc::clone(notifier),
        };
        let (begun, has_begun) = mpsc::channel();
        let builder = thread::Builder::new().name("uv-watch".into());
        let thread = builder.spawn(move || watch.run(&begun))?;
        let thread = Thread { stop, thread: Some(thread) };
        // What changes after this returns must be seen.
        has_begun.recv().unwrap_or_else(|_| Err(io::Error::other("the thread has ended")))?;
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

/// What a thread needs.
struct Watch {
    watcher: Watcher,
    directory: File,
    recursive: bool,
    /// The one entry that is watched, if it is one.
    only: Option<OsString>,
    /// What is told when the directory itself goes.
    name: OsString,
    /// Set by the system when it has something to tell.
    told: Signal,
    stop: Arc<Signal>,
    inbox: Arc<Inbox>,
    notifier: Arc<Notifier>,
}

impl Watch {
    fn run(&self, begun: &mpsc::Sender<io::Result<()>>) {
        let mut room = vec![0_u32; ROOM];
        // SAFETY: plain data, for which all zeros are valid.
        let mut call: OVERLAPPED = unsafe { std::mem::zeroed() };
        call.hEvent = self.told.raw();
        let mut begun = Some(begun);
        loop {
            match (self.begin(&mut room, &mut call), begun.take()) {
                // If nobody waits for this, the signal to stop is set.
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
                Some(Ok(0)) => self.tell(What::Lost, OsString::new()),
                Some(Ok(length)) => self.tell_all(&room, length),
                Some(Err(error)) if is_overflow(&error) => self.tell(What::Lost, OsString::new()),
                Some(Err(error)) => return self.on_error(error),
            }
        }
    }

    /// Lends the room to the system, until [`Watch::wait`] says that the call is over.
    fn begin(&self, room: &mut [u32], call: &mut OVERLAPPED) -> io::Result<()> {
        self.told.reset();
        let (directory, recursive) = (self.directory.as_raw_handle(), i32::from(self.recursive));
        let (to, size) = (room.as_mut_ptr().cast(), size_of_val(room) as u32);
        // SAFETY: `run` keeps the room and the call, and touches neither, until the call is
        // over.
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

    /// Waits until the call is over: how many bytes there are, or `None` if the thread is to
    /// end.
    fn wait(&self, call: &mut OVERLAPPED) -> Option<io::Result<usize>> {
        let handles = [self.stop.raw(), self.told.raw()];
        // SAFETY: two handles that are open.
        let which = unsafe { WaitForMultipleObjects(2, handles.as_ptr(), 0, INFINITE) };
        let stops = which == WAIT_OBJECT_0 || which == WAIT_FAILED;
        if stops {
            // SAFETY: the call is under way, or over already.
            unsafe { CancelIoEx(self.directory.as_raw_handle(), call) };
        }
        let mut length = 0;
        // SAFETY: waits until the system has let go of the room and the call.
        let ok =
            unsafe { GetOverlappedResult(self.directory.as_raw_handle(), call, &mut length, 1) };
        if stops {
            return None;
        }
        Some(if ok == 0 { Err(io::Error::last_os_error()) } else { Ok(length as usize) })
    }

    fn tell(&self, what: What, name: OsString) {
        self.inbox.put(self.watcher, what, name);
        // If waking fails the loop finds it when it next looks.
        let _ = self.notifier.notify(Notes::CHANGES);
    }

    /// No more will be told.
    fn on_error(&self, error: io::Error) {
        if self.only.is_some() {
            return self.tell(What::Failed(error), OsString::new());
        }
        // The directory itself is gone, which systems say in several ways.
        self.tell(What::Renamed, self.name.clone());
    }

    fn tell_all(&self, room: &[u32], length: usize) {
        // Records need not begin at words: Wine's do not.
        let bytes: Vec<u8> = room.iter().flat_map(|word| word.to_ne_bytes()).take(length).collect();
        let mut rest = &bytes[..];
        while let Some((record, next)) = first_record(rest) {
            let wanted = self.only.as_ref().is_none_or(|only| is_same_name(only, &record.name));
            if wanted {
                let changed = record.action == FILE_ACTION_MODIFIED;
                self.tell(if changed { What::Changed } else { What::Renamed }, record.name);
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

/// The first of some records, and those behind it.
fn first_record(bytes: &[u8]) -> Option<(Record, &[u8])> {
    // How far the next is, what happened, how long the name is, the name.
    let (head, name) = bytes.split_at_checked(12)?;
    let word = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let (next, action, length) = (word(0) as usize, word(4), word(8) as usize);
    let units = name.get(..length)?.chunks_exact(2);
    let units: Vec<u16> = units.map(|unit| u16::from_ne_bytes([unit[0], unit[1]])).collect();
    let behind = if next == 0 { &[] } else { bytes.get(next..).unwrap_or(&[]) };
    Some((Record { action, name: OsString::from_wide(&units) }, behind))
}

/// True if there was more to tell than there was room.
fn is_overflow(error: &io::Error) -> bool {
    error.raw_os_error() == Some(ERROR_NOTIFY_ENUM_DIR as i32)
}

/// Names are the same if they differ in case only.
fn is_same_name(one: &OsStr, other: &OsStr) -> bool {
    one.to_string_lossy().to_lowercase() == other.to_string_lossy().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_taken_one_by_one() {
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
