//! A custom backend, complete, and a loop that runs on it.
//!
//! The backend uses `poll(2)` and prints the requests of the loop and the events of the kernel. The
//! program serves its own client over TCP, runs a timer, and receives messages from a thread.
//! Windows has no `poll(2)`: there the program runs on the default backend.
//!
//! ```sh
//! cargo run -p uv-core --example custom_backend
//! ```
//!
//! To write a backend, copy the module `verbose` into a crate and replace the system call;
//! `conformance::suite!` then checks the contract.

use std::io;
use std::time::Duration;

use uv_core::poll_core::Backend;
use uv_core::{Channel, Handle, Listener, Loop, RunMode, Stream, Tcp, TcpBindFlags, Timer};

#[cfg(unix)]
mod verbose {
    use std::io;
    use std::time::Duration;

    use uv_core::poll_core::{
        Backend, Deadline, Event, Interest, Mode, RawSource, Readiness, Registry, SocketWaker,
        Token,
    };

    /// A backend over `poll(2)` that prints its calls.
    #[derive(Debug)]
    pub(crate) struct VerbosePoll {
        /// The registered sources with their interests and modes.
        sources: Registry<(Interest, Mode)>,
        /// The argument of `poll(2)`, rebuilt for every call.
        pollfds: Vec<libc::pollfd>,
        /// Wakes `poll(2)` from other threads; polled together with the sources.
        waker: SocketWaker,
    }

    impl VerbosePoll {
        pub(crate) fn new() -> io::Result<VerbosePoll> {
            Ok(VerbosePoll {
                sources: Registry::default(),
                pollfds: Vec::new(),
                waker: SocketWaker::new()?,
            })
        }

        /// Makes the system call. True if the waker is readable.
        fn poll(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
            self.pollfds.clear();
            self.pollfds.push(pollfd_of(self.waker.source(), Interest::READ));
            let sources = self.sources.iter_mut();
            let wanted = sources.filter(|(_, _, state)| !state.0.is_empty());
            self.pollfds.extend(wanted.map(|(_, source, state)| pollfd_of(source, state.0)));
            // Rounded up: a wait may end late, but never early.
            let ms = timeout.map_or(-1, |t| t.as_nanos().div_ceil(1_000_000).min(1 << 30) as i32);
            // SAFETY: pointer and length describe `pollfds`, which outlives the call.
            match unsafe { libc::poll(self.pollfds.as_mut_ptr(), self.pollfds.len() as _, ms) } {
                -1 => Err(io::Error::last_os_error()),
                _ => Ok(self.pollfds[0].revents != 0),
            }
        }

        /// Reports the events that the kernel returned.
        fn report(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
            for entry in self.pollfds[1..].iter().filter(|entry| entry.revents != 0) {
                let source = RawSource::from_fd(entry.fd);
                let Some(token) = self.sources.token_of(source) else { continue };
                let (interest, mode) = self.sources.get_mut(token)?;
                let ready = interest.report(readiness_of(entry.revents));
                println!("    {ready:?} at {}", entry.fd);
                events.push(Event::Ready { token, ready });
                if *mode == Mode::Oneshot || entry.revents & libc::POLLNVAL != 0 {
                    *interest = Interest::NONE; // Fired, or closed.
                }
            }
            Ok(())
        }
    }

    // SAFETY: the backend performs no operations. The kernel uses the sources only during
    // `poll(2)`, `deregister` removes them from the registry, and no call closes them.
    unsafe impl Backend for VerbosePoll {
        type Waker = SocketWaker;

        fn waker(&self) -> SocketWaker {
            self.waker.clone()
        }

        unsafe fn register(
            &mut self,
            token: Token,
            source: RawSource,
            interest: Interest,
            mode: Mode,
        ) -> io::Result<()> {
            check(interest, mode)?;
            println!("    watch {}", source.fd());
            self.sources.insert(token, source, (interest, mode)).map(drop)
        }

        fn modify(&mut self, token: Token, interest: Interest, mode: Mode) -> io::Result<()> {
            check(interest, mode)?;
            *self.sources.get_mut(token)? = (interest, mode);
            Ok(())
        }

        fn deregister(&mut self, token: Token) -> io::Result<()> {
            self.sources.remove(token).map(drop)
        }

        fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
            let (before, countdown) = (events.len(), Deadline::start(timeout));
            let mut left = timeout;
            println!("    wait for {timeout:?}");
            loop {
                if left != Some(Duration::ZERO) && !self.waker.prepare_park() {
                    left = Some(Duration::ZERO); // A wake is pending.
                }
                let polled = self.poll(left);
                let woken = self.waker.unpark(matches!(polled, Ok(true)));
                match polled {
                    Ok(_) => self.report(events)?,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
                    Err(error) => return Err(error),
                }
                // A wake of an earlier wait ends nothing: wait for the rest of the time.
                left = countdown.left();
                if woken || events.len() > before || left == Some(Duration::ZERO) {
                    return Ok(());
                }
            }
        }

