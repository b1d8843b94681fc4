//! The handles that a child inherits: exactly these, whatever else can be inherited.

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

/// What a child has as one of its descriptors.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ChildEnd {
    /// The null device, or nothing from the fourth on.
    Ignore,
    /// A handle of this process, which is open.
    Inherit(HANDLE),
    /// One that was made for the child.
    Made(HANDLE),
}

const STANDARD: [u32; 3] = [STD_INPUT_HANDLE, STD_OUTPUT_HANDLE, STD_ERROR_HANDLE];

/// How many descriptors the C library of a child finds at most.
const MOST: usize = 255;

// What the C library of Windows knows of a descriptor.
const OPEN: u8 = 0x01;
const PIPE: u8 = 0x08;
const DEVICE: u8 = 0x40;

impl ChildEnd {
    pub(crate) fn standard(number: u8) -> ChildEnd {
        // SAFETY: no memory is passed.
        let handle = unsafe { GetStdHandle(STANDARD[usize::from(number)]) };
        // A program with windows may have none.
        if handle.is_null() || handle == INVALID_HANDLE_VALUE {
            return ChildEnd::Ignore;
        }
        ChildEnd::Inherit(handle)
    }

    pub(crate) fn of_handle(handle: BorrowedHandle<'_>) -> ChildEnd {
        ChildEnd::Inherit(handle.as_raw_handle())
    }

    pub(crate) fn of_stream(stream: &Transport) -> io::Result<ChildEnd> {
        stream.source().map(|source| ChildEnd::Inherit(source.handle()))
    }

    pub(crate) fn of_made(end: &OwnedPipe) -> ChildEnd {
        ChildEnd::Made(end.as_raw_handle())
    }
}

/// Handles that can be inherited, and the block in which the child's C library finds them.
#[derive(Debug)]
pub(super) struct Inherited {
    handles: Vec<Option<OwnedHandle>>,
    /// The same without gaps, as Windows wants it.
    list: Vec<HANDLE>,
    block: Vec<u8>,
}

impl Inherited {
    pub(super) fn new(ends: &[ChildEnd]) -> io::Result<Inherited> {
        if ends.len() > MOST {
            let why = format!("a child has {MOST} descriptors at most on Windows");
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
        // A count, a byte of what each is, and each.
        let mut block = (handles.len() as u32).to_ne_bytes().to_vec();
        block.extend(handles.iter().map(|handle| handle.as_ref().map_or(0, kind)));
        let raw = |handle: &Option<OwnedHandle>| {
            handle.as_ref().map_or(INVALID_HANDLE_VALUE, AsRawHandle::as_raw_handle)
        };
        block.extend(handles.iter().flat_map(|handle| (raw(handle) as usize).to_ne_bytes()));
        let list = handles.iter().flatten().map(AsRawHandle::as_raw_handle).collect();
        Ok(Inherited { handles, list, block })
    }

    /// What `CreateProcessW` takes, which refers to this.
    pub(super) fn startup_info(&mut self, hides_gui: bool) -> io::Result<StartupInfo<'_>> {
        /// Windows' words for what a program's first window looks like.
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

/// What a child is started with.
pub(super) struct StartupInfo<'a> {
    info: Box<STARTUPINFOEXW>,
    _attributes: Attributes<'a>,
}

impl StartupInfo<'_> {
    pub(super) fn as_ptr(&self) -> *const STARTUPINFOW {
        (&raw const *self.info).cast()
    }
}

/// The list of what is inherited, and nothing else.
#[derive(Debug)]
struct Attributes<'a> {
    memory: Vec<usize>,
    _list: &'a [HANDLE],
}

