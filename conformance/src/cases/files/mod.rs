//! Point 36: files.
//!
//! What a backend performs itself and what a pool does must give the same: each case runs on
//! both kinds, and compares with what `std` says where it can.

mod attributes;
mod copies;
mod directories;
mod hardship;
mod names;
mod requests;
mod transfers;

use std::io::{self, ErrorKind};
use std::path::Path;

use poll_core::Backend;
use uv_core::Loop;
use uv_core::fs::{self, Action, File, OpenOptions, Operation};

use crate::support::loops::run_to_the_end;
use crate::support::trace::Log;

pub use attributes::*;
pub use copies::*;
pub use directories::*;
pub use hardship::*;
pub use names::*;
pub use requests::*;
pub use transfers::*;

/// Has the loop do it, to the end, and gives what came.
#[track_caller]
fn ask<T: Backend, A: Action>(lp: &mut Loop<T>, operation: Operation<A>) -> A::Output {
    let log = Log::default();
    let told = log.clone();
    operation.start(lp, move |_, output| told.push(output)).expect("an operation that starts");
    assert_eq!(log.len(), 0, "a call back from within the call");
    run_to_the_end(lp);
    let mut outputs = log.take();
    assert_eq!(outputs.len(), 1, "one call back");
    outputs.remove(0)
}

/// As [`ask`], for what must fail: with what kind of error.
#[track_caller]
fn refusal<T: Backend, A, R>(lp: &mut Loop<T>, operation: Operation<A>) -> ErrorKind
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
fn open<T: Backend>(lp: &mut Loop<T>, path: &Path, options: OpenOptions) -> File {
    ask(lp, fs::open(path, options))
        .unwrap_or_else(|error| panic!("open {}: {error}", path.display()))
}
