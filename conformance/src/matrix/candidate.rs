//! A type-erased backend to test.

use std::io;
use std::ops::RangeInclusive;
use std::{fmt, sync::Arc};

use poll_core::{Backend, BoxedBackend};

use crate::{
    Fault, FaultCounts, Faulty, Outcome, all_cases, breaks_under_faults, run_case, runs_alone,
};

/// The first point that is about the loop.
const LOOP: u8 = 13;

/// How many of 1000 transfers of a faulty candidate are short.
const SHORT_TRANSFERS: u16 = 150;

/// A named backend, and every case ready to run on it.
pub struct Candidate {
    name: &'static str,
    note: Option<&'static str>,
    cases: Result<Vec<Entry>, String>,
    new: Arc<dyn Fn() -> io::Result<BoxedBackend> + Send + Sync>,
    faults: Option<FaultCounts>,
}

/// One case, ready to run on one backend.
pub struct Entry {
    point: u8,
    path: String,
    run: Box<dyn Fn() -> Outcome + Send + Sync>,
}

impl Candidate {
    /// A candidate whose backends `new` creates. If `new` returns `Unsupported`, the backend is
    /// listed with the reason and not run.
    pub fn new<B: Backend>(
        name: &'static str,
        new: impl Fn() -> io::Result<B> + Send + Sync + 'static,
    ) -> Candidate {
        if let Err(error) = new()
            && error.kind() == io::ErrorKind::Unsupported
        {
            return Candidate::absent(name, error.to_string());
        }
        let new = Arc::new(new);
        let entries = all_cases().into_iter().map(|case| {
            let (path, new) = (case.path(), new.clone());
            let run = move || {
                let new = new.clone();
                run_case(&path, case.run, move || new())
            };
            Entry { point: case.point, path: case.path(), run: Box::new(run) }
        });
        let cases = Ok(entries.collect());
        let new = Arc::new(move || new().map(BoxedBackend::new));
        Candidate { name, note: None, cases, new, faults: None }
    }

    /// A backend that cannot run here, and why.
    pub fn absent(name: &'static str, why: impl Into<String>) -> Candidate {
        let why = why.into();
        let error = why.clone();
        let new = Arc::new(move || Err(io::Error::new(io::ErrorKind::Unsupported, error.clone())));
        Candidate { name, note: None, cases: Err(why), new, faults: None }
    }

    /// Adds a note for readers of the results.
    pub fn noted(self, note: &'static str) -> Candidate {
        Candidate { note: Some(note), ..self }
    }

    /// The same backend with the [faults](Faulty) of some seeds, and the cases of the loop that
    /// hold under faults. A case runs once with each seed, up to the first that it fails with.
    pub fn with_faults(&self, seeds: RangeInclusive<u64>) -> Candidate {
        let (name, note, new) = (self.name, self.note, Arc::clone(&self.new));
        let counts = FaultCounts::default();
        let cases = self.cases().map_err(str::to_string).map(|_| {
            let of_loop = all_cases().into_iter().filter(|case| case.point >= LOOP);
            let hold = of_loop.filter(|case| breaks_under_faults(&case.path()).is_none());
            hold.map(|case| {
                let (path, new, counts) = (case.path(), Arc::clone(&new), counts.clone());
                let seeds = seeds.clone();
                let run = move || {
                    run_with_each(seeds.clone(), |seed| {
                        let (new, counts) = (Arc::clone(&new), counts.clone());
                        run_case(&path, case.run, move || {
                            let faulty = Faulty::new(new()?, seed).with_counts(&counts);
                            Ok(faulty.with_rate(Fault::ShortTransfer, SHORT_TRANSFERS))
                        })
                    })
                };
                Entry { point: case.point, path: case.path(), run: Box::new(run) }
            })
            .collect()
        });
        Candidate { name, note, cases, new, faults: Some(counts) }
    }

    /// The faults that its cases have met, if it is one [with faults](Candidate::with_faults).
    pub fn faults(&self) -> Option<&FaultCounts> {
        self.faults.as_ref()
    }

    /// A new backend of this kind.
    ///
    /// # Errors
    ///
    /// As making the backend; `Unsupported` if it cannot run here.
    pub fn backend(&self) -> io::Result<BoxedBackend> {
        (self.new)()
    }

    /// The note for readers of the results.
    pub fn note(&self) -> Option<&'static str> {
        self.note
    }

    /// The name to select it by.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Its cases, or why it cannot run here.
    ///
    /// # Errors
    ///
    /// The reason, as a short text.
    pub fn cases(&self) -> Result<&[Entry], &str> {
        match &self.cases {
            Ok(cases) => Ok(cases),
            Err(why) => Err(why),
        }
    }
}

/// The first outcome that is no pass, with the seed of a failure.
fn run_with_each(seeds: RangeInclusive<u64>, run: impl Fn(u64) -> Outcome) -> Outcome {
    for seed in seeds {
        match run(seed) {
            Outcome::Pass => {}
            Outcome::Fail(why) => return Outcome::Fail(format!("seed {seed}: {why}")),
            skip @ Outcome::Skip(_) => return skip,
        }
    }
    Outcome::Pass
}

impl Entry {
    /// The point of the contract that it checks.
    pub fn point(&self) -> u8 {
        self.point
    }

    /// Its name: `group::case`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// True if the case must run exclusively.
    pub fn alone(&self) -> bool {
        runs_alone(&self.path)
    }

    /// Runs the case in this process.
    pub fn run(&self) -> Outcome {
        (self.run)()
    }
}

impl fmt::Debug for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Candidate").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Entry").field(&self.path).finish()
    }
}
