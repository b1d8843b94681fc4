//! Hand-written io_uring: one ring, and as many reads in it as are wanted.

use std::io;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, opcode, types};

use super::job::{Buffer, Job, PIECE, Part};
use crate::clock::Stopwatch;
use crate::suite::{ContestantId, Entrants, Sample};

pub(super) fn enter(entrants: &mut Entrants, job: &Job) {
    match IoUring::new(2) {
        Ok(_) => job.enter(entrants, ContestantId::Hand("uring"), run),
        Err(error) => entrants.skip(ContestantId::Hand("uring"), format!("no io_uring: {error}")),
    }
}

fn run(job: &Job) -> io::Result<Sample> {
    let file = job.open()?;
    let fd = types::Fd(file.as_raw_fd());
    let mut slots: Vec<(Part, Buffer)> =
        (0..job.depth).map(|slot| (job.part(slot), Buffer::new())).collect();
    // Only this thread submits, and it asks for completions when it waits.
    let mut builder = IoUring::builder();
    builder.setup_single_issuer().setup_defer_taskrun();
    let entries = job.depth.next_power_of_two().max(2) as u32;
    let mut ring = builder.build(entries).or_else(|_| IoUring::new(entries))?;
    let watch = Stopwatch::start();
    let (mut flying, mut finished) = (0, Vec::with_capacity(job.depth));
    for (slot, of) in slots.iter_mut().enumerate() {
        flying += u64::from(read(&mut ring, fd, slot, of)?);
    }
    while flying > 0 {
        ring.submit_and_wait(1)?;
        finished.extend(ring.completion().map(|done| (done.user_data() as usize, done.result())));
        for (slot, count) in finished.drain(..) {
            flying -= 1;
            let (part, buffer) = &mut slots[slot];
            part.got(buffer.start(usize::try_from(count).unwrap_or(0)));
            flying += u64::from(read(&mut ring, fd, slot, &mut slots[slot])?);
        }
    }
    let spent = watch.spent();
    let done = slots.iter().map(|(part, _)| part.done).sum();
    Ok(job.sample(done, spent))
}

/// Queues the next read of a slot, if it has one.
fn read(
    ring: &mut IoUring,
    fd: types::Fd,
    slot: usize,
    (part, buffer): &mut (Part, Buffer),
) -> io::Result<bool> {
    let Some(offset) = part.offset() else { return Ok(false) };
    let memory = buffer.memory().as_mut_ptr();
    let entry = opcode::Read::new(fd, memory, PIECE as u32).offset(offset).build();
    // SAFETY: the slot keeps its memory until the completion, and has no other read in flight.
    let queued = unsafe { ring.submission().push(&entry.user_data(slot as u64)) };
    // The ring has an entry for each slot.
    queued.map_err(|_| io::Error::other("the submission queue is full"))?;
    Ok(true)
}
