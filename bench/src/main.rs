//! See the library's page.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use bench::allocations::Counting;
use bench::options::Options;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    let options = Options::parse();
    // Not locked: a server that is asked about itself answers from another thread.
    match bench::run(&options, &mut io::stdout()) {
        Ok(code) => code,
        Err(error) => {
            // If even that cannot be written, the status says it.
            let _ = writeln!(io::stderr(), "bench: {error}");
            ExitCode::from(2)
        }
    }
}
