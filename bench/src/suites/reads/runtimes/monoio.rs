//! monoio, on io_uring.
//!
//! Its best: reads at a position into memory that goes with the operation, without a copy. Compared
//! with `read_exact_at`: the same reads, in a loop that asks whether all is there.

use std::io;
use std::rc::Rc;

use monoio::buf::IoBufMut;
use monoio::fs::File;

use super::super::job::{Buffer, Job, PIECE};
use crate::clock::Stopwatch;
use crate::suite::Sample;

// SAFETY: the memory of a box does not move with it, and all of it is valid and initialised.
unsafe impl IoBufMut for Buffer {
    fn write_ptr(&mut self) -> *mut u8 {
        self.memory().as_mut_ptr()
    }

    fn bytes_total(&mut self) -> usize {
        PIECE
    }

    unsafe fn set_init(&mut self, _: usize) {}
}

pub(super) fn run(job: &Job) -> io::Result<Sample> {
    let mut runtime = monoio::RuntimeBuilder::<monoio::IoUringDriver>::new().build()?;
    let (done, spent) = runtime.block_on(async {
        let file = Rc::new(File::from_std(job.open()?)?);
        let watch = Stopwatch::start();
        let task = |slot| {
            let (file, mut part, mut buffer) = (Rc::clone(&file), job.part(slot), Buffer::new());
            monoio::spawn(async move {
                while let Some(offset) = part.offset() {
                    let (count, filled) = file.read_at(buffer, offset).await;
                    buffer = filled;
                    part.got(buffer.start(count?));
                }
                io::Result::Ok(part.done)
            })
        };
        let tasks: Vec<_> = (0..job.depth).map(task).collect();
        let mut done = 0;
        for task in tasks {
            done += task.await?;
        }
        io::Result::Ok((done, watch.spent()))
    })?;
    Ok(job.sample(done, spent))
}
