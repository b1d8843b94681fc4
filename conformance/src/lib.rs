//! One suite, run against every backend.
//!
//! [`suite!`] makes one `#[test]` of each case, for any [`Backend`](poll_core::Backend).
//! This is all that a crate with a backend of its own needs, say in `tests/suite.rs`:
//!
//! ```
//! # use poll_select::Select as MyBackend;
//! conformance::suite!(mine, MyBackend::new);
//! # // Without a test harness the macro leaves nothing to run: run a point by hand.
//! # for case in conformance::all_cases().into_iter().filter(|case| case.point == 7) {
//! #     let outcome = conformance::run_case(&case.path(), case.run, MyBackend::new);
//! #     assert!(!matches!(outcome, conformance::Outcome::Fail(_)), "{outcome}");
//! # }
//! ```
//!
//! with this in its `Cargo.toml`, so that none of the backends of this family, nor the
//! [program](matrix) that compares them, comes along:
//!
//! ```toml
//! [dev-dependencies]
//! conformance = { version = "0.1", default-features = false }
//! ```
//!
//! `cargo test mine::wakes` then runs the cases about wakes. Without the test
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
//! A case is a function of a [`Lab`], which makes fresh backends. It panics where
//! the contract is broken, and the message says what was expected and why.
//!
//! It returns a [`Skip`] where the backend, or this machine, lacks what the case is
//! about: a mode that may be `Unsupported`, operations, enough descriptors, the
//! permission to count system calls. Skips are printed, never silent:
//!
//! ```text
//! skip mine::modes::edge_reports_news_only: mine has no edge-triggered mode
//! ```
//!
//! A backend whose `new` fails with `Unsupported` skips everything, with its own
//! words; any other error of `new` fails every case. So read the skips once: each
//! should be something that your documentation says, too.
//!
//! # What runs alone
//!
//! `cargo test` runs the cases of one executable as threads of one process. Some
//! need the process for themselves: they fork, count open descriptors, lower limits.
//! Others would find the machine busy while they measure time. Those for which
//! [`runs_alone`] is true wait until no other case runs, and the others wait for
//! them. cargo-nextest and the [program](matrix) give each case a process instead;
//! only the latter keeps the machine free for them.
//!
//! A case that is not over in a minute fails as a hang. Its thread is left behind.
//!
//! # Adding a case
//!
//! Cases are grouped by the points of poll-core's [contract](poll_core#the-contract) and,
//! from 13 on, of uv-core's [behaviour](uv_core#behaviour), a module each in [`cases`].
//! The latter are about the loop, and run it on every backend: what it does must not
//! depend on which. To add one:
//!
//! 1. Write `pub fn its_property<B: Backend>(lab: &Lab<B>) -> Verdict` in the module
//!    of the point, with a doc comment that says what breaks without it. Make it of
//!    what is in `support`: sources, waits, limits, signals, children, a counter of
//!    system calls. Await events rather than sleep; prefer one precise assertion with
//!    a message to many.
//! 2. Name it in the list in `cases/mod.rs`, and with its point in poll-core's
//!    `docs/contract.md` or uv-core's `docs/behaviour.md`; a test compares them.
//! 3. Break a backend on purpose in `tests/broken/mod.rs`, and name the case that
//!    catches it in `tests/defects.rs`; or break the loop for a moment, and see the case
//!    fail. A case that has never failed shows nothing.

// The page speaks of the program even where it is not built.
#![cfg_attr(not(feature = "matrix"), allow(rustdoc::broken_intra_doc_links))]

pub mod cases;
mod lab;
#[cfg(feature = "matrix")]
pub mod matrix;
mod run;
mod support;

pub use lab::{Lab, Skip, Verdict};
pub use run::{Case, Outcome, POINTS, all_cases, check, run_case, run_case_within, runs_alone};

/// Makes one `#[test]` of every case, in a module `$name`, for the backends that
/// `$new` makes: `suite!(mine, MyBackend::new)`.
///
/// `$new` is any `Fn() -> io::Result<impl Backend>`: a closure may choose options.
/// It is used by many threads at once. Use the macro several times, with different
/// names, for a backend with several modes.
#[macro_export]
macro_rules! suite {
    ($name:ident, $new:expr) => {
        #[allow(clippy::redundant_closure)]
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            $crate::__list_of_cases!(__suite_of_tests, stringify!($name), $new);
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __suite_of_tests {
    ($name:expr, $new:expr; $($point:literal $group:ident: $($case:ident)*;)*) => { $(
        mod $group {
            #[allow(unused_imports)]
            use super::*;
            $(
                #[test]
                fn $case() {
                    $crate::check(
                        $name,
                        concat!(stringify!($group), "::", stringify!($case)),
                        $crate::cases::$group::$case,
                        $new,
                    );
                }
            )*
        }
    )* };
}
