//! Child processes: spawn, exit status and kill.

mod arguments;
mod environment;
mod exits;
mod job;
mod search;
mod stdio;

use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::windows::ffi::OsStrExt;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::ptr;

use poll_core::RawSource;
use windows_sys::Win32::Foundation::{ERROR_INVALID_PARAMETER, HANDLE, WAIT_FAILED, WAIT_OBJECT_0};
use windows_sys::Win32::System::Threading::{
    CREATE_NEW_PROCESS_GROUP, CREATE_NO_WINDOW, CREATE_SUSPENDED, CREATE_UNICODE_ENVIRONMENT,
    CreateProcessW, DETACHED_PROCESS, EXTENDED_STARTUPINFO_PRESENT, GetCurrentProcess,
    GetExitCodeProcess, OpenProcess, PROCESS_INFORMATION, PROCESS_QUERY_LIMITED_INFORMATION,
    PROCESS_SYNCHRONIZE, PROCESS_TERMINATE, ResumeThread, TerminateProcess, WaitForSingleObject,
};

use crate::handles::{Command, CommandFlags, Exit, check_number};
use crate::signum::{SIGINT, SIGKILL, SIGTERM};

pub(crate) use exits::ExitWatch;
pub(crate) use stdio::{ChildEnd, disable_stdio_inheritance, pipe_for_child};

/// The exit code of a process that was killed.
const KILLED: u32 = 1;

/// A child process.
#[derive(Debug)]
pub(crate) struct Child {
    pid: u32,
    /// Notifies the loop of the exit. The first field: it is dropped before the handle.
    wait: Option<exits::Wait>,
    process: OwnedHandle,
    /// The signal passed to `kill`.
    killed: Option<i32>,
}

impl Child {
    /// False: process handles cannot be polled, a wait thread of Windows waits for them.
    pub(crate) fn has_source(_command: &Command<'_>) -> bool {
        false
    }

    pub(crate) fn source(&self) -> Option<RawSource> {
        None
    }

