//! A process that gets no more memory from the kernel: what needs a thread, a ring or a stack fails
//! with an error and leaves nothing behind, and the loop goes on.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

use std::cell::{Cell, RefCell};
use std::io;
use std::mem::MaybeUninit;
use std::process::Command as Program;
use std::rc::Rc;
use std::sync::Arc;

use uv_core::backends::Auto;
use uv_core::dns::Hints;
use uv_core::{
    Command, Handle, Loop, Pipe, PipeFlags, Pool, Process, RunMode, Stdio, Stream, Tcp, fs,
};

/// Set in a child process, to the name of the backend.
const CHILD: &str = "UV_CORE_TEST_SCARCE";
/// The exit status of a child whose backend this machine does not have.
const MISSING: i32 = 3;

/// More than the kernel's buffers hold.
const SIZE: usize = 4 << 20;

fn limit() -> libc::rlimit {
    let mut limit = MaybeUninit::uninit();
    // SAFETY: the kernel writes one structure.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_AS, limit.as_mut_ptr()) }, 0);
    // SAFETY: the call has succeeded, so it has written the structure.
    unsafe { limit.assume_init() }
}

fn set_limit(limit: &libc::rlimit) {
    // SAFETY: the kernel reads one structure, which is borrowed for the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, limit) }, 0);
}

/// While this exists, the process can map no memory. Its allocator goes on with what it has
/// reserved: the thread that makes this has an arena of its own, of 64 MiB.
struct NoMemory {
    before: libc::rlimit,
}

impl NoMemory {
    fn begin() -> NoMemory {
        let statm = std::fs::read_to_string("/proc/self/statm").expect("procfs");
        let pages: u64 = statm.split(' ').next().expect("a field").parse().expect("a number");
        // SAFETY: the call takes no pointer.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
        let before = limit();
        set_limit(&libc::rlimit { rlim_cur: pages * page, ..before });
        NoMemory { before }
    }
}

impl Drop for NoMemory {
    fn drop(&mut self) {
        set_limit(&self.before);
    }
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("procfs").count()
}

/// Bytes go from one end to the other while the process gets no memory.
fn transfer(lp: &mut Loop<Auto>) {
    let ((one, other), count) = (Tcp::pair(lp).expect("a pair"), Rc::new(Cell::new(0)));
    one.write(lp, vec![7; SIZE], |lp, one, result, buffer| {
        assert_eq!((result.expect("a write"), buffer.len()), ((), SIZE));
        one.close(lp).expect("an open handle");
    })
    .expect("a write");
    let counted = Rc::clone(&count);
    other
        .on_read(lp, move |lp, other, bytes| {
            assert!(bytes.iter().all(|byte| *byte == 7));
            counted.set(counted.get() + bytes.len());
            if bytes.is_empty() { other.close(lp) } else { Ok(()) }
        })
        .expect("an idle stream");
    assert!(!lp.run(RunMode::Default).expect("a run"));
    assert_eq!(count.get(), SIZE);
}

/// Everything that needs a thread or a stack is refused, and nothing of it stays.
fn are_refused(lp: &mut Loop<Auto>) {
    let captured = Arc::new(());
    let (work, done) = (Arc::clone(&captured), Arc::clone(&captured));
    let refused = lp.queue_work(move || drop(work), move |_, _| drop(done));
    assert!(refused.is_err() && Pool::new(2).is_err(), "no thread can start");
    assert_eq!(Arc::strong_count(&captured), 1, "the closures are dropped");
    let found = |_: &mut Loop<Auto>, _| panic!("a refused request calls back");
    assert!(lp.getaddrinfo(Some("localhost"), None, Hints::default(), found).is_err());

    // A file operation is a value: its error is that of the callback.
    let results = Rc::new(RefCell::new(Vec::new()));
    let result = Rc::clone(&results);
    let listed = fs::scandir("/");
    listed.start(lp, move |_, entries| result.borrow_mut().push(entries.is_err())).expect("a path");
    assert!(!lp.run(RunMode::Default).expect("a run"));
    assert_eq!(*results.borrow(), [true], "it calls back once");

    let pipe = Pipe::new(lp);
    let stdio = [Stdio::Ignore, Stdio::Pipe(pipe, PipeFlags::WRITABLE)];
    let command = Command::new("/bin/true").stdio(stdio);
    let error = Process::spawn(lp, &command, |_, _, _| panic!("no child has run")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOMEM), "{error}");
    assert!(!pipe.is_readable(lp), "the pipe is as before");
    pipe.close(lp).expect("an open handle");
    assert!(!lp.run(RunMode::Default).expect("a run"));
}

/// The same requests succeed once there is memory.
fn succeed(lp: &mut Loop<Auto>) {
    let done = Rc::new(Cell::new(0));
    let count = || {
        let done = Rc::clone(&done);
        move || done.set(done.get() + 1)
    };
    let (worked, listed, found, exited) = (count(), count(), count(), count());
    lp.queue_work(|| 7, move |_, result| worked_with(result.ok() == Some(7), worked))
        .expect("threads");
    fs::scandir("/")
        .start(lp, move |_, entries| worked_with(entries.is_ok(), listed))
        .expect("a path");
    lp.getaddrinfo(Some("127.0.0.1"), None, Hints::default(), move |_, all| {
        worked_with(all.is_ok(), found);
    })
    .expect("threads");
    Process::spawn(lp, &Command::new("/bin/true"), move |lp, process, exit| {
        worked_with(exit.is_ok(), exited);
        process.close(lp).expect("an open handle");
    })
    .expect("a child");
    assert!(!lp.run(RunMode::Default).expect("a run"));
    assert_eq!(done.get(), 4);
}

fn worked_with(is_right: bool, count: impl Fn()) {
    assert!(is_right);
    count();
}

/// The test in a child process.
fn scarce(name: &str) {
    let backend = match Auto::named(name) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => std::process::exit(MISSING),
        other => other.expect("a backend"),
    };
    let has_uring = Auto::named("uring").is_ok();
    let mut lp = Loop::new(backend);
    transfer(&mut lp); // It has opened what a loop opens once.
    let before = open_descriptors();

    let scarcity = NoMemory::begin();
    if has_uring {
        let error = Auto::named("uring").expect_err("a ring is memory");
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory, "{error}");
        assert_eq!(open_descriptors(), before, "after {error}");
        let other = Auto::first_of(&["uring", "epoll"]).expect("epoll needs none");
        assert_eq!(other.name(), "epoll");
        transfer(&mut Loop::new(other));
    }
    are_refused(&mut lp);
    transfer(&mut lp);
    are_refused(&mut lp);
    drop(scarcity);

    assert_eq!(open_descriptors(), before);
    succeed(&mut lp);
    transfer(&mut lp);
    assert!(lp.close().is_ok(), "no handle is left");
}

#[test]
fn a_process_without_memory_gets_errors_and_loses_nothing() {
    if let Ok(name) = std::env::var(CHILD) {
        // A thread has its whole stack from the start. The stack of the main thread grows.
        let thread = std::thread::spawn(move || scarce(&name));
        return thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }
    for name in Auto::NAMES {
        let mut child = Program::new(std::env::current_exe().expect("this program"));
        let test = "a_process_without_memory_gets_errors_and_loses_nothing";
        child.args(["--exact", test, "--nocapture"]).env(CHILD, name).env_remove("UV_BACKEND");
        let output = child.output().expect("a child");
        if output.status.code() == Some(MISSING) {
            eprintln!("skip {name}: not on this machine");
            continue;
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {}: {errors}", output.status);
    }
}
