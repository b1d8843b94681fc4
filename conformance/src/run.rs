//! Running cases: alone where they must be, with a limit on time, panics caught.

use std::any::Any;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::RwLock;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use poll_core::Backend;

use crate::{Lab, Verdict};

/// A case that takes longer hangs.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// Cases that change or count what the whole process shares (descriptors, limits,
/// signal handlers, children) run while no other case does.
const ALONE: [&str; 2] = ["scale", "surroundings"];

/// Held for reading by ordinary cases, for writing by those that run alone.
static ROOM: RwLock<()> = RwLock::new(());

/// One case for one kind of backend.
#[derive(Debug)]
pub struct Case<B> {
    /// The point of the contract that it checks.
    pub point: u8,
    /// The module it is in.
    pub group: &'static str,
    /// Its name within the module.
    pub name: &'static str,
    /// The case itself.
    pub run: fn(&Lab<B>) -> Verdict,
}

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The contract holds.
    Pass,
    /// The contract is broken, and how.
    Fail(String),
    /// The case does not apply, and why.
    Skip(String),
}

/// Every case, for backends of type `B`.
pub fn all_cases<B: Backend + 'static>() -> Vec<Case<B>> {
    crate::__list_of_cases!(__array_of_cases)
}

#[doc(hidden)]
#[macro_export]
macro_rules! __array_of_cases {
    (; $($point:literal $group:ident: $($case:ident)*;)*) => {
        vec![$($(
            $crate::Case {
                point: $point,
                group: stringify!($group),
                name: stringify!($case),
                run: $crate::cases::$group::$case,
            },
        )*)*]
    };
}

/// Runs one case on backends from `new`, with a limit on its time.
pub fn run_case<B: Backend + 'static>(
    group: &str,
    case: fn(&Lab<B>) -> Verdict,
    new: impl Fn() -> io::Result<B> + Send + Sync + 'static,
) -> Outcome {
    let alone = ALONE.contains(&group);
    // A case that panicked poisons nothing that the next one could see.
    let _shared = (!alone).then(|| ROOM.read().unwrap_or_else(|poison| poison.into_inner()));
    let _alone = alone.then(|| ROOM.write().unwrap_or_else(|poison| poison.into_inner()));

    let (done, result) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let lab = Lab::new(new);
        let _ = done.send(catch_unwind(AssertUnwindSafe(|| case(&lab))));
    });
    match result.recv_timeout(TIME_LIMIT) {
        Ok(Ok(Ok(()))) => Outcome::Pass,
        Ok(Ok(Err(skip))) => Outcome::Skip(skip.reason().into()),
        Ok(Err(panic)) => Outcome::Fail(message(&*panic)),
        Err(RecvTimeoutError::Timeout) => {
            Outcome::Fail(format!("hangs: not over after {} s", TIME_LIMIT.as_secs()))
        }
        Err(RecvTimeoutError::Disconnected) => Outcome::Fail(match thread.join() {
            Ok(()) => "ended without a result".into(),
            Err(panic) => message(&*panic),
        }),
    }
}

/// Runs one case as a `#[test]`: panics if it fails, prints if it is skipped.
///
/// # Panics
///
/// If the case fails.
pub fn check<B: Backend + 'static>(
    backend: &str,
    name: &str,
    case: fn(&Lab<B>) -> Verdict,
    new: impl Fn() -> io::Result<B> + Send + Sync + 'static,
) {
    let group = name.split("::").next().unwrap_or_default();
    match run_case(group, case, new) {
        Outcome::Pass => {}
        Outcome::Fail(why) => panic!("{backend}::{name}: {why}"),
        // Not `eprintln!`: the test harness would swallow it.
        Outcome::Skip(why) => {
            let _ = io::stderr().write_all(format!("skip {backend}::{name}: {why}\n").as_bytes());
        }
    }
}

pub(crate) fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| text.to_string());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "panicked with something other than a text".into())
}
