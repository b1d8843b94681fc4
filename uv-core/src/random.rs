//! Cryptographically secure random bytes.
//!
//! ```
//! let mut key = [0; 32];
//! uv_core::random::fill(&mut key)?;
//! assert_ne!(key, [0; 32]);
//! # std::io::Result::Ok(())
//! ```
//!
//! The source is the kernel: `getrandom` or `getentropy`, else `/dev/urandom`; on Windows
//! `BCryptGenRandom`. Shortly after boot, [`fill`] may block until the kernel's generator is
//! seeded; [`Loop::random`] blocks a thread of the pool instead.

use std::io;

use poll_core::Backend;

use crate::requests::work;
use crate::{IoBufMut, Loop, WorkKind, WorkRequest, sys};

/// The limit of one request, as in libuv.
const MAX_LENGTH: usize = i32::MAX as usize;

/// Fills `buffer` with random bytes.
///
/// ```
/// let mut dice = [0; 8];
/// uv_core::random::fill(&mut dice)?;
/// println!("{}", u64::from_ne_bytes(dice) % 6 + 1);
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// `InvalidInput` for more than 2,147,483,647 bytes; the system's error if it has no random
/// bytes. The contents of the buffer are unspecified then.
#[doc(alias = "uv_random")]
pub fn fill(buffer: &mut [u8]) -> io::Result<()> {
    check(buffer)?;
    sys::random::fill(buffer)
}

impl<B: Backend> Loop<B> {
    /// Fills `buffer` with random bytes on the pool, then calls `done` in the loop with it.
    ///
    /// The request can be [cancelled](WorkRequest::cancel) until a thread has started it, and
    /// then fails with `ECANCELED` (`WSAECANCELLED`). A failed request drops its buffer.
    ///
    /// ```
    /// use uv_core::{Loop, RunMode};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.random(vec![0; 32], |_, key| println!("{:02x?}", key.unwrap()))?;
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` for more than 2,147,483,647 bytes; an error of starting the pool.
    #[doc(alias = "uv_random")]
    pub fn random<Buf: IoBufMut + Send>(
        &mut self,
        mut buffer: Buf,
        done: impl FnOnce(&mut Loop<B>, io::Result<Buf>) + 'static,
    ) -> io::Result<WorkRequest> {
        check(buffer.memory())?;
        let work = move || {
            sys::random::fill(buffer.memory())?;
            Ok(buffer)
        };
        work::queue_request(self, WorkKind::Cpu, work, done)
    }
}

fn check(buffer: &[u8]) -> io::Result<()> {
    if buffer.len() > MAX_LENGTH {
        let why = "more than 2,147,483,647 random bytes: split the request";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    Ok(())
}