impl Attributes<'_> {
    fn new(list: &[HANDLE]) -> io::Result<Attributes<'_>> {
        let mut size = 0;
        // It fails, and says how much memory there is to be.
        // SAFETY: the size lives across the call.
        unsafe { InitializeProcThreadAttributeList(ptr::null_mut(), 1, 0, &raw mut size) };
        let mut memory = vec![0_usize; size.div_ceil(size_of::<usize>())];
        let raw = memory.as_mut_ptr().cast();
        // SAFETY: the memory is of that size.
        if unsafe { InitializeProcThreadAttributeList(raw, 1, 0, &raw mut size) } == 0 {
            return Err(io::Error::last_os_error());
        }
        let attributes = Attributes { memory, _list: list };
        // SAFETY: the attributes are initialised, and the list lives as long as they do.
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
        // SAFETY: initialised by `new`, and not used again.
        unsafe { DeleteProcThreadAttributeList(self.memory.as_mut_ptr().cast()) };
    }
}

fn kind(handle: &OwnedHandle) -> u8 {
    // SAFETY: the handle is open.
    match unsafe { GetFileType(handle.as_raw_handle()) } {
        FILE_TYPE_DISK => OPEN,
        FILE_TYPE_PIPE => OPEN | PIPE,
        _ => OPEN | DEVICE,
    }
}

/// A duplicate that can be inherited.
fn duplicate(handle: HANDLE) -> io::Result<OwnedHandle> {
    // SAFETY: no memory is passed.
    let this = unsafe { GetCurrentProcess() };
    let (mut copy, options) = (ptr::null_mut(), DUPLICATE_SAME_ACCESS);
    // SAFETY: a wrong handle is an error; the duplicate lives across the call.
    if unsafe { DuplicateHandle(this, handle, this, &raw mut copy, 0, 1, options) } == 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: Windows has just given it to us.
    Ok(unsafe { OwnedHandle::from_raw_handle(copy) })
}

/// The null device, for reading or for writing.
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
    // SAFETY: the name ends with a NUL.
    let file = unsafe { CreateFileW(name.as_ptr(), access, sharing, null, how, flags, template) };
    if file == INVALID_HANDLE_VALUE {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: Windows has just given it to us.
    Ok(unsafe { OwnedHandle::from_raw_handle(file) })
}

/// A pipe: this process's end, and the child's, which blocks unless it is not to.
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

/// The first and only instance of a named pipe.
fn make_pipe(name: &str) -> io::Result<OwnedHandle> {
    const BUFFER: u32 = 64 << 10;

    let name = wide(name.as_ref())?;
    let how = PIPE_ACCESS_DUPLEX | FILE_FLAG_OVERLAPPED | FILE_FLAG_FIRST_PIPE_INSTANCE;
    let mode = PIPE_TYPE_BYTE | PIPE_WAIT;
    // SAFETY: the name ends with a NUL.
    let pipe =
        unsafe { CreateNamedPipeW(name.as_ptr(), how, mode, 1, BUFFER, BUFFER, 0, ptr::null()) };
    if pipe == INVALID_HANDLE_VALUE {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: Windows has just given it to us.
    Ok(unsafe { OwnedHandle::from_raw_handle(pipe) })
}

/// Marks the handles that were inherited as not to be inherited on.
pub(crate) fn disable_stdio_inheritance() {
    for which in STANDARD {
        // SAFETY: no memory is passed.
        let handle = unsafe { GetStdHandle(which) };
        // SAFETY: no memory is passed; what is no handle is an error.
        unsafe { SetHandleInformation(handle, HANDLE_FLAG_INHERIT, 0) };
    }
    let mut info = MaybeUninit::<STARTUPINFOW>::zeroed();
    // SAFETY: the structure is written.
    unsafe { GetStartupInfoW(info.as_mut_ptr()) };
    // SAFETY: all zeroes is valid, and so is what was written.
    let info = unsafe { info.assume_init() };
    if info.lpReserved2.is_null() {
        return;
    }
    let length = usize::from(info.cbReserved2);
    // SAFETY: it is there as long as the process, and of that length.
    let block = unsafe { std::slice::from_raw_parts(info.lpReserved2, length) };
    for handle in handles_in(block) {
        // SAFETY: no memory is passed; what is no handle is an error.
        unsafe { SetHandleInformation(handle, HANDLE_FLAG_INHERIT, 0) };
    }
}

/// The handles in a block that a parent may have made, or somebody else something else of.
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
