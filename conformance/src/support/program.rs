//! The program that child processes run: this executable, with a first argument that selects it.
//!
//! The suite is linked into executables without support for this, so the child's code runs before
//! their `main`, from a constructor that the loader calls.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::exit;
use std::time::Duration;

use uv_core::Command;

/// The first argument of a child.
const MARK: &str = "--as-a-child-of-a-case";

/// The time after which a child exits by itself.
const LONG: Duration = Duration::from_secs(60);

/// A child that runs `words`: see `run`.
pub(crate) fn child<'a>(words: &[&str]) -> Command<'a> {
    Command::new(path()).arg(MARK).args(words)
}

/// This executable.
pub(crate) fn path() -> PathBuf {
    std::env::current_exe().expect("the path of this executable")
}

/// The first argument of a child.
pub(crate) fn mark() -> &'static str {
    MARK
}

#[used]
#[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__mod_init_func"))]
#[cfg_attr(windows, unsafe(link_section = ".CRT$XCU"))]
#[cfg_attr(all(unix, not(target_vendor = "apple")), unsafe(link_section = ".init_array"))]
static BEFORE_MAIN: constructor::Constructor = constructor::before_main;

/// Runs a child's program if the arguments request one.
fn run_if_child(arguments: &[OsString]) {
    if let [_, mark, words @ ..] = arguments
        && mark == MARK
    {
        run(words);
    }
}

cfg_if::cfg_if! {
    if #[cfg(any(
        all(target_os = "linux", target_env = "gnu"),
        target_os = "freebsd",
        target_os = "dragonfly",
        target_os = "openbsd",
        target_vendor = "apple",
    ))] {
        /// The loader passes the arguments of `main` to constructors. Except with glibc, `std` has
        /// no arguments before `main`.
        mod constructor {
            use std::ffi::{CStr, OsStr, c_char, c_int};
            use std::os::unix::ffi::OsStrExt;

            pub(super) type Constructor = extern "C" fn(c_int, *const *const c_char);

            pub(super) extern "C" fn before_main(argc: c_int, argv: *const *const c_char) {
                let count = usize::try_from(argc).unwrap_or(0);
                let argument = |index: usize| {
                    // SAFETY: the loader passes `argc` pointers at `argv`, and `index` is below.
                    let entry = unsafe { argv.add(index) };
                    // SAFETY: as above, the entry is one of these pointers.
                    let text = unsafe { *entry };
                    // SAFETY: each pointer is to a string that ends with a NUL and outlives this.
                    OsStr::from_bytes(unsafe { CStr::from_ptr(text) }.to_bytes()).to_owned()
                };
                super::run_if_child(&(0..count).map(argument).collect::<Vec<_>>());
            }
        }
    } else {
        /// The loader passes nothing to constructors.
        mod constructor {
            use std::ffi::OsString;

            pub(super) type Constructor = extern "C" fn();

            pub(super) extern "C" fn before_main() {
                super::run_if_child(&arguments());
            }

            #[cfg(not(unix))]
            fn arguments() -> Vec<OsString> {
                std::env::args_os().collect()
            }

            /// The arguments as the kernel reports them: `std` has none before `main`.
            #[cfg(unix)]
            fn arguments() -> Vec<OsString> {
                use std::os::unix::ffi::OsStringExt;
                let line = line();
                let words = line.split_inclusive(|&byte| byte == 0);
                words.map(|word| OsString::from_vec(word[..word.len() - 1].to_vec())).collect()
            }

            /// All arguments, each followed by a NUL.
            #[cfg(all(unix, not(target_os = "netbsd")))]
            fn line() -> Vec<u8> {
                std::fs::read("/proc/self/cmdline").unwrap_or_default()
            }

            #[cfg(target_os = "netbsd")]
            fn line() -> Vec<u8> {
                let name = [libc::CTL_KERN, libc::KERN_PROC_ARGS, -1, libc::KERN_PROC_ARGV];
                let mut line = vec![0; 1 << 16];
                let (old, new) = (line.as_mut_ptr().cast(), std::ptr::null());
                let mut length = line.len();
                // SAFETY: the name outlives the call, which writes at most `length` bytes to
                // `line`.
                let result = unsafe {
                    libc::sysctl(name.as_ptr(), name.len() as u32, old, &raw mut length, new, 0)
                };
                line.truncate(if result == 0 { length } else { 0 });
                line
            }
        }
    }
}

