//! The interface to the kernel: two calls, [`kqueue`] and [`kevent`], and their constants.
//!
//! The implementation is the kernel of a BSD or of Apple (`bsd`). On Linux, for tests, it is
//! libkqueue (`libkqueue`) or a model in user space (`crate::model`). Each provides a `Queue`
//! that closes itself, the two calls, the raw `kevent` structure, the constants,
//! and whether there is a filter for out-of-band data (`HAS_EXCEPT`).

use std::fmt;
use std::time::Duration;

cfg_if::cfg_if! {
    if #[cfg(not(target_os = "linux"))] {
        mod bsd;
        pub(crate) use bsd::*;
    } else if #[cfg(libkqueue)] {
        mod constants;
        mod libkqueue;
        pub(crate) use {constants::*, libkqueue::*};
    } else {
        mod constants;
        pub(crate) use constants::*;
        pub(crate) use crate::model::{Queue, kevent, kqueue};
    }
}

/// A change or an event: the kernel's `struct kevent`.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Kevent(pub(crate) RawKevent);

// SAFETY: `udata` is a pointer in C only. Here it is a number that is never dereferenced.
unsafe impl Send for Kevent {}
// SAFETY: `udata` is never dereferenced, and the other fields are integers.
unsafe impl Sync for Kevent {}

impl Kevent {
    /// A change without parameters of its filter.
    pub(crate) fn new(ident: usize, filter: RawFilter, flags: RawFlags, udata: usize) -> Kevent {
        let mut raw = zeroed();
        raw.ident = ident;
        raw.filter = filter;
        raw.flags = flags;
        raw.udata = udata as _;
        Kevent(raw)
    }

    /// The same change with parameters of its filter.
    pub(crate) fn with(mut self, fflags: u32, data: i32) -> Kevent {
        self.0.fflags = fflags;
        self.0.data = data as _;
        self
    }

    /// The same change with more flags.
    pub(crate) fn flagged(mut self, flags: RawFlags) -> Kevent {
        self.0.flags |= flags;
        self
    }

    /// An unused entry of an event list.
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

    #[cfg(all(target_os = "linux", not(libkqueue)))]
    pub(crate) fn data(&self) -> i64 {
        self.0.data as i64
    }

    pub(crate) fn udata(&self) -> usize {
        self.0.udata as usize
    }

    pub(crate) fn has(&self, flag: RawFlags) -> bool {
        self.0.flags & flag != 0
    }

    /// The result of a change, if this is a receipt: 0 or an error number.
    pub(crate) fn receipt(&self) -> Option<i32> {
        self.has(EV_ERROR).then_some(self.0.data as i32)
    }
}

impl fmt::Debug for Kevent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Copies: the structure is packed on Apple's systems, and its fields have no references.
        let (ident, filter, flags, fflags) =
            (self.ident(), self.0.filter, self.0.flags, self.0.fflags);
        write!(f, "Kevent({ident}, filter {filter}, flags {flags:#x}, fflags {fflags:#x})")
    }
}

/// A structure of zeros. FreeBSD's has fields that only the kernel uses.
fn zeroed() -> RawKevent {
    // SAFETY: the fields are integers and a pointer that is never dereferenced: zeros are valid.
    unsafe { std::mem::zeroed() }
}

/// The longest timeout that older kernels accept.
const MAX_TIMEOUT: Duration = Duration::from_secs(100_000_000);

/// A timeout for the kernel. A longer one is cut: a wait checks the time and continues.
pub(crate) fn timespec(timeout: Duration) -> libc::timespec {
    let cut = timeout.min(MAX_TIMEOUT);
    libc::timespec { tv_sec: cut.as_secs() as _, tv_nsec: cut.subsec_nanos() as _ }
}
