//! Signal dispositions, and restoring them.

use std::{io, ptr};

/// The disposition of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disposition {
    /// The system's default action.
    Default,
    /// The signal is ignored.
    Ignored,
    /// Calls this handler.
    Handled(libc::sighandler_t),
}

impl Disposition {
    /// The current disposition of the signal.
    pub(crate) fn of(signum: libc::c_int) -> Disposition {
        match sigaction(signum, None).sa_sigaction {
            libc::SIG_DFL => Disposition::Default,
            libc::SIG_IGN => Disposition::Ignored,
            handler => Disposition::Handled(handler),
        }
    }
}

/// A changed disposition, restored on drop.
pub(crate) struct Changed {
    signum: libc::c_int,
    before: libc::sigaction,
}

impl Changed {
    /// Changes the disposition of `signum`. The case must run exclusively.
    pub(crate) fn to(signum: libc::c_int, disposition: Disposition) -> Changed {
        // SAFETY: `sigaction` is plain data; all zeros mean no flags and an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = match disposition {
            Disposition::Default => libc::SIG_DFL,
            Disposition::Ignored => libc::SIG_IGN,
            Disposition::Handled(handler) => handler,
        };
        Changed { signum, before: sigaction(signum, Some(&action)) }
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        sigaction(self.signum, Some(&self.before));
    }
}

/// Sends a signal to the calling thread: the handler has run when this returns.
pub(crate) fn raise(signum: libc::c_int) {
    // SAFETY: `raise` has no preconditions; cases raise only signals that are handled or ignored.
    let result = unsafe { libc::raise(signum) };
    assert_eq!(result, 0, "raise: {}", io::Error::last_os_error());
}

fn sigaction(signum: libc::c_int, action: Option<&libc::sigaction>) -> libc::sigaction {
    // SAFETY: `sigaction` is plain data, for which all zeros are valid.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    let action = action.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the action is null or valid, and its handler is async-signal-safe.
    let result = unsafe { libc::sigaction(signum, action, &raw mut before) };
    assert_eq!(result, 0, "sigaction: {}", io::Error::last_os_error());
    before
}