/// Runs a child's program. It prints its findings to standard output, one per line.
fn run(words: &[OsString]) -> ! {
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    let words: Vec<_> = words.iter().map(|word| &**word).collect();
    match words[..] {
        ["pool"] => {
            let threads = uv_core::Pool::global().expect("a pool").threads();
            print(&threads.to_string());
        }
        ["exit", code] => exit(code.parse().expect("a code")),
        ["sleep"] => std::thread::sleep(LONG),
        ["cat"] => drop(io::copy(&mut io::stdin(), &mut io::stdout())),
        ["say", text] => print(text),
        ["complain", text] => drop(io::stderr().write_all(text.as_bytes())),
        // Prints the text, then reads to the end of file.
        ["greet", text] => {
            print(text);
            let _ = io::stdin().read_to_end(&mut Vec::new());
        }
        ["arguments", ..] => words[1..].iter().for_each(|word| print(&format!("{word}\n"))),
        ["environment"] => {
            let mut variables: Vec<_> = std::env::vars().collect();
            variables.sort();
            variables.iter().for_each(|(name, value)| print(&format!("{name}={value}\n")));
        }
        ["directory"] => {
            let directory = std::env::current_dir().map(|it| it.display().to_string());
            print(&directory.unwrap_or_else(|error| error.to_string()));
        }
        ["input"] => {
            let mut text = String::new();
            let read = io::stdin().read_to_string(&mut text);
            print(&format!("{}: {text}", read.is_ok()));
        }
        _ => system::run(&words),
    }
    exit(0)
}

fn print(text: &str) {
    let mut output = io::stdout();
    // A closed pipe to the parent is no error.
    let _ = output.write_all(text.as_bytes()).and_then(|()| output.flush());
}

#[cfg(unix)]
mod system {
    use super::*;

    pub(super) fn run(words: &[&str]) {
        match words {
            // The state of the first descriptors: identity and blocking mode.
            ["descriptors"] => (0..32).for_each(|fd| print(&descriptor(fd))),
            ["write", fd, text] => {
                let fd = fd.parse().expect("a number");
                // SAFETY: pointer and length are those of `text`, which outlives the call.
                let written = unsafe { libc::write(fd, text.as_ptr().cast(), text.len()) };
                exit(i32::from(written != text.len() as isize));
            }
            ["signals"] => {
                for signum in 1..32 {
                    print(&signal(signum));
                }
            }
            ["identity"] => print(&identity()),
            // SAFETY: `raise` has no preconditions; the signal goes to this process.
            ["die", signum] => drop(unsafe { libc::raise(signum.parse().expect("a number")) }),
            words => panic!("unknown child program {words:?}"),
        }
    }

    fn descriptor(fd: libc::c_int) -> String {
        // SAFETY: `stat` is plain data, for which all zeros are valid.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: `stat` outlives the call, which writes one structure.
        if unsafe { libc::fstat(fd, &raw mut stat) } == -1 {
            return String::new();
        }
        // SAFETY: `F_GETFL` takes no pointer.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
        let blocks = if flags & libc::O_NONBLOCK == 0 { "blocks" } else { "does not block" };
        format!("{fd} {}:{} {blocks}\n", stat.st_dev, stat.st_ino)
    }

