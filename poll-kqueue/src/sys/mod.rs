//! The seam to the kernel: two calls, [`kqueue`] and [`kevent`], and their words.
//!
//! Behind it is the kernel of a BSD or of Apple (`bsd`), or on Linux, for tests,
//! libkqueue (`libkqueue`) or a model in user space (`model`). Each gives a `Queue`
//! that closes itself, the two calls, the raw `kevent` structure, the constants,
//! and whether there is a filter for out-of-band data (`HAS_EXCEPT`).

use std::fmt;
use std::time::Duration;

cfg_if::cfg_if! {
    if #[cfg(not(target_os = "linux"))] {
        mod bsd;
        pub(crate) use bsd::*;
    } else if #[cfg(libkqueue)] {
        mod linux;
        mod libkqueue;
        pub(crate) use {libkqueue::*, linux::*};
    } else {
        mod linux;
        mod model;
        pub(crate) use linux::*;
        pub(crate) use model::{Queue, kevent, kqueue};
        pub use model::Rules;
    }
}

/// A change to make or an event that happened: the kernel's `struct kevent`.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Kevent(RawKevent);

// SAFETY: `udata` is a pointer in C only. Here it is a number that nobody follows.
unsafe impl Send for Kevent {}
// SAFETY: as above.
unsafe impl Sync for Kevent {}

impl Kevent {
    /// A change, with no parameters yet.
    pub(crate) fn new(ident: usize, filter: RawFilter, flags: RawFlags, udata: usize) -> Kevent {
        let mut raw = zeroed();
        raw.ident = ident;
        raw.filter = filter;
        raw.flags = flags;
        raw.udata = udata as _;
        Kevent(raw)
    }

    /// The same with the filter's own parameters.
    pub(crate) fn with(mut self, fflags: u32, data: i32) -> Kevent {
        self.0.fflags = fflags;
        self.0.data = data as _;
        self
    }

    /// The same with more flags.
    pub(crate) fn flagged(mut self, flags: RawFlags) -> Kevent {
        self.0.flags |= flags;
        self
    }

    /// Room for an event.
    pub(crate) fn empty() -> Kevent {
        Kevent(zeroed())
    }

    pub(crate) fn ident(&self) -> usize {
        self.0.ident
    }

    pub(crate) fn filter(&self) -> RawFilter {
        self.0.filter
    }

    pub(crate) fn fflags(&self) -> u32 {
        self.0.fflags
    }

    pub(crate) fn udata(&self) -> usize {
        self.0.udata as usize
    }

    pub(crate) fn has(&self, flag: RawFlags) -> bool {
        self.0.flags & flag != 0
    }

    /// What became of a change, if this is about one: 0 or an error number.
    pub(crate) fn receipt(&self) -> Option<i32> {
        self.has(EV_ERROR).then_some(self.0.data as i32)
    }
}

impl fmt::Debug for Kevent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Copied out: the structure is packed on Apple's systems.
        let (ident, filter, flags, fflags) =
            (self.ident(), self.0.filter, self.0.flags, self.0.fflags);
        write!(f, "Kevent({ident}, filter {filter}, flags {flags:#x}, fflags {fflags:#x})")
    }
}

/// A structure of zeros; FreeBSD's has fields that only the kernel knows.
fn zeroed() -> RawKevent {
    // SAFETY: integers and a pointer that is never followed may all be zero.
    unsafe { std::mem::zeroed() }
}

/// Older kernels refuse a timeout of more than this many seconds.
const LONGEST_SECONDS: u64 = 100_000_000;

/// A timeout for the kernel. A huge one is cut: waits check the time anyway.
fn timespec(timeout: Duration) -> libc::timespec {
    let cut = timeout.min(Duration::from_secs(LONGEST_SECONDS));
    libc::timespec { tv_sec: cut.as_secs() as _, tv_nsec: cut.subsec_nanos() as _ }
}
