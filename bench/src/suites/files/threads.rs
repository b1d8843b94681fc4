//! Threads that read in a loop, without a queue and without completions: the upper limit for
//! threads.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use super::{PIECE, Request, THREADS, place};
use crate::clock::Stopwatch;
use crate::suite::{Reading, Sample};

pub(super) fn run(path: io::Result<&Path>, request: Request, count: u64) -> io::Result<Sample> {
    let path = path?;
    let file = File::open(path)?;
    let done = AtomicU64::new(0);
    let watch = Stopwatch::start();
    thread::scope(|scope| {
        for number in 0..THREADS as u64 {
            let (file, done) = (&file, &done);
            scope.spawn(move || {
                let mut buffer = vec![0; PIECE];
                let mine = (number..count).step_by(THREADS);
                let right = mine.filter(|&number| match request {
                    Request::Read | Request::ReadOnThread => {
                        file.read_at(&mut buffer, place(number)).is_ok_and(|count| count == PIECE)
                    }
                    Request::Stat => fs::metadata(path).is_ok_and(|stat| stat.len() > 0),
                });
                done.fetch_add(right.count() as u64, Ordering::Relaxed);
            });
        }
    });
    let spent = watch.spent();
    Ok(Sample::new([Reading { count: done.into_inner(), spent }; 2]))
}
