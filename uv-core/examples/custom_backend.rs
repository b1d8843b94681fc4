//! A backend of one's own, whole, and a loop that works on it.
//!
//! The backend is `poll(2)` once more, but it tells what the loop asks of it and what its
//! kernel answers. The program on top serves a client of its own over TCP, ticks, and hears
//! from a thread. Windows has no `poll(2)`: there the program runs on the default backend.
//!
//! ```sh
//! cargo run -p uv-core --example custom_backend
//! ```
//!
//! To write one, copy the module `talkative` into a crate, and replace the system call;
//! `conformance::suite!` then says whether all is well.

use std::io;
use std::time::Duration;

use uv_core::poll_core::Backend;
use uv_core::{BindFlags, Channel, Handle, Loop, RunMode, Stream, Tcp, Timer};

#[cfg(unix)]
mod talkative {
    use std::io;
    use std::time::Duration;

    use uv_core::poll_core::{
        Backend, Bell, Countdown, Event, Mode, RawSource, Ready, Registry, Token,
    };

    /// Watches through `poll(2)`, and tells what it does.
    #[derive(Debug)]
    pub(crate) struct Talkative {
        /// Who is registered, and what for.
        sources: Registry<(Ready, Mode)>,
        /// What the kernel is asked about, made anew for every call.
        asked: Vec<libc::pollfd>,
        /// Rung by other threads, and watched beside the sources.
        bell: Bell,
    }

    impl Talkative {
        pub(crate) fn new() -> io::Result<Talkative> {
            Ok(Talkative { sources: Registry::default(), asked: Vec::new(), bell: Bell::new()? })
        }

        /// The system call: returns whether the bell was rung.
        fn poll(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
            self.asked.clear();
            self.asked.push(question(self.bell.source(), Ready::READ));
            let sources = self.sources.iter_mut();
            let wanted = sources.filter(|(_, _, state)| state.0.intersects(Ready::INTEREST));
            self.asked.extend(wanted.map(|(_, source, state)| question(source, state.0)));
            // Rounded up: a wait may be late, never early.
            let ms = timeout.map_or(-1, |t| t.as_nanos().div_ceil(1_000_000).min(1 << 30) as i32);
            // SAFETY: pointer and length describe `asked`, which outlives the call.
            match unsafe { libc::poll(self.asked.as_mut_ptr(), self.asked.len() as _, ms) } {
                -1 => Err(io::Error::last_os_error()),
                _ => Ok(self.asked[0].revents != 0),
            }
        }

        /// Hands on what the kernel has answered.
        fn report(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
            for answer in self.asked[1..].iter().filter(|answer| answer.revents != 0) {
                let source = RawSource::from_fd(answer.fd);
                let Some(token) = self.sources.token_of(source) else { continue };
                let (interest, mode) = self.sources.get_mut(token)?;
                let ready = interest.report(answered(answer.revents));
                println!("    {ready:?} at {}", answer.fd);
                events.push(Event::Ready { token, ready });
                if *mode == Mode::Oneshot || answer.revents & libc::POLLNVAL != 0 {
                    *interest = Ready::NONE; // Spent, or closed.
                }
            }
            Ok(())
        }
    }

    impl Backend for Talkative {
        type Waker = Bell;

        fn waker(&self) -> Bell {
            self.bell.clone()
        }

        unsafe fn register(
            &mut self,
            token: Token,
            source: RawSource,
            interest: Ready,
            mode: Mode,
        ) -> io::Result<()> {
            check(interest, mode)?;
            println!("    watch {}", source.fd());
            self.sources.insert(token, source, (interest, mode)).map(drop)
        }

        fn modify(&mut self, token: Token, interest: Ready, mode: Mode) -> io::Result<()> {
            check(interest, mode)?;
            *self.sources.get_mut(token)? = (interest, mode);
            Ok(())
        }

        fn deregister(&mut self, token: Token) -> io::Result<()> {
            self.sources.remove(token).map(drop)
        }

        fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
            let (before, countdown) = (events.len(), Countdown::start(timeout));
            let mut left = timeout;
            println!("    wait for {timeout:?}");
            loop {
                if left != Some(Duration::ZERO) && !self.bell.sleep() {
                    left = Some(Duration::ZERO); // Someone has knocked.
                }
                let polled = self.poll(left);
                let woken = self.bell.wake_up(matches!(polled, Ok(true)));
                match polled {
                    Ok(_) => self.report(events)?,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
                    Err(error) => return Err(error),
                }
                // A bell that rang late ends no wait: the rest of the time is left.
                left = countdown.left();
                if woken || events.len() > before || left == Some(Duration::ZERO) {
                    return Ok(());
                }
            }
        }

