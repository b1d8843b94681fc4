//! The end of a loop.

use std::fmt;

use poll_core::Backend;

use super::{Loop, exchange};
use crate::handles::debug_list;

impl<B: Backend> Loop<B> {
    /// Closes the loop and returns its backend.
    ///
    /// ```
    /// use uv_core::{CloseError, Handle, Loop, RunMode, Timer};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let timer = Timer::new(&mut lp);
    /// let busy: CloseError<_> = lp.close().unwrap_err();
    /// println!("{busy}"); // the loop is busy: 1 handle is open, and a line for each
    /// assert!(busy.to_string().contains("timer 0"));
    /// assert_eq!(format!("{busy:?}"), busy.to_string(), "`unwrap` names them as well");
    ///
    /// let mut lp = busy.into_loop();
    /// timer.close(&mut lp)?;
    /// lp.run(RunMode::Default)?;
    /// let backend = lp.close().expect("all handles are closed");
    /// let another = Loop::new(backend);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`CloseError`], with the loop in it, which names the open handles, while there is one: even
    /// one that is not active, even one whose close callback has not run. Dropping a loop closes
    /// what is open, without calling back.
    #[doc(alias = "uv_loop_close")]
    pub fn close(mut self) -> Result<B, CloseError<B>> {
        if self.exchanges != exchange::count() {
            exchange::check_all(&mut self);
        }
        if self.is_alive() || self.open_handles() > 0 {
            return Err(CloseError(Box::new(self)));
        }
        self.provided.unregister_buffers(&mut self.backend);
        Ok(self.backend)
    }
}

/// A loop that cannot be [closed](Loop::close) because handles are open: see there for an example.
pub struct CloseError<B: Backend>(Box<Loop<B>>);

impl<B: Backend> CloseError<B> {
    /// The loop.
    pub fn into_loop(self) -> Loop<B> {
        *self.0
    }
}

impl<B: Backend> fmt::Debug for CloseError<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `unwrap` and `main` print this: it names the handles as well.
        fmt::Display::fmt(self, f)
    }
}

impl<B: Backend> fmt::Display for CloseError<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug_list::write_open(&self.0, f)
    }
}

impl<B: Backend> std::error::Error for CloseError<B> {}
