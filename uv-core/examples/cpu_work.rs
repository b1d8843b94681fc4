//! Work that needs the processor, on the pool: progress while it runs, and a way to cancel it.
//!
//! ```sh
//! cargo run --release -p uv-core --example cpu_work -- --until 5000000 --seconds 10
//! ```
//!
//! Counts primes in a thread of the pool. The loop stays free: it prints the progress, and it
//! cancels the work after `--seconds`.

mod common;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use uv_core::{Channel, Handle, Loop, RunMode, Timer};

/// A share of the work between two reports.
const STEP: u64 = 10_000;

pub(crate) fn main() -> io::Result<()> {
    let arguments = common::Arguments::read(&["--backend", "--until", "--seconds"])?;
    let backend: String = arguments.get("--backend", "auto".into())?;
    let until = arguments.get("--until", 5_000_000)?;
    let limit = Duration::from_secs(arguments.get("--seconds", 10)?);
    let result = count_primes(&backend, until, limit, move |done| {
        println!("{:3} %", done * 100 / until);
    })?;
    match result {
        Some(primes) => println!("{primes} primes below {until}"),
        None => println!("cancelled"),
    }
    Ok(())
}

/// Counts the primes below `until`. `None` if that takes longer than `limit`.
pub(crate) fn count_primes(
    backend: &str,
    until: u64,
    limit: Duration,
    mut progress: impl FnMut(u64) + 'static,
) -> io::Result<Option<u64>> {
    let mut lp = Loop::new(common::backend(backend)?);
    let cancelled = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&cancelled);
    let timer = Timer::after(&mut lp, limit, move |_, _| flag.store(true, Ordering::Relaxed));
    let (channel, sender) = Channel::new(&mut lp, move |_, _, done| progress(done));
    let work = move || {
        let mut primes = 0;
        for first in (0..until).step_by(STEP as usize) {
            // A thread cannot be stopped from outside: work checks a flag.
            if cancelled.load(Ordering::Relaxed) {
                return None;
            }
            let share = first..until.min(first + STEP);
            primes += share.filter(|number| is_prime(*number)).count() as u64;
            let _ = sender.send(until.min(first + STEP)); // The loop may be gone.
        }
        Some(primes)
    };
    lp.queue_work(work, move |lp, result| {
        *lp.state() = result.expect("the work neither panics nor waits to be cancelled");
        timer.close_if_open(lp);
        channel.close_if_open(lp); // The progress was delivered before.
    })?;
    lp.run(RunMode::Default)?;
    Ok(*lp.state::<Option<u64>>())
}

fn is_prime(number: u64) -> bool {
    let divisors = 2..;
    let mut divisors = divisors.take_while(|divisor| divisor * divisor <= number);
    number > 1 && divisors.all(|divisor| !number.is_multiple_of(divisor))
}
