//! Waking a wait through its completion port.

use std::io;
use std::sync::Arc;

use poll_core::{Doorbell, Wake};

use crate::port::{Key, Port};

/// Interrupts the `wait` of an [`Iocp`](crate::Iocp).
///
/// A wake posts a packet to the completion port if the backend sleeps there, and
/// only sets a flag if not. Wakers share the port with the backend, so one that
/// outlives it posts to a port that nobody waits on.
#[derive(Clone, Debug)]
pub struct Waker(pub(crate) Arc<Door>);

/// The completion port, and whether somebody sleeps behind it.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) port: Port,
    pub(crate) bell: Doorbell,
}

impl Wake for Waker {
    fn wake(&self) -> io::Result<()> {
        self.0.bell.wake_with(|| self.0.port.post(Key::Wake))
    }
}
