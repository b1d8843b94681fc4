//! Benchmarks of every backend, of the loop on top of it and of comparable libraries.
//!
//! ```text
//! cargo run --release -p bench                        # all suites, in about a minute
//! cargo run --release -p bench --features libuv       # with libuv as the baseline
//! cargo run --release -p bench -- --suite iterations,wait --backend epoll,uring --peer hand,mio
//! cargo run --release -p bench -- --full              # large: about twenty minutes
//! cargo run --release -p bench -- --full --rounds 15 --budget 60  # as many rounds as fit
//! cargo run --release -p bench -- compare before.json now.json
//! cargo run --release -p bench -- report results.json --html page.html --chart wait.svg
//! cargo run --release -p bench -- once echo --backend uring --json
//! cargo run --release -p bench -- count               # deterministic counts
//! cargo run --release -p bench -- soak --minutes 10 --backend uring  # mixed traffic, checked
//! cargo run --release -p bench -- serve echo --backend poll --port 7000
//! cargo run --release -p bench -- drive --to 127.0.0.1:7000          # that, here or on another host
//! cargo run --release -p bench -- --suite echo,open --namespaces --delay 500   # veth and netem
//! ```
//!
//! A run prints a scoreboard (and every table, if suites are named), and writes
//! `report.html`, a self-contained page of charts without scripts, and
//! `results.json`, which has the values of every round.
//!
//! Optional peers: `--features peers`, or some of `libuv,compio,monoio,glommio`. libuv is built from
//! source and needs a C compiler and libclang (Debian: `libclang-dev`). Without these features the
//! other contestants are measured, and the report lists the missing ones. tokio's io_uring for files
//! needs a flag of the compiler, which builds everything anew:
//!
//! ```text
//! RUSTFLAGS='--cfg tokio_unstable' CARGO_TARGET_DIR=target/unstable cargo run --release -p bench \
//!     --features tokio-uring -- --suite reads --peer hand,tokio,tokio-uring
//! ```
//!
//! # What is measured
//!
//! | suite | figure | definition |
//! |---|---|---|
//! | `timers` | add | a timer is created and started |
//! | | stop, start | all are stopped; all are started, in memory that is already touched |
//! | | restart | started timers are restarted with a later deadline |
//! | | fire | the loop runs until every timer has called back |
//! | `iterations` | iterations | iterations of a loop with an idle handle, without a source and with a quiet socket |
//! | `async` | pending send | a send to a handle whose callback is already pending |
//! | | round trip | a send to a loop in another thread, and one back: time, and CPU time |
//! | `pool` | jobs | empty jobs, 1,024 in flight: per second, and CPU time per job |
//! | `wait` | register, modify, deregister | of all of 10 to 20,000 sources, including the flush to the kernel |
//! | | wait | returns immediately with one, a tenth or all of the sources ready |
//! | | cycle | one wait, with the write that makes a source ready and the read that drains it |
//! | `echo` | requests, p50, p99, p99.9 | TCP servers by connections, request size and pipeline depth |
//! | `connect` | connections | connect, one request, reset |
//! | `pump` | bytes | from clients to a server that discards them |
//! | `open` | p50, p99, p99.9, p99.99 | latency by load, at constant and Poisson arrivals |
//! | `http` | requests, p50, p99, p99.9 | HTTP/1.1 with the same parser in each server |
//! | `mixed` | requests, p50, p99, p99.9 | beside idle connections, slow readers or a bulk transfer |
//! | `handlers` | requests, p50, p99 | handlers that compute, or answer from a timer |
//! | `threads` | requests, p50, p99 | a loop in each of several threads |
//! | `tasks` | | futures: spawn, join, and messages between tasks |
//! | `udp` | ping-pong | round trips of datagrams; lost ones are resent and reported |
//! | | flood | an overload of datagrams: received, sent |
//! | | segments | the same with segmentation offload (GSO, GRO), 40 datagrams of 1,200 bytes a send |
//! | `files` | | read and stat of cached files |
//! | `reads` | reads | of 4 KiB of a file: cached, cold and direct, with 1 to 128 in flight; fio beside them |
//! | `spawn` | children | programs that exit immediately, spawned sequentially |
//! | `memory` | timer, handles, idle connection | bytes per object |
//! | `calls` | system calls, allocations | of a TCP server, per request |
//! | `instructions` | instructions | of a TCP server, per request, by callgrind |
//!
//! # Contestants
//!
//! - `uv-core epoll`: the loop on that backend. Timers, asyncs and jobs hardly depend on the
//!   backend, so a quick run measures them on the default backend only, unless `--backend` names others.
//! - `bare epoll`: that backend through [`poll_core::Backend`] alone, for readiness.
//! - `hand epoll`: hand-written code directly on the system call (or, for timers and jobs, on the
//!   standard library). `hand uring` uses multishot accept, multishot receive and provided buffers.
//! - `uv-async epoll`: tasks of `uv-async` on that loop.
//! - `libuv`, `mio`, `polling`, `tokio`, `smol`, `compio`, `monoio`, `glommio`: other libraries, each as
//!   the fastest program that a good user of it writes. The code of each has a comment why this
//!   is its best, and with which alternative it was compared.
//! - Other styles of use are extra rows and never the baseline: `libuv-write` (`uv_write` with
//!   recycled buffers), `libuv-malloc` (malloc for each read, as in its guide), `libuv-send`
//!   (`uv_udp_send`), `libuv-uring` (its ring for files, with `UV_USE_IO_URING=1`), `mio-drain` (reads until `EAGAIN`), `tokio-buffers` (a buffer of each task),
//!   `tokio-local` (tasks that need not be `Send`), `tokio-uring` (tokio's file on its io_uring),
//!   `smol-readable` (waits before each read), `compio-4k`, `monoio-4k` (small buffers),
//!   `glommio-buffered` (its buffered stream).
//! - `fio`: the tool, beside the reads of files, if it is installed.
//!
//! # How it is measured
//!
//! - **Interleaved**: in each round every contestant runs the scenario once, in an order that
//!   differs from round to round, so that a disturbance affects all of them. A warm-up round
//!   is not counted.
//! - **Ratios come from rounds**: a contestant's ratio is the median, over the rounds, of
//!   its value against the baseline's in the same round. Above 1 is better, for costs and
//!   for rates alike.
//! - **The spread** (±) is a confidence interval of the median by a bootstrap at 99 %, which assumes
//!   no distribution of the noise ([`stats::Spread`]).
//! - **A/A**: the baseline runs twice in each round. Its ratio to itself ("again")
//!   is the noise; only a ratio outside of it is better (+) or worse (-), if it is half a
//!   percent at least. A ratio whose spread is within 5 % is level (=). Every other one is inconclusive (?): use more rounds, or
//!   a quieter machine.
//! - **The time is limited**: a run of all suites takes about a minute, and a full one about twenty
//!   (`--budget`). It is divided among the scenarios ([`plan`]); one that needs more than its share
//!   runs fewer rounds, on a slow machine only one, allows no conclusion, and is named in the report.
//! - **A percentile needs requests beyond it**: p99.99 is that of all rounds together, of ten thousand
//!   requests at least. Latencies of open loops count from the intended time of a request. The folder
//!   `hdr` beside the page has all of them as HdrHistogram logs.
//! - **CPU time** is that of the process: user and kernel time of every thread. Scenarios that
//!   never block are measured by it, because other programs on the machine do not distort it.
//!   Round trips and jobs per second are measured by wall-clock time, since they include waits.
//! - **Servers** run in separate processes, new for each run, on one core; the clients, one
//!   hand-written epoll loop, on another. Clients cost as much as servers, so they may limit
//!   wall-clock rates: the relevant figure is requests per second of the server's CPU time.
//! - **System calls** are counted by tracing the server's thread, allocations by the allocator.
//!   Where tracing is not permitted, the report contains a note.
//! - **Counts are checked**: callbacks count their work, and a run with a wrong count aborts the
//!   program.
//! - No test asserts a duration, and all traffic stays on the loopback interface.
//!
//! # Architecture
//!
//! A [`suite::Suite`] has scenarios, a scenario has figures and contestants, and a
//! contestant is a closure that runs the scenario once. [`runner::Runner`] runs them,
//! [`results::Row`] compares them with [`stats`]; [`report`], [`html`] and [`compare`] print them.
//! Several suites share the trait of `pollers` and the [`servers`]; `load` has the clients. Servers
//! and clients need Linux; elsewhere those suites report themselves as skipped. Each suite is a
//! module of [`suites`] with a file for each contestant, which makes it easy to verify that all
//! do the same work.
//!
//! ```
//! use bench::{backends::Which, runner::Runner, suites::{Scale, iterations}};
//!
//! let mut suite = iterations::suite(Scale::Tiny);
//! suite.scenarios.truncate(1);
//! let rows = Runner::silent(7).run(vec![suite])?.rows;
//! for entry in &rows[0].entries {
//!     println!("{}: {:.2} times {}", entry.id, entry.ratio.median, rows[0].baseline);
//! }
//! # std::io::Result::Ok(())
//! ```

