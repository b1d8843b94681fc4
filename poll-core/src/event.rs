//! The events that a wait reports.

use crate::{Readiness, Token};

/// An event that [`Backend::wait`](crate::Backend::wait) reports.
///
/// ```
/// use poll_core::{Event, Readiness, Token};
///
/// let event = Event::Ready { token: Token::new(0, 0), ready: Readiness::READ };
/// match event {
///     Event::Ready { token, ready } if ready.contains(Readiness::READ) => {
///         println!("{token:?} can be read")
///     }
///     Event::Ready { .. } => {}
///     Event::Done { token, result, .. } => println!("{token:?} ended with {result:?}"),
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Exhaustive: a consumer that ignores a kind of event loses readiness or leaks an operation.
pub enum Event {
    /// A registered source is ready. A wait reports each source at most once.
    Ready {
        /// The registration.
        token: Token,
        /// The conditions of the interest that hold, plus hang-ups and errors.
        ready: Readiness,
    },
    /// A submitted operation produced a result.
    Done {
        /// The operation.
        token: Token,
        /// The result: a count of bytes for most operations, the new source for accept and
        /// open, the bits of a [`Readiness`] for poll. Otherwise the raw OS
        /// error, as [`std::io::Error::from_raw_os_error`] takes it.
        result: Result<usize, i32>,
        /// The operation stays in flight: it will report again and still uses its memory.
        more: bool,
        /// The piece of a registered buffer that was filled, leased to the caller until
        /// [`Backend::release_buffer`](crate::Backend::release_buffer).
        lease: Option<BufferLease>,
    },
}

impl Event {
    /// The token of the registration or the operation.
    pub const fn token(&self) -> Token {
        match *self {
            Event::Ready { token, .. } | Event::Done { token, .. } => token,
        }
    }
}

/// A piece of a registered buffer, filled by an operation and lent to the caller.
///
/// Where the kernel consumes buffers incrementally, one buffer is lent in
/// several pieces; it returns to the kernel when each has been released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
// Exhaustive: backends outside of this workspace construct it.
pub struct BufferLease {
    /// The group the buffer belongs to.
    pub group: u16,
    /// The buffer's number within its group.
    pub buffer: u16,
    /// Where in the buffer the piece starts. Its length is the `Done`'s result.
    pub offset: u32,
}
