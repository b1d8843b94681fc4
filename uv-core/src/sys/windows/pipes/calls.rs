//! System calls of named pipes.

use std::io;
use std::mem::MaybeUninit;
use std::os::windows::ffi::OsStrExt;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::path::Path;
use std::ptr;

use windows_sys::Win32::Foundation::{
    ERROR_ACCESS_DENIED, ERROR_BROKEN_PIPE, ERROR_INVALID_NAME, ERROR_IO_PENDING,
    ERROR_PATH_NOT_FOUND, ERROR_PIPE_BUSY, ERROR_PIPE_NOT_CONNECTED, GENERIC_READ, GENERIC_WRITE,
    HANDLE, INVALID_HANDLE_VALUE, WAIT_TIMEOUT,
};
use windows_sys::Win32::Storage::FileSystem::{
    CreateFileW, FILE_FLAG_FIRST_PIPE_INSTANCE, FILE_FLAG_OVERLAPPED, FILE_READ_ATTRIBUTES,
    FILE_TYPE_PIPE, FILE_WRITE_ATTRIBUTES, GetFileType, OPEN_EXISTING, PIPE_ACCESS_DUPLEX,
    PIPE_ACCESS_INBOUND, ReadFile, SECURITY_IDENTIFICATION, SECURITY_SQOS_PRESENT, WRITE_DAC,
};
use windows_sys::Win32::System::Console::{
    GetStdHandle, STD_ERROR_HANDLE, STD_INPUT_HANDLE, STD_OUTPUT_HANDLE,
};
use windows_sys::Win32::System::IO::{GetOverlappedResult, OVERLAPPED};
use windows_sys::Win32::System::Pipes::{
    CreateNamedPipeW, GetNamedPipeClientProcessId, GetNamedPipeInfo, GetNamedPipeServerProcessId,
    PIPE_READMODE_BYTE, PIPE_REJECT_REMOTE_CLIENTS, PIPE_TYPE_BYTE, PIPE_TYPE_MESSAGE,
    PIPE_UNLIMITED_INSTANCES, PIPE_WAIT, PeekNamedPipe, WaitNamedPipeW,
};
use windows_sys::Win32::System::Threading::CreateEventW;

/// The size of the kernel's buffer for each direction, and the maximum of one write.
pub(super) const ROOM: usize = 64 * 1024;

/// The directions that an end can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Both,
    Read,
    Write,
}

impl Access {
    /// The access of the other end.
    pub(super) fn opposite(self) -> Access {
        match self {
            Access::Both => Access::Both,
            Access::Read => Access::Write,
            Access::Write => Access::Read,
        }
    }
}

/// The instance of a name to create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Instances {
    /// The first: fails if the name exists.
    First,
    /// One more instance of an existing name.
    Another,
    /// The only instance, for a pair.
    Only { overlapped: bool },
}

fn wide(name: &Path) -> Vec<u16> {
    name.as_os_str().encode_wide().chain([0]).collect()
}

fn owned(handle: HANDLE) -> io::Result<OwnedHandle> {
    match handle {
        INVALID_HANDLE_VALUE => Err(io::Error::last_os_error()),
        // SAFETY: the call created the handle, and no other code owns it.
        handle => Ok(unsafe { OwnedHandle::from_raw_handle(handle) }),
    }
}

/// Creates an instance of a pipe, the server's end.
pub(super) fn create(name: &Path, access: Access, which: Instances) -> io::Result<OwnedHandle> {
    // Message type, so that an empty message can signal the end of a direction.
    let (access, kind) = match access {
        Access::Both => (PIPE_ACCESS_DUPLEX, PIPE_TYPE_MESSAGE),
        _ => (PIPE_ACCESS_INBOUND, PIPE_TYPE_BYTE),
    };
    let first = if which == Instances::Another { 0 } else { FILE_FLAG_FIRST_PIPE_INSTANCE };
    let (overlapped, count) = match which {
        Instances::Only { overlapped: false } => (0, 1),
        Instances::Only { overlapped: true } => (FILE_FLAG_OVERLAPPED, 1),
        _ => (FILE_FLAG_OVERLAPPED, PIPE_UNLIMITED_INSTANCES),
    };
    let remote = if count == 1 { PIPE_REJECT_REMOTE_CLIENTS } else { 0 };
    let mode = kind | PIPE_READMODE_BYTE | PIPE_WAIT | remote;
    let open = access | first | overlapped | WRITE_DAC;
    let (name, room) = (wide(name), ROOM as u32);
    // SAFETY: the name ends with NUL and lives across the call; no other memory is passed.
    let made =
        unsafe { CreateNamedPipeW(name.as_ptr(), open, mode, count, room, room, 0, ptr::null()) };
    owned(made).map_err(|error| match error.raw_os_error().map(|code| code as u32) {
        Some(ERROR_ACCESS_DENIED | ERROR_PIPE_BUSY) if first != 0 => {
            io::Error::new(io::ErrorKind::AddrInUse, error)
        }
        Some(ERROR_PATH_NOT_FOUND | ERROR_INVALID_NAME) => {
            io::Error::from_raw_os_error(ERROR_ACCESS_DENIED as i32)
        }
        _ => error,
    })
}

