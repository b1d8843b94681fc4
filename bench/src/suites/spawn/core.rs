//! Process handles of `uv-core`.

use std::cell::Cell;
use std::io;
use std::rc::Rc;

use poll_core::Backend;
use uv_core::{Command, Handle, Loop, Process, RunMode};

use super::PROGRAM;
use crate::clock::Stopwatch;
use crate::suite::{Reading, Sample};

/// How many children are still to be started, and how many have ended well.
struct Progress {
    left: Cell<u64>,
    done: Cell<u64>,
}

pub(super) fn run<B: Backend>(backend: B, children: u64) -> io::Result<Sample> {
    let mut lp = Loop::new(backend);
    let progress = Rc::new(Progress { left: Cell::new(children), done: Cell::new(0) });
    let watch = Stopwatch::start();
    spawn(&mut lp, Rc::clone(&progress))?;
    lp.run(RunMode::Default)?;
    let spent = watch.spent();
    Ok(Sample::new([Reading { count: progress.done.get(), spent }; 2]))
}

fn spawn<B: Backend>(lp: &mut Loop<B>, progress: Rc<Progress>) -> io::Result<()> {
    let Some(left) = progress.left.get().checked_sub(1) else { return Ok(()) };
    progress.left.set(left);
    Process::spawn(lp, &Command::new(PROGRAM), move |lp, process, exit| {
        let is_well = exit.is_ok_and(|exit| exit.success()) && process.close(lp).is_ok();
        progress.done.set(progress.done.get() + u64::from(is_well));
        // If this fails the count is wrong, and that is found.
        let _ = spawn(lp, progress);
    })
    .map(drop)
}
