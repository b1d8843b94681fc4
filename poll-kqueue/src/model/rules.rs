//! Where kernels differ.

use super::condition::Kind;

/// The kernel whose rules the model of kqueue follows (feature `model`).
///
/// `FreeBsd` is the default of [`Kqueue::new`](crate::Kqueue::new) on Linux. Its rules and those
/// of `NetBsd` were observed on kernels, those of `Apple` were read in the kernel's source. A
/// cell with an asterisk is assumed: neither observed nor read.
///
/// | rule | `FreeBsd` (14) | `NetBsd` (before 10) | `Apple` |
/// |---|---|---|---|
/// | `EV_ENABLE` alone evaluates a knote | yes | no | yes\* |
/// | `EVFILT_USER` exists | yes | no | yes |
/// | the scan evaluates a one-shot knote again | no | no | yes |
/// | `EVFILT_WRITE` on a pipe without readers | refused, `EPIPE` | refused, `EBADF` | `EV_EOF` |
/// | `EVFILT_WRITE` on the read end of a pipe | fires | does not fire\* | does not fire\* |
/// | a terminal whose master is closed | refused, `ENXIO` | `EV_EOF`\* | `EV_EOF`\* |
/// | the null device | refused, `ENODEV` | as a file\* | as a file\* |
/// | `EVFILT_EXCEPT` at the end of file | does not fire\* | does not fire\* | `EV_EOF`, error in `fflags` |
///
/// ```
/// use poll_core::{Backend, RawSource, Interest, Readiness, Mode, Token};
/// use poll_kqueue::{Kqueue, Rules};
///
/// let null = std::fs::File::open("/dev/null")?;
/// let mut kqueue = Kqueue::with_rules(Rules::FreeBsd)?;
/// // SAFETY: `null` outlives the registration.
/// let refused = unsafe {
///     kqueue.register(Token::new(0, 0), RawSource::of(&null), Interest::READ, Mode::Level)
/// };
/// assert!(refused.is_err());
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rules {
    /// FreeBSD 14.
    FreeBsd,
    /// NetBSD before version 10.
    NetBsd,
    /// macOS, iOS and their relatives.
    Apple,
}

impl Rules {
    pub(super) fn has_user_events(self) -> bool {
        self != Rules::NetBsd
    }

    pub(super) fn evaluates_on_enable(self) -> bool {
        self != Rules::NetBsd
    }

    /// True if a one-shot knote fires only if its condition still holds at the scan. Otherwise it
    /// fires if its condition held when it was evaluated: the readiness may be spurious.
    pub(super) fn evaluates_oneshot_at_scan(self) -> bool {
        self == Rules::Apple
    }

    /// True if the read end of a pipe has a write direction.
    pub(super) fn has_bidirectional_pipes(self) -> bool {
        self == Rules::FreeBsd
    }

    /// True if `EVFILT_EXCEPT` fires at the end of file too.
    pub(super) fn reports_end_as_exception(self) -> bool {
        self == Rules::Apple
    }

    /// The error with which a write knote is refused on a pipe whose other end is closed.
    pub(super) fn broken_pipe(self) -> Option<i32> {
        match self {
            Rules::FreeBsd => Some(libc::EPIPE),
            Rules::NetBsd => Some(libc::EBADF),
            Rules::Apple => None,
        }
    }

    /// The error with which every knote is refused on a source of this kind.
    pub(super) fn refusal(self, kind: Kind) -> Option<i32> {
        match (self, kind) {
            (Rules::FreeBsd, Kind::HungUpTerminal) => Some(libc::ENXIO),
            (Rules::FreeBsd, Kind::Device(..)) => Some(libc::ENODEV),
            _ => None,
        }
    }
}