/// The client's end of a pipe.
pub(super) struct Opened {
    pub(super) handle: OwnedHandle,
}

/// Opens the client's end without waiting for a free instance.
pub(super) fn open(name: &Path, access: Access, overlapped: bool) -> io::Result<Opened> {
    let rights = match access {
        Access::Both => GENERIC_READ | GENERIC_WRITE,
        Access::Read => GENERIC_READ | FILE_WRITE_ATTRIBUTES,
        Access::Write => GENERIC_WRITE | FILE_READ_ATTRIBUTES,
    };
    // The server can identify its client, but not impersonate it.
    let quality = SECURITY_SQOS_PRESENT | SECURITY_IDENTIFICATION;
    let flags = quality | if overlapped { FILE_FLAG_OVERLAPPED } else { 0 };
    let (name, template) = (wide(name), ptr::null_mut());
    // SAFETY: the name ends with NUL and lives across the call; no other memory is passed.
    let handle = unsafe {
        CreateFileW(name.as_ptr(), rights, 0, ptr::null(), OPEN_EXISTING, flags, template)
    };
    Ok(Opened { handle: owned(handle)? })
}

/// True if no instance is free.
pub(super) fn is_busy(error: &io::Error) -> bool {
    error.raw_os_error() == Some(ERROR_PIPE_BUSY as i32)
}

/// Waits up to 100 ms for a free instance.
pub(super) fn wait_for_instance(name: &Path) {
    let name = wide(name);
    // The result is ignored: the open that follows reports the error.
    // SAFETY: the name ends with NUL and lives across the call.
    unsafe { WaitNamedPipeW(name.as_ptr(), 100) };
}

/// Duplicates the handle of a standard stream: the process keeps the original open.
pub(super) fn keep_standard(pipe: OwnedHandle) -> io::Result<OwnedHandle> {
    let raw = pipe.as_raw_handle();
    let is_standard = [STD_INPUT_HANDLE, STD_OUTPUT_HANDLE, STD_ERROR_HANDLE].iter().any(|which| {
        // SAFETY: no memory is passed.
        let standard = unsafe { GetStdHandle(*which) };
        standard == raw
    });
    if !is_standard {
        return Ok(pipe);
    }
    // The original stays open, also if the duplication failed.
    std::mem::ManuallyDrop::new(pipe).try_clone()
}

