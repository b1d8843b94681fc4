//! Reads of `uv-core`.

use std::cell::Cell;
use std::io;
use std::rc::Rc;

use poll_core::Backend;
use uv_core::fs::{self, File};
use uv_core::{Loop, RunMode};

use super::job::{Buffer, Job, Part};
use crate::clock::Stopwatch;
use crate::suite::Sample;

/// The state that all slots share: the file, and the number of reads with the right content.
struct Work {
    file: File,
    done: Cell<u64>,
}

pub(super) fn run<B: Backend>(backend: B, job: &Job) -> io::Result<Sample> {
    let mut lp = Loop::new(backend);
    let work = Rc::new(Work { file: job.open()?.into(), done: Cell::new(0) });
    let buffers: Vec<_> = (0..job.depth).map(|_| Buffer::new()).collect();
    let watch = Stopwatch::start();
    for (slot, buffer) in buffers.into_iter().enumerate() {
        read(&mut lp, Rc::clone(&work), job.part(slot), buffer);
    }
    lp.run(RunMode::Default)?;
    let spent = watch.spent();
    Ok(job.sample(work.done.get(), spent))
}

/// Reads the rest of a part.
fn read<B: Backend>(lp: &mut Loop<B>, work: Rc<Work>, mut part: Part, buffer: Buffer) {
    let Some(offset) = part.offset() else {
        work.done.set(work.done.get() + part.done);
        return;
    };
    let next = Rc::clone(&work);
    let started = fs::read_at(&work.file, buffer, offset).start(lp, move |lp, (count, buffer)| {
        part.got(buffer.start(count.unwrap_or(0)));
        read(lp, next, part, buffer);
    });
    // A failure makes the count wrong, which the check reports.
    drop(started);
}
