//! What cases are made of: sources, waits, limits, signals, children, counters.

// Each platform, and each set of cases, uses a part of this.
#![allow(dead_code, unused_imports)]

#[cfg(unix)]
pub(crate) mod child;
pub(crate) mod limits;
pub(crate) mod observe;
#[cfg(unix)]
pub(crate) mod signals;
pub(crate) mod sources;
pub(crate) mod syscalls;
