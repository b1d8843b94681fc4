//! Timers: none is early, and they come in the order of their deadlines.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use uv_core::{Handle, Timer};

use super::{Kind, Loop, World};

/// The longest delay.
const DELAY_NS: u64 = 50_000_000;

/// The deadline of the timer that fired last: one that fires later is not due earlier.
struct Order {
    flood: bool,
    last: Cell<Duration>,
}

/// Starts timers. Each starts again until the world is ending, unless they are a flood.
pub(super) fn start(world: &Rc<World>, lp: &mut Loop, count: usize, flood: bool) {
    let order = Rc::new(Order { flood, last: Cell::default() });
    for _ in 0..count {
        let timer = Timer::new(lp);
        arm(world, &order, lp, timer);
    }
}

fn arm(world: &Rc<World>, order: &Rc<Order>, lp: &mut Loop, timer: Timer) {
    if world.one_in(8) {
        // A part of them is started for much later, stopped and started again.
        let late = Duration::from_secs(3600);
        let started = timer.start(lp, late, late, |_, _| {}).and_then(|()| timer.stop(lp));
        world.check(Kind::Timer, "stop", started);
    }
    let delay = Duration::from_nanos(world.draw() % DELAY_NS);
    let deadline = lp.now() + delay;
    let (this, order) = (Rc::clone(world), Rc::clone(order));
    let started = timer.start(lp, delay, Duration::ZERO, move |lp, timer| {
        let now = lp.now();
        if now < deadline {
            this.fail(Kind::Timer, format!("due at {deadline:?}, called at {now:?}"));
        }
        let last = order.last.replace(deadline);
        if deadline < last {
            this.fail(Kind::Timer, format!("due at {deadline:?}, after one due at {last:?}"));
        }
        this.count(Kind::Timer, 0);
        if order.flood || this.ending.get() {
            this.check(Kind::Timer, "close", timer.close(lp));
        } else {
            arm(&this, &order, lp, timer);
        }
    });
    world.check(Kind::Timer, "start", started);
}
