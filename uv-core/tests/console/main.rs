//! Console events reach signal watchers as Windows raises them.
//!
//! An event goes to every process of a console or of a process group in it. So each watcher is a
//! separate process in a console without a window: this program with one of its tests, which
//! reports the signals over a socket.

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

/// The limit of every wait.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The argument with the port that a child reports to.
const PORT: &str = "CONSOLE_TEST_PORT";

/// The report of a child if the system cannot raise an event.
const MISSING: &str = "cannot be raised here";

/// One of this program's tests in its own console, and its reports.
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
            // Checked first, because a watcher that has ended may have connected before.
            let ended = process.wait(10);
            match listener.accept() {
                Ok((stream, _)) => break stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => panic!("accept: {error}"),
            }
            assert_eq!(ended, None, "the watcher has ended");
            assert!(started.elapsed() < TIMEOUT, "the watcher does not start");
        };
        stream.set_nonblocking(false).expect("a stream that waits");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a limit to that");
        Watcher { process, lines: BufReader::new(stream), console }
    }

    /// The next report, or the exit code.
    fn next_report(&mut self) -> String {
        let mut line = String::new();
        match self.lines.read_line(&mut line) {
            Ok(1..) => line.trim().to_owned(),
            Ok(0) => format!("ended with {:?}", self.process.wait(5_000)),
            Err(error) => panic!("no report: {error}"),
        }
    }
}

/// The connection of a child to its parent.
struct Parent(TcpStream);

impl Parent {
    fn find() -> Parent {
        let given = std::env::args().find_map(|argument| {
            let port = argument.strip_prefix(PORT)?.strip_prefix('=')?;
            port.parse::<u16>().ok()
        });
        let port = given.expect("started by another test");
        let parent = TcpStream::connect(("127.0.0.1", port)).expect("the parent listens");
        let hook = parent.try_clone().expect("another handle");
        std::panic::set_hook(Box::new(move |panic| {
            let _ = writeln!(&hook, "{}", panic.to_string().replace('\n', " "));
        }));
        Parent(parent)
    }

    fn report(&self, what: &str) {
        writeln!(&self.0, "{what}").expect("a parent");
    }

    /// Watches all signals, and reports one after each call of `raise`, `count` times.
    fn watch(&self, count: usize, mut raise: impl FnMut(usize) -> io::Result<()>) {
        let mut lp = Loop::with_default_backend().expect("a loop");
        let timer = Timer::new(&mut lp);
        let give_up = |_: &mut Loop, _| panic!("no signal");
        timer.start(&mut lp, TIMEOUT, Duration::ZERO, give_up).expect("a timer");
        let received = Rc::new(Cell::new(0));
        for number in [signum::SIGINT, signum::SIGBREAK, signum::SIGWINCH, signum::SIGHUP] {
            let (signal, received) = (Signal::new(&mut lp), Rc::clone(&received));
            let note = move |lp: &mut Loop, _, signum| {
                received.set(signum);
                lp.stop();
            };
            signal.start(&mut lp, number, note).expect("a signal");
        }
        for round in 0..count {
            if let Err(error) = raise(round) {
                return self.report(&format!("{MISSING}: {error}"));
            }
            lp.run(RunMode::Default).expect("a loop that runs");
            self.report(&format!("signal {}", received.get()));
        }
    }
}

/// Raises an event for all processes of this console.
fn raise(event: u32) -> io::Result<()> {
    // SAFETY: the call takes no pointer.
    let raised = unsafe { GenerateConsoleCtrlEvent(event, 0) };
    if raised == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Not by `eprintln!`, which the test harness captures.
fn skip(what: &str, why: &str) {
    let _ = writeln!(io::stderr(), "skip {what}: {why}");
}

/// True under Wine, whose `ntdll` has an additional function.
fn is_wine() -> bool {
    // SAFETY: the name ends with a NUL, and every process has this module.
    let ntdll = unsafe { GetModuleHandleA(c"ntdll.dll".as_ptr().cast()) };
    // SAFETY: the module is never unloaded, and the name ends with a NUL.
    unsafe { GetProcAddress(ntdll, c"wine_get_version".as_ptr().cast()) }.is_some()
}

/// Ctrl-C and Ctrl-Break, raised for all processes of the console.
#[test]
fn console_events_are_signals() {
    let mut watcher = Watcher::start("raises_events");
    for signum in [signum::SIGINT, signum::SIGINT] {
        assert_eq!(watcher.next_report(), format!("signal {signum}"));
    }
    match watcher.next_report() {
        report if report.contains(MISSING) => skip("Ctrl-Break", &report), // Wine has only Ctrl-C.
        report => assert_eq!(report, format!("signal {}", signum::SIGBREAK)),
    }
    assert_eq!(watcher.process.wait(20_000), Some(0));
}

#[test]
#[ignore = "run by another test, in a separate process"]
fn raises_events() {
    let events = [CTRL_C_EVENT, CTRL_C_EVENT, CTRL_BREAK_EVENT];
    Parent::find().watch(events.len(), |round| raise(events[round]));
}

/// An event without a watcher ends the process, as by default.
#[test]
fn unwatched_events_end_the_process() {
    let mut watcher = Watcher::start("raises_an_unwatched_event");
    assert_eq!(watcher.next_report(), format!("signal {}", signum::SIGINT));
    assert_eq!(watcher.next_report(), "unwatched");
    let end = watcher.next_report();
    assert!(end.starts_with("ended with Some"), "it still runs: {end}");
}

#[test]
#[ignore = "run by another test, in a separate process"]
fn raises_an_unwatched_event() {
    let parent = Parent::find();
    parent.watch(1, |_| raise(CTRL_C_EVENT));
    parent.report("unwatched");
    raise(CTRL_C_EVENT).expect("Ctrl-C");
    std::thread::sleep(TIMEOUT);
    parent.report("still running");
    std::process::exit(0);
}

/// A console that changes its size.
#[test]
fn size_changes_are_signals() {
    let mut watcher = Watcher::start("changes_its_size");
    for _ in 0..2 {
        assert_eq!(watcher.next_report(), format!("signal {}", signum::SIGWINCH));
    }
    assert_eq!(watcher.process.wait(20_000), Some(0));
}

#[test]
#[ignore = "run by another test, in a separate process"]
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
fn closing_the_console_is_a_signal() {
    if is_wine() {
        return skip("the end of a console", "Wine raises only Ctrl-C");
    }
    let mut watcher = Watcher::start("waits_for_the_close");
    assert_eq!(watcher.next_report(), "waiting");
    let Watcher { process, mut lines, console } = watcher;
    drop(console);
    let mut line = String::new();
    lines.read_line(&mut line).expect("a line");
    assert_eq!(line.trim(), format!("signal {}", signum::SIGHUP));
    assert!(process.wait(20_000).is_some(), "it outlives its console");
}

#[test]
#[ignore = "run by another test, in a separate process"]
fn waits_for_the_close() {
    let parent = Parent::find();
    parent.watch(1, |_| {
        parent.report("waiting");
        Ok(())
    });
}
