//! Runs the suite on every backend that this machine can run.

use std::process::ExitCode;

use conformance::fuzz::LiveMemory;

/// Random programs are checked for memory that they leave behind.
#[global_allocator]
static MEMORY: LiveMemory = LiveMemory;

fn main() -> ExitCode {
    conformance::matrix::main(conformance::matrix::backends())
}