        fn after_fork(&mut self) -> io::Result<()> {
            self.bell.after_fork()
        }
    }

    /// Refuses what `poll(2)` cannot do.
    fn check(interest: Ready, mode: Mode) -> io::Result<()> {
        if mode == Mode::Edge || interest.contains(Ready::DISCONNECT) {
            let why = "this backend has no edge mode and does not see DISCONNECT";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        Ok(())
    }

    const MAP: [(i16, Ready); 6] = [
        (libc::POLLIN, Ready::READ),
        (libc::POLLOUT, Ready::WRITE),
        (libc::POLLPRI, Ready::PRIORITY),
        (libc::POLLHUP, Ready::HANGUP),
        (libc::POLLERR, Ready::ERROR),
        (libc::POLLNVAL, Ready::ERROR),
    ];

    fn question(source: RawSource, interest: Ready) -> libc::pollfd {
        let wanted = MAP[..3].iter().filter(|(_, ready)| interest.contains(*ready));
        libc::pollfd { fd: source.fd(), events: wanted.map(|(bit, _)| bit).sum(), revents: 0 }
    }

    fn answered(revents: i16) -> Ready {
        MAP.iter().filter(|(bit, _)| revents & bit != 0).map(|(_, ready)| *ready).collect()
    }
}

pub(crate) fn main() -> io::Result<()> {
    #[cfg(unix)]
    let backend = talkative::Talkative::new()?;
    #[cfg(not(unix))]
    let backend = {
        println!("there is no poll(2) here: this is the default backend");
        uv_core::backends::DefaultBackend::new()?
    };
    run(Loop::new(backend))
}

/// The program, which knows nothing of the backend that it runs on.
fn run<B: Backend>(mut lp: Loop<B>) -> io::Result<()> {
    let (timer, tick) = (Timer::new(&mut lp), Duration::from_millis(20));
    timer.start(&mut lp, tick, tick, |_, _| println!("tick"))?;

    let server = Tcp::new(&mut lp);
    server.bind(&mut lp, "127.0.0.1:0".parse().expect("an address"), BindFlags::empty())?;
    server.listen(&mut lp, 1, |lp, server, connection| {
        let accepted = connection.and_then(|()| server.accept(lp));
        let serving = accepted.and_then(|peer| peer.read_start(lp, echo));
        serving.and_then(|()| server.close(lp)).expect("one client is served");
    })?;
    let address = server.local_addr(&lp)?;

    // The thread's words go to the server and come back; after the last the client leaves.
    let client = Tcp::new(&mut lp);
    let (_, sender) = Channel::new(&mut lp, move |lp: &mut Loop<B>, channel, word: &str| {
        println!("the thread says {word}");
        let sent = client.write(lp, word, |_, _, result, _| result.expect("it is sent"));
        sent.expect("the client is connected");
        if word == "enough" {
            let over = client.shutdown(lp, |_, _, _| {}).and_then(|()| channel.handle().close(lp));
            over.and_then(|()| timer.close(lp)).expect("all of them are open");
        }
    });
    client.connect(&mut lp, address, move |lp, client, result| {
        let mut echoed = String::new();
        let reading = result.and_then(|()| {
            client.read_start(lp, move |lp, client, bytes| {
                let bytes = bytes.expect("the server is there until it has echoed all");
                echoed.push_str(&String::from_utf8_lossy(bytes));
                println!("the server has echoed {echoed:?}");
                if bytes.is_empty() {
                    assert_eq!(echoed, "hello and enough");
                    client.close(lp).expect("it is open");
                }
            })
        });
        reading.expect("the server listens");
        std::thread::spawn(move || {
            for word in ["hello ", "and ", "enough"] {
                std::thread::sleep(tick);
                sender.send(word).expect("the channel is open until it was enough");
            }
        });
    })?;

    lp.run(RunMode::Default)?; // Returns when nothing is left to do.
    assert_eq!(lp.list_handles().to_string(), "", "all of them were closed");
    Ok(())
}

/// The server: says back what it hears.
fn echo<B: Backend>(lp: &mut Loop<B>, peer: Tcp, bytes: io::Result<&[u8]>) {
    let answered = bytes.and_then(|bytes| match bytes {
        [] => peer.close(lp),
        bytes => peer.write(lp, bytes.to_vec(), |_, _, _, _| {}).map(drop),
    });
    answered.expect("the client reads all that it has sent");
}
