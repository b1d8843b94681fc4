//! Point 36: files.
//!
//! A backend that performs an operation and the pool must give the same result: each case runs on
//! both, and compares with `std` where possible.

mod attributes;
mod cancelling;
mod copies;
mod directories;
mod errors;
mod names;
mod requests;
mod transfers;

use std::io::{self, ErrorKind};
use std::path::Path;

use uv_core::fs::{self, Action, File, OpenOptions, Operation};

use crate::support::loops::run_to_the_end;
use crate::support::trace::Log;

use crate::Loop;
pub use attributes::*;
pub use cancelling::*;
pub use copies::*;
pub use directories::*;
pub use errors::*;
pub use names::*;
pub use requests::*;
pub use transfers::*;

/// Starts an operation, runs the loop to its end, and returns the output.
#[track_caller]
fn ask<A: Action>(lp: &mut Loop, operation: Operation<A>) -> A::Output {
    let log = Log::default();
    let sink = log.clone();
    operation.start(lp, move |_, output| sink.push(output)).expect("an operation that starts");
    assert_eq!(log.len(), 0, "a call back from within the call");
    run_to_the_end(lp);
    let mut outputs = log.take();
    assert_eq!(outputs.len(), 1, "one call back");
    outputs.remove(0)
}

/// As [`ask`], for an operation that must fail: returns the kind of error.
#[track_caller]
fn refusal<A, R>(lp: &mut Loop, operation: Operation<A>) -> ErrorKind
where
    A: Action<Output = io::Result<R>>,
    R: std::fmt::Debug + 'static,
{
    ask(lp, operation).expect_err("an operation that cannot succeed").kind()
}

const READ: OpenOptions = OpenOptions::new().read(true);
const WRITE: OpenOptions = OpenOptions::new().write(true);
const CREATE: OpenOptions = OpenOptions::new().read(true).write(true).create(true);

/// Opens a file that can be opened.
#[track_caller]
fn open(lp: &mut Loop, path: &Path, options: OpenOptions) -> File {
    ask(lp, fs::open(path, options))
        .unwrap_or_else(|error| panic!("open {}: {error}", path.display()))
}
