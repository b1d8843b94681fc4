//! A waker made of `std` sockets, for kernel facilities that have none of their own.

use std::io;
use std::sync::{Arc, OnceLock};

use crate::{Doorbell, RawSource, Wake};

use ends::Ends;

/// Wakes a backend through a socket that it watches beside the caller's sources.
///
/// A backend over `poll` or `select` can be woken only by a descriptor becoming
/// readable. This is that descriptor, the [`Doorbell`] that saves ringing it
/// while the backend is awake, and the [`Wake`] to hand out: a connected pair of
/// Unix sockets, or a UDP socket connected to itself on Windows.
///
/// ```
/// use poll_core::{Bell, Wake};
///
/// let bell = Bell::new()?;
/// let waker = bell.clone();
/// assert!(bell.sleep());
/// waker.wake()?; // Now `bell.source()` is readable.
/// assert!(bell.wake_up(true));
/// assert!(!bell.wake_up(false), "a wake is answered once");
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
pub struct Bell(Arc<Door>);

#[derive(Debug)]
struct Door {
    bell: Doorbell,
    ends: Ends,
    /// The sockets of this process if it is a forked child: those above are its
    /// parent's too.
    child: OnceLock<Box<Door>>,
}

impl Door {
    fn new() -> io::Result<Door> {
        Ok(Door { bell: Doorbell::default(), ends: Ends::new()?, child: OnceLock::new() })
    }

    /// The door of this process.
    fn current(&self) -> &Door {
        let mut door = self;
        while let Some(child) = door.child.get() {
            door = child;
        }
        door
    }
}

impl Bell {
    /// Makes a bell.
    ///
    /// # Errors
    ///
    /// Those of making sockets: most likely that the process is out of descriptors.
    pub fn new() -> io::Result<Bell> {
        Ok(Bell(Arc::new(Door::new()?)))
    }

    /// What to watch for [`Ready::READ`](crate::Ready::READ), level-triggered.
    pub fn source(&self) -> RawSource {
        self.0.current().ends.source()
    }

    /// Before blocking; see [`Doorbell::sleep`].
    #[must_use = "false forbids blocking"]
    pub fn sleep(&self) -> bool {
        self.0.current().bell.sleep()
    }

    /// After the system call; see [`Doorbell::wake_up`]. `rung` says that the
    /// source was readable, and empties it.
    pub fn wake_up(&self, rung: bool) -> bool {
        let door = self.0.current();
        if rung {
            door.ends.drain();
        }
        door.bell.wake_up()
    }

    /// For `raw_fd`: from now on every wake makes the source readable; see
    /// [`Doorbell::watch`].
    ///
    /// # Errors
    ///
    /// Those of ringing, if someone has knocked already.
    pub fn watch(&self) -> io::Result<()> {
        let door = self.0.current();
        if door.bell.watch() { door.ends.ring() } else { Ok(()) }
    }

    /// In a forked child: takes new sockets, for this bell and all its clones.
    /// [`Bell::source`] changes.
    ///
    /// # Errors
    ///
    /// As [`Bell::new`].
    pub fn after_fork(&self) -> io::Result<()> {
        // Only the child's one thread is here, so the cell is certainly empty.
        let _ = self.0.current().child.set(Box::new(Door::new()?));
        Ok(())
    }
}

impl Wake for Bell {
    fn wake(&self) -> io::Result<()> {
        let door = self.0.current();
        door.bell.wake_with(|| door.ends.ring())
    }
}

#[cfg(unix)]
mod ends {
    use std::io::{self, Read, Write};
    use std::os::unix::net::UnixStream;

    use crate::RawSource;

    #[derive(Debug)]
    pub(super) struct Ends {
        heard: UnixStream,
        rung: UnixStream,
    }

    impl Ends {
        pub(super) fn new() -> io::Result<Ends> {
            let (heard, rung) = UnixStream::pair()?;
            heard.set_nonblocking(true)?;
            rung.set_nonblocking(true)?;
            Ok(Ends { heard, rung })
        }

