//! Signals of this process to itself: each is reported once.

use std::io;
use std::rc::Rc;

use uv_core::{Handle, Signal, kill, signum};

use super::{Kind, Loop, World};

/// Sends one signal after the other until the world is ending. The next is sent when the last has
/// arrived: the kernel merges those that are pending.
pub(super) fn start(world: &Rc<World>, lp: &mut Loop) -> io::Result<()> {
    let (this, signal) = (Rc::clone(world), Signal::new(lp));
    signal.start(lp, signum::SIGUSR1, move |lp, signal, number| {
        if number != signum::SIGUSR1 {
            this.fail(Kind::Signal, format!("signal {number} was not sent"));
        }
        this.count(Kind::Signal, 0);
        if this.ending.get() || this.check(Kind::Signal, "kill", send()).is_none() {
            let _ = signal.close(lp);
        }
    })?;
    send()
}

fn send() -> io::Result<()> {
    kill(std::process::id() as i32, signum::SIGUSR1)
}
