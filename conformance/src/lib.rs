//! Conformance suite for backends and for the loop on them.
//!
//! [`suite!`] generates one `#[test]` per case, for any [`Backend`](poll_core::Backend).
//! A crate with a custom backend needs only this, for example in `tests/suite.rs`:
//!
//! ```
//! # use poll_select::Select as MyBackend;
//! conformance::suite!(backend, MyBackend::new);
//! # // Without a test harness the macro generates nothing to run: run one point here.
//! # for case in conformance::all_cases().into_iter().filter(|case| case.point == 7) {
//! #     let outcome = conformance::run_case(&case.path(), case.run, MyBackend::new);
//! #     assert!(!matches!(outcome, conformance::Outcome::Fail(_)), "{outcome}");
//! # }
//! ```
//!
//! with this in its `Cargo.toml`, which excludes the backends of this workspace and the
//! [program](matrix) that compares them:
//!
//! ```toml
//! [dev-dependencies]
//! conformance = { package = "poll-conformance", version = "0.1", default-features = false }
//! ```
//!
//! `cargo test backend::wakes` then runs the cases about wakes. Without the test
//! harness, [`all_cases`] and [`run_case`] do the same:
//!
//! ```
//! # use poll_select::Select as MyBackend;
//! use conformance::{Outcome, all_cases, run_case};
//!
//! for case in all_cases().into_iter().filter(|case| case.group == "mistakes") {
//!     let outcome = run_case(&case.path(), case.run, MyBackend::new);
//!     println!("{}: {outcome}", case.path());
//!     assert!(!matches!(outcome, Outcome::Fail(_)));
//! }
//! ```
//!
//! # Reading the results
//!
//! A case is a function of a [`Lab`], which creates backends. It panics where the contract is
//! violated, with a message that names the expectation and its reason.
//!
//! It returns a [`Skip`] where the backend or this machine lacks what the case needs: an optional
//! mode, operations, enough descriptors, the permission to count system calls. Skips are printed,
//! never silent:
//!
//! ```text
//! skip backend::modes::edge_reports_transitions_only: backend has no edge-triggered mode
//! ```
//!
//! A backend whose `new` fails with `Unsupported` skips every case with its error text; any other
//! error of `new` fails every case. Check the skips once: your backend's documentation should
//! mention each of them.
//!
//! # Exclusive cases
//!
//! `cargo test` runs the cases of one executable as threads of one process. Some need the process
//! exclusively: they fork, count open descriptors or lower limits. Others measure time, which
//! concurrent cases would distort. A case for which [`runs_alone`] is true does not run
//! concurrently with any other. cargo-nextest and the [program](matrix) run each case in its own
//! process; only the latter also runs these cases one at a time.
//!
//! A case that takes longer than a minute fails as a hang, and its thread is left running.
//!
//! # Adding a case
//!
//! Cases are grouped by the points of poll-core's [contract](poll_core::contract) and,
//! from 13 on, of uv-core's [behaviour](uv_core::behaviour), one module per point in [`cases`].
//! The latter test the loop on every backend, since its behaviour must not depend on the backend.
//! To add a case:
//!
//! 1. Write `pub fn its_property(lab: &Lab) -> Verdict` in the module of the point, with a doc
//!    comment whose first line states the property. Build it from `support`: sources, waits,
//!    limits, signals, children, a counter of system calls. Await events rather than sleep;
//!    prefer one precise assertion with a message to many.
//! 2. Add its name to the list in `cases/list`, the only one: [`all_cases`], the tests of
//!    [`suite!`] and the program's `--list` are generated from it.
//! 3. Inject a defect in `tests/broken/mod.rs` and name the case that catches it in
//!    `tests/defects.rs`, or break the loop temporarily, and verify that the case fails.

// The documentation links to the program even where it is not built.
#![cfg_attr(not(feature = "matrix"), allow(rustdoc::broken_intra_doc_links))]

pub mod cases;
mod faulty;
pub mod fuzz;
mod lab;
#[cfg(feature = "matrix")]
pub mod matrix;
mod rng;
mod run;
mod support;

pub use faulty::{Fault, FaultCounts, Faulty, breaks_under_faults};
pub use lab::{Lab, Skip, Verdict};
pub use run::{Case, Outcome, POINTS, all_cases, check, run_case, run_case_within, runs_alone};

/// The loop type of all cases, with a type-erased backend.
pub(crate) type Loop = uv_core::Loop<poll_core::BoxedBackend>;

/// Generates one `#[test]` per case, in a module `$name`, for the backends that `$new` creates:
/// `suite!(backend, MyBackend::new)`. The name must not be that of a crate that the test uses.
///
/// `$new` is any `Fn() -> io::Result<impl Backend>`, such as a closure that sets options. Many
/// threads call it concurrently. Use the macro several times, with different names, for a backend
/// with several configurations.
///
/// Cases about panics may print messages of panics although they pass: the result of the test
/// counts.
///
/// # Cost
///
/// The cases are compiled once, with this library, for a backend behind a [`Box`]: a suite adds a
/// `#[test]` for each. With Cargo's default profile (rustc 1.95, x86-64 Linux), the first suite of a
/// crate builds in 74 CPU seconds, all dependencies included, with 1.2 GB for the largest compiler
/// process; it takes 2 CPU seconds to build the suite again, and the executable has 137 MB. While
/// every case was generic over the backend, a suite took 8 CPU minutes, 7.2 GB and 816 MB.
#[macro_export]
macro_rules! suite {
    ($name:ident, $new:expr) => {
        #[allow(clippy::redundant_closure)]
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            // One function, so that `$new` has one type for all cases. Without a test harness there
            // is nothing to call it.
            #[cfg(test)]
            fn __check(path: &str, case: fn(&$crate::Lab) -> $crate::Verdict) {
                $crate::check(stringify!($name), path, case, $new);
            }
            $crate::__list_of_cases!(__suite_of_tests);
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __suite_of_tests {
    ($($point:literal $group:ident: $($case:ident)*;)*) => { $(
        mod $group {
            $(
                #[test]
                fn $case() {
                    super::__check(
                        concat!(stringify!($group), "::", stringify!($case)),
                        $crate::cases::$group::$case,
                    );
                }
            )*
        }
    )* };
}
