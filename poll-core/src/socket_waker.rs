//! A waker made of `std` sockets, for kernel facilities that have none of their own.

use std::io;
use std::sync::{Arc, OnceLock};

use crate::{RawSource, Wake, WakeState};

use ends::Ends;

/// Wakes a backend through a socket that it watches beside the caller's sources.
///
/// A backend over `poll` or `select` can be woken only by a descriptor becoming
/// readable. This type holds that descriptor, the [`WakeState`] that saves the system
/// call while the backend is awake, and implements [`Wake`]. The descriptor is one end of a
/// connected pair of Unix sockets, or a UDP socket connected to itself on Windows.
///
/// ```
/// use poll_core::{SocketWaker, Wake};
///
/// let waker = SocketWaker::new()?;
/// let remote = waker.clone();
/// assert!(waker.prepare_park());
/// remote.wake()?; // Now `waker.source()` is readable.
/// assert!(waker.unpark(true));
/// assert!(!waker.unpark(false), "a wake is consumed once");
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
pub struct SocketWaker(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: WakeState,
    ends: Ends,
    /// The sockets of this process if it is a forked child: it shares those above with
    /// its parent.
    child: OnceLock<Box<Shared>>,
}

impl Shared {
    fn new() -> io::Result<Shared> {
        Ok(Shared { state: WakeState::default(), ends: Ends::new()?, child: OnceLock::new() })
    }

    /// The state and sockets of this process.
    fn current(&self) -> &Shared {
        let mut shared = self;
        while let Some(child) = shared.child.get() {
            shared = child;
        }
        shared
    }
}

impl SocketWaker {
    /// Creates the sockets.
    ///
    /// # Errors
    ///
    /// Those of creating sockets: most likely the process is out of descriptors.
    pub fn new() -> io::Result<SocketWaker> {
        Ok(SocketWaker(Arc::new(Shared::new()?)))
    }

    /// The source to watch for [`Interest::READ`](crate::Interest::READ), level-triggered.
    pub fn source(&self) -> RawSource {
        self.0.current().ends.source()
    }

    /// Before blocking; see [`WakeState::prepare_park`].
    #[must_use = "false forbids blocking"]
    pub fn prepare_park(&self) -> bool {
        self.0.current().state.prepare_park()
    }

    /// After the system call; see [`WakeState::unpark`]. `readable` means that the
    /// source was reported readable; then it is drained.
    pub fn unpark(&self, readable: bool) -> bool {
        let shared = self.0.current();
        if readable {
            shared.ends.drain();
        }
        shared.state.unpark()
    }

    /// For `raw_source`: from now on every wake makes the source readable; see
    /// [`WakeState::notify_always`].
    ///
    /// # Errors
    ///
    /// Those of writing to the socket, if a wake is pending already.
    pub fn notify_always(&self) -> io::Result<()> {
        let shared = self.0.current();
        if shared.state.notify_always() { shared.ends.signal() } else { Ok(()) }
    }

    /// In a forked child: creates new sockets, for this waker and all its clones.
    /// [`SocketWaker::source`] changes.
    ///
    /// # Errors
    ///
    /// As [`SocketWaker::new`].
    pub fn after_fork(&self) -> io::Result<()> {
        // The child has one thread, so no other call can have filled the cell.
        let _ = self.0.current().child.set(Box::new(Shared::new()?));
        Ok(())
    }
}

impl Wake for SocketWaker {
    fn wake(&self) -> io::Result<()> {
        let shared = self.0.current();
        shared.state.wake(|| shared.ends.signal())
    }
}

#[cfg(unix)]
mod ends {
    use std::io::{self, Read, Write};
    use std::os::unix::net::UnixStream;

    use crate::RawSource;

    #[derive(Debug)]
    pub(super) struct Ends {
        receiver: UnixStream,
        sender: UnixStream,
    }

    impl Ends {
        pub(super) fn new() -> io::Result<Ends> {
            let (receiver, sender) = UnixStream::pair()?;
            receiver.set_nonblocking(true)?;
            sender.set_nonblocking(true)?;
            Ok(Ends { receiver, sender })
        }

        pub(super) fn source(&self) -> RawSource {
            RawSource::of(&self.receiver)
        }

        pub(super) fn signal(&self) -> io::Result<()> {
            match (&self.sender).write(&[1]) {
                // A full buffer holds unread signals, and one is enough.
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
                _ => Ok(()),
            }
        }

