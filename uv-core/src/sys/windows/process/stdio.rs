//! The handles that a child inherits: an explicit list, whatever else is inheritable.

use std::io;
use std::mem::MaybeUninit;
use std::os::windows::io::{AsRawHandle, BorrowedHandle, FromRawHandle, OwnedHandle};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use windows_sys::Win32::Foundation::{
    DUPLICATE_SAME_ACCESS, DuplicateHandle, GENERIC_READ, GENERIC_WRITE, HANDLE,
    HANDLE_FLAG_INHERIT, INVALID_HANDLE_VALUE, SetHandleInformation,
};
use windows_sys::Win32::Storage::FileSystem::{
    CreateFileW, FILE_FLAG_FIRST_PIPE_INSTANCE, FILE_FLAG_OVERLAPPED, FILE_READ_ATTRIBUTES,
    FILE_SHARE_READ, FILE_SHARE_WRITE, FILE_TYPE_DISK, FILE_TYPE_PIPE, FILE_WRITE_ATTRIBUTES,
    GetFileType, OPEN_EXISTING, PIPE_ACCESS_DUPLEX,
};
use windows_sys::Win32::System::Console::{
    GetStdHandle, STD_ERROR_HANDLE, STD_INPUT_HANDLE, STD_OUTPUT_HANDLE,
};
use windows_sys::Win32::System::Pipes::{CreateNamedPipeW, PIPE_TYPE_BYTE, PIPE_WAIT};
use windows_sys::Win32::System::Threading::{
    DeleteProcThreadAttributeList, GetCurrentProcess, GetStartupInfoW,
    InitializeProcThreadAttributeList, PROC_THREAD_ATTRIBUTE_HANDLE_LIST, STARTF_USESHOWWINDOW,
    STARTF_USESTDHANDLES, STARTUPINFOEXW, STARTUPINFOW, UpdateProcThreadAttribute,
};

use super::super::{OwnedPipe, Transport, adopt};
use super::wide;
use crate::handles::PipeFlags;

/// The object behind one of the child's descriptors.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ChildEnd {
    /// The null device; from the fourth descriptor on, no handle.
    Ignore,
    /// An open handle of this process.
    Inherit(HANDLE),
    /// A handle created for the child.
    Made(HANDLE),
}

const STANDARD: [u32; 3] = [STD_INPUT_HANDLE, STD_OUTPUT_HANDLE, STD_ERROR_HANDLE];

/// The maximum number of descriptors that the C runtime of a child reads.
const MAX_DESCRIPTORS: usize = 255;

// Flags of a descriptor in the C runtime.
const OPEN: u8 = 0x01;
const PIPE: u8 = 0x08;
const DEVICE: u8 = 0x40;

impl ChildEnd {
    pub(crate) fn standard(number: u8) -> ChildEnd {
        // SAFETY: no memory is passed.
        let handle = unsafe { GetStdHandle(STANDARD[usize::from(number)]) };
        // A GUI program may have no standard handles.
        if handle.is_null() || handle == INVALID_HANDLE_VALUE {
            return ChildEnd::Ignore;
        }
        ChildEnd::Inherit(handle)
    }

    pub(crate) fn of_handle(handle: BorrowedHandle<'_>) -> ChildEnd {
        ChildEnd::Inherit(handle.as_raw_handle())
    }

    /// The child's end of a stream. No handle has to be opened for it.
    pub(crate) fn of_stream(
        stream: &Transport,
        _listens: bool,
    ) -> io::Result<(ChildEnd, Option<OwnedPipe>)> {
        stream.source().map(|source| (ChildEnd::Inherit(source.handle()), None))
    }

    pub(crate) fn of_made(end: &OwnedPipe) -> ChildEnd {
        ChildEnd::Made(end.as_raw_handle())
    }
}

/// Inheritable handles, and the block that passes them to the child's C runtime.
#[derive(Debug)]
pub(super) struct Inherited {
    handles: Vec<Option<OwnedHandle>>,
    /// The handles without gaps, as the attribute list requires.
    list: Vec<HANDLE>,
    block: Vec<u8>,
}

