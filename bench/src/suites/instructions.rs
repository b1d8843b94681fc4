//! User instructions of a TCP server per request, counted by valgrind's callgrind: they repeat where
//! times are noisy. The kernel's are not in it: see the suite of system calls.

use crate::suite::Suite;
use crate::suites::Scale;

/// The suite. It takes minutes, so that a quick run has none of it unless it is named.
pub fn suite(scale: Scale) -> Suite {
    let about = "user instructions of TCP servers per request, counted by callgrind";
    #[cfg(target_os = "linux")]
    let scenarios = linux::scenarios(scale);
    #[cfg(not(target_os = "linux"))]
    let scenarios = super::serving::elsewhere(scale);
    Suite { name: "instructions", about, scenarios }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io;
    use std::path::PathBuf;
    use std::time::Duration;

    use crate::count::callgrind;
    use crate::load::{self, Echo, Talk};
    use crate::process::{Launch, ServerProcess};
    use crate::servers::{self, Service};
    use crate::suite::{ContestantId, Count, Entrants, Figure, Reading, Sample, Scenario, Unit};
    use crate::suites::Scale;

    /// The time for the profile to be written.
    const PATIENCE: Duration = Duration::from_secs(20);

    pub(super) fn scenarios(scale: Scale) -> Vec<Scenario> {
        match scale {
            // Every run takes seconds.
            Scale::Tiny => vec![scenario("3 at once", 3, 10, is_of_a_test)],
            Scale::Quick | Scale::Full => vec![
                scenario("1 connection", 1, 200, |_| true),
                scenario("16 at once", 16, 40, |_| true),
            ],
        }
    }

    fn is_of_a_test(id: ContestantId) -> bool {
        matches!(id, ContestantId::Core("poll" | "uring") | ContestantId::Peer("mio"))
    }

    fn scenario(
        name: &str,
        connections: usize,
        rounds: u64,
        runs: fn(ContestantId) -> bool,
    ) -> Scenario {
        // Each run is a new process, and counts do not get faster.
        let mut entrants = Entrants { warm_up_themselves: true, ..Entrants::default() };
        let missing = callgrind::find().err().map(|error| error.to_string());
        for server in servers::all() {
            let id = server.id;
            match (server.serve, &missing) {
                (Err(why), _) => entrants.skip(id, why),
                (Ok(_), Some(why)) => entrants.skip(id, why),
                (Ok(_), None) if !runs(id) => {}
                (Ok(_), None) => entrants.enter(id, move || run(id, connections, rounds)),
            }
        }
        let figure = Figure {
            name: "instructions",
            about: "user instructions of the server for each request of 64 bytes, from the \
                    difference of two runs, so that the start cancels out. With several \
                    connections the server is stopped while the requests are sent, and finds \
                    all of them at once",
            unit: Unit::InstructionsEach,
            count: Count::Exactly(2 * rounds * connections as u64),
        };
        let parameter = Some(connections as u64);
        Scenario { name: name.into(), parameter, figures: vec![figure], entrants }
    }

    /// The difference between a short run and one three times as long.
    fn run(id: ContestantId, connections: usize, rounds: u64) -> io::Result<Sample> {
        let counts = [rounds, 3 * rounds].map(|rounds| counted(id, connections, rounds));
        let mut sample = Sample::default();
        match counts {
            [Ok((few, short)), Ok((many, long))] => {
                let mut reading = Reading { count: many - few, spent: Default::default() };
                reading.spent.amount = long.saturating_sub(short);
                sample.readings.push(Some(reading));
            }
            [one, other] => {
                // A runtime may use what valgrind does not emulate.
                let error = one.and(other).err().unwrap_or_else(|| io::ErrorKind::Other.into());
                sample.readings.push(None);
                sample.notes.push(format!("does not run under valgrind: {error}"));
            }
        }
        Ok(sample)
    }

    /// The requests and the instructions of one run.
    fn counted(id: ContestantId, connections: usize, rounds: u64) -> io::Result<(u64, u64)> {
        let file = profile();
        let launch =
            Launch { callgrind: Some(file.clone()), ..Launch::new(id, Service::Echo, None) };
        let counted = (|| {
            let mut server = ServerProcess::launch(&launch)?;
            let plan = Echo::new(connections, Talk::Echo(64), 1, 1);
            // The connections end here, and the server with the first of them.
            let requests = load::batches(&server, plan, rounds)?;
            server.wait(PATIENCE)?;
            Ok((requests, callgrind::total_of(&file)?))
        })();
        // There is none if the run has failed.
        let _ = std::fs::remove_file(file);
        counted
    }

    /// A file name that no other run uses.
    fn profile() -> PathBuf {
        use std::sync::atomic::{AtomicUsize, Ordering};

        static MADE: AtomicUsize = AtomicUsize::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("bench-instructions-{}-{number}.callgrind", std::process::id());
        std::env::temp_dir().join(name)
    }
}
