//! A backend to be examined, with its type forgotten.

use std::io;
use std::{fmt, sync::Arc};

use poll_core::Backend;

use crate::{Outcome, all_cases, run_case, runs_alone};

/// A backend by name, and every case ready to run on it.
#[derive(Debug)]
pub struct Candidate {
    name: &'static str,
    note: Option<&'static str>,
    cases: Result<Vec<Entry>, String>,
}

/// One case, ready to run on one backend.
pub struct Entry {
    point: u8,
    path: String,
    run: Box<dyn Fn() -> Outcome + Send + Sync>,
}

impl Candidate {
    /// The backend that `new` makes. One whose `new` says `Unsupported` is listed
    /// with the reason and not run.
    pub fn new<B: Backend + 'static>(
        name: &'static str,
        new: impl Fn() -> io::Result<B> + Send + Sync + 'static,
    ) -> Candidate {
        if let Err(error) = new()
            && error.kind() == io::ErrorKind::Unsupported
        {
            return Candidate::absent(name, error.to_string());
        }
        let new = Arc::new(new);
        let entries = all_cases::<B>().into_iter().map(|case| {
            let (path, new) = (case.path(), new.clone());
            let run = move || {
                let new = new.clone();
                run_case(&path, case.run, move || new())
            };
            Entry { point: case.point, path: case.path(), run: Box::new(run) }
        });
        Candidate { name, note: None, cases: Ok(entries.collect()) }
    }

    /// A backend that cannot run here, and why.
    pub fn absent(name: &'static str, why: impl Into<String>) -> Candidate {
        Candidate { name, note: None, cases: Err(why.into()) }
    }

    /// The same with something that a reader of its results should know.
    pub fn noted(self, note: &'static str) -> Candidate {
        Candidate { note: Some(note), ..self }
    }

    /// What a reader of its results should know.
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
    /// The reason, in a few words.
    pub fn cases(&self) -> Result<&[Entry], &str> {
        match &self.cases {
            Ok(cases) => Ok(cases),
            Err(why) => Err(why),
        }
    }
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

    /// True if nothing else should run at the same time.
    pub fn alone(&self) -> bool {
        runs_alone(&self.path)
    }

    /// Runs it in this process.
    pub fn run(&self) -> Outcome {
        (self.run)()
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Entry").field(&self.path).finish()
    }
}
