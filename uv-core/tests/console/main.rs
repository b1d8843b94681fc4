//! Events of the console reach the watchers of signals, raised as Windows raises them.
//!
//! An event goes to every process of a console or of a group in it. So those who watch are
//! in processes of their own, in a console without a window: this program again, with one
//! of its tests alone, which tells by a socket what it was told.

#![cfg(windows)]

mod pseudo;

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::windows::io::AsRawHandle;
use std::rc::Rc;
use std::time::{Duration, Instant};

use pseudo::{Console, Process};
use uv_core::{Loop, RunMode, Signal, Timer, signum};
use windows_sys::Win32::System::Console::{
    CTRL_BREAK_EVENT, CTRL_C_EVENT, GenerateConsoleCtrlEvent, SMALL_RECT, STD_OUTPUT_HANDLE,
    SetConsoleWindowInfo, SetStdHandle,
};
use windows_sys::Win32::System::LibraryLoader::{GetModuleHandleA, GetProcAddress};

/// How long anybody waits for anything.
const PATIENCE: Duration = Duration::from_secs(20);

/// Where a child tells what it was told.
const PORT: &str = "CONSOLE_TEST_PORT";

/// What a child says if the system cannot raise an event.
const MISSING: &str = "cannot be raised here";

/// One of this program's tests in a console of its own, and what it says.
struct Watcher {
    process: Process,
    lines: BufReader<TcpStream>,
    console: Console,
}

impl Watcher {
    fn start(test: &str) -> Watcher {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("its address").port();
        let program = std::env::current_exe().expect("this program's path");
        let console = Console::new().expect("a console without a window");
        let arguments = format!("{test} --exact --ignored --test-threads=1 {PORT}={port}");
        let process = console.start(&format!("\"{}\" {arguments}", program.display()));
        listener.set_nonblocking(true).expect("a listener that does not wait");
        let started = Instant::now();
        let stream = loop {
            // First: one that has ended may have connected before.
            let ended = process.wait(10);
            match listener.accept() {
                Ok((stream, _)) => break stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => panic!("accept: {error}"),
            }
            assert_eq!(ended, None, "the watcher has ended");
            assert!(started.elapsed() < PATIENCE, "the watcher does not start");
        };
        stream.set_nonblocking(false).expect("a stream that waits");
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit to that");
        Watcher { process, lines: BufReader::new(stream), console }
    }

    /// The next line that it says, or how it has ended.
    fn says(&mut self) -> String {
        let mut line = String::new();
        match self.lines.read_line(&mut line) {
            Ok(1..) => line.trim().to_owned(),
            Ok(0) => format!("ended with {:?}", self.process.wait(5_000)),
            Err(error) => panic!("it says nothing: {error}"),
        }
    }
}

/// A child's way to its parent.
struct Parent(TcpStream);

impl Parent {
    fn find() -> Parent {
        let given = std::env::args().find_map(|argument| {
            let port = argument.strip_prefix(PORT)?.strip_prefix('=')?;
            port.parse::<u16>().ok()
        });
        let port = given.expect("started by another test");
        let parent = TcpStream::connect(("127.0.0.1", port)).expect("whoever has started this");
        let hook = parent.try_clone().expect("another handle");
        std::panic::set_hook(Box::new(move |panic| {
            let _ = writeln!(&hook, "{}", panic.to_string().replace('\n', " "));
        }));
        Parent(parent)
    }

    fn tell(&self, what: &str) {
        writeln!(&self.0, "{what}").expect("a parent");
    }

    /// Watches all signals, and tells of one after each call of `raise`, `count` times.
    fn watch(&self, count: usize, mut raise: impl FnMut(usize) -> io::Result<()>) {
        let mut lp = Loop::with_default_backend().expect("a loop");
        let timer = Timer::new(&mut lp);
        let give_up = |_: &mut Loop, _| panic!("told of nothing");
        timer.start(&mut lp, PATIENCE, Duration::ZERO, give_up).expect("a timer");
        let told = Rc::new(Cell::new(0));
        for number in [signum::SIGINT, signum::SIGBREAK, signum::SIGWINCH, signum::SIGHUP] {
            let (signal, told) = (Signal::new(&mut lp), Rc::clone(&told));
            let note = move |lp: &mut Loop, _, signum| {
                told.set(signum);
                lp.stop();
            };
            signal.start(&mut lp, number, note).expect("a signal");
        }
        for round in 0..count {
            if let Err(error) = raise(round) {
                return self.tell(&format!("{MISSING}: {error}"));
            }
            lp.run(RunMode::Default).expect("a loop that runs");
            self.tell(&format!("told of {}", told.get()));
        }
    }
}

