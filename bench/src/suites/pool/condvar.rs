//! A hand-written pool on the standard library: two queues, each with a lock and a condvar.

use std::collections::VecDeque;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::{IN_FLIGHT, THREADS};
use crate::clock::Stopwatch;
use crate::suite::{Reading, Sample};

type Job = Box<dyn FnOnce() + Send>;

/// A queue; `None` marks its end.
struct Queue<T> {
    items: Mutex<VecDeque<Option<T>>>,
    filled: Condvar,
}

impl<T> Queue<T> {
    fn new() -> Queue<T> {
        Queue { items: Mutex::new(VecDeque::new()), filled: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Option<T>>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, item: Option<T>) {
        self.lock().push_back(item);
        self.filled.notify_one();
    }

    fn pop(&self) -> Option<T> {
        let mut items = self.lock();
        loop {
            match items.pop_front() {
                Some(item) => return item,
                None => items = self.filled.wait(items).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

pub(super) fn run(jobs: u64) -> io::Result<Sample> {
    let (queued, ended) = (Queue::<Job>::new(), Queue::<()>::new());
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(job) = queued.pop() {
                    job();
                    ended.push(Some(()));
                }
            });
        }
        let (mut left, mut count) = (jobs, 0);
        let watch = Stopwatch::start();
        for _ in 0..IN_FLIGHT.min(jobs) {
            left -= 1;
            queued.push(Some(Box::new(|| ())));
        }
        while count < jobs {
            count += u64::from(ended.pop().is_some());
            if left > 0 {
                left -= 1;
                queued.push(Some(Box::new(|| ())));
            }
        }
        let spent = watch.spent();
        (0..THREADS).for_each(|_| queued.push(None));
        Ok(Sample::new([Reading { count, spent }; 2]))
    })
}