        pub(super) fn source(&self) -> RawSource {
            RawSource::of(&self.heard)
        }

        pub(super) fn ring(&self) -> io::Result<()> {
            match (&self.rung).write(&[1]) {
                // The buffer is full of rings, and one is enough.
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
                _ => Ok(()),
            }
        }

        /// Takes a ring; true if there was one.
        #[cfg(test)]
        pub(super) fn hear(&self) -> bool {
            (&self.heard).read(&mut [0; 1]).is_ok_and(|count| count == 1)
        }

        pub(super) fn drain(&self) {
            while matches!((&self.heard).read(&mut [0; 64]), Ok(64)) {}
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

    /// How often a ring that would block is tried again at once, and then how often after a
    /// millisecond, before that is an error.
    const AT_ONCE: u32 = 100;
    const PATIENTLY: u32 = 1000;

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

        pub(super) fn ring(&self) -> io::Result<()> {
            let mut tries = 0;
            loop {
                match self.0.send(&[1]) {
                    // No proof of another ring that will be heard: a send may be refused, too,
                    // while another thread is in the middle of one, whose datagram may have
                    // been drained before this knock.
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        tries += 1;
                        match tries {
                            ..AT_ONCE => thread::yield_now(),
                            AT_ONCE..PATIENTLY => thread::sleep(Duration::from_millis(1)),
                            _ => return Err(error),
                        }
                    }
                    sent => return sent.map(drop),
                }
            }
        }

        /// Takes a ring; true if there was one.
        #[cfg(test)]
        pub(super) fn hear(&self) -> bool {
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
    fn a_bell_rung_many_times_is_drained_at_once() {
        let bell = Bell::new().unwrap();
        for _ in 0..1000 {
            assert!(bell.sleep());
            bell.wake().unwrap();
            assert!(bell.wake_up(false), "answered, but not drained");
        }
        bell.wake_up(true);
        assert!(bell.sleep());
        bell.wake().unwrap();
        assert!(bell.wake_up(true));
    }

    /// Several ring at once, each as soon as its last ring was answered: a ring that is lost is
    /// one that nobody answers.
    #[test]
    fn no_ring_of_several_is_lost() {
        use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
        use std::time::{Duration, Instant};
        const RINGS: usize = if cfg!(miri) { 20 } else { 2_000 };
        let (bell, ended) = (Bell::new().unwrap(), AtomicUsize::new(0));
        let rung: [AtomicBool; 4] = Default::default();
        let deadline = Instant::now() + Duration::from_secs(60);
        std::thread::scope(|scope| {
            for rung in &rung {
                scope.spawn(|| {
                    for _ in 0..RINGS {
                        rung.store(true, Ordering::SeqCst);
                        bell.wake().unwrap();
                        while rung.load(Ordering::SeqCst) {
                            assert!(Instant::now() < deadline, "nobody answers");
                            std::thread::yield_now();
                        }
                    }
                    ended.fetch_add(1, Ordering::SeqCst);
                });
            }
            while ended.load(Ordering::SeqCst) < rung.len() {
                let asleep = bell.sleep();
                while asleep && !bell.0.ends.hear() && ended.load(Ordering::SeqCst) < rung.len() {
                    assert!(Instant::now() < deadline, "a ring was lost");
                    std::thread::yield_now();
                }
                bell.wake_up(true);
                rung.iter().for_each(|rung| rung.store(false, Ordering::SeqCst));
            }
        });
    }

    #[test]
    fn a_childs_bell_has_sockets_of_its_own_and_old_clones_follow() {
        let bell = Bell::new().unwrap();
        let (clone, before) = (bell.clone(), bell.source());
        bell.after_fork().unwrap();
        assert_ne!(bell.source(), before);
        assert_eq!(clone.source(), bell.source());
        assert!(bell.sleep());
        clone.wake().unwrap();
        assert!(bell.wake_up(true));
    }
}