/// Whether a handle is readable and writable. A handle that is no pipe is an error.
pub(super) fn access_of(pipe: &OwnedHandle) -> io::Result<(bool, bool)> {
    // SAFETY: no memory is passed; an invalid handle has the type unknown.
    if unsafe { GetFileType(pipe.as_raw_handle()) } != FILE_TYPE_PIPE {
        let why = "the handle is no pipe: use Tty for a console and file operations for a file";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    if is_synchronous(pipe) {
        let why = "the pipe was made without FILE_FLAG_OVERLAPPED, so that its calls block: \
                   make it with `pipe_pair`";
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    Ok(rights_of(pipe).map_or((true, true), |rights| {
        (rights & FILE_READ_DATA != 0, rights & FILE_WRITE_DATA != 0)
    }))
}

const FILE_READ_DATA: u32 = 1;
const FILE_WRITE_DATA: u32 = 2;
const FILE_ACCESS_INFORMATION: i32 = 8;
const FILE_MODE_INFORMATION: i32 = 16;
const FILE_SYNCHRONOUS_IO: u32 = 0x30;

/// True if the handle is both readable and writable.
pub(super) fn goes_both_ways(pipe: &OwnedHandle) -> bool {
    let both = FILE_READ_DATA | FILE_WRITE_DATA;
    rights_of(pipe).is_none_or(|rights| rights & both == both)
}

/// The process at the other end: the client or the server, whichever is not this process.
pub(super) fn peer_process(pipe: &OwnedHandle) -> io::Result<u32> {
    let (handle, mut server, mut client) = (pipe.as_raw_handle(), 0, 0);
    // SAFETY: writes one number.
    let knows_server = unsafe { GetNamedPipeServerProcessId(handle, &mut server) };
    // SAFETY: as above.
    let knows_client = unsafe { GetNamedPipeClientProcessId(handle, &mut client) };
    if knows_server == 0 || knows_client == 0 {
        return Err(io::Error::last_os_error());
    }
    let this = std::process::id();
    Ok(if server == this { client } else { server })
}

fn rights_of(pipe: &OwnedHandle) -> Option<u32> {
    query(pipe, FILE_ACCESS_INFORMATION)
}

fn is_synchronous(pipe: &OwnedHandle) -> bool {
    query(pipe, FILE_MODE_INFORMATION).is_some_and(|mode| mode & FILE_SYNCHRONOUS_IO != 0)
}

/// Queries information that is one number. `None` if the system does not support it.
fn query(pipe: &OwnedHandle, class: i32) -> Option<u32> {
    use windows_sys::Wdk::Storage::FileSystem::NtQueryInformationFile;
    use windows_sys::Win32::System::IO::IO_STATUS_BLOCK;
    let (mut status, mut answer) = (MaybeUninit::<IO_STATUS_BLOCK>::zeroed(), 0_u32);
    let (handle, place) = (pipe.as_raw_handle(), (&raw mut answer).cast());
    // SAFETY: the call writes the status and one number, the size of these classes.
    let result = unsafe { NtQueryInformationFile(handle, status.as_mut_ptr(), place, 4, class) };
    (result >= 0).then_some(answer)
}

/// True if the pipe is of the message type.
pub(super) fn has_messages(pipe: &OwnedHandle) -> bool {
    let (handle, mut flags) = (pipe.as_raw_handle(), 0);
    let (no, none, nothing) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    // SAFETY: the call writes one number; a handle that is no pipe is an error.
    let known = unsafe { GetNamedPipeInfo(handle, &mut flags, no, none, nothing) };
    known != 0 && flags & PIPE_TYPE_MESSAGE != 0
}

/// Reads the available bytes without blocking.
pub(super) fn read_available(pipe: &OwnedHandle, memory: &mut [u8]) -> io::Result<usize> {
    let (handle, mut available) = (pipe.as_raw_handle(), 0);
    let (none, no_message) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: writes one number.
    let peeked =
        unsafe { PeekNamedPipe(handle, none, 0, ptr::null_mut(), &mut available, no_message) };
    if peeked == 0 {
        return end_of_file(io::Error::last_os_error());
    }
    if available == 0 {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    let length = memory.len().min(available as usize) as u32;
    EVENT
        .with(|event| {
            let mut overlapped =
                OVERLAPPED { hEvent: event.as_ref()?.tagged(), ..Default::default() };
            // SAFETY: the kernel writes at most `length` bytes to `memory`, and only until the call
            // below has waited for the end of the read.
            let read = unsafe {
                ReadFile(handle, memory.as_mut_ptr(), length, ptr::null_mut(), &mut overlapped)
            };
            let error = io::Error::last_os_error();
            if read == 0 && error.raw_os_error() != Some(ERROR_IO_PENDING as i32) {
                return Some(end_of_file(error));
            }
            let mut count = 0;
            // SAFETY: the call waits for the end of the read above, and writes one number.
            let done = unsafe { GetOverlappedResult(handle, &overlapped, &mut count, 1) };
            Some(match done {
                0 => end_of_file(io::Error::last_os_error()),
                _ => Ok(count as usize),
            })
        })
        .unwrap_or_else(|| Err(io::Error::from_raw_os_error(WAIT_TIMEOUT as i32)))
}

/// Maps the errors of a closed peer to the end of file.
fn end_of_file(error: io::Error) -> io::Result<usize> {
    match error.raw_os_error().map(|code| code as u32) {
        Some(ERROR_BROKEN_PIPE | ERROR_PIPE_NOT_CONNECTED) => Ok(0),
        _ => Err(error),
    }
}

/// An event for calls that complete immediately, one for each thread.
struct Event(OwnedHandle);

impl Event {
    fn new() -> Option<Event> {
        // SAFETY: no memory is passed: an unnamed manual-reset event.
        let event = unsafe { CreateEventW(ptr::null(), 1, 0, ptr::null()) };
        // SAFETY: the call created the handle, and no other code owns it.
        (!event.is_null()).then(|| Event(unsafe { OwnedHandle::from_raw_handle(event) }))
    }

    /// The event with the low bit set, which suppresses the completion packet.
    fn tagged(&self) -> HANDLE {
        self.0.as_raw_handle().map_addr(|event| event | 1)
    }
}

thread_local! {
    static EVENT: Option<Event> = Event::new();
}
