//! A loop in a forked child.

use std::io;

use poll_core::Backend;

use super::{Loop, Notification};
use crate::handles::{fs_event, process};

impl<B: Backend> Loop<B> {
    /// Makes the loop work in a child of `fork`: handles go on there as in the parent.
    ///
    /// Async sends and signals from before the fork belong to the parent. So do the pool's threads
    /// and the operations in flight: work and file operations that were not done at the fork are
    /// cancelled in the child. Child processes also belong to the parent: their handles get an
    /// error in the child, as it cannot wait for their exit.
    ///
    /// Socket requests continue in both processes: connects, reads, accepts, receives, and writes
    /// and sends that had not completed at the fork. Incoming data goes to the process that reads
    /// first, and data that both write arrives twice: one of them should close the handle before
    /// it runs its loop.
    ///
    /// The loop stores the id of its process. In that process `fork` returns `Ok` and changes
    /// nothing: the pool's threads and the kernel still use the memory of requests. This holds
    /// for the parent, for a program that never forks, and for a second call in the child. A
    /// child of the child calls `fork` again.
    ///
    #[cfg_attr(unix, doc = "```")]
    #[cfg_attr(not(unix), doc = "```ignore")]
    /// use uv_core::{Loop, RunMode};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.defer(|_| println!("{} is here", std::process::id()));
    ///
    /// // SAFETY: the child goes on with its own copy of the only thread.
    /// match unsafe { libc::fork() } {
    ///     0 => {
    ///         let ran = lp.fork().and_then(|()| lp.run(RunMode::Default));
    ///         // SAFETY: nothing of the child's is left to be done.
    ///         unsafe { libc::_exit(i32::from(ran.is_err())) }
    ///     }
    ///     child => {
    ///         lp.run(RunMode::Default)?;
    ///         let mut status = -1;
    ///         // SAFETY: `status` outlives the call.
    ///         unsafe { libc::waitpid(child, &raw mut status, 0) };
    ///         assert_eq!(status, 0);
    ///     }
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Backend::after_fork`]. The call can be repeated after an error.
    #[doc(alias = "uv_loop_fork")]
    pub fn fork(&mut self) -> io::Result<()> {
        let process = std::process::id();
        if process == self.process {
            return Ok(());
        }
        self.backend.after_fork()?;
        self.notifier.forget();
        self.asyncs.forget_sends();
        self.signals.forget_caught();
        process::forget_all(self);
        self.works.forget_threads();
        fs_event::watch_again(self);
        self.streams.share_all();
        // Its lock may be held by a thread that is not here: it is left as it is.
        std::mem::forget(self.works.pool.take());
        if self.works.active() > 0 {
            self.notifier.notify(Notification::WORK)?;
        }
        self.notifier.notify(Notification::CHILD)?;
        self.operations.forget_readiness();
        self.dispatching = !self.operations.events.is_empty();
        self.process = process;
        Ok(())
    }

    /// The number of callbacks of the pending phase.
    pub(crate) fn deferred_callbacks(&self) -> usize {
        self.pending.len() + self.next_iteration.len()
    }
}
