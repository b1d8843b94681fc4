//! Random bytes, fit for keys and secrets.
//!
//! ```
//! let mut key = [0; 32];
//! uv_core::random::fill(&mut key)?;
//! assert_ne!(key, [0; 32]);
//! # std::io::Result::Ok(())
//! ```
//!
//! They come from the kernel: `getrandom` or `getentropy`, else `/dev/urandom`; on Windows
//! `BCryptGenRandom`. [`fill`] may wait for the kernel to have enough of them, shortly after
//! the machine was started; [`Loop::random`] does so on the pool.

use std::io;

use poll_core::Backend;

use crate::{IoBufMut, Lane, Loop, Work, sys};

/// The most that is asked for at once.
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
/// `InvalidInput` for more than 2,147,483,647 bytes; the system's, if it has no randomness to
/// give. What is in the buffer then is of no use.
pub fn fill(buffer: &mut [u8]) -> io::Result<()> {
    check(buffer)?;
    sys::random::fill(buffer)
}

impl<B: Backend> Loop<B> {
    /// Fills `buffer` with random bytes on the pool, then calls `done` in the loop with it.
    ///
    /// While it waits for a thread it can be [cancelled](Work::cancel), and ends with
    /// `ECANCELED` (`WSAECANCELLED`). The buffer of a request that fails is dropped.
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
    /// `InvalidInput` for more than 2,147,483,647 bytes; those of starting the pool.
    pub fn random<Buf: IoBufMut + Send>(
        &mut self,
        mut buffer: Buf,
        done: impl FnOnce(&mut Loop<B>, io::Result<Buf>) + 'static,
    ) -> io::Result<Work> {
        check(buffer.memory())?;
        let work = move || {
            sys::random::fill(buffer.memory())?;
            Ok(buffer)
        };
        self.queue_request(Lane::Cpu, work, done)
    }
}

fn check(buffer: &[u8]) -> io::Result<()> {
    if buffer.len() > MAX_LENGTH {
        let why = "more random bytes than 2,147,483,647 at once: ask for them in pieces";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    Ok(())
}
