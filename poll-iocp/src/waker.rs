//! The waker: a packet posted to the completion port.

use std::io;
use std::sync::Arc;

use poll_core::{Wake, WakeState};

use crate::port::{Key, Port};

/// Interrupts the `wait` of an [`Iocp`](crate::Iocp).
///
/// A wake posts a packet to the completion port if the backend is blocked, and only sets a flag
/// if not. Wakers share ownership of the port: a wake after the backend was dropped posts to a
/// port that no thread waits on.
#[derive(Clone, Debug)]
pub struct Waker(pub(crate) Arc<Shared>);

/// The state that the backend shares with its wakers.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) port: Port,
    pub(crate) wake_state: WakeState,
}

impl Wake for Waker {
    fn wake(&self) -> io::Result<()> {
        self.0.wake_state.wake(|| self.0.port.post(Key::Wake))
    }
}
