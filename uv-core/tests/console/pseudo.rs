//! Pseudo consoles, and processes in them.

use std::ffi::c_void;
use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::ptr::{null, null_mut};
use std::thread;

use windows_sys::Win32::Foundation::{HANDLE, WAIT_OBJECT_0};
use windows_sys::Win32::System::Console::{COORD, ClosePseudoConsole, CreatePseudoConsole, HPCON};
use windows_sys::Win32::System::Threading::{
    CreateProcessW, EXTENDED_STARTUPINFO_PRESENT, GetExitCodeProcess,
    InitializeProcThreadAttributeList, LPPROC_THREAD_ATTRIBUTE_LIST,
    PROC_THREAD_ATTRIBUTE_PSEUDOCONSOLE, PROCESS_INFORMATION, STARTF_USESTDHANDLES, STARTUPINFOEXW,
    TerminateProcess, UpdateProcThreadAttribute, WaitForSingleObject,
};

/// A pseudo console, whose input and output are pipes.
pub(crate) struct Console {
    console: HPCON,
    /// Closing the input would close the console.
    _keyboard: PipeWriter,
}

impl Console {
    pub(crate) fn new() -> io::Result<Console> {
        let (input, keyboard) = io::pipe()?;
        let (screen, output) = io::pipe()?;
        let mut console = 0;
        let ends: (HANDLE, HANDLE) = (input.as_raw_handle(), output.as_raw_handle());
        // SAFETY: the ends are open, and the pointer is to a local variable.
        let made = unsafe { CreatePseudoConsole(size(80, 25), ends.0, ends.1, 0, &mut console) };
        if made < 0 {
            return Err(io::Error::other(format!("CreatePseudoConsole: {made:#x}")));
        }
        thread::spawn(move || drain(screen));
        Ok(Console { console, _keyboard: keyboard })
    }

    /// Starts a program in this console.
    pub(crate) fn start(&self, command: &str) -> Process {
        let mut list = vec![0usize; 128];
        let attributes: LPPROC_THREAD_ATTRIBUTE_LIST = list.as_mut_ptr().cast();
        let mut len = size_of_val(&list[..]);
        // SAFETY: `len` is the length of the list.
        let made = unsafe { InitializeProcThreadAttributeList(attributes, 1, 0, &mut len) };
        assert_ne!(made, 0, "{}", io::Error::last_os_error());
        // SAFETY: the value of this attribute is the console's handle itself.
        let updated = unsafe {
            UpdateProcThreadAttribute(
                attributes,
                0,
                PROC_THREAD_ATTRIBUTE_PSEUDOCONSOLE as usize,
                self.console as *const c_void,
                size_of::<HPCON>(),
                null_mut(),
                null(),
            )
        };
        assert_ne!(updated, 0, "{}", io::Error::last_os_error());
        let mut startup = STARTUPINFOEXW { lpAttributeList: attributes, ..Default::default() };
        startup.StartupInfo.cb = size_of::<STARTUPINFOEXW>() as u32;
        // Use the standard handles of the console, not those of this process.
        startup.StartupInfo.dwFlags = STARTF_USESTDHANDLES;
        let mut line: Vec<u16> = command.encode_utf16().chain([0]).collect();
        let mut made = PROCESS_INFORMATION::default();
        // SAFETY: the line ends with a NUL; the other pointers are null or to local variables.
        let started = unsafe {
            CreateProcessW(
                null(),
                line.as_mut_ptr(),
                null(),
                null(),
                0,
                EXTENDED_STARTUPINFO_PRESENT,
                null(),
                null(),
                &raw const startup.StartupInfo,
                &mut made,
            )
        };
        assert_ne!(started, 0, "{}", io::Error::last_os_error());
        // SAFETY: the call above created the handle, and this is its only owner.
        drop(unsafe { OwnedHandle::from_raw_handle(made.hThread) });
        // SAFETY: as above.
        Process(unsafe { OwnedHandle::from_raw_handle(made.hProcess) })
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        // SAFETY: the console is open and not used afterwards.
        unsafe { ClosePseudoConsole(self.console) };
    }
}

/// Discards the output, because a full pipe would block the console.
fn drain(mut screen: PipeReader) {
    let mut buffer = [0; 4096];
    while screen.read(&mut buffer).is_ok_and(|count| count > 0) {}
}

fn size(columns: i16, rows: i16) -> COORD {
    COORD { X: columns, Y: rows }
}

/// A process in a console. Dropping it terminates it.
pub(crate) struct Process(OwnedHandle);

impl Process {
    /// The exit code, if the process ends within the time.
    pub(crate) fn wait(&self, milliseconds: u32) -> Option<u32> {
        let process = self.0.as_raw_handle();
        // SAFETY: the handle is borrowed from its owner.
        if unsafe { WaitForSingleObject(process, milliseconds) } != WAIT_OBJECT_0 {
            return None;
        }
        let mut code = 0;
        // SAFETY: as above, and the pointer is to a local variable.
        let known = unsafe { GetExitCodeProcess(process, &mut code) };
        (known != 0).then_some(code)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SAFETY: the handle is borrowed from its owner. It fails if the process has ended.
        unsafe { TerminateProcess(self.0.as_raw_handle(), 1) };
    }
}
