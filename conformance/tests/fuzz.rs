//! Random programs pass on a backend with faults, and a backend that is broken is found.

use std::sync::{Mutex, PoisonError};

use conformance::fuzz::{Fuzz, LiveMemory, Report, fuzz};
use conformance::{Fault, all_cases, breaks_under_faults};
use poll_core::Backend;

#[global_allocator]
static MEMORY: LiveMemory = LiveMemory;

/// Runs programs while no other test does: each counts the descriptors of the process.
fn fuzz_alone<B: Backend>(options: &Fuzz, new: impl Fn() -> std::io::Result<B>) -> Report {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    fuzz(options, new, |_| {})
}

/// Programs without operations meet every fault of readiness.
#[test]
fn programs_pass_over_late_and_spurious_readiness() {
    let options = Fuzz { seeds: 200, faulty: true, ..Fuzz::default() };
    let report = fuzz_alone(&options, poll_select::Select::new);
    assert!(report.failure.is_none(), "{}", report.failure.expect("a failure"));
    let readiness = [
        Fault::EarlyReturn,
        Fault::LateReadiness,
        Fault::SpuriousReadiness,
        Fault::Reorder,
        Fault::RegisterError,
    ];
    for fault in readiness {
        assert!(report.faults.of(fault) > 0, "{fault:?} was not injected");
    }
}

/// Programs with operations meet every fault of completion.
#[cfg(target_os = "linux")]
#[test]
fn programs_pass_over_late_completions() {
    match poll_uring::Uring::new() {
        Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {
            return eprintln!("skip: {error}");
        }
        _ => {}
    }
    let options = Fuzz { seeds: 200, faulty: true, ..Fuzz::default() };
    let report = fuzz_alone(&options, poll_uring::Uring::new);
    assert!(report.failure.is_none(), "{}", report.failure.expect("a failure"));
    let completion =
        [Fault::LateCompletion, Fault::LateCancel, Fault::SubmitError, Fault::ShortTransfer];
    for fault in completion {
        assert!(report.faults.of(fault) > 0, "{fault:?} was not injected");
    }
}

/// A backend that leaves a descriptor behind fails every program, so nothing is left of it.
#[cfg(unix)]
#[test]
fn a_failing_program_shrinks_to_what_is_needed() {
    let leaking = || {
        std::mem::forget(std::fs::File::open("/dev/null")?);
        poll_select::Select::new()
    };
    let report = fuzz_alone(&Fuzz { seeds: 3, ..Fuzz::default() }, leaking);
    let failure = report.failure.expect("a failure");
    assert!(failure.why_shortest.iter().any(|why| why.starts_with("descriptors")), "{failure}");
    assert_eq!(failure.program.lines().count(), 1, "{failure}");
}

/// A backend that leaves memory behind fails every program.
#[test]
fn memory_that_is_left_behind_is_found() {
    let leaking = || {
        std::mem::forget(vec![0_u8; 100]);
        poll_select::Select::new()
    };
    let report = fuzz_alone(&Fuzz { seeds: 3, ..Fuzz::default() }, leaking);
    let failure = report.failure.expect("a failure");
    assert!(failure.why_shortest.iter().any(|why| why.starts_with("memory")), "{failure}");
}

#[test]
fn cases_that_break_under_faults_exist() {
    let count =
        all_cases().iter().filter(|case| breaks_under_faults(&case.path()).is_some()).count();
    assert_eq!(count, 18, "each entry of the list names one case");
}