    /// Starts a child.
    pub(crate) fn spawn(command: &Command<'_>, ends: &[ChildEnd]) -> io::Result<Child> {
        if command.uid.is_some() || command.gid.is_some() {
            let why = "Windows has no numeric user and group ids: spawn without uid and gid";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        let mut line = arguments::command_line(command)?;
        let variables = environment::variables(&command.environment)?;
        wide(&command.program)?; // Fails here, so that the error names the program.
        let application = search::find(command, variables.as_deref())?;
        let application = wide(application.as_ref())?;
        let environment = variables.map(environment::block).transpose()?;
        let directory = command.directory.as_ref().map(|it| wide(it.as_ref())).transpose()?;
        let mut inherited = stdio::Inherited::new(ends)?;
        let hides_gui = command.flags.contains(CommandFlags::HIDE_GUI);
        let startup = inherited.startup_info(hides_gui)?;
        let mut information = MaybeUninit::<PROCESS_INFORMATION>::zeroed();
        // SAFETY: the strings end with NUL, the environment with two, the command line is
        // writable, and the startup information refers to memory that lives across the call.
        let started = unsafe {
            CreateProcessW(
                application.as_ptr(),
                line.as_mut_ptr(),
                ptr::null(),
                ptr::null(),
                1,
                flags(command, ends),
                environment.as_ref().map_or(ptr::null(), |block| block.as_ptr().cast()),
                directory.as_ref().map_or(ptr::null(), |directory| directory.as_ptr()),
                startup.as_ptr(),
                information.as_mut_ptr(),
            )
        };
        if started == 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the successful call has written the structure.
        let information = unsafe { information.assume_init() };
        // SAFETY: the call transferred the process's handle to this function.
        let process = unsafe { OwnedHandle::from_raw_handle(information.hProcess) };
        // SAFETY: the call transferred the thread's handle too.
        let thread = unsafe { OwnedHandle::from_raw_handle(information.hThread) };
        if !command.flags.contains(CommandFlags::DETACHED) {
            // Before the child runs, so that it cannot have spawned children outside the job.
            job::add(&process);
        }
        // SAFETY: `thread` keeps the handle of the suspended thread open.
        unsafe { ResumeThread(thread.as_raw_handle()) };
        Ok(Child { pid: information.dwProcessId, wait: None, process, killed: None })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// The exit status, if the child has exited.
    pub(crate) fn try_wait(&mut self) -> Option<io::Result<Exit>> {
        let handle = self.process.as_raw_handle();
        match has_ended(handle) {
            Ok(false) => None,
            Err(error) => Some(Err(error)),
            Ok(true) => {
                let mut code = 0;
                // SAFETY: the handle is open, and the call writes the code to a local variable.
                if unsafe { GetExitCodeProcess(handle, &raw mut code) } == 0 {
                    return Some(Err(io::Error::last_os_error()));
                }
                Some(Ok(Exit { code: code.into(), signal: self.killed }))
            }
        }
    }

    pub(crate) fn kill(&mut self, signum: i32) -> io::Result<()> {
        kill_process(self.process.as_raw_handle(), signum)?;
        if signum != 0 {
            self.killed = Some(signum);
        }
        Ok(())
    }
}

fn flags(command: &Command<'_>, ends: &[ChildEnd]) -> u32 {
    let mut flags = CREATE_UNICODE_ENVIRONMENT | CREATE_SUSPENDED | EXTENDED_STARTUPINFO_PRESENT;
    let inherits = ends.iter().any(|end| matches!(end, ChildEnd::Inherit(_)));
    // An inherited handle may be the console itself.
    if command.flags.contains(CommandFlags::HIDE_CONSOLE) && !inherits {
        flags |= CREATE_NO_WINDOW;
    }
    if command.flags.contains(CommandFlags::DETACHED) {
        flags |= DETACHED_PROCESS | CREATE_NEW_PROCESS_GROUP;
    }
    flags
}

fn has_ended(process: HANDLE) -> io::Result<bool> {
    // SAFETY: no memory is passed; an invalid handle is an error.
    match unsafe { WaitForSingleObject(process, 0) } {
        WAIT_OBJECT_0 => Ok(true),
        WAIT_FAILED => Err(io::Error::last_os_error()),
        _ => Ok(false),
    }
}

fn kill_process(process: HANDLE, signum: i32) -> io::Result<()> {
    if signum != 0 {
        check_number(signum)?;
    }
    if has_ended(process)? {
        return Err(no_such_process());
    }
    match signum {
        0 => Ok(()),
        SIGINT | SIGKILL | SIGTERM => {
            // SAFETY: no memory is passed; an invalid handle is an error.
            if unsafe { TerminateProcess(process, KILLED) } != 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            // The process may have exited in the meantime.
            if has_ended(process)? { Err(no_such_process()) } else { Err(error) }
        }
        _ => {
            let why = "Windows has no such signal for other processes: SIGINT, SIGTERM and \
                       SIGKILL end them";
            Err(io::Error::new(io::ErrorKind::Unsupported, why))
        }
    }
}

pub(crate) fn kill(pid: i32, signum: i32) -> io::Result<()> {
    if pid == 0 {
        // SAFETY: no memory is passed.
        return kill_process(unsafe { GetCurrentProcess() }, signum);
    }
    let rights = PROCESS_TERMINATE | PROCESS_QUERY_LIMITED_INFORMATION | PROCESS_SYNCHRONIZE;
    // SAFETY: no memory is passed.
    let process = unsafe { OpenProcess(rights, 0, pid as u32) };
    if process.is_null() {
        let error = io::Error::last_os_error();
        let is_missing = error.raw_os_error() == Some(ERROR_INVALID_PARAMETER as i32);
        return Err(if is_missing { no_such_process() } else { error });
    }
    // SAFETY: the call created the handle, and no other code owns it.
    let process = unsafe { OwnedHandle::from_raw_handle(process) };
    kill_process(process.as_raw_handle(), signum)
}

/// The error for a process that has exited.
pub(crate) fn no_such_process() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "no such process: it has exited")
}

/// The error for a process that is no child of this one.
pub(crate) fn not_our_child() -> io::Error {
    io::Error::other("the child is another process's")
}

/// Nothing to do: processes need not be reaped on Windows.
#[derive(Debug, Default)]
pub(crate) struct Reaper(());

impl Reaper {
    pub(crate) fn adopt(&mut self, child: Child) {
        drop(child);
    }

    pub(crate) fn forget(&mut self) {}
}

/// Converts to NUL-terminated UTF-16.
fn wide(text: &OsStr) -> io::Result<Vec<u16>> {
    let units: Vec<u16> = text.encode_wide().collect();
    if units.contains(&0) {
        return Err(has_nul(text));
    }
    Ok([units, vec![0]].concat())
}

fn has_nul(text: &OsStr) -> io::Error {
    let why = format!("{text:?} contains a NUL, which Windows cannot pass to a program: remove it");
    io::Error::new(io::ErrorKind::InvalidInput, why)
}
