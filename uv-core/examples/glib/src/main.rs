//! This loop inside glib's main loop, as of GTK programs.
//!
//! ```sh
//! cargo run --manifest-path uv-core/examples/glib/Cargo.toml
//! ```
//!
//! glib watches the loop's descriptor and has a source for its time-out. Both run the loop without
//! waiting, and ask for the time-out again. Callbacks of glib use the loop by [`Embedded::with`].

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use glib::{ControlFlow, IOCondition, MainLoop, SourceId};
use uv_core::backends::Auto;
use uv_core::{Handle, Loop, RunMode, Stream, Tcp, Timer};

/// A loop that glib's default main context runs. Clones are the same loop.
#[derive(Clone)]
struct Embedded(Rc<Inner>);

struct Inner {
    lp: RefCell<Loop<Auto>>,
    time_out: Cell<Option<SourceId>>,
    runs: Cell<u32>,
    /// A duplicate of the loop's descriptor: it stays open as long as glib watches it.
    fd: OwnedFd,
    watch: Cell<Option<SourceId>>,
}

impl Embedded {
    fn new(lp: Loop<Auto>) -> io::Result<Embedded> {
        // `select` and `poll` have no descriptor: those loops need a thread of their own.
        let fd = lp.backend_fd().ok_or(io::ErrorKind::Unsupported)?.try_clone_to_owned()?;
        let inner = Inner {
            lp: RefCell::new(lp),
            time_out: Cell::default(),
            runs: Cell::default(),
            fd,
            watch: Cell::default(),
        };
        let embedded = Embedded(Rc::new(inner));
        // glib reports levels: one run for each report is enough.
        let weak = Rc::downgrade(&embedded.0);
        let watch = move |_, _| match weak.upgrade() {
            Some(inner) => {
                Embedded(inner).run();
                ControlFlow::Continue
            }
            None => ControlFlow::Break,
        };
        let fd = embedded.0.fd.as_raw_fd();
        let watch = glib::source::unix_fd_add_local(fd, IOCondition::IN, watch);
        embedded.0.watch.set(Some(watch));
        embedded.renew_time_out();
        Ok(embedded)
    }

    /// Uses the loop in a callback of glib. Callbacks of the loop itself have it as an argument.
    ///
    /// While those run, the loop is borrowed: none may run a main loop of glib, as modal dialogs do.
    fn with<R>(&self, f: impl FnOnce(&mut Loop<Auto>) -> R) -> R {
        let result = f(&mut self.0.lp.borrow_mut());
        self.renew_time_out(); // `f` may have started something.
        result
    }

    fn run(&self) {
        self.0.runs.set(self.0.runs.get() + 1);
        if let Err(error) = self.with(|lp| lp.run(RunMode::NoWait)) {
            eprintln!("the loop has failed: {error}");
        }
    }

    fn renew_time_out(&self) {
        if let Some(earlier) = self.0.time_out.take() {
            earlier.remove();
        }
        let mut lp = self.0.lp.borrow_mut();
        // A loop that has nothing to do asks to be run immediately, as one that could end.
        let Some(time_out) = lp.is_alive().then(|| lp.backend_timeout()).flatten() else { return };
        // glib counts milliseconds. Rounded up, so that no run comes before the timer is due.
        let time_out = Duration::from_millis(time_out.as_nanos().div_ceil(1_000_000) as u64);
        let weak = Rc::downgrade(&self.0);
        let source = glib::timeout_add_local_once(time_out, move || {
            if let Some(inner) = weak.upgrade() {
                inner.time_out.take(); // It removes itself.
                Embedded(inner).run();
            }
        });
        self.0.time_out.set(Some(source));
    }
}

impl Drop for Inner {
    /// Removes the sources before the descriptor is closed.
    fn drop(&mut self) {
        [self.time_out.take(), self.watch.take()].into_iter().flatten().for_each(SourceId::remove);
    }
}

/// The events of the two loops.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    ticks: u32,
    answers: u32,
    messages: u32,
}

/// Each tick of a timer of glib connects to a server in this loop, and each answer is a message to
/// glib. Ends after `until` of them. Returns also how often the loop was run.
fn run(backend: &str, until: u32) -> io::Result<(Seen, u32)> {
    let main = MainLoop::new(None, false);
    let seen = Rc::new(RefCell::new(Seen::default()));

    let mut lp = Loop::new(Auto::named(backend)?);
    lp.on_error(|_, handle, error| eprintln!("{handle}: {error}"));
    let server = Tcp::listen_on(&mut lp, "127.0.0.1:0", |lp, peer| {
        // After some milliseconds, so that glib waits for this loop's timers as well.
        Timer::after(lp, Duration::from_millis(3), move |lp, timer| {
            timer.close_if_open(lp);
            peer.send(lp, "hello");
            peer.finish(lp);
        });
        Ok(())
    })?;
    let address = server.local_addr(&lp)?;
    let embedded = Embedded::new(lp)?;

    let (ticks, quit, inner) = (Rc::clone(&seen), main.clone(), embedded.clone());
    glib::timeout_add_local(Duration::from_millis(5), move || {
        ticks.borrow_mut().ticks += 1;
        let (answers, quit) = (Rc::clone(&ticks), quit.clone());
        inner.with(|lp| {
            ask(lp, address, move |lp| {
                let mut seen = answers.borrow_mut();
                seen.answers += 1;
                if seen.answers == until {
                    server.close_if_open(lp);
                }
                let (messages, quit) = (Rc::clone(&answers), quit.clone());
                glib::idle_add_local_once(move || {
                    messages.borrow_mut().messages += 1;
                    if messages.borrow().messages == until {
                        quit.quit();
                    }
                });
            });
        });
        if ticks.borrow().ticks == until { ControlFlow::Break } else { ControlFlow::Continue }
    });

    main.run();
    Ok((seen.take(), embedded.0.runs.get()))
}

/// Connects, and calls back when the server has said hello and has ended.
fn ask(
    lp: &mut Loop<Auto>,
    server: std::net::SocketAddr,
    done: impl FnOnce(&mut Loop<Auto>) + 'static,
) {
    let (mut heard, mut done) = (Vec::new(), Some(done));
    Tcp::connect_to(lp, server, move |lp, client, result| {
        client.attempt(lp, |lp| {
            result?;
            client.on_read(lp, move |lp, client, bytes| {
                heard.extend_from_slice(bytes);
                if bytes.is_empty() {
                    client.close(lp)?;
                    let done = done.take().filter(|_| heard == b"hello");
                    done.ok_or(io::ErrorKind::InvalidData)?(lp);
                }
                Ok(())
            })
        });
    });
}

fn main() -> io::Result<()> {
    for backend in ["epoll", "uring"] {
        match run(backend, 10) {
            Ok((seen, runs)) => println!("{backend}: {seen:?} in {runs} runs of the loop"),
            Err(error) => println!("{backend}: {error}"), // As in containers that forbid io_uring.
        }
    }
    Ok(())
}

// One test: glib's default main context belongs to one thread.
#[test]
fn both_loops_run_and_neither_spins() {
    for backend in ["epoll", "uring"] {
        let Ok((seen, runs)) = run(backend, 10) else {
            eprintln!("skip: no {backend}");
            continue;
        };
        assert_eq!(seen, Seen { ticks: 10, answers: 10, messages: 10 }, "{backend}");
        assert!(runs < 300, "{backend}: {runs} runs");
    }
}
