//! Every backend, the loop on top of it and their peers, measured side by side.
//!
//! ```text
//! cargo run --release -p bench                        # all of it, in about a minute
//! cargo run --release -p bench --features libuv       # with libuv, which is then 1×
//! cargo run --release -p bench -- --suite turns,wait --backend epoll,uring --peer hand,mio
//! cargo run --release -p bench -- --full --rounds 15  # large, in a quarter of an hour
//! cargo run --release -p bench -- compare before.json now.json
//! cargo run --release -p bench -- report results.json --html page.html --chart wait.svg
//! cargo run --release -p bench -- once echo --backend uring --json
//! cargo run --release -p bench -- serve echo --backend poll --port 7000
//! ```
//!
//! A run prints a scoreboard (and every table, if suites are named), and writes
//! `report.html`, a page of charts that needs neither a script nor the network, and
//! `results.json`, which has the values of every round.
//!
//! Optional peers: `--features libuv,compio,monoio`. libuv is built from source and wants a C
//! compiler and libclang (Debian: `libclang-dev`). Without them everything else is measured,
//! and the report says who is missing.
//!
//! # What is measured
//!
//! | suite | figure | what it is |
//! |---|---|---|
//! | `timers` | add | a timer is made and started |
//! | | stop, start | all are stopped; all are started, in memory that everyone has by now |
//! | | restart | started timers are started anew with a later deadline |
//! | | fire | the loop runs until all have called back |
//! | `turns` | turns | turns of a loop that has an idle handle, with nothing else and with a quiet socket |
//! | `async` | pending send | a send to a handle whose call is due already |
//! | | round trip | a send to a loop in another thread, and one back: time, and CPU time |
//! | `pool` | jobs | empty jobs, 1,024 in flight: per second, and CPU time of each |
//! | `wait` | register, modify, deregister | of all of 10 to 20,000 sources, the kernel being told |
//! | | wait | returns at once with what is ready: one source, a tenth, or all |
//! | | turn | the same with the write that makes one ready and the read that ends it |
//! | `echo` | requests, p50, p99, p99.9 | TCP servers against connections, size and depth |
//! | `connect` | connections | connect, one request, reset |
//! | `pump` | bytes | from clients to a server that drops them |
//! | `udp` | ping-pong | round trips of datagrams; what is lost is sent again and told of |
//! | | flood | more datagrams than anyone can take: received, sent |
//! | `files` | | reads and looks at files |
//! | `spawn` | children | programs that end at once, started one after the other |
//! | `memory` | timer, handles, idle connection | bytes of each |
//! | `calls` | system calls, allocations | of a TCP server, for each request |
//!
//! # Who is measured
//!
//! - `uv-core epoll`: the loop on that backend. Timers, asyncs and jobs are the loop's, so
//!   a quick run has them on the default backend only, unless `--backend` names others.
//! - `bare epoll`: that backend through [`poll_core::Backend`] alone, for readiness.
//! - `hand epoll`: what one would write by hand, straight on the system call (or, for
//!   timers and jobs, on the standard library). The limit, or the least one should do. `hand
//!   uring` has one accept for all connections, one receive for each, and shared buffers.
//! - `libuv` as its own tests and guide use it; `libuv-lean` with all that it offers to be fast.
//! - `mio`, `polling`, `tokio`, `compio`, `monoio`: the others.
//!
//! # How it is measured
//!
//! - **Interleaved**: in each round every contestant runs the scenario once, in an order that
//!   differs from round to round. What disturbs a round disturbs all. One round
//!   before the first warms up and is not counted.
//! - **Ratios come from rounds**: a contestant's ratio is the median, over the rounds, of
//!   its value against the baseline's in the same round. Above 1 is better, for costs and
//!   for rates alike.
//! - **The spread** (±) is an interval that holds the true median in 95 of 100 cases,
//!   whatever the noise looks like ([`stats::Spread`]).
//! - **A/A**: the baseline runs twice in each round. How it compares to itself ("again")
//!   is the noise; only what lies outside of it is called better (+) or worse (-). What is
//!   surely within 5 % is level (=). Everything else is no conclusion (?): more rounds, or
//!   a quieter machine.
//! - **CPU time** is the process's: every thread and the kernel's part. What never sleeps
//!   is charged in it, as other programs on the machine do not count. Round trips and jobs
//!   per second are on the wall, since waiting is their point.
//! - **Servers** run in processes of their own, new for each run, on one core; the clients, one
//!   epoll loop by hand, on another. Clients cost as much as servers, so that rates on the wall
//!   may be theirs: what counts is requests per second of the server's CPU time.
//! - **System calls** are counted by tracing the server's thread, allocations by the allocator.
//!   Where a process may not be traced, the report says so.
//! - **Counts are checked**: callbacks count what they do, and a run that did less or more
//!   than it should ends the program. The numbers come after that.
//! - Nothing is asserted about numbers, and nothing leaves the loopback interface.
//!
//! # How it is built
//!
//! A [`suite::Suite`] has scenarios, a scenario has figures and contestants, and a
//! contestant is a closure that runs the scenario once. [`runner::Runner`] runs them,
//! [`results::Row`] judges them by [`stats`], [`report`], [`html`] and [`compare`] show them.
//! The small trait of `pollers` and the [`servers`] are what several suites share; `load` is the
//! clients. Servers and clients are Linux's; elsewhere those suites say so. Each suite is a
//! module of [`suites`] with a file for each contestant, so that one can see at
//! once whether all do the same work.
//!
//! ```
//! use bench::{backends::Which, runner::Runner, suites::{Scale, turns}};
//!
//! let mut suite = turns::suite(Scale::Tiny);
//! suite.scenarios.truncate(1);
//! let rows = Runner::silent(7).run(vec![suite])?.rows;
//! for entry in &rows[0].entries {
//!     println!("{}: {:.2} times {}", entry.who, entry.ratio.median, rows[0].baseline);
//! }
//! # std::io::Result::Ok(())
//! ```

