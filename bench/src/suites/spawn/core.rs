//! Process handles of `uv-core`.

use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use poll_core::Backend;
use uv_core::{Command, Handle, Loop, Process, RunMode};

use crate::clock::Stopwatch;
use crate::suite::{Reading, Sample};

/// The state shared by all children.
struct Work {
    program: PathBuf,
    /// The number of children left to start, and the number that exited successfully.
    left: Cell<u64>,
    done: Cell<u64>,
}

pub(super) fn run<B: Backend>(backend: B, program: &Path, children: u64) -> io::Result<Sample> {
    let mut lp = Loop::new(backend);
    let program = program.to_owned();
    let work = Rc::new(Work { program, left: Cell::new(children), done: Cell::new(0) });
    let watch = Stopwatch::start();
    spawn(&mut lp, Rc::clone(&work))?;
    lp.run(RunMode::Default)?;
    let spent = watch.spent();
    Ok(Sample::new([Reading { count: work.done.get(), spent }; 2]))
}

fn spawn<B: Backend>(lp: &mut Loop<B>, work: Rc<Work>) -> io::Result<()> {
    let Some(left) = work.left.get().checked_sub(1) else { return Ok(()) };
    work.left.set(left);
    let command = &Command::new(&Rc::clone(&work).program);
    Process::spawn(lp, command, move |lp, process, exit| {
        let is_well = exit.is_ok_and(|exit| exit.success()) && process.close(lp).is_ok();
        work.done.set(work.done.get() + u64::from(is_well));
        // A failure makes the count wrong, which the check reports.
        let _ = spawn(lp, work);
    })
    .map(drop)
}