        /// Reads one signal; false if none was queued.
        #[cfg(test)]
        pub(super) fn receive(&self) -> bool {
            (&self.receiver).read(&mut [0; 1]).is_ok_and(|count| count == 1)
        }

        pub(super) fn drain(&self) {
            while matches!((&self.receiver).read(&mut [0; 64]), Ok(64)) {}
        }
    }
}

#[cfg(windows)]
mod ends {
    use std::io;
    use std::net::{Ipv4Addr, UdpSocket};
    use std::thread;
    use std::time::Duration;

    use crate::RawSource;

    /// A send that would block is retried this many times after a yield.
    const YIELD_RETRIES: u32 = 100;
    /// It is then retried after a millisecond each, and fails after this many retries in all.
    const RETRIES: u32 = 1000;

    #[derive(Debug)]
    pub(super) struct Ends(UdpSocket);

    impl Ends {
        pub(super) fn new() -> io::Result<Ends> {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            socket.connect(socket.local_addr()?)?;
            socket.set_nonblocking(true)?;
            Ok(Ends(socket))
        }

        pub(super) fn source(&self) -> RawSource {
            RawSource::of(&self.0)
        }

        pub(super) fn signal(&self) -> io::Result<()> {
            let mut tries = 0;
            loop {
                match self.0.send(&[1]) {
                    // `WouldBlock` does not prove that another signal is queued: a send is also
                    // refused while another thread is inside one, whose datagram may have been
                    // drained before this wake.
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        tries += 1;
                        match tries {
                            ..YIELD_RETRIES => thread::yield_now(),
                            YIELD_RETRIES..RETRIES => thread::sleep(Duration::from_millis(1)),
                            _ => return Err(error),
                        }
                    }
                    sent => return sent.map(drop),
                }
            }
        }

        /// Reads one signal; false if none was queued.
        #[cfg(test)]
        pub(super) fn receive(&self) -> bool {
            self.0.recv(&mut [0; 1]).is_ok()
        }

        pub(super) fn drain(&self) {
            while self.0.recv(&mut [0; 1]).is_ok() {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unpark_drains_all_queued_signals() {
        let waker = SocketWaker::new().unwrap();
        for _ in 0..1000 {
            assert!(waker.prepare_park());
            waker.wake().unwrap();
            assert!(waker.unpark(false), "consumed, but not drained");
        }
        waker.unpark(true);
        assert!(waker.prepare_park());
        waker.wake().unwrap();
        assert!(waker.unpark(true));
    }

    /// Several threads wake concurrently, each again as soon as its last wake was consumed: a
    /// lost wake would never be consumed.
    #[test]
    fn no_wake_of_concurrent_threads_is_lost() {
        use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
        use std::time::{Duration, Instant};
        const WAKES: usize = if cfg!(miri) { 20 } else { 2_000 };
        let (waker, ended) = (SocketWaker::new().unwrap(), AtomicUsize::new(0));
        let pending_wakes: [AtomicBool; 4] = Default::default();
        let deadline = Instant::now() + Duration::from_secs(60);
        std::thread::scope(|scope| {
            for pending in &pending_wakes {
                scope.spawn(|| {
                    for _ in 0..WAKES {
                        pending.store(true, Ordering::SeqCst);
                        waker.wake().unwrap();
                        while pending.load(Ordering::SeqCst) {
                            assert!(Instant::now() < deadline, "the wake was not consumed");
                            std::thread::yield_now();
                        }
                    }
                    ended.fetch_add(1, Ordering::SeqCst);
                });
            }
            while ended.load(Ordering::SeqCst) < pending_wakes.len() {
                let parked = waker.prepare_park();
                while parked
                    && !waker.0.ends.receive()
                    && ended.load(Ordering::SeqCst) < pending_wakes.len()
                {
                    assert!(Instant::now() < deadline, "a wake was lost");
                    std::thread::yield_now();
                }
                waker.unpark(true);
                pending_wakes.iter().for_each(|pending| pending.store(false, Ordering::SeqCst));
            }
        });
    }

    #[test]
    fn after_fork_replaces_the_sockets_of_all_clones() {
        let waker = SocketWaker::new().unwrap();
        let (clone, before) = (waker.clone(), waker.source());
        waker.after_fork().unwrap();
        assert_ne!(waker.source(), before);
        assert_eq!(clone.source(), waker.source());
        assert!(waker.prepare_park());
        clone.wake().unwrap();
        assert!(waker.unpark(true));
    }
}
