//! One suite, run against every backend.
//!
//! [`suite!`] makes one `#[test]` of each case, for any [`Backend`](poll_core::Backend):
//!
//! ```text
//! conformance::suite!(mine, || MyBackend::new());
//! ```
//!
//! A case is a function of a [`Lab`], which makes fresh backends. It panics where
//! the contract is broken and returns a [`Skip`] where the backend, or this
//! machine, lacks what the case is about. Skips are printed, never silent.
//!
//! Cases are grouped by the points of poll-core's
//! [contract](poll_core#the-contract), a module each in [`cases`].

pub mod cases;
mod lab;
mod run;
mod support;

pub use lab::{Lab, Skip, Verdict};
pub use run::{Case, Outcome, all_cases, check, run_case};

/// Makes one `#[test]` of every case, in a module `$name`, for the backends that
/// `$new` makes: `suite!(mine, || MyBackend::new())`.
#[macro_export]
macro_rules! suite {
    ($name:ident, $new:expr) => {
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