impl Inherited {
    pub(super) fn new(ends: &[ChildEnd]) -> io::Result<Inherited> {
        if ends.len() > MAX_DESCRIPTORS {
            let why =
                format!("a child has at most {MAX_DESCRIPTORS} descriptors on Windows: pass fewer");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let mut handles = Vec::with_capacity(ends.len());
        for (at, end) in ends.iter().enumerate() {
            handles.push(match *end {
                ChildEnd::Ignore if at < 3 => Some(open_null(at)?),
                ChildEnd::Ignore => None,
                ChildEnd::Inherit(handle) | ChildEnd::Made(handle) => Some(duplicate(handle)?),
            });
        }
        // The layout: the count, a byte of flags for each, the handles.
        let mut block = (handles.len() as u32).to_ne_bytes().to_vec();
        block.extend(handles.iter().map(|handle| handle.as_ref().map_or(0, kind)));
        let raw = |handle: &Option<OwnedHandle>| {
            handle.as_ref().map_or(INVALID_HANDLE_VALUE, AsRawHandle::as_raw_handle)
        };
        block.extend(handles.iter().flat_map(|handle| (raw(handle) as usize).to_ne_bytes()));
        let list = handles.iter().flatten().map(AsRawHandle::as_raw_handle).collect();
        Ok(Inherited { handles, list, block })
    }

    /// The startup information for `CreateProcessW`; it borrows from `self`.
    pub(super) fn startup_info(&mut self, hides_gui: bool) -> io::Result<StartupInfo<'_>> {
        /// How a program's first window is shown.
        const SW_HIDE: u16 = 0;
        const SW_SHOWDEFAULT: u16 = 10;

        let attributes = Attributes::new(&self.list)?;
        let mut info = Box::new(STARTUPINFOEXW::default());
        info.lpAttributeList = attributes.memory.as_ptr().cast_mut().cast();
        let raw = |at: usize| {
            let handle = self.handles.get(at).and_then(Option::as_ref);
            handle.map_or(INVALID_HANDLE_VALUE, AsRawHandle::as_raw_handle)
        };
        let startup = &mut info.StartupInfo;
        startup.cb = size_of::<STARTUPINFOEXW>() as u32;
        startup.dwFlags = STARTF_USESTDHANDLES | STARTF_USESHOWWINDOW;
        startup.wShowWindow = if hides_gui { SW_HIDE } else { SW_SHOWDEFAULT };
        (startup.hStdInput, startup.hStdOutput, startup.hStdError) = (raw(0), raw(1), raw(2));
        startup.cbReserved2 = self.block.len() as u16;
        startup.lpReserved2 = self.block.as_mut_ptr();
        Ok(StartupInfo { info, _attributes: attributes })
    }
}

/// Startup information with an attribute list.
pub(super) struct StartupInfo<'a> {
    info: Box<STARTUPINFOEXW>,
    _attributes: Attributes<'a>,
}

impl StartupInfo<'_> {
    pub(super) fn as_ptr(&self) -> *const STARTUPINFOW {
        (&raw const *self.info).cast()
    }
}

/// An attribute list with the handles to inherit.
#[derive(Debug)]
struct Attributes<'a> {
    memory: Vec<usize>,
    _list: &'a [HANDLE],
}

impl Attributes<'_> {
    fn new(list: &[HANDLE]) -> io::Result<Attributes<'_>> {
        let mut size = 0;
        // The first call fails and returns the required size.
        // SAFETY: with a null list the call writes only the size, a local variable.
        unsafe { InitializeProcThreadAttributeList(ptr::null_mut(), 1, 0, &raw mut size) };
        let mut memory = vec![0_usize; size.div_ceil(size_of::<usize>())];
        let raw = memory.as_mut_ptr().cast();
        // SAFETY: the memory has the size that the first call returned.
        if unsafe { InitializeProcThreadAttributeList(raw, 1, 0, &raw mut size) } == 0 {
            return Err(io::Error::last_os_error());
        }
        let attributes = Attributes { memory, _list: list };
        // SAFETY: the attributes are initialised, and `Inherited` keeps the handles as long as
        // they.
        let updated = unsafe {
            UpdateProcThreadAttribute(
                raw,
                0,
                PROC_THREAD_ATTRIBUTE_HANDLE_LIST as usize,
                list.as_ptr().cast(),
                size_of_val(list),
                ptr::null_mut(),
                ptr::null(),
            )
        };
        if updated == 0 { Err(io::Error::last_os_error()) } else { Ok(attributes) }
    }
}

impl Drop for Attributes<'_> {
    fn drop(&mut self) {
        // SAFETY: initialised by `new`, and not used after this.
        unsafe { DeleteProcThreadAttributeList(self.memory.as_mut_ptr().cast()) };
    }
}

fn kind(handle: &OwnedHandle) -> u8 {
    // SAFETY: the caller keeps the handle open.
    match unsafe { GetFileType(handle.as_raw_handle()) } {
        FILE_TYPE_DISK => OPEN,
        FILE_TYPE_PIPE => OPEN | PIPE,
        _ => OPEN | DEVICE,
    }
}

/// Makes an inheritable duplicate.
fn duplicate(handle: HANDLE) -> io::Result<OwnedHandle> {
    // SAFETY: no memory is passed.
    let this = unsafe { GetCurrentProcess() };
    let (mut copy, options) = (ptr::null_mut(), DUPLICATE_SAME_ACCESS);
    // SAFETY: an invalid handle is an error; the call writes the duplicate to a local variable.
    if unsafe { DuplicateHandle(this, handle, this, &raw mut copy, 0, 1, options) } == 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call created the handle, and no other code owns it.
    Ok(unsafe { OwnedHandle::from_raw_handle(copy) })
}

/// Opens the null device for reading or for writing.
fn open_null(at: usize) -> io::Result<OwnedHandle> {
    let access = match at {
        0 => GENERIC_READ | FILE_WRITE_ATTRIBUTES,
        _ => GENERIC_WRITE | FILE_READ_ATTRIBUTES,
    };
    let file = open("NUL", access, FILE_SHARE_READ | FILE_SHARE_WRITE, 0)?;
    duplicate(file.as_raw_handle())
}

