//! tokio with its current-thread runtime.
//!
//! Its best: `spawn_blocking` with a read at a position, one job for each read. Compared with
//! `tokio::fs::File`, which performs a seek and a read as two jobs and copies from a buffer of its
//! own. `tokio-uring` is that file on tokio's own io_uring, which it has for builds with
//! `--cfg tokio_unstable`: no seek is needed, since each task reads its part in order.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::super::job::{Buffer, Job};
use crate::clock::Stopwatch;
use crate::suite::{ContestantId, Entrants, Sample};

const URING: ContestantId = ContestantId::Peer("tokio-uring");

pub(super) fn enter(entrants: &mut Entrants, job: &Job) {
    job.enter(entrants, ContestantId::Peer("tokio"), blocking);
    #[cfg(all(feature = "tokio-uring", tokio_unstable))]
    uring::enter(entrants, job);
    #[cfg(not(all(feature = "tokio-uring", tokio_unstable)))]
    entrants.skip(
        URING,
        "tokio's io_uring is not in this build: add '--features tokio-uring' and \
         RUSTFLAGS='--cfg tokio_unstable'",
    );
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_io().build()
}

/// Sums what tasks have read.
async fn total(tasks: Vec<tokio::task::JoinHandle<io::Result<u64>>>) -> io::Result<u64> {
    let mut done = 0;
    for task in tasks {
        done += task.await??;
    }
    Ok(done)
}

fn blocking(job: &Job) -> io::Result<Sample> {
    let file = Arc::new(job.open()?);
    let runtime = runtime()?;
    let watch = Stopwatch::start();
    let done = runtime.block_on(async {
        let task = |slot| {
            let (file, mut part, mut buffer) = (Arc::clone(&file), job.part(slot), Buffer::new());
            tokio::spawn(async move {
                while let Some(offset) = part.offset() {
                    let file = Arc::clone(&file);
                    let read = tokio::task::spawn_blocking(move || {
                        let count = file.read_at(buffer.memory(), offset);
                        (count, buffer)
                    });
                    let (count, filled) = read.await?;
                    buffer = filled;
                    part.got(buffer.start(count?));
                }
                Ok(part.done)
            })
        };
        total((0..job.depth).map(task).collect()).await
    })?;
    let spent = watch.spent();
    Ok(job.sample(done, spent))
}

#[cfg(all(feature = "tokio-uring", tokio_unstable))]
mod uring {
    use io_uring::IoUring;
    use tokio::io::{AsyncReadExt, AsyncSeekExt};

    use super::super::super::job::State;
    use super::*;

    pub(super) fn enter(entrants: &mut Entrants, job: &Job) {
        // Without a ring, tokio uses threads and does not say so.
        if let Err(error) = IoUring::new(2) {
            return entrants.skip(URING, format!("no io_uring: {error}"));
        }
        match job.state {
            State::Direct => {
                entrants.skip(URING, "tokio's file has a buffer of its own, which is not aligned");
            }
            State::Cached | State::Cold => job.enter(entrants, URING, run),
        }
    }

    fn run(job: &Job) -> io::Result<Sample> {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_io_uring().build()?;
        let mut files = Vec::new();
        for _ in 0..job.depth {
            files.push(job.open()?);
        }
        let watch = Stopwatch::start();
        let done = runtime.block_on(async {
            let tasks = files.into_iter().enumerate().map(|(slot, file)| {
                let (mut part, mut buffer) = (job.part(slot), Buffer::new());
                let mut file = tokio::fs::File::from_std(file);
                tokio::spawn(async move {
                    let mut is_first = true;
                    while let Some(offset) = part.offset() {
                        if std::mem::take(&mut is_first) || part.is_behind_the_end() {
                            file.seek(io::SeekFrom::Start(offset)).await?;
                        }
                        let count = file.read(buffer.memory()).await?;
                        part.got(buffer.start(count));
                    }
                    Ok(part.done)
                })
            });
            total(tasks.collect()).await
        })?;
        let spent = watch.spent();
        Ok(job.sample(done, spent))
    }
}
