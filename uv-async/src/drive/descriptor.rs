//! A loop's descriptor, for another runtime to watch.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use uv_core::Loop;
use uv_core::poll_core::Backend;

/// A duplicate of the loop's descriptor, so that it outlives whatever watches it.
pub(super) fn duplicate<B: Backend>(lp: &Loop<B>) -> io::Result<OwnedFd> {
    let source = lp.raw_source().ok_or_else(super::no_descriptor)?;
    // SAFETY: the descriptor is that of the loop's backend, which keeps it open while it lives; the
    // loop is borrowed during this call.
    let fd = unsafe { BorrowedFd::borrow_raw(source.fd()) };
    fd.try_clone_to_owned()
}
