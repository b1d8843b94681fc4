//! File requests of `uv-core`.

use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use poll_core::Backend;
use uv_core::fs::{self, File, OpenOptions};
use uv_core::{Loop, Pool, RunMode};

use super::{IN_FLIGHT, PIECE, Request, place};
use crate::clock::Stopwatch;
use crate::suite::{Reading, Sample};

/// The state shared by all requests.
struct Work {
    file: File,
    path: PathBuf,
    /// The pool, if threads must perform the requests.
    pool: Option<Pool>,
    /// The number of requests left to start, and the number with a correct result.
    left: Cell<u64>,
    done: Cell<u64>,
}

impl Work {
    /// The number of the next request.
    fn next(&self) -> Option<u64> {
        let left = self.left.get().checked_sub(1)?;
        self.left.set(left);
        Some(left)
    }

    fn count(&self, right: bool) {
        self.done.set(self.done.get() + u64::from(right));
    }
}

pub(super) fn run<B: Backend>(
    backend: B,
    path: io::Result<&Path>,
    request: Request,
    count: u64,
) -> io::Result<Sample> {
    let path = path?.to_path_buf();
    let mut lp = Loop::new(backend);
    let file = fs::open(&path, OpenOptions::new().read(true)).perform()?;
    let pool = (request == Request::ReadOnThread).then(Pool::global).transpose()?;
    let work = Rc::new(Work { file, path, pool, left: Cell::new(count), done: Cell::new(0) });
    let watch = Stopwatch::start();
    for _ in 0..IN_FLIGHT {
        match request {
            Request::Read | Request::ReadOnThread => {
                read(&mut lp, Rc::clone(&work), vec![0; PIECE])
            }
            Request::Stat => stat(&mut lp, Rc::clone(&work)),
        }
    }
    lp.run(RunMode::Default)?;
    let spent = watch.spent();
    Ok(Sample::new([Reading { count: work.done.get(), spent }; 2]))
}

fn read<B: Backend>(lp: &mut Loop<B>, work: Rc<Work>, buf: Vec<u8>) {
    let Some(number) = work.next() else { return };
    let piece = fs::read_at(&work.file, buf, place(number));
    let next = Rc::clone(&work);
    let done = move |lp: &mut Loop<B>, (count, buf): (io::Result<usize>, Vec<u8>)| {
        next.count(count.is_ok_and(|count| count == PIECE));
        read(lp, next, buf);
    };
    let started = match &work.pool {
        Some(pool) => piece.start_on(lp, pool, done),
        None => piece.start(lp, done),
    };
    // A failure makes the count wrong, which the check reports.
    drop(started);
}

fn stat<B: Backend>(lp: &mut Loop<B>, work: Rc<Work>) {
    if work.next().is_none() {
        return;
    }
    let started = fs::stat(&work.path).start(lp, move |lp, known| {
        work.count(known.is_ok_and(|known| known.size > 0));
        stat(lp, work);
    });
    // A failure makes the count wrong, which the check reports.
    drop(started);
}