        fn after_fork(&mut self) -> io::Result<()> {
            self.waker.after_fork()
        }
    }

    /// Refuses modes and interests that `poll(2)` does not support.
    fn check(interest: Interest, mode: Mode) -> io::Result<()> {
        if mode == Mode::Edge || interest.contains(Interest::DISCONNECT) {
            let why = "this backend supports neither edge mode nor DISCONNECT";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        Ok(())
    }

    const MAP: [(i16, Readiness); 6] = [
        (libc::POLLIN, Readiness::READ),
        (libc::POLLOUT, Readiness::WRITE),
        (libc::POLLPRI, Readiness::PRIORITY),
        (libc::POLLHUP, Readiness::HANGUP),
        (libc::POLLERR, Readiness::ERROR),
        (libc::POLLNVAL, Readiness::ERROR),
    ];

    fn pollfd_of(source: RawSource, interest: Interest) -> libc::pollfd {
        let wanted = MAP[..3].iter().filter(|(_, ready)| interest.to_readiness().contains(*ready));
        libc::pollfd { fd: source.fd(), events: wanted.map(|(bit, _)| bit).sum(), revents: 0 }
    }

    fn readiness_of(revents: i16) -> Readiness {
        MAP.iter().filter(|(bit, _)| revents & bit != 0).map(|(_, ready)| *ready).collect()
    }
}

pub(crate) fn main() -> io::Result<()> {
    #[cfg(unix)]
    let backend = verbose::VerbosePoll::new()?;
    #[cfg(not(unix))]
    let backend = {
        println!("this system has no poll(2): using the default backend");
        uv_core::backends::DefaultBackend::new()?
    };
    run(Loop::new(backend))
}

/// The program, which is generic over the backend.
fn run<B: Backend>(mut lp: Loop<B>) -> io::Result<()> {
    let (timer, tick) = (Timer::new(&mut lp), Duration::from_millis(20));
    timer.start(&mut lp, tick, tick, |_, _| println!("tick"))?;

    let server = Tcp::new(&mut lp);
    server.bind(&mut lp, "127.0.0.1:0".parse().expect("an address"), TcpBindFlags::empty())?;
    server.listen(&mut lp, 1, |lp, server, connection| {
        let accepted = connection.and_then(|()| server.accept(lp));
        let serving = accepted.and_then(|peer| peer.read_start(lp, echo));
        serving.and_then(|()| server.close(lp)).expect("one client is served");
    })?;
    let address = server.local_addr(&lp)?;

    // The client sends the words of the thread to the server, and shuts down after the last.
    let client = Tcp::new(&mut lp);
    let (_, sender) = Channel::new(&mut lp, move |lp: &mut Loop<B>, channel, word: &str| {
        println!("message from the thread: {word}");
        let sent = client.write(lp, word, |_, _, result, _| result.expect("it is sent"));
        sent.expect("the client is connected");
        if word == "stop" {
            let over = client.shutdown(lp, |_, _, _| {}).and_then(|()| channel.handle().close(lp));
            over.and_then(|()| timer.close(lp)).expect("all handles are open");
        }
    });
    client.connect(&mut lp, address, move |lp, client, result| {
        let mut echoed = String::new();
        let reading = result.and_then(|()| {
            client.read_start(lp, move |lp, client, bytes| {
                let bytes = bytes.expect("the server closes after it has echoed all bytes");
                echoed.push_str(&String::from_utf8_lossy(bytes));
                println!("the server has echoed {echoed:?}");
                if bytes.is_empty() {
                    assert_eq!(echoed, "hello and stop");
                    client.close(lp).expect("it is open");
                }
            })
        });
        reading.expect("the server listens");
        std::thread::spawn(move || {
            for word in ["hello ", "and ", "stop"] {
                std::thread::sleep(tick);
                sender.send(word).expect("the channel is open until the last message");
            }
        });
    })?;

    lp.run(RunMode::Default)?; // Returns when no active handle is left.
    assert_eq!(lp.debug_handles().to_string(), "", "all handles are closed");
    Ok(())
}

/// The server: echoes all bytes.
fn echo<B: Backend>(lp: &mut Loop<B>, peer: Tcp, bytes: io::Result<&[u8]>) {
    let echoed = bytes.and_then(|bytes| match bytes {
        [] => peer.close(lp),
        bytes => peer.write(lp, bytes.to_vec(), |_, _, _, _| {}).map(drop),
    });
    echoed.expect("the client reads all bytes that it has sent");
}
