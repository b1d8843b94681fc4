//! What a wait reports.

use crate::{Ready, Token};

/// What [`Backend::wait`](crate::Backend::wait) reports.
///
/// ```
/// use poll_core::{Event, Ready, Token};
///
/// let event = Event::Ready { token: Token::new(0, 0), ready: Ready::READ };
/// match event {
///     Event::Ready { token, ready } if ready.contains(Ready::READ) => {
///         println!("{token:?} can be read")
///     }
///     Event::Ready { .. } => {}
///     Event::Done { token, result, .. } => println!("{token:?} ended with {result:?}"),
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A registered source is ready. At most one a source and wait.
    Ready {
        /// The registration.
        token: Token,
        /// What holds, of what was asked for, plus hang-ups and errors.
        ready: Ready,
    },
    /// A submitted operation produced a result.
    Done {
        /// The operation.
        token: Token,
        /// What the operation returned: for most, a count of bytes; for accept and
        /// open, the new source; for poll, the bits of a [`Ready`]. Or the raw OS
        /// error, as [`std::io::Error::from_raw_os_error`] takes it.
        result: Result<usize, i32>,
        /// The operation goes on: it will report again and still holds its memory.
        more: bool,
        /// The piece of provided memory that was filled; it is the caller's until
        /// [`Backend::recycle`](crate::Backend::recycle).
        lent: Option<Lent>,
    },
}

impl Event {
    /// The registration or the operation that this is about.
    pub const fn token(&self) -> Token {
        match *self {
            Event::Ready { token, .. } | Event::Done { token, .. } => token,
        }
    }
}

/// A piece of a provided buffer, filled by an operation and lent to the caller.
///
/// Where the kernel consumes buffers incrementally, one buffer is lent in
/// several pieces; it goes back to the kernel when each has been recycled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lent {
    /// The group the buffer belongs to.
    pub group: u16,
    /// The buffer's number within its group.
    pub buffer: u16,
    /// Where in the buffer the piece starts. Its length is the `Done`'s result.
    pub offset: u32,
}
