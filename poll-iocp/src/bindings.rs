//! Which sources complete their operations to this port.
//!
//! A file object is bound to one port, and nothing tells to which. Nor does anything
//! tell when a source was closed and its number means another one, whose packets would
//! go nowhere. But while an operation is in flight its source is open: so a source is
//! bound by its first operation, which costs two system calls, and needs nothing for
//! those that start before the last has ended.

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

use crate::afd::code_of;
use crate::port::{Key, Port};

/// Every source that was ever bound here.
#[derive(Debug, Default)]
pub(crate) struct Bindings(HashMap<RawSource, Binding>);

#[derive(Debug, Default)]
struct Binding {
    /// Operations in flight. While there are any, the source is bound.
    flights: u32,
    /// What ends within its call sends no packet: somebody has asked for that, and it
    /// cannot be undone.
    skips: bool,
}

/// Why a source is not bound.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// No operation is possible on it.
    Unfit(io::Error),
    /// The system says no.
    Failed(i32),
}

impl Bindings {
    /// Binds a source for one operation more.
    pub(crate) fn hold(&mut self, port: &Port, source: RawSource) -> Result<(), Refusal> {
        let known = self.0.get_mut(&source);
        let is_known = known.is_some();
        if let Some(binding) = known.filter(|binding| binding.flights > 0) {
            binding.flights += 1;
            return Ok(());
        }
        bind(port, source.handle(), is_known)?;
        let skips = skips_packets(source.handle());
        *self.0.entry(source).or_default() = Binding { flights: 1, skips };
        Ok(())
    }

    /// An operation on the source has ended.
    pub(crate) fn release(&mut self, source: RawSource) {
        if let Some(binding) = self.0.get_mut(&source) {
            binding.flights -= 1;
        }
    }

    /// True if what ends within its call sends no packet.
    pub(crate) fn skips(&self, source: RawSource) -> bool {
        self.0.get(&source).is_some_and(|binding| binding.skips)
    }
}

/// Has `file` complete to `port`, whatever it did before. One that has done so before
/// (`known`) is probably still the same.
fn bind(port: &Port, file: HANDLE, known: bool) -> Result<(), Refusal> {
    let mut classes = [FileCompletionInformation, FileReplaceCompletionInformation];
    if known {
        classes.reverse();
    }
    let mut cannot_replace = false;
    for class in classes {
        match set(file, port, class) {
            STATUS_SUCCESS => return Ok(()),
            // To set needs a file without a port, to replace one with a port.
            STATUS_PORT_ALREADY_SET | STATUS_INVALID_PARAMETER => {}
            // Wine.
            STATUS_NOT_IMPLEMENTED | STATUS_INVALID_INFO_CLASS => cannot_replace = true,
            status => return Err(Refusal::Failed(code_of(status))),
        }
    }
    // It is still the same, or another one with that number that takes no operations.
    if known && cannot_replace && !is_synchronous(file) {
        return Ok(());
    }
    let why = "this handle takes no operations: it was opened without FILE_FLAG_OVERLAPPED, or \
               is in use with another completion port";
    Err(Refusal::Unfit(io::Error::new(io::ErrorKind::Unsupported, why)))
}

fn set(file: HANDLE, port: &Port, class: i32) -> NTSTATUS {
    let key = std::ptr::without_provenance_mut(Key::Operation as usize);
    let info = FILE_COMPLETION_INFORMATION { Port: port.handle(), Key: key };
    let (mut outcome, len) = (IO_STATUS_BLOCK::default(), size_of_val(&info) as u32);
    // SAFETY: the pointers are to local variables, and the call is synchronous.
    unsafe { NtSetInformationFile(file, &mut outcome, (&raw const info).cast(), len, class) }
}

fn skips_packets(file: HANDLE) -> bool {
    flags(file, FileIoCompletionNotificationInformation) & FILE_SKIP_COMPLETION_PORT_ON_SUCCESS != 0
}

fn is_synchronous(file: HANDLE) -> bool {
    let synchronous = FILE_SYNCHRONOUS_IO_ALERT | FILE_SYNCHRONOUS_IO_NONALERT;
    flags(file, FileModeInformation) & synchronous != 0
}

/// What the system says of a file that fits 32 bits. None, if it says nothing.
fn flags(file: HANDLE, class: i32) -> u32 {
    let (mut outcome, mut flags) = (IO_STATUS_BLOCK::default(), 0u32);
    let (flags_ptr, len) = ((&raw mut flags).cast(), size_of::<u32>() as u32);
    // SAFETY: the pointers are to local variables, and the call is synchronous.
    let status = unsafe { NtQueryInformationFile(file, &mut outcome, flags_ptr, len, class) };
    if status == STATUS_SUCCESS { flags } else { 0 }
}

/// True if the handle is a file's, and not a pipe's or a device's.
pub(crate) fn is_disk_file(file: HANDLE) -> bool {
    // SAFETY: the call takes no pointer.
    let kind = unsafe { GetFileType(file) };
    kind == FILE_TYPE_DISK
}
