//! The loop inside another loop.

use std::os::fd::BorrowedFd;

use poll_core::Backend;

use super::Loop;

impl<B: Backend> Loop<B> {
    /// The backend's descriptor, for another loop to poll: readable when this loop has events.
    /// [`raw_source`](Loop::raw_source) as a `BorrowedFd`, which is valid while the loop is
    /// borrowed.
    ///
    /// A loop that keeps what it polls, as tokio's `AsyncFd` does, gets a duplicate:
    /// `try_clone_to_owned`. `None` for `select` and `poll`, which have no descriptor: give such a
    /// loop a thread of its own. [`backend_timeout`](Loop::backend_timeout) is how long the other
    /// loop may wait.
    ///
    /// ```
    /// use std::os::fd::{AsFd, AsRawFd};
    /// use uv_core::Loop;
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// if let Some(fd) = lp.backend_fd() {
    ///     println!("poll descriptor {} for reading", fd.as_raw_fd());
    ///     let kept = fd.try_clone_to_owned()?;
    ///     assert!(kept.as_fd().as_raw_fd() >= 0);
    /// }
    /// println!("for at most {:?}", lp.backend_timeout());
    /// # std::io::Result::Ok(())
    /// ```
    #[doc(alias = "uv_backend_fd")]
    #[allow(unsafe_code, reason = "a descriptor of the backend is lent")]
    pub fn backend_fd(&self) -> Option<BorrowedFd<'_>> {
        let source = self.raw_source()?;
        // SAFETY: the backend owns the descriptor, by the contract of `Backend::raw_source`, and the
        // loop owns the backend, which `self` borrows for as long as the result lives.
        Some(unsafe { BorrowedFd::borrow_raw(source.fd()) })
    }
}
