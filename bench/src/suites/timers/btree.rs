//! Hand-written timers on the standard library: an ordered map and sleeps.

use std::collections::BTreeMap;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use super::{FIRED, count_fired, forget_memory};
use crate::clock::Stopwatch;
use crate::suite::{Reading, Sample};

/// A deadline in milliseconds, and a start sequence number.
type Key = (u64, u64);

struct Timers {
    queue: BTreeMap<Key, fn()>,
    /// The key of each timer in the queue.
    keys: Vec<Option<Key>>,
    starts: u64,
    epoch: Instant,
}

impl Timers {
    fn start(&mut self, timer: usize, timeout_ms: u64) {
        self.stop(timer);
        self.starts += 1;
        let key = (timeout_ms, self.starts);
        self.queue.insert(key, count_fired);
        self.keys[timer] = Some(key);
    }

    fn stop(&mut self, timer: usize) {
        if let Some(key) = self.keys[timer].take() {
            self.queue.remove(&key);
        }
    }

    fn run(&mut self) {
        while let Some(first) = self.queue.first_entry() {
            let due = Duration::from_millis(first.key().0);
            thread::sleep(due.saturating_sub(self.epoch.elapsed()));
            let now_ms = self.epoch.elapsed().as_millis() as u64;
            while let Some(first) = self.queue.first_entry()
                && first.key().0 <= now_ms
            {
                first.remove()();
            }
        }
    }

    fn active(&self) -> u64 {
        self.queue.len() as u64
    }
}

pub(super) fn run(timeouts_ms: &[u64]) -> io::Result<Sample> {
    forget_memory();
    let mut timers =
        Timers { queue: BTreeMap::new(), keys: Vec::new(), starts: 0, epoch: Instant::now() };

    let watch = Stopwatch::start();
    for (timer, timeout) in timeouts_ms.iter().enumerate() {
        timers.keys.push(None);
        timers.start(timer, *timeout);
    }
    let add = Reading { spent: watch.spent(), count: timers.active() };

    let watch = Stopwatch::start();
    for timer in 0..timeouts_ms.len() {
        timers.stop(timer);
    }
    let stop = Reading { spent: watch.spent(), count: add.count - timers.active() };

    let watch = Stopwatch::start();
    for (timer, timeout) in timeouts_ms.iter().enumerate() {
        timers.start(timer, *timeout);
    }
    let start = Reading { spent: watch.spent(), count: timers.active() };

    let watch = Stopwatch::start();
    for (timer, timeout) in timeouts_ms.iter().enumerate() {
        timers.start(timer, timeout + 1);
    }
    let restart = Reading { spent: watch.spent(), count: timers.active() };

    FIRED.set(0);
    let watch = Stopwatch::start();
    timers.run();
    let fire = Reading { spent: watch.spent(), count: FIRED.get() };
    Ok(Sample::new([add, stop, start, restart, fire]))
}
