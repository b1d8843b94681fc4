//! The steps of child processes.

use std::io;
use std::rc::Rc;

use uv_core::{AnyHandle, Command, Exit, Handle, Pipe, PipeFlags, Process, Stdio};

use super::exec::run_body;
use super::objects::{Item, stream_pair};
use super::program::Step;
use super::world::{Bomb, World};
use crate::Loop;

/// Starts a child that copies its input to its output until the input ends.
pub(super) fn open(
    world: &Rc<World>,
    lp: &mut Loop,
    step: &Step,
    name: &str,
) -> io::Result<[Option<Item>; 2]> {
    if cfg!(not(unix)) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let (output, input) = (Pipe::new(lp), Pipe::new(lp));
    let stdio = [Stdio::Pipe(input, PipeFlags::READABLE), Stdio::Pipe(output, PipeFlags::WRITABLE)];
    match start(world, lp, step, &Command::new("cat").stdio(stdio)) {
        Ok(()) => Ok(stream_pair(name, output, input)),
        Err(error) => {
            input.close(lp)?;
            output.close(lp)?;
            Err(error)
        }
    }
}

/// Starts a child that inherits a stream and exits immediately.
pub(super) fn spawn(world: &Rc<World>, lp: &mut Loop, step: &Step, item: Option<&Item>) {
    if cfg!(not(unix)) {
        return;
    }
    let stdin = match item.map(|item| item.handle) {
        Some(AnyHandle::Tcp(tcp)) => Stdio::stream(tcp),
        Some(AnyHandle::Pipe(pipe)) => Stdio::stream(pipe),
        _ => Stdio::Ignore,
    };
    // Refused for a stream that is closed, not connected, or has bytes that were not delivered.
    let is_given = !matches!(stdin, Stdio::Ignore);
    let started = start(world, lp, step, &Command::new("true").stdio([stdin]));
    if let Err(error) = started
        && !is_given
        && !world.tolerated.errors
    {
        world.fail(format!("a child cannot be started: {error}"));
    }
}

fn start(world: &Rc<World>, lp: &mut Loop, step: &Step, command: &Command<'_>) -> io::Result<()> {
    let (this, body, bomb) = (Rc::clone(world), Rc::clone(&step.body), Bomb(step.bomb));
    let mut is_reported = false;
    let exited = move |lp: &mut Loop, process: Process, exit: io::Result<Exit>| {
        let _bomb = bomb;
        this.begin_callback(lp, "a child exits", None);
        this.children.set(this.children.get() - 1);
        if std::mem::replace(&mut is_reported, true) {
            this.fail("a child exits twice");
        }
        if let Err(error) = exit {
            this.fail(format!("the exit of a child is lost: {error}"));
        }
        let _ = process.close(lp);
        run_body(&this, lp, &body);
    };
    world.verb("spawn", || Process::spawn(lp, command, exited))?;
    world.children.set(world.children.get() + 1);
    Ok(())
}
