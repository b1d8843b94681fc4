//! A backend with simulated time.
//!
//! It makes no system calls. Instead of a wait for a timer, its clock advances to the deadline. A
//! program that waits for hours runs in microseconds, and deterministically.
//!
//! ```sh
//! cargo run -p uv-core --example simulated_time
//! ```

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use uv_core::poll_core::{Backend, Event, Interest, Mode, RawSource, Token, Wake};
use uv_core::{Loop, RunMode, Timer};

/// A backend whose clock jumps from deadline to deadline.
#[derive(Debug, Default)]
pub(crate) struct Jumping {
    now: Duration,
    waker: JumpingWaker,
}

/// Wakes a [`Jumping`].
#[derive(Clone, Debug, Default)]
pub(crate) struct JumpingWaker(Arc<(Mutex<bool>, Condvar)>);

impl JumpingWaker {
    fn woken(&self) -> MutexGuard<'_, bool> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for JumpingWaker {
    fn wake(&self) -> io::Result<()> {
        *self.woken() = true;
        self.0.1.notify_one();
        Ok(())
    }
}

// SAFETY: it refuses every source and every operation, and reports no event.
unsafe impl Backend for Jumping {
    type Waker = JumpingWaker;

    fn waker(&self) -> JumpingWaker {
        self.waker.clone()
    }

    unsafe fn register(&mut self, _: Token, _: RawSource, _: Interest, _: Mode) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "this backend watches no sources"))
    }

    fn modify(&mut self, _: Token, _: Interest, _: Mode) -> io::Result<()> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn deregister(&mut self, _: Token) -> io::Result<()> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn wait(&mut self, timeout: Option<Duration>, _: &mut Vec<Event>) -> io::Result<()> {
        let mut woken = self.waker.woken();
        match timeout {
            Some(timeout) if !*woken => self.now += timeout,
            Some(_) => {}
            None => {
                let wait = self.waker.0.1.wait_while(woken, |woken| !*woken);
                woken = wait.unwrap_or_else(PoisonError::into_inner);
            }
        }
        *woken = false;
        Ok(())
    }

    fn now(&self) -> Duration {
        self.now
    }
}

pub(crate) fn main() -> io::Result<()> {
    let mut lp = Loop::new(Jumping::default());
    let (timer, hour) = (Timer::new(&mut lp), Duration::from_secs(3600));
    timer.start(&mut lp, hour, hour, |lp, timer| {
        let hours = lp.now().as_secs() / 3600;
        println!("{hours} h");
        if hours == 24 {
            timer.stop(lp).expect("the timer is open");
        }
    })?;
    lp.run(RunMode::Default)?;
    assert_eq!(lp.now(), 24 * hour);
    Ok(())
}
