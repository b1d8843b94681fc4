//! The association of sources with the completion port.
//!
//! A file object is associated with one port, and Windows has no call that returns which.
//! It does not report either that a source was closed and its handle value reused by a file
//! object without a port. But a source with an operation in flight is open. So the first
//! operation associates its source, which costs two system calls, and operations that start
//! while another one is in flight need none.

use std::collections::HashMap;
use std::io;

use poll_core::RawSource;
use windows_sys::Wdk::Storage::FileSystem::{
    FILE_COMPLETION_INFORMATION, FILE_SYNCHRONOUS_IO_ALERT, FILE_SYNCHRONOUS_IO_NONALERT,
    FileCompletionInformation, FileIoCompletionNotificationInformation, FileModeInformation,
    FileReplaceCompletionInformation, NtQueryInformationFile, NtSetInformationFile,
};
use windows_sys::Win32::Foundation::{
    HANDLE, NTSTATUS, STATUS_INVALID_INFO_CLASS, STATUS_INVALID_PARAMETER, STATUS_NOT_IMPLEMENTED,
    STATUS_PORT_ALREADY_SET, STATUS_SUCCESS,
};
use windows_sys::Win32::Storage::FileSystem::{FILE_TYPE_DISK, GetFileType};
use windows_sys::Win32::System::IO::IO_STATUS_BLOCK;
use windows_sys::Win32::System::WindowsProgramming::FILE_SKIP_COMPLETION_PORT_ON_SUCCESS;

use crate::afd::win32_error;
use crate::port::{Key, Port};

/// Every source that was ever associated with this port.
#[derive(Debug, Default)]
pub(crate) struct Associations(HashMap<RawSource, Association>);

#[derive(Debug, Default)]
struct Association {
    /// The number of operations in flight. Above zero, the source is known to be associated.
    in_flight: u32,
    /// `FILE_SKIP_COMPLETION_PORT_ON_SUCCESS` is set: a call that completes synchronously queues
    /// no packet. Other code has set the mode, which cannot be undone.
    skips_packets: bool,
}

/// Why a source was not associated.
#[derive(Debug)]
pub(crate) enum AssociateError {
    /// The handle takes no overlapped operations, or belongs to another port.
    NotOverlapped(io::Error),
    /// The system call failed with this error.
    Os(i32),
}

impl Associations {
    /// Associates a source, unless it is known to be, and counts one more operation.
    pub(crate) fn acquire(&mut self, port: &Port, source: RawSource) -> Result<(), AssociateError> {
        let known = self.0.get_mut(&source);
        let is_known = known.is_some();
        if let Some(association) = known.filter(|association| association.in_flight > 0) {
            association.in_flight += 1;
            return Ok(());
        }
        associate(port, source.handle(), is_known)?;
        let skips_packets = has_skip_mode(source.handle());
        *self.0.entry(source).or_default() = Association { in_flight: 1, skips_packets };
        Ok(())
    }

    /// Counts one operation less.
    pub(crate) fn release(&mut self, source: RawSource) {
        if let Some(association) = self.0.get_mut(&source) {
            association.in_flight -= 1;
        }
    }

    /// True if a call that completes synchronously queues no packet.
    pub(crate) fn skips_packets(&self, source: RawSource) -> bool {
        self.0.get(&source).is_some_and(|association| association.skips_packets)
    }
}

/// Associates `file` with `port`, and replaces an earlier association. A `known` handle value
/// probably still names the file object that was associated before.
fn associate(port: &Port, file: HANDLE, known: bool) -> Result<(), AssociateError> {
    let mut classes = [FileCompletionInformation, FileReplaceCompletionInformation];
    if known {
        classes.reverse();
    }
    let mut cannot_replace = false;
    for class in classes {
        match set(file, port, class) {
            STATUS_SUCCESS => return Ok(()),
            // The first class needs a file without a port, the second one a file with a port.
            STATUS_PORT_ALREADY_SET | STATUS_INVALID_PARAMETER => {}
            // Wine 8 has no FileReplaceCompletionInformation.
            STATUS_NOT_IMPLEMENTED | STATUS_INVALID_INFO_CLASS => cannot_replace = true,
            status => return Err(AssociateError::Os(win32_error(status))),
        }
    }
    // The same file object, or a synchronous one that has got its handle value.
    if known && cannot_replace && !is_synchronous(file) {
        return Ok(());
    }
    let why = "this handle takes no operations: open it with FILE_FLAG_OVERLAPPED, and use it \
               with one completion port only";
    Err(AssociateError::NotOverlapped(io::Error::new(io::ErrorKind::Unsupported, why)))
}

fn set(file: HANDLE, port: &Port, class: i32) -> NTSTATUS {
    let key = std::ptr::without_provenance_mut(Key::Operation as usize);
    let info = FILE_COMPLETION_INFORMATION { Port: port.handle(), Key: key };
    let (mut outcome, len) = (IO_STATUS_BLOCK::default(), size_of_val(&info) as u32);
    // SAFETY: all pointers are to local variables, and the call is synchronous.
    unsafe { NtSetInformationFile(file, &mut outcome, (&raw const info).cast(), len, class) }
}

fn has_skip_mode(file: HANDLE) -> bool {
    flags(file, FileIoCompletionNotificationInformation) & FILE_SKIP_COMPLETION_PORT_ON_SUCCESS != 0
}

fn is_synchronous(file: HANDLE) -> bool {
    let synchronous = FILE_SYNCHRONOUS_IO_ALERT | FILE_SYNCHRONOUS_IO_NONALERT;
    flags(file, FileModeInformation) & synchronous != 0
}

/// Queries an information class of 32 bits; 0 if the query fails.
fn flags(file: HANDLE, class: i32) -> u32 {
    let (mut outcome, mut flags) = (IO_STATUS_BLOCK::default(), 0u32);
    let (flags_ptr, len) = ((&raw mut flags).cast(), size_of::<u32>() as u32);
    // SAFETY: all pointers are to local variables, and the call is synchronous.
    let status = unsafe { NtQueryInformationFile(file, &mut outcome, flags_ptr, len, class) };
    if status == STATUS_SUCCESS { flags } else { 0 }
}

/// True if the handle is a disk file's, not a pipe's or a device's.
pub(crate) fn is_disk_file(file: HANDLE) -> bool {
    // SAFETY: `GetFileType` takes no pointer.
    let kind = unsafe { GetFileType(file) };
    kind == FILE_TYPE_DISK
}