pub mod allocations;
pub mod backends;
pub mod clock;
pub mod compare;
pub mod cores;
#[cfg(target_os = "linux")]
pub mod count;
#[cfg(target_os = "linux")]
pub mod drive;
pub mod hdr;
pub mod html;
pub mod latencies;
#[cfg(all(unix, feature = "libuv"))]
mod libuv;
pub mod limits;
#[cfg(target_os = "linux")]
mod load;
pub mod losses;
pub mod machine;
pub mod network;
mod once;
pub mod options;
pub mod plan;
mod pollers;
pub mod process;
pub mod random;
pub mod report;
pub mod results;
pub mod runner;
pub mod scoreboard;
mod serve;
pub mod servers;
pub mod soak;
pub mod stats;
pub mod suite;
pub mod suites;
mod temporary;
#[cfg(target_os = "linux")]
mod trace;

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::machine::{Foreign, Machine};
use crate::network::Network;
use crate::options::{Command, Options};
use crate::report::Style;
use crate::results::{Results, Settings};
use crate::runner::Runner;
use crate::suite::{Absent, Suite};

/// Runs the command line, and writes the report to `out`.
///
/// # Errors
///
/// Those of the options, of any contestant, and of reading and writing files.
pub fn run(options: &Options, out: &mut dyn Write) -> io::Result<ExitCode> {
    let style = Style::of(&io::stdout());
    if let Some(command) = &options.command {
        return run_command(command, style, out);
    }
    let suites = options.select()?;
    if options.list {
        report::list(&suites, style, out)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut network = options.network();
    let (_namespaces, note) = network::prepare(&mut network)?;
    if let Some(note) = &note {
        // Now, and in the report: no user should wait for numbers of another network.
        let _ = writeln!(io::stderr(), "{note}");
    }
    let (scale, rounds) = (options.scale().name(), options.rounds());
    let (baseline, budget) = (options.baseline.clone(), options.budget());
    let plan = Conditions { scale, rounds, budget, baseline, network };
    let (mut results, recorded) = measure(suites, plan)?;
    results.notes.extend(note.into_iter().chain(options.left_out()));
    if let Some(path) = options.json.as_ref().filter(|path| path.as_os_str() == "-") {
        return results.write(path, out).map(|()| ExitCode::SUCCESS);
    }
    if options.tables() {
        report::write(&results, style, out)?;
    }
    report::scoreboard(&results, style, out)?;
    report::losses(&results, style, out)?;
    report::legend(&results, style, out)?;
    match &options.json {
        Some(path) => results.write(path, out)?,
        None => write_files(&options.out(), &results, &recorded, out)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the page, the results and the histograms to a folder.
fn write_files(
    folder: &Path,
    results: &Results,
    recorded: &[hdr::Recorded],
    out: &mut dyn Write,
) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let (page, file) = (folder.join("report.html"), folder.join("results.json"));
    results.write(&file, out)?;
    std::fs::write(&page, html::page(results))?;
    writeln!(out, "full report: {} and {}", page.display(), file.display())?;
    let logs = folder.join("hdr");
    let count = hdr::write(&logs, recorded)?;
    if count > 0 {
        writeln!(out, "{count} HdrHistogram logs: {}", logs.display())?;
    }
    Ok(())
}

/// Runs a subcommand.
fn run_command(command: &Command, style: Style, out: &mut dyn Write) -> io::Result<ExitCode> {
    match command {
        Command::Compare { old, new } => {
            let worse = compare::write(&Results::read(old)?, &Results::read(new)?, style, out)?;
            return Ok(ExitCode::from(u8::from(worse)));
        }
        Command::Once { suite, backend, contestant, scenario, full, json } => {
            let once = once::Once {
                suite,
                scenario: scenario.as_deref(),
                backend: backend.as_deref(),
                id: contestant.as_deref(),
                scale: if *full { suites::Scale::Full } else { suites::Scale::Quick },
                json: *json,
            };
            once::run(&once, out)?;
        }
        #[cfg(target_os = "linux")]
        Command::Count(options) => return count::run(options, style, out),
        #[cfg(target_os = "linux")]
        Command::Counted(options) => count::run_one(options)?,
        #[cfg(target_os = "linux")]
        Command::Drive(options) => drive::run(options, style, out)?,
        Command::Soak(options) => return soak::run(options, out),
        Command::SoakChild => return soak::copy_stdin(),
        Command::Report { results, html, chart } => {
            let results = Results::read(results)?;
            if let Some(path) = html {
                std::fs::write(path, html::page(&results))?;
            }
            if let Some(path) = chart {
                let why =
                    "the results are without the suite 'wait', which the chart shows: run it first";
                let missing = || io::Error::new(io::ErrorKind::InvalidInput, why);
                std::fs::write(path, html::wait_chart(&results).ok_or_else(missing)?)?;
            }
            if html.is_none() && chart.is_none() {
                report::write(&results, style, out)?;
                report::scoreboard(&results, style, out)?;
                report::losses(&results, style, out)?;
                report::legend(&results, style, out)?;
            }
        }
        Command::Serve {
            service,
            backend,
            port,
            host,
            contestant,
            core,
            supervised,
            threads,
            once,
        } => match contestant {
            Some(id) if *supervised => {
                let options = process::Supervised { core: *core, threads: *threads, once: *once };
                process::serve_supervised(id, *service, options)?;
            }
            id => serve::serve(*service, backend.as_deref(), id.as_deref(), (*host, *port), out)?,
        },
    }
    Ok(ExitCode::SUCCESS)
}

/// How suites are run.
struct Conditions {
    scale: &'static str,
    rounds: usize,
    budget: Option<Duration>,
    baseline: Option<String>,
    network: Network,
}

fn measure(suites: Vec<Suite>, plan: Conditions) -> io::Result<(Results, Vec<hdr::Recorded>)> {
    let (machine, begun, foreign) = (Machine::here(), Instant::now(), Foreign::start());
    let absent = absent(&suites);
    let mut runner = Runner::new(plan.rounds, plan.baseline);
    runner.budget = plan.budget;
    runner.large = plan.scale == suites::Scale::Full.name();
    let mut measured = runner.run(suites)?;
    let settings = Settings {
        scale: plan.scale.into(),
        rounds: plan.rounds,
        budget: plan.budget.map(|budget| budget.as_secs_f64()),
        seed: random::SEED,
        cores: cores::server_and_clients(),
        network: plan.network,
        foreign_share: foreign.share(),
        optimised: !cfg!(debug_assertions),
        seconds: begun.elapsed().as_secs_f64(),
    };
    let recorded = std::mem::take(&mut measured.recorded);
    Ok((Results::new(settings, machine, absent, measured), recorded))
}

/// The contestants that are missing in any suite, each once.
fn absent(suites: &[Suite]) -> Vec<Absent> {
    let mut all: Vec<Absent> = Vec::new();
    for scenario in suites.iter().flat_map(|suite| &suite.scenarios) {
        for absent in &scenario.entrants.absent {
            if !all.contains(absent) {
                all.push(absent.clone());
            }
        }
    }
    all
}
