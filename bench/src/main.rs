//! The benchmark program; see the documentation of the library.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use bench::allocations::Counting;
use bench::options::Options;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    let options = Options::parse();
    // Not locked: a supervised server reports its counters from another thread.
    match bench::run(&options, &mut io::stdout()) {
        Ok(code) => code,
        Err(error) => {
            // If the write fails, the exit status still reports the error.
            let _ = writeln!(io::stderr(), "bench: {error}");
            ExitCode::from(2)
        }
    }
}
