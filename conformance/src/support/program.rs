//! The program that children run: this very executable, told by its first argument to do
//! something else.
//!
//! The suite is part of executables that know nothing of that, so what a child does is done
//! before their `main`, from where the loader calls constructors.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::exit;
use std::time::Duration;

use uv_core::Command;

/// The first argument of a child.
const MARK: &str = "--as-a-child-of-a-case";

/// No child outlives its case by more.
const LONG: Duration = Duration::from_secs(60);

/// A child that does what `words` say: see `run`.
pub(crate) fn child<'a>(words: &[&str]) -> Command<'a> {
    Command::new(path()).arg(MARK).args(words)
}

/// This executable.
pub(crate) fn path() -> PathBuf {
    std::env::current_exe().expect("the path of this executable")
}

/// What stands first in the arguments of a child.
pub(crate) fn mark() -> &'static str {
    MARK
}

#[used]
#[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__mod_init_func"))]
#[cfg_attr(windows, unsafe(link_section = ".CRT$XCU"))]
#[cfg_attr(all(unix, not(target_vendor = "apple")), unsafe(link_section = ".init_array"))]
static BEFORE_MAIN: extern "C" fn() = {
    extern "C" fn before_main() {
        let arguments: Vec<_> = arguments();
        if let [_, mark, words @ ..] = &arguments[..]
            && mark == MARK
        {
            run(words);
        }
    }
    before_main
};

/// The arguments, which not every system's `std` knows before `main`.
fn arguments() -> Vec<OsString> {
    let arguments: Vec<_> = std::env::args_os().collect();
    #[cfg(unix)]
    if arguments.is_empty() {
        use std::os::unix::ffi::OsStringExt;
        let line = std::fs::read("/proc/self/cmdline").unwrap_or_default();
        let words = line.split_inclusive(|&byte| byte == 0);
        return words.map(|word| OsString::from_vec(word[..word.len() - 1].to_vec())).collect();
    }
    arguments
}

/// What a child does. Says what it finds on its standard output, a fact a line.
fn run(words: &[OsString]) -> ! {
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    let words: Vec<_> = words.iter().map(|word| &**word).collect();
    match words[..] {
        ["pool"] => {
            let threads = uv_core::Pool::global().expect("a pool").threads();
            say(&threads.to_string());
        }
        ["exit", code] => exit(code.parse().expect("a code")),
        ["sleep"] => std::thread::sleep(LONG),
        ["cat"] => drop(io::copy(&mut io::stdin(), &mut io::stdout())),
        ["say", text] => say(text),
        ["complain", text] => drop(io::stderr().write_all(text.as_bytes())),
        // Says what it was told, and goes on until it is told no more.
        ["greet", text] => {
            say(text);
            let _ = io::stdin().read_to_end(&mut Vec::new());
        }
        ["arguments", ..] => words[1..].iter().for_each(|word| say(&format!("{word}\n"))),
        ["environment"] => {
            let mut variables: Vec<_> = std::env::vars().collect();
            variables.sort();
            variables.iter().for_each(|(name, value)| say(&format!("{name}={value}\n")));
        }
        ["directory"] => {
            let directory = std::env::current_dir().map(|it| it.display().to_string());
            say(&directory.unwrap_or_else(|error| error.to_string()));
        }
        ["input"] => {
            let mut text = String::new();
            let read = io::stdin().read_to_string(&mut text);
            say(&format!("{}: {text}", read.is_ok()));
        }
        _ => system::run(&words),
    }
    exit(0)
}

fn say(text: &str) {
    let mut output = io::stdout();
    // A parent that is gone is no reason to complain.
    let _ = output.write_all(text.as_bytes()).and_then(|()| output.flush());
}

#[cfg(unix)]
mod system {
    use super::*;

    pub(super) fn run(words: &[&str]) {
        match words {
            // Which of the first descriptors are open, and whether they are alike.
            ["descriptors"] => (0..32).for_each(|fd| say(&descriptor(fd))),
            ["write", fd, text] => {
                let fd = fd.parse().expect("a number");
                // SAFETY: the text is there, and of that length.
                let written = unsafe { libc::write(fd, text.as_ptr().cast(), text.len()) };
                exit(i32::from(written != text.len() as isize));
            }
            ["signals"] => {
                for signum in 1..32 {
                    say(&signal(signum));
                }
            }
            ["identity"] => say(&identity()),
            // SAFETY: a signal to this very process.
            ["die", signum] => drop(unsafe { libc::raise(signum.parse().expect("a number")) }),
            words => panic!("no child does {words:?}"),
        }
    }

    fn descriptor(fd: libc::c_int) -> String {
        // SAFETY: all zeros is a valid `stat`.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes one structure.
        if unsafe { libc::fstat(fd, &raw mut stat) } == -1 {
            return String::new();
        }
        // SAFETY: no memory is passed.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
        let blocks = if flags & libc::O_NONBLOCK == 0 { "blocks" } else { "does not block" };
        format!("{fd} {}:{} {blocks}\n", stat.st_dev, stat.st_ino)
    }

