//! `bench drive`: loads a server of another process, usually on another host, where `bench serve`
//! runs it. The server's CPU time is not known here: rates are those of the wall clock.

use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use crate::load::{self, Arrivals, Echo, Open, Outcome, Remote, Talk, Window};
use crate::network::Network;
use crate::report::{self, Style};
use crate::runner::LEAST_ROUNDS;
use crate::suite::{ContestantId, Count, Entrants, Figure, Scenario, Suite, Unit};
use crate::suites::serving::latency;
use crate::{Conditions, measure, write_files};

/// The arguments of `bench drive`.
#[derive(Debug, clap::Args)]
pub struct DriveOptions {
    /// The server: HOST:PORT
    #[arg(long, value_name = "HOST:PORT")]
    to: String,
    /// It serves HTTP instead of echoing
    #[arg(long)]
    http: bool,
    /// Connections
    #[arg(long, value_name = "N", default_value_t = 64)]
    connections: usize,
    /// Bytes of a request, unless it is HTTP
    #[arg(long, value_name = "N", default_value_t = 64)]
    bytes: usize,
    /// Requests of each connection in flight, in the closed loop
    #[arg(long, value_name = "N", default_value_t = 1)]
    depth: usize,
    /// The duration of each measurement in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 300)]
    window: u64,
    /// Rounds
    #[arg(short, long, value_name = "N", default_value_t = LEAST_ROUNDS)]
    rounds: usize,
    /// The folder for report.html, results.json and histograms
    #[arg(short, long, value_name = "FOLDER", default_value = "target/bench-drive")]
    out: PathBuf,
}

/// Loads the server, prints the tables and writes the files.
///
/// # Errors
///
/// Those of the connections and of writing, and `InvalidInput` for an unknown host.
pub fn run(options: &DriveOptions, style: Style, out: &mut dyn Write) -> io::Result<()> {
    crate::limits::descriptors();
    let named = |error: io::Error| {
        let hint = match error.kind() {
            io::ErrorKind::InvalidInput => ": use HOST:PORT, with a name or an IPv4 address",
            io::ErrorKind::ConnectionRefused | io::ErrorKind::TimedOut => {
                ": is 'bench serve echo --host ADDRESS' running there?"
            }
            _ => "",
        };
        io::Error::new(error.kind(), format!("{}: {error}{hint}", options.to))
    };
    let found = options.to.to_socket_addrs().map_err(named)?.find(SocketAddr::is_ipv4);
    let unknown = || io::Error::new(io::ErrorKind::InvalidInput, "no IPv4 address");
    let address = found.ok_or_else(unknown).map_err(named)?;
    let network = Network::Host(options.to.clone());
    let rounds = options.rounds.max(1);
    let plan = Conditions { scale: "drive", rounds, budget: None, baseline: None, network };
    let (results, recorded) = measure(vec![suite(options, address).map_err(named)?], plan)?;
    report::write(&results, style, out)?;
    report::legend(&results, style, out)?;
    write_files(&options.out, &results, &recorded, out)
}

/// A closed loop, and open loops at shares of its rate.
fn suite(options: &DriveOptions, address: SocketAddr) -> io::Result<Suite> {
    let server = Remote(address);
    let window = Window {
        warm_up: Duration::from_millis(options.window / 10),
        measured: Duration::from_millis(options.window),
        check: false,
    };
    let talk = if options.http { Talk::Http } else { Talk::Echo(options.bytes.max(1)) };
    let plan = Echo::new(options.connections.max(1), talk, options.depth.max(1), 1);
    let most = load::maximum(&server, plan, window)?;
    let mut scenarios =
        vec![scenario("closed loop".into(), None, move || load::echo(&server, plan, window))];
    for (name, arrivals) in [("constant", Arrivals::Constant), ("Poisson", Arrivals::Poisson)] {
        for percent in [30, 50, 70, 90] {
            let load = Open { rate: most * percent as f64 / 100.0, arrivals };
            let run = move || load::open(&server, plan, load, window);
            scenarios.push(scenario(format!("{name}, {percent} %"), Some(percent), run));
        }
    }
    let about = "a server of another process or host";
    Ok(Suite { name: "drive", about, scenarios })
}

fn scenario(
    name: String,
    parameter: Option<u64>,
    run: impl Fn() -> io::Result<Outcome> + 'static,
) -> Scenario {
    let mut entrants = Entrants { warm_up_themselves: true, ..Entrants::default() };
    let run = Rc::new(run);
    entrants.enter(ContestantId::Peer("remote"), move || Ok(run()?.sample(1, &[0.5, 0.99, 0.999])));
    let about = "requests that were answered, per second of wall-clock time. Open loops are at \
                 shares of the rate of the closed loop";
    let (unit, count) = (Unit::PerSecond, Count::AtLeast(1));
    let mut figures = vec![Figure { name: "requests", about, unit, count }];
    figures.extend(["p50", "p99", "p99.9"].map(latency));
    Scenario { name, parameter, figures, entrants }
}
