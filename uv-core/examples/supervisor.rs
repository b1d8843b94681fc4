//! A process supervisor: starts programs, prefixes their output, starts them again when they end.
//!
//! ```sh
//! cargo run -p uv-core --example supervisor -- --run "ping -c 3 127.0.0.1" --run "sleep 2"
//! ```
//!
//! A program that ends is started again, after a pause that doubles while it fails. On `SIGINT` or
//! `SIGTERM` all get a `SIGTERM`, and a `SIGKILL` if they are not gone after two seconds. With
//! `--starts N` each program is started at most N times, and the supervisor ends after them.

mod common;

use std::io;
use std::time::Duration;

use uv_core::backends::Auto;
use uv_core::{
    Command, Exit, Handle, Loop, Pipe, PipeFlags, Process, RunMode, Signal, Stdio, Stream, Timer,
    signum,
};

const GRACE: Duration = Duration::from_secs(2);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

type Report = Box<dyn FnMut(&str)>;

#[derive(Default)]
struct Supervisor {
    services: Vec<Service>,
    starts: usize,
    ending: bool,
    /// Gets the lines of all programs.
    report: Option<Report>,
}

struct Service {
    line: String,
    process: Option<Process>,
    starts: usize,
    pause: Duration,
    timer: Timer,
}

pub(crate) fn main() -> io::Result<()> {
    let arguments = common::Arguments::read(&["--backend", "--run", "--starts"])?;
    let backend: String = arguments.get("--backend", "auto".into())?;
    let starts = arguments.get("--starts", usize::MAX)?;
    supervise(&backend, &arguments.all("--run"), starts, |line| println!("{line}"))
}

/// Runs the command lines until all have been started `starts` times, or until a signal.
pub(crate) fn supervise(
    backend: &str,
    lines: &[String],
    starts: usize,
    report: impl FnMut(&str) + 'static,
) -> io::Result<()> {
    let mut lp = Loop::new(common::backend(backend)?);
    let supervisor = lp.state::<Supervisor>();
    supervisor.starts = starts;
    supervisor.report = Some(Box::new(report));
    for number in [signum::SIGINT, signum::SIGTERM] {
        let signal = Signal::new(&mut lp);
        signal.start(&mut lp, number, |lp, _, _| end(lp))?;
        signal.unreference(&mut lp)?; // It alone is no reason to run on.
    }
    for (index, line) in lines.iter().enumerate() {
        let (line, timer) = (line.clone(), Timer::new(&mut lp));
        let service = Service { line, process: None, starts: 0, pause: FIRST_PAUSE, timer };
        lp.state::<Supervisor>().services.push(service);
        start(&mut lp, index);
    }
    lp.run(RunMode::Default)?;
    Ok(())
}

fn start(lp: &mut Loop<Auto>, index: usize) {
    let service = &mut lp.state::<Supervisor>().services[index];
    service.starts += 1;
    let line = service.line.clone();
    let mut words = line.split_whitespace();
    let (output, errors) = (Pipe::new(lp), Pipe::new(lp));
    let command = Command::new(words.next().unwrap_or_default()).args(words).stdio([
        Stdio::Ignore,
        Stdio::Pipe(output, PipeFlags::WRITABLE),
        Stdio::Pipe(errors, PipeFlags::WRITABLE),
    ]);
    let process = Process::spawn_with(lp, &command, move |lp, process, exit| {
        process.close_if_open(lp);
        ended(lp, index, exit);
    });
    lp.state::<Supervisor>().services[index].process = Some(process);
    if let Ok(pid @ 1..) = process.pid(lp) {
        log(lp, index, &format!("is process {pid}"));
    }
    [output, errors].into_iter().for_each(|pipe| forward(lp, index, pipe));
}

/// Logs the lines that a program writes.
fn forward(lp: &mut Loop<Auto>, index: usize, pipe: Pipe) {
    let mut partial = Vec::new();
    pipe.attempt(lp, |lp| {
        pipe.on_read(lp, move |lp, pipe, bytes| {
            partial.extend_from_slice(bytes);
            while let Some(end) = partial.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = partial.drain(..=end).collect();
                log(lp, index, &format!("| {}", String::from_utf8_lossy(&line).trim_end()));
            }
            if bytes.is_empty() { pipe.close(lp) } else { Ok(()) }
        })
    });
}

/// A program has ended, or could not be started: starts it again after a pause.
fn ended(lp: &mut Loop<Auto>, index: usize, exit: io::Result<Exit>) {
    let succeeded = exit.as_ref().is_ok_and(|exit| exit.success());
    log(lp, index, &exit.map_or_else(|why| why.to_string(), |exit| format!("ended: {exit}")));
    let supervisor = lp.state::<Supervisor>();
    let (again, service) = (!supervisor.ending, &mut supervisor.services[index]);
    service.process = None;
    let pause = if succeeded { FIRST_PAUSE } else { service.pause };
    service.pause = (pause * 2).min(LONGEST_PAUSE);
    if again && service.starts < supervisor.starts {
        let timer = service.timer;
        timer.attempt(lp, |lp| {
            timer.start(lp, pause, Duration::ZERO, move |lp, _| start(lp, index))
        });
    }
}

/// Ends all programs; a second signal kills them.
fn end(lp: &mut Loop<Auto>) {
    lp.with_state(|lp, supervisor: &mut Supervisor| {
        let first = !std::mem::replace(&mut supervisor.ending, true);
        for service in &supervisor.services {
            let _ = service.timer.stop(lp);
            let Some(process) = service.process else { continue };
            let number = if first { signum::SIGTERM } else { signum::SIGKILL };
            let _ = process.kill(lp, number); // It may have ended meanwhile.
            let kill = move |lp: &mut Loop<Auto>, _| drop(process.kill(lp, signum::SIGKILL));
            let _ = service.timer.start(lp, GRACE, Duration::ZERO, kill);
            let _ = service.timer.unreference(lp);
        }
    });
}

fn log(lp: &mut Loop<Auto>, index: usize, text: &str) {
    let supervisor = lp.state::<Supervisor>();
    let line = format!("{}: {text}", supervisor.services[index].line);
    if let Some(report) = &mut supervisor.report {
        report(&line);
    }
}
