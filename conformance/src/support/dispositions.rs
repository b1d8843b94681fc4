//! What a signal does to the process, and how to put it back.

use std::{io, ptr};

/// What a signal does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disposition {
    /// What the system does with it.
    Default,
    /// Nothing.
    Ignored,
    /// Calls this.
    Handled(libc::sighandler_t),
}

impl Disposition {
    /// What the signal does now.
    pub(crate) fn of(signum: libc::c_int) -> Disposition {
        match sigaction(signum, None).sa_sigaction {
            libc::SIG_DFL => Disposition::Default,
            libc::SIG_IGN => Disposition::Ignored,
            handler => Disposition::Handled(handler),
        }
    }
}

/// A signal that does something else until this is dropped.
pub(crate) struct Changed {
    signum: libc::c_int,
    before: libc::sigaction,
}

impl Changed {
    /// Makes `signum` do this. Other cases must not run meanwhile.
    pub(crate) fn to(signum: libc::c_int, disposition: Disposition) -> Changed {
        // SAFETY: all zeros is a valid `sigaction`: no flags, an empty mask.
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

/// Sends a signal to this very thread: when it returns, the handler has run.
pub(crate) fn raise(signum: libc::c_int) {
    // SAFETY: it has no preconditions; cases raise what is watched, or ignored.
    let result = unsafe { libc::raise(signum) };
    assert_eq!(result, 0, "raise: {}", io::Error::last_os_error());
}

fn sigaction(signum: libc::c_int, action: Option<&libc::sigaction>) -> libc::sigaction {
    // SAFETY: all zeros is a valid `sigaction`.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    let action = action.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the action is null or valid, with a handler that is safe in a signal.
    let result = unsafe { libc::sigaction(signum, action, &raw mut before) };
    assert_eq!(result, 0, "sigaction: {}", io::Error::last_os_error());
    before
}