/// Raises an event for all of this console.
fn raise(event: u32) -> io::Result<()> {
    // SAFETY: the call takes no pointer.
    let raised = unsafe { GenerateConsoleCtrlEvent(event, 0) };
    if raised == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Not `eprintln!`: the test harness would swallow it.
fn skip(what: &str, why: &str) {
    let _ = writeln!(io::stderr(), "skip {what}: {why}");
}

/// Wine's `ntdll` has a function that Windows' has not.
fn is_wine() -> bool {
    // SAFETY: the name ends with a NUL, and every process has this module.
    let ntdll = unsafe { GetModuleHandleA(c"ntdll.dll".as_ptr().cast()) };
    // SAFETY: the module is loaded for ever, and the name ends with a NUL.
    unsafe { GetProcAddress(ntdll, c"wine_get_version".as_ptr().cast()) }.is_some()
}

/// Ctrl-C and Ctrl-Break, as a program raises them for all of its console.
#[test]
fn events_of_the_console_are_signals() {
    let mut watcher = Watcher::start("raises_events");
    for signum in [signum::SIGINT, signum::SIGINT] {
        assert_eq!(watcher.says(), format!("told of {signum}"));
    }
    match watcher.says() {
        said if said.contains(MISSING) => skip("Ctrl-Break", &said), // Wine's is Ctrl-C alone.
        said => assert_eq!(said, format!("told of {}", signum::SIGBREAK)),
    }
    assert_eq!(watcher.process.wait(20_000), Some(0));
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn raises_events() {
    let events = [CTRL_C_EVENT, CTRL_C_EVENT, CTRL_BREAK_EVENT];
    Parent::find().watch(events.len(), |round| raise(events[round]));
}

/// What nobody watches any more ends the process, as if there were no library.
#[test]
fn an_event_that_nobody_watches_ends_the_process() {
    let mut watcher = Watcher::start("raises_what_it_watches_no_more");
    assert_eq!(watcher.says(), format!("told of {}", signum::SIGINT));
    assert_eq!(watcher.says(), "watches no more");
    let end = watcher.says();
    assert!(end.starts_with("ended with Some"), "it should be gone: {end}");
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn raises_what_it_watches_no_more() {
    let parent = Parent::find();
    parent.watch(1, |_| raise(CTRL_C_EVENT));
    parent.tell("watches no more");
    raise(CTRL_C_EVENT).expect("Ctrl-C");
    std::thread::sleep(PATIENCE);
    parent.tell("lives on");
    std::process::exit(0);
}

/// A window that changes its size.
#[test]
fn a_size_is_a_signal() {
    let mut watcher = Watcher::start("changes_its_size");
    for _ in 0..2 {
        assert_eq!(watcher.says(), format!("told of {}", signum::SIGWINCH));
    }
    assert_eq!(watcher.process.wait(20_000), Some(0));
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn changes_its_size() {
    let parent = Parent::find();
    let console = File::options().read(true).write(true).open("CONOUT$").expect("a console");
    let screen = console.as_raw_handle();
    // SAFETY: the handle is open until the end of the process.
    assert_ne!(unsafe { SetStdHandle(STD_OUTPUT_HANDLE, screen) }, 0);
    parent.watch(2, |round| {
        let (columns, rows) = [(60, 20), (50, 10)][round];
        let window = SMALL_RECT { Left: 0, Top: 0, Right: columns - 1, Bottom: rows - 1 };
        // SAFETY: the pointer is to a local variable.
        let set = unsafe { SetConsoleWindowInfo(screen, 1, &window) };
        if set == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    });
    drop(console);
}

/// A console that is closed.
#[test]
fn an_end_is_a_signal() {
    if is_wine() {
        return skip("the end of a console", "Wine raises Ctrl-C alone");
    }
    let mut watcher = Watcher::start("waits_for_the_end");
    assert_eq!(watcher.says(), "waits");
    let Watcher { process, mut lines, console } = watcher;
    drop(console);
    let mut line = String::new();
    lines.read_line(&mut line).expect("a line");
    assert_eq!(line.trim(), format!("told of {}", signum::SIGHUP));
    assert!(process.wait(20_000).is_some(), "it outlives its console");
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn waits_for_the_end() {
    let parent = Parent::find();
    parent.watch(1, |_| {
        parent.tell("waits");
        Ok(())
    });
}
