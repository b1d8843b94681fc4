//! Work requests of `uv-core`.

use std::cell::Cell;
use std::io;
use std::rc::Rc;

use poll_core::Backend;
use uv_core::{Loop, RunMode};

use super::IN_FLIGHT;
use crate::clock::Stopwatch;
use crate::suite::{Reading, Sample};

/// The number of jobs left to queue, and the number that completed.
struct Progress {
    left: Cell<u64>,
    done: Cell<u64>,
}

pub(super) fn run<B: Backend>(backend: B, jobs: u64) -> io::Result<Sample> {
    let mut lp = Loop::new(backend);
    let progress = Rc::new(Progress { left: Cell::new(jobs), done: Cell::new(0) });
    let watch = Stopwatch::start();
    for _ in 0..IN_FLIGHT {
        queue(&mut lp, Rc::clone(&progress));
    }
    lp.run(RunMode::Default)?;
    let spent = watch.spent();
    Ok(Sample::new([Reading { count: progress.done.get(), spent }; 2]))
}

fn queue<B: Backend>(lp: &mut Loop<B>, progress: Rc<Progress>) {
    let Some(left) = progress.left.get().checked_sub(1) else { return };
    progress.left.set(left);
    let queued = lp.queue_work(
        || (),
        move |lp, result| {
            progress.done.set(progress.done.get() + u64::from(result.is_ok()));
            queue(lp, progress);
        },
    );
    // A failure makes the count wrong, which the check reports.
    drop(queued);
}