pub mod allocations;
pub mod backends;
pub mod clock;
pub mod compare;
pub mod cores;
pub mod html;
pub mod latencies;
#[cfg(all(unix, feature = "libuv"))]
mod libuv;
pub mod limits;
#[cfg(target_os = "linux")]
mod load;
pub mod machine;
mod once;
pub mod options;
mod pollers;
pub mod process;
pub mod random;
pub mod report;
pub mod results;
pub mod runner;
pub mod scoreboard;
mod serve;
pub mod servers;
pub mod stats;
pub mod suite;
pub mod suites;
mod temporary;
#[cfg(target_os = "linux")]
mod trace;

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Instant;

use crate::machine::Machine;
use crate::options::{Command, Options};
use crate::report::Style;
use crate::results::{Results, Settings};
use crate::runner::Runner;
use crate::suite::{Absent, Suite};

/// Does what the command line asks for, and writes the report to `out`.
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
    let results = measure(suites, options)?;
    if let Some(path) = options.json.as_ref().filter(|path| path.as_os_str() == "-") {
        return results.write(path, out).map(|()| ExitCode::SUCCESS);
    }
    if options.tables() {
        report::write(&results, style, out)?;
    }
    report::scoreboard(&results, style, out)?;
    report::legend(&results, style, out)?;
    match &options.json {
        Some(path) => results.write(path, out)?,
        None => {
            let folder = options.out();
            std::fs::create_dir_all(&folder)?;
            let (page, file) = (folder.join("report.html"), folder.join("results.json"));
            results.write(&file, out)?;
            std::fs::write(&page, html::page(&results))?;
            writeln!(out, "all of it: {} and {}", page.display(), file.display())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Does something else than to measure everything.
fn run_command(command: &Command, style: Style, out: &mut dyn Write) -> io::Result<ExitCode> {
    match command {
        Command::Compare { old, new } => {
            let worse = compare::write(&Results::read(old)?, &Results::read(new)?, style, out)?;
            return Ok(ExitCode::from(u8::from(worse)));
        }
        Command::Once { suite, backend, who, scenario, full, json } => {
            let once = once::Once {
                suite,
                scenario: scenario.as_deref(),
                backend: backend.as_deref(),
                who: who.as_deref(),
                scale: if *full { suites::Scale::Full } else { suites::Scale::Quick },
                json: *json,
            };
            once::run(&once, out)?;
        }
        Command::Report { results, html, chart } => {
            let results = Results::read(results)?;
            if let Some(path) = html {
                std::fs::write(path, html::page(&results))?;
            }
            if let Some(path) = chart {
                let why = "these results are without the suite 'wait', which the chart shows";
                let missing = || io::Error::new(io::ErrorKind::InvalidInput, why);
                std::fs::write(path, html::wait_chart(&results).ok_or_else(missing)?)?;
            }
            if html.is_none() && chart.is_none() {
                report::write(&results, style, out)?;
                report::scoreboard(&results, style, out)?;
                report::legend(&results, style, out)?;
            }
        }
        Command::Serve { service, backend, port, who, core, supervised } => match who {
            Some(who) if *supervised => process::serve_supervised(who, *service, *core)?,
            who => serve::serve(*service, backend.as_deref(), who.as_deref(), *port, out)?,
        },
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(suites: Vec<Suite>, options: &Options) -> io::Result<Results> {
    let (machine, begun) = (Machine::here(), Instant::now());
    let absent = absent(&suites);
    let measured = Runner::new(options.rounds, options.baseline.clone()).run(suites)?;
    let settings = Settings {
        scale: options.scale().name().into(),
        rounds: options.rounds,
        seed: random::SEED,
        cores: cores::server_and_clients(),
        optimised: !cfg!(debug_assertions),
        seconds: begun.elapsed().as_secs_f64(),
    };
    Ok(Results::new(settings, machine, absent, measured))
}

/// Everyone who is missing somewhere, once.
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