fn open(name: &str, access: u32, sharing: u32, flags: u32) -> io::Result<OwnedHandle> {
    let (name, null) = (wide(name.as_ref())?, ptr::null());
    let (how, template) = (OPEN_EXISTING, ptr::null_mut());
    // SAFETY: the name ends with NUL and lives across the call.
    let file = unsafe { CreateFileW(name.as_ptr(), access, sharing, null, how, flags, template) };
    if file == INVALID_HANDLE_VALUE {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call created the handle, and no other code owns it.
    Ok(unsafe { OwnedHandle::from_raw_handle(file) })
}

/// Creates a pipe: this process's end, and the child's, which is blocking unless requested.
pub(crate) fn pipe_for_child(flags: PipeFlags) -> io::Result<(Transport, OwnedPipe)> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!(r"\\.\pipe\uv-core\child-{}-{count}", std::process::id());
    let ours = make_pipe(&name)?;
    let mut access = FILE_READ_ATTRIBUTES | FILE_WRITE_ATTRIBUTES;
    if flags.contains(PipeFlags::READABLE) {
        access |= GENERIC_READ;
    }
    if flags.contains(PipeFlags::WRITABLE) {
        access |= GENERIC_WRITE;
    }
    let overlapped = if flags.contains(PipeFlags::NON_BLOCKING) { FILE_FLAG_OVERLAPPED } else { 0 };
    let theirs = open(&name, access, 0, overlapped)?;
    Ok((adopt(ours)?.transport, theirs))
}

/// Creates the only instance of a named pipe.
fn make_pipe(name: &str) -> io::Result<OwnedHandle> {
    const BUFFER: u32 = 64 << 10;

    let name = wide(name.as_ref())?;
    let how = PIPE_ACCESS_DUPLEX | FILE_FLAG_OVERLAPPED | FILE_FLAG_FIRST_PIPE_INSTANCE;
    let mode = PIPE_TYPE_BYTE | PIPE_WAIT;
    // SAFETY: the name ends with NUL and lives across the call.
    let pipe =
        unsafe { CreateNamedPipeW(name.as_ptr(), how, mode, 1, BUFFER, BUFFER, 0, ptr::null()) };
    if pipe == INVALID_HANDLE_VALUE {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call created the handle, and no other code owns it.
    Ok(unsafe { OwnedHandle::from_raw_handle(pipe) })
}

/// Makes the handles that this process inherited non-inheritable.
pub(crate) fn disable_stdio_inheritance() {
    for which in STANDARD {
        // SAFETY: no memory is passed.
        let handle = unsafe { GetStdHandle(which) };
        // SAFETY: no memory is passed; an invalid handle is an error.
        unsafe { SetHandleInformation(handle, HANDLE_FLAG_INHERIT, 0) };
    }
    let mut info = MaybeUninit::<STARTUPINFOW>::zeroed();
    // SAFETY: the call writes only the local structure.
    unsafe { GetStartupInfoW(info.as_mut_ptr()) };
    // SAFETY: zero-initialised, which is valid, and written by the call.
    let info = unsafe { info.assume_init() };
    if info.lpReserved2.is_null() {
        return;
    }
    let length = usize::from(info.cbReserved2);
    // SAFETY: the block lives as long as the process and has this length.
    let block = unsafe { std::slice::from_raw_parts(info.lpReserved2, length) };
    for handle in handles_in(block) {
        // SAFETY: no memory is passed; an invalid handle is an error.
        unsafe { SetHandleInformation(handle, HANDLE_FLAG_INHERIT, 0) };
    }
}

/// Parses the handles of the block. Its content is untrusted: any parent may have written it.
fn handles_in(block: &[u8]) -> impl Iterator<Item = HANDLE> + '_ {
    let count = block.first_chunk().map_or(0, |count| u32::from_ne_bytes(*count) as usize);
    let handles = block.get(4_usize.saturating_add(count)..).unwrap_or_default();
    let (handles, _) = handles.as_chunks::<{ size_of::<usize>() }>();
    handles.iter().take(count).map(|handle| usize::from_ne_bytes(*handle) as HANDLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_a_count_kinds_and_handles() {
        let ends = [ChildEnd::Ignore; 5];
        let inherited = Inherited::new(&ends).expect("handles");
        assert_eq!(inherited.block[..4], 5_u32.to_ne_bytes());
        assert_eq!(inherited.block[4..9], [OPEN | DEVICE, OPEN | DEVICE, OPEN | DEVICE, 0, 0]);
        let handles: Vec<_> = handles_in(&inherited.block).collect();
        assert_eq!(handles.len(), 5);
        assert_eq!(handles[3..], [INVALID_HANDLE_VALUE; 2]);
        assert_eq!(inherited.list, handles[..3], "gaps are not inherited");
        assert_eq!(handles_in(&[]).count(), 0);
        assert_eq!(handles_in(&[255; 9]).count(), 0);
    }
}
