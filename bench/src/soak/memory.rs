//! The resources of the process: descriptors, memory of the allocator, pages.

use std::time::{Duration, Instant};

use crate::allocations;

/// Threads of the pool and the kernel let go within as much time.
const LINGER: Duration = Duration::from_secs(10);

/// Arrays whose growth depends on the order of events, and the queue of the pool.
const HEAP_SLACK: i64 = 2 << 20;

/// Memory may grow by more than the slack as often. An array that doubles four times had sixteen times
/// as many objects at once as in the first cycle, and floods differ by less.
const MAX_GROWTHS: u32 = 4;

/// Pages that are in use in part stay: their number differs with the order of events.
const PAGES_SLACK: u64 = 32 << 20;

/// The resources that the process uses at one time; zero for those that the system does not report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) descriptors: usize,
    /// Bytes of the allocator that are in use, since the counting began.
    pub(super) heap: i64,
    /// Anonymous pages, in bytes.
    pub(super) pages: u64,
}

impl Usage {
    pub(super) fn now() -> Usage {
        return_free_pages();
        // The directory that is read has a descriptor itself.
        let open = std::fs::read_dir("/proc/self/fd").map_or(1, Iterator::count);
        let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
        let line = rollup.lines().find_map(|line| line.strip_prefix("Anonymous:"));
        let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
        let pages = kilobytes.unwrap_or(0_u64) * 1024;
        Usage { descriptors: open - 1, heap: allocations::live(), pages }
    }

    /// The usage once it is as expected, or after a while.
    pub(super) fn settled(is_expected: impl Fn(&Usage) -> bool) -> Usage {
        let began = Instant::now();
        loop {
            let now = Usage::now();
            if is_expected(&now) || began.elapsed() > LINGER {
                return now;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(super) fn is_within(&self, limit: &Usage) -> bool {
        self.excess(limit).is_empty()
    }

    /// The resources of which more is used than `limit`.
    pub(super) fn excess(&self, limit: &Usage) -> Vec<String> {
        let mut excess = Vec::new();
        if self.descriptors > limit.descriptors {
            let (now, before) = (self.descriptors, limit.descriptors);
            excess.push(format!("{now} descriptors instead of {before}"));
        }
        if self.heap > limit.heap + HEAP_SLACK {
            excess.push(format!("{} KiB of heap are not freed", (self.heap - limit.heap) >> 10));
        }
        if self.pages > limit.pages + PAGES_SLACK {
            let more = (self.pages - limit.pages) >> 10;
            excess.push(format!("{more} KiB of pages are not returned"));
        }
        excess
    }
}

/// Lets the allocator return what it keeps of freed memory, so that what is left is in use.
fn return_free_pages() {
    // SAFETY: no memory is passed, and any thread may call it at any time.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    unsafe {
        libc::malloc_trim(0)
    };
}

/// The resources that a loop uses between cycles.
#[derive(Debug, Default)]
pub(super) struct Baseline {
    most: Option<Usage>,
    growths: u32,
}

impl Baseline {
    /// True if nothing has grown.
    pub(super) fn covers(&self, now: &Usage) -> bool {
        self.most.is_none_or(|most| now.is_within(&most))
    }

    /// The resources of which a cycle has left too much. `now` becomes the next cycle's baseline.
    pub(super) fn excess(&mut self, now: &Usage) -> Vec<String> {
        let most = *self.most.get_or_insert(*now);
        let excess = now.excess(&most);
        if excess.is_empty() {
            return excess;
        }
        self.growths += 1;
        if self.growths > MAX_GROWTHS || now.descriptors > most.descriptors {
            return excess;
        }
        let (heap, pages) = (most.heap.max(now.heap), most.pages.max(now.pages));
        self.most = Some(Usage { heap, pages, ..most });
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_grow_a_few_times_and_leaks_always() {
        let first = Usage { descriptors: 5, heap: 1000, pages: 1 << 20 };
        let mut baseline = Baseline::default();
        assert!(baseline.covers(&first) && baseline.excess(&first).is_empty());
        assert_eq!(baseline.excess(&Usage { descriptors: 6, ..first }).len(), 1);

        let mut baseline = Baseline::default();
        let grown = Usage { heap: 7 << 20, ..first };
        for usage in [first, grown, grown, first, grown] {
            assert!(baseline.excess(&usage).is_empty(), "an array has doubled");
        }
        let leak = |cycle: i64| Usage { heap: (20 + 3 * cycle) << 20, ..first };
        let found = (0..10).position(|cycle| !baseline.excess(&leak(cycle)).is_empty());
        assert_eq!(found, Some(3));
    }

    #[test]
    fn more_than_before_is_reported() {
        let before = Usage { descriptors: 5, heap: 1000, pages: 1 << 20 };
        assert!(before.excess(&before).is_empty());
        let leaks = [
            Usage { descriptors: 6, ..before },
            Usage { heap: 4 << 20, ..before },
            Usage { pages: 64 << 20, ..before },
        ];
        for leak in leaks {
            assert_eq!(leak.excess(&before).len(), 1, "{leak:?}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_open_file_is_counted() {
        let before = Usage::now();
        assert!(before.descriptors > 0 && before.pages > 0);
    }
}
