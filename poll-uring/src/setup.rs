//! `io_uring_setup`: the flags and the queue sizes of a new ring.
//!
//! The pages of a ring count against `RLIMIT_MEMLOCK`, over all processes of a user, unless the
//! process has `CAP_IPC_LOCK`: before Linux 5.12, and again on current kernels (measured on 6.18).
//! The completion queue takes most of them. It has its useful size only where the limit allows for
//! many such rings. (`IORING_REGISTER_RESIZE_RINGS`, 6.13, could enlarge the queue
//! later. It does not enlarge the kernel's table of polls, which is the reason for a large queue.)

use std::io;
use std::mem::MaybeUninit;

use io_uring::{Builder, IoUring};

use crate::setup_error;

/// The largest submission queue that the kernel creates.
pub(crate) const MAX_ENTRIES: u32 = 1 << 15;
/// Completion entries per submission entry. Polls and multishot operations complete more often
/// than they are submitted. And the kernel sizes its hash table of polls by the completion queue:
/// 256 lists, its maximum, for 8,192 entries.
const CQ_FACTOR: u32 = 32;
/// Completion entries per submission entry where locked memory is scarce: the kernel's default.
const MIN_CQ_FACTOR: u32 = 2;
/// One ring takes no more than this fraction of `RLIMIT_MEMLOCK`, down to [`MIN_CQ_FACTOR`].
const RINGS_PER_LIMIT: u64 = 128;

/// The bytes of an entry of each queue, and of the rings' own fields.
const SQE_BYTES: u64 = 64 + 4;
const CQE_BYTES: u64 = 16;
const HEADER_BYTES: u64 = 4096;

/// A new ring.
pub(crate) struct Created {
    pub(crate) uring: IoUring,
    /// False for a `SINGLE_ISSUER` ring: the thread that enables it becomes its owner.
    pub(crate) enabled: bool,
}

/// Creates a ring with `entries` submission entries.
pub(crate) fn create(entries: u32) -> io::Result<Created> {
    let (entries, limit) = (entries.clamp(1, MAX_ENTRIES), locked_memory_limit());
    let (completions, fewest) = (cq_entries(entries, limit), MIN_CQ_FACTOR * entries);
    let created = match create_with(entries, completions) {
        // Other rings have used up most of the limit.
        Err(error) if error.raw_os_error() == Some(libc::ENOMEM) && completions > fewest => {
            create_with(entries, fewest)
        }
        other => other,
    };
    created.map_err(setup_error::explain)
}

/// Tries the best flags first. The kernel refuses flags that it does not know with `EINVAL`.
fn create_with(entries: u32, completions: u32) -> io::Result<Created> {
    let unknown = |error: &io::Error| error.raw_os_error() == Some(libc::EINVAL);
    // 6.1. Completions are posted when the owning thread asks for them, without interrupts. The
    // ring belongs to one thread, which is not known yet: hence `R_DISABLED`.
    let mut best = builder(completions);
    best.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().setup_submit_all();
    match best.setup_r_disabled().build(entries) {
        Err(error) if unknown(&error) => {}
        other => return Ok(Created { uring: other?, enabled: false }),
    }
    // 5.19. Completions are posted at the thread's next system call of any kind.
    let mut cooperative = builder(completions);
    cooperative.setup_coop_taskrun().setup_taskrun_flag().setup_submit_all();
    match cooperative.build(entries) {
        Err(error) if unknown(&error) => {}
        other => return Ok(Created { uring: other?, enabled: true }),
    }
    Ok(Created { uring: builder(completions).build(entries)?, enabled: true })
}

fn builder(completions: u32) -> Builder {
    let mut builder = IoUring::builder();
    builder.dontfork().setup_cqsize(completions);
    builder
}

/// The completion entries of a ring with `entries` submission entries, where the ring's memory
/// counts against `limit` bytes.
fn cq_entries(entries: u32, limit: Option<u64>) -> u32 {
    let entries = entries.next_power_of_two();
    let most = (CQ_FACTOR * entries).min(2 * MAX_ENTRIES);
    let Some(limit) = limit else { return most };
    let share = limit / RINGS_PER_LIMIT;
    let left = share.saturating_sub(u64::from(entries) * SQE_BYTES + HEADER_BYTES) / CQE_BYTES;
    let affordable = left.checked_ilog2().map_or(0, |log| 1 << log.min(31));
    affordable.clamp(MIN_CQ_FACTOR * entries, most)
}

/// `RLIMIT_MEMLOCK` in bytes. `None` if there is no limit, or if it does not bind this process.
pub(crate) fn locked_memory_limit() -> Option<u64> {
    let mut limit = MaybeUninit::<libc::rlimit>::uninit();
    // SAFETY: `limit` has the size of the structure that the call writes, and outlives the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, limit.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call has succeeded, and a successful call writes the whole structure.
    let limit = unsafe { limit.assume_init() }.rlim_cur;
    (limit != libc::RLIM_INFINITY && !may_lock_memory()).then_some(limit)
}

/// True if this thread has `CAP_IPC_LOCK`, in its own user namespace.
fn may_lock_memory() -> bool {
    const VERSION_3: u32 = 0x2008_0522;
    const CAP_IPC_LOCK: u32 = 14;
    let mut header = [VERSION_3, 0];
    // Twice the effective, the permitted and the inheritable set, 32 capabilities each.
    let mut sets = [0u32; 6];
    // SAFETY: version 3 reads two numbers and writes six, and both arrays outlive the call.
    let result = unsafe { libc::syscall(libc::SYS_capget, header.as_mut_ptr(), sets.as_mut_ptr()) };
    result == 0 && sets[0] & (1 << CAP_IPC_LOCK) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_completion_queue_is_large_where_locked_memory_is_not_limited() {
        assert_eq!(cq_entries(256, None), 8192);
        assert_eq!(cq_entries(200, None), 8192);
        assert_eq!(cq_entries(MAX_ENTRIES, None), 2 * MAX_ENTRIES);
        assert_eq!(cq_entries(1, None), 32);
    }

    #[test]
    fn the_completion_queue_shrinks_with_the_limit_on_locked_memory() {
        assert_eq!(cq_entries(256, Some(64 * MIB)), 8192);
        assert_eq!(cq_entries(256, Some(8 * MIB)), 2048, "the default of systemd");
        assert_eq!(cq_entries(256, Some(64 * 1024)), 512, "the kernel's default before 5.16");
        assert_eq!(cq_entries(256, Some(0)), 512);
        assert_eq!(cq_entries(1, Some(8 * MIB)), 32);
    }

    #[test]
    fn sizes_are_clamped() {
        assert_eq!(create(0).unwrap().uring.params().sq_entries(), 1);
        assert_eq!(create(5).unwrap().uring.params().sq_entries(), 8);
    }
}
