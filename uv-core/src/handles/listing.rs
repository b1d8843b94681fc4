//! Lists of handles, for people who debug.

use std::fmt;

use poll_core::Backend;

use crate::Loop;
use crate::handles::AnyHandle;

/// The handles of a loop, one a line: what [`Loop::list_handles`] gives.
///
/// ```
/// use uv_core::{HandleList, Loop, Tcp};
/// use uv_core::poll_core::Backend;
///
/// fn log<B: Backend>(handles: HandleList<'_, B>) {
///     eprint!("{handles}");
/// }
///
/// let mut lp = Loop::with_default_backend()?;
/// Tcp::pair(&mut lp)?;
/// log(lp.list_handles());
/// assert_eq!(lp.list_handles().to_string().lines().count(), 2);
/// # std::io::Result::Ok(())
/// ```
pub struct HandleList<'a, B: Backend> {
    lp: &'a Loop<B>,
    active_only: bool,
}

impl<B: Backend> Loop<B> {
    /// All handles, to print: `[RA-] timer 3` is a timer that is referenced, active and not
    /// closing.
    ///
    /// ```
    /// use uv_core::{Handle, Idle, Loop, Timer};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// Timer::new(&mut lp);
    /// let idle = Idle::new(&mut lp);
    /// idle.start(&mut lp, |_, _| {})?;
    /// idle.unreference(&mut lp)?;
    /// assert_eq!(lp.list_handles().to_string(), "[R--] timer 0\n[-A-] idle 0\n");
    /// assert_eq!(lp.list_active_handles().to_string(), "[-A-] idle 0\n");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn list_handles(&self) -> HandleList<'_, B> {
        HandleList { lp: self, active_only: false }
    }

    /// The active handles, to print.
    pub fn list_active_handles(&self) -> HandleList<'_, B> {
        HandleList { lp: self, active_only: true }
    }
}

impl<B: Backend> fmt::Display for HandleList<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let with_base = |handle: AnyHandle| Some((handle, self.lp.base(handle)?));
        for (handle, base) in self.lp.walk().into_iter().filter_map(with_base) {
            if self.active_only && !base.is_active() {
                continue;
            }
            let flag = |on: bool, letter: char| if on { letter } else { '-' };
            writeln!(
                f,
                "[{}{}{}] {handle}",
                flag(base.is_referenced(), 'R'),
                flag(base.is_active(), 'A'),
                flag(base.is_closing(), 'C'),
            )?;
        }
        Ok(())
    }
}

impl<B: Backend> fmt::Debug for HandleList<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
