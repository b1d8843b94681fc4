//! compio, on io_uring.
//!
//! Its best: reads at a position into memory that goes with the operation, without a copy.
//! Compared with a buffer from a pool of its ring (`BufferPool`): those are for sockets.

use std::io;
use std::mem::MaybeUninit;

use compio::BufResult;
use compio::buf::{IoBuf, IoBufMut, SetLen};
use compio::fs::OpenOptions;
use compio::io::AsyncReadAt;

use super::super::job::{Buffer, Job, PIECE, State};
use crate::clock::Stopwatch;
use crate::suite::Sample;

impl IoBuf for Buffer {
    fn as_init(&self) -> &[u8] {
        self.start(PIECE)
    }
}

impl SetLen for Buffer {
    /// All of it is initialised, always.
    unsafe fn set_len(&mut self, _: usize) {}
}

impl IoBufMut for Buffer {
    fn as_uninit(&mut self) -> &mut [MaybeUninit<u8>] {
        let memory: *mut [u8] = self.memory();
        // SAFETY: the memory is borrowed for as long as the result, and compio writes initialised
        // bytes only.
        unsafe { &mut *(memory as *mut [MaybeUninit<u8>]) }
    }
}

pub(super) fn run(job: &Job) -> io::Result<Sample> {
    let runtime = compio::runtime::Runtime::new()?;
    let (done, spent) = runtime.block_on(async {
        let mut options = OpenOptions::new();
        options.read(true);
        if job.state == State::Direct {
            options.custom_flags(libc::O_DIRECT);
        }
        let file = options.open(job.path()?).await?;
        job.without_read_ahead(&file)?;
        let watch = Stopwatch::start();
        let task = |slot| {
            let (file, mut part, mut buffer) = (file.clone(), job.part(slot), Buffer::new());
            compio::runtime::spawn(async move {
                while let Some(offset) = part.offset() {
                    let BufResult(count, filled) = file.read_at(buffer, offset).await;
                    buffer = filled;
                    part.got(buffer.start(count?));
                }
                io::Result::Ok(part.done)
            })
        };
        let tasks: Vec<_> = (0..job.depth).map(task).collect();
        let mut done = 0;
        for task in tasks {
            done += task.await.map_err(|_| io::Error::other("a task has panicked"))??;
        }
        io::Result::Ok((done, watch.spent()))
    })?;
    Ok(job.sample(done, spent))
}