    fn signal(signum: libc::c_int) -> String {
        // SAFETY: `sigaction` is plain data, for which all zeros are valid.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: `action` outlives the call, which writes one structure.
        unsafe { libc::sigaction(signum, std::ptr::null(), &raw mut action) };
        // SAFETY: `sigset_t` is plain data, for which all zeros are valid.
        let mut mask: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: `mask` outlives the call, which writes one set.
        unsafe { libc::sigprocmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut mask) };
        // SAFETY: `sigprocmask` initialized `mask`.
        let blocked = unsafe { libc::sigismember(&raw const mask, signum) } == 1;
        match (action.sa_sigaction == libc::SIG_DFL, blocked) {
            (true, false) => String::new(),
            (default, blocked) => format!("{signum}: default {default}, blocked {blocked}\n"),
        }
    }

    fn identity() -> String {
        let mut groups = [0; 64];
        // SAFETY: the call writes at most `groups.len()` entries to `groups`.
        let count = unsafe { libc::getgroups(groups.len() as libc::c_int, groups.as_mut_ptr()) };
        // SAFETY: the call takes no pointer.
        let uid = unsafe { libc::getuid() };
        // SAFETY: the call takes no pointer.
        let gid = unsafe { libc::getgid() };
        // FreeBSD 14 lists the effective group among the supplementary ones.
        let listed = &groups[..usize::try_from(count).unwrap_or(0)];
        let count = listed.iter().filter(|&&group| group != gid).count();
        // SAFETY: the call takes no pointer.
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
            // The blocking mode of the first descriptors.
            ["descriptors"] => {
                for fd in 0..3 {
                    // Must not be closed here.
                    let Some(file) = inherited(fd).map(std::mem::ManuallyDrop::new) else {
                        continue;
                    };
                    let blocks = if blocks(&file) { "blocks" } else { "does not block" };
                    print(&format!("{fd} {blocks}\n"));
                }
            }
            ["open standard input"] => open_standard_input(),
            ["answer with a handle"] => {
                let backend = uv_core::DefaultBackend::new().expect("a backend");
                let mut lp = crate::Loop::new(poll_core::BoxedBackend::new(backend));
                let (pipe, end) = (uv_core::Pipe::new(&mut lp), inherited(3).expect("a pipe"));
                pipe.enable_passing(&mut lp).expect("a new handle");
                pipe.open(&mut lp, end).expect("a pipe that does not block");
                crate::support::pipes::answer_with_a_handle(&mut lp, pipe);
                lp.run(uv_core::RunMode::Default).expect("a loop that runs");
            }
            words => panic!("unknown child program {words:?}"),
        }
    }

    /// True if the file was opened for synchronous calls.
    fn blocks(file: &std::fs::File) -> bool {
        use std::os::windows::io::AsRawHandle;
        use windows_sys::Wdk::Storage::FileSystem::{FileModeInformation, NtQueryInformationFile};
        use windows_sys::Win32::System::IO::IO_STATUS_BLOCK;

        const SYNCHRONOUS: u32 = 0x30;
        let (mut status, mut mode) = (IO_STATUS_BLOCK::default(), 0_u32);
        let (handle, place) = (file.as_raw_handle(), (&raw mut mode).cast());
        // SAFETY: the buffers outlive the call and have the sizes of this information class.
        let result =
            unsafe { NtQueryInformationFile(handle, &mut status, place, 4, FileModeInformation) };
        assert!(result >= 0, "NtQueryInformationFile: {result:x}");
        mode & SYNCHRONOUS != 0
    }

    /// Reads one byte through a handle, then closes it. Standard input must stay open.
    fn open_standard_input() {
        use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
        use uv_core::{Handle, Stream};
        use windows_sys::Win32::Storage::FileSystem::{FILE_TYPE_PIPE, GetFileType};

        let mut lp = uv_core::Loop::with_default_backend().expect("a loop");
        let (pipe, raw) = (uv_core::Pipe::new(&mut lp), io::stdin().as_raw_handle());
        // SAFETY: no other code of this process uses standard input.
        let standard = unsafe { OwnedHandle::from_raw_handle(raw) };
        pipe.open(&mut lp, standard).expect("a pipe that does not block");
        pipe.read(&mut lp, vec![0], |lp, pipe, count, buffer| {
            assert_eq!((count.expect("a byte"), buffer[0]), (1, b'x'));
            pipe.close(lp).expect("an open handle");
        })
        .expect("a read");
        lp.run(uv_core::RunMode::Default).expect("a loop that runs");
        drop(lp);
        // SAFETY: `GetFileType` accepts any value and fails for an invalid handle.
        assert_eq!(unsafe { GetFileType(raw) }, FILE_TYPE_PIPE, "standard input stays open");
    }

    /// A descriptor that Windows' C library inherits: listed in the reserved part of the startup
    /// information, after a count and one byte of flags each.
    fn inherited(fd: usize) -> Option<std::fs::File> {
        use std::os::windows::io::FromRawHandle;
        use windows_sys::Win32::System::Threading::{GetStartupInfoW, STARTUPINFOW};

        // SAFETY: `STARTUPINFOW` is plain data, for which all zeros are valid.
        let mut info: STARTUPINFOW = unsafe { std::mem::zeroed() };
        // SAFETY: `info` outlives the call, which writes it.
        unsafe { GetStartupInfoW(&raw mut info) };
        let length = usize::from(info.cbReserved2);
        if info.lpReserved2.is_null() || length < 4 {
            return None;
        }
        // SAFETY: the block lives as long as the process and has this length.
        let bytes = unsafe { std::slice::from_raw_parts(info.lpReserved2, length) };
        let (count, rest) = bytes.split_first_chunk::<4>()?;
        let count = u32::from_ne_bytes(*count) as usize;
        let (flags, handles) = rest.split_at_checked(count)?;
        let (handle, _) = handles.as_chunks::<{ size_of::<usize>() }>();
        let handle = usize::from_ne_bytes(*handle.get(fd)?);
        // The first bit is set for an open descriptor.
        (flags.get(fd)? & 1 != 0)
            // SAFETY: the handle was inherited for this program, which takes it once.
            .then(|| unsafe { std::fs::File::from_raw_handle(handle as *mut _) })
    }
}
