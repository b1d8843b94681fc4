//! What the process uses: descriptors, memory of the allocator, pages.

use std::time::{Duration, Instant};

use crate::allocations;

/// Threads of the pool and the kernel let go within as much time.
const LINGER: Duration = Duration::from_secs(10);

/// Arrays whose growth depends on the order of events, and the queue of the pool.
const HEAP_SLACK: i64 = 2 << 20;

/// The allocator keeps pages: their number differs with the order of events.
const PAGES_SLACK: u64 = 32 << 20;

/// What the process uses at one time. What the system does not report is zero.
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

    /// What is more than `limit`.
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

#[cfg(test)]
mod tests {
    use super::*;

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
