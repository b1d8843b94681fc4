//! The limit of open descriptors.

/// Raises the limit as far as permitted, and returns it. Children inherit it.
#[cfg(unix)]
pub fn descriptors() -> usize {
    use std::sync::OnceLock;

    /// More than any scenario needs.
    const ENOUGH: libc::rlim_t = 65_536;
    static RAISED: OnceLock<usize> = OnceLock::new();

    *RAISED.get_or_init(|| {
        let Some(before) = limit() else { return 0 };
        // Only root may raise the hard limit; any user may raise the soft limit up to it.
        for hard in [before.rlim_max.max(ENOUGH), before.rlim_max] {
            let raised = libc::rlimit { rlim_cur: hard.min(ENOUGH), rlim_max: hard };
            if raised.rlim_cur <= before.rlim_cur {
                break;
            }
            // SAFETY: `raised` is valid for reads.
            if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raised) } == 0 {
                break;
            }
        }
        limit().map_or(0, |limit| limit.rlim_cur as usize)
    })
}

#[cfg(unix)]
fn limit() -> Option<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for writes.
    (unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } == 0).then_some(limit)
}

/// No scenario reaches a limit here.
#[cfg(not(unix))]
pub fn descriptors() -> usize {
    usize::MAX
}
