//! A thread for each read in flight, without a queue and without completions.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use super::job::{Buffer, Job};
use crate::clock::Stopwatch;
use crate::suite::Sample;

pub(super) fn run(job: &Job) -> io::Result<Sample> {
    let file = job.open()?;
    let done = AtomicU64::new(0);
    let begin = Barrier::new(job.depth + 1);
    let watch = thread::scope(|scope| {
        for slot in 0..job.depth {
            let (file, done, begin, mut part) = (&file, &done, &begin, job.part(slot));
            scope.spawn(move || {
                let mut buffer = Buffer::new();
                begin.wait();
                while let Some(offset) = part.offset() {
                    let count = file.read_at(buffer.memory(), offset).unwrap_or(0);
                    part.got(buffer.start(count));
                }
                done.fetch_add(part.done, Ordering::Relaxed);
            });
        }
        begin.wait();
        Stopwatch::start()
    });
    let spent = watch.spent();
    Ok(job.sample(done.into_inner(), spent))
}
