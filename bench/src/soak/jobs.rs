//! Work on the thread pool.

use std::rc::Rc;

use uv_core::WorkError;

use super::flow::bytes;
use super::{Kind, Loop, World};

/// The largest result.
const BYTES: usize = 4096;

/// Queues jobs. Each queues the next until the world is ending, unless they are a flood.
pub(super) fn start(world: &Rc<World>, lp: &mut Loop, count: usize, flood: bool) {
    (0..count).for_each(|_| queue(world, lp, flood));
}

fn queue(world: &Rc<World>, lp: &mut Loop, flood: bool) {
    let (seed, len, this) = (world.draw(), world.size(BYTES), Rc::clone(world));
    let cancels = world.one_in(16);
    let queued = lp.queue_work(
        move || bytes(seed, 0, len),
        move |lp, result| {
            match result {
                Ok(result) if result == bytes(seed, 0, len) => this.count(Kind::Pool, len),
                Err(WorkError::Cancelled) if cancels => this.count(Kind::Pool, 0),
                Ok(_) => this.fail(Kind::Pool, "the result of another job"),
                Err(error) => this.fail(Kind::Pool, error),
            }
            if !flood && !this.ending.get() {
                queue(&this, lp, false);
            }
        },
    );
    let work = world.check(Kind::Pool, "queue_work", queued);
    if let Some(work) = work.filter(|_| cancels) {
        // Refused if a thread has it already.
        let _ = work.cancel(lp);
    }
}
