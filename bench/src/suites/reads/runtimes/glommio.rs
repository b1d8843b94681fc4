//! glommio, on io_uring.
//!
//! Its best: direct files into the registered memory of its ring, and buffered files where the page
//! cache is wanted; both return memory of the library. Compared with `read_at` of direct files,
//! which also aligns the request: the same for requests that are aligned.

use std::io;
use std::rc::Rc;

use glommio::io::{BufferedFile, DmaFile};
use glommio::{LocalExecutorBuilder, Placement};

use super::super::job::{Job, PIECE, Part, State};
use crate::clock::{Spent, Stopwatch};
use crate::suite::Sample;

/// An open file of either kind.
enum File {
    Buffered(BufferedFile),
    Direct(DmaFile),
}

impl File {
    async fn open(job: &Job) -> io::Result<File> {
        let path = job.path()?;
        if job.state == State::Direct {
            return Ok(File::Direct(DmaFile::open(path).await.map_err(failed)?));
        }
        let file = BufferedFile::open(path).await.map_err(failed)?;
        job.without_read_ahead(&file)?;
        Ok(File::Buffered(file))
    }

    /// Reads the current piece of a part.
    async fn read(&self, part: &mut Part, offset: u64) -> io::Result<()> {
        let read = match self {
            File::Buffered(file) => file.read_at(offset, PIECE).await,
            File::Direct(file) => file.read_at_aligned(offset, PIECE).await,
        };
        part.got(&read.map_err(failed)?);
        Ok(())
    }

    async fn close(self) -> io::Result<()> {
        match self {
            File::Buffered(file) => file.close().await,
            File::Direct(file) => file.close().await,
        }
        .map_err(failed)
    }
}

fn failed(error: glommio::GlommioError<()>) -> io::Error {
    io::Error::other(error.to_string())
}

pub(super) fn run(job: &Job) -> io::Result<Sample> {
    let executor = LocalExecutorBuilder::new(Placement::Unbound).make().map_err(failed)?;
    let (done, spent) = executor.run(read(job))?;
    Ok(job.sample(done, spent))
}

async fn read(job: &Job) -> io::Result<(u64, Spent)> {
    let file = Rc::new(File::open(job).await?);
    let watch = Stopwatch::start();
    let task = |slot| {
        let (file, mut part) = (Rc::clone(&file), job.part(slot));
        glommio::spawn_local(async move {
            while let Some(offset) = part.offset() {
                file.read(&mut part, offset).await?;
            }
            io::Result::Ok(part.done)
        })
    };
    let tasks: Vec<_> = (0..job.depth).map(task).collect();
    let mut done = 0;
    for task in tasks {
        done += task.await?;
    }
    let spent = watch.spent();
    // It complains about files that are dropped without a close.
    if let Ok(file) = Rc::try_unwrap(file) {
        file.close().await?;
    }
    Ok((done, spent))
}