    fn signal(signum: libc::c_int) -> String {
        // SAFETY: all zeros is a valid `sigaction`.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes one structure.
        unsafe { libc::sigaction(signum, std::ptr::null(), &raw mut action) };
        // SAFETY: all zeros is a valid set.
        let mut mask: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes one set.
        unsafe { libc::sigprocmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut mask) };
        // SAFETY: the set is valid.
        let blocked = unsafe { libc::sigismember(&raw const mask, signum) } == 1;
        match (action.sa_sigaction == libc::SIG_DFL, blocked) {
            (true, false) => String::new(),
            (default, blocked) => format!("{signum}: default {default}, blocked {blocked}\n"),
        }
    }

    fn identity() -> String {
        let mut groups = [0; 64];
        // SAFETY: the kernel writes as many groups at most.
        let count = unsafe { libc::getgroups(groups.len() as libc::c_int, groups.as_mut_ptr()) };
        // SAFETY: no memory is passed.
        let uid = unsafe { libc::getuid() };
        // SAFETY: no memory is passed.
        let gid = unsafe { libc::getgid() };
        // SAFETY: no memory is passed.
        let session = unsafe { libc::getsid(0) };
        let leads = session == std::process::id() as libc::pid_t;
        format!("user {uid}, group {gid}, {count} more, leads {leads}")
    }
}

#[cfg(windows)]
mod system {
    use super::*;

    pub(super) fn run(words: &[&str]) {
        match words {
            ["write", fd, text] => {
                let fd = fd.parse().expect("a number");
                let written = inherited(fd).map(|mut file| file.write_all(text.as_bytes()));
                exit(i32::from(!matches!(written, Some(Ok(())))));
            }
            // Whether calls wait for the first descriptors.
            ["descriptors"] => {
                for fd in 0..3 {
                    // Not to be closed.
                    let Some(file) = inherited(fd).map(std::mem::ManuallyDrop::new) else {
                        continue;
                    };
                    let blocks = if blocks(&file) { "blocks" } else { "does not block" };
                    say(&format!("{fd} {blocks}\n"));
                }
            }
            ["open standard input"] => open_standard_input(),
            ["answer with a handle"] => {
                let mut lp = uv_core::Loop::with_default_backend().expect("a loop");
                let (pipe, end) = (uv_core::Pipe::new(&mut lp), inherited(3).expect("a pipe"));
                pipe.enable_passing(&mut lp).expect("a new handle");
                pipe.open(&mut lp, end).expect("a pipe that does not block");
                crate::support::pipes::answer_with_a_handle(&mut lp, pipe);
                lp.run(uv_core::RunMode::Default).expect("a loop that runs");
            }
            words => panic!("no child does {words:?}"),
        }
    }

    /// True if the file was opened for calls that wait.
    fn blocks(file: &std::fs::File) -> bool {
        use std::os::windows::io::AsRawHandle;
        use windows_sys::Wdk::Storage::FileSystem::{FileModeInformation, NtQueryInformationFile};
        use windows_sys::Win32::System::IO::IO_STATUS_BLOCK;

        const SYNCHRONOUS: u32 = 0x30;
        let (mut status, mut mode) = (IO_STATUS_BLOCK::default(), 0_u32);
        let (handle, place) = (file.as_raw_handle(), (&raw mut mode).cast());
        // SAFETY: writes the status and one number, which is what this class is.
        let result =
            unsafe { NtQueryInformationFile(handle, &mut status, place, 4, FileModeInformation) };
        assert!(result >= 0, "NtQueryInformationFile: {result:x}");
        mode & SYNCHRONOUS != 0
    }

    /// Reads a byte through a handle that is closed then. Standard input stays open.
    fn open_standard_input() {
        use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
        use uv_core::{Handle, Stream};
        use windows_sys::Win32::Storage::FileSystem::{FILE_TYPE_PIPE, GetFileType};

        let mut lp = uv_core::Loop::with_default_backend().expect("a loop");
        let (pipe, raw) = (uv_core::Pipe::new(&mut lp), io::stdin().as_raw_handle());
        // SAFETY: nobody else of this process uses standard input.
        let standard = unsafe { OwnedHandle::from_raw_handle(raw) };
        pipe.open(&mut lp, standard).expect("a pipe that does not block");
        pipe.read(&mut lp, vec![0], |lp, pipe, count, buffer| {
            assert_eq!((count.expect("a byte"), buffer[0]), (1, b'x'));
            pipe.close(lp).expect("an open handle");
        })
        .expect("a read");
        lp.run(uv_core::RunMode::Default).expect("a loop that runs");
        drop(lp);
        // SAFETY: what is no handle is of no type.
        assert_eq!(unsafe { GetFileType(raw) }, FILE_TYPE_PIPE, "it stays open");
    }

    /// A descriptor as the C library of Windows finds it: in the reserved part of what the
    /// process was started with, after a count and a byte of flags each.
    fn inherited(fd: usize) -> Option<std::fs::File> {
        use std::os::windows::io::FromRawHandle;
        use windows_sys::Win32::System::Threading::{GetStartupInfoW, STARTUPINFOW};

        // SAFETY: all zeros is valid.
        let mut info: STARTUPINFOW = unsafe { std::mem::zeroed() };
        // SAFETY: the structure is written.
        unsafe { GetStartupInfoW(&raw mut info) };
        let length = usize::from(info.cbReserved2);
        if info.lpReserved2.is_null() || length < 4 {
            return None;
        }
        // SAFETY: the memory is there as long as the process, and of that length.
        let bytes = unsafe { std::slice::from_raw_parts(info.lpReserved2, length) };
        let (count, rest) = bytes.split_first_chunk::<4>()?;
        let count = u32::from_ne_bytes(*count) as usize;
        let (flags, handles) = rest.split_at_checked(count)?;
        let (handle, _) = handles.as_chunks::<{ size_of::<usize>() }>();
        let handle = usize::from_ne_bytes(*handle.get(fd)?);
        // The first bit says that it is open.
        (flags.get(fd)? & 1 != 0)
            // SAFETY: it was inherited for this, and nobody else has it.
            .then(|| unsafe { std::fs::File::from_raw_handle(handle as *mut _) })
    }
}
