//! Runs the suite on every backend that this machine can run.

use std::process::ExitCode;

fn main() -> ExitCode {
    conformance::matrix::main(conformance::matrix::backends())
}
