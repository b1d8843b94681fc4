//! Children of this program that copy their input to their output.

use std::cell::Cell;
use std::io::{self, Read, Write};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use uv_core::{Command, Handle, Pipe, PipeFlags, Process, Stdio, Stream};

use super::flow::{Expected, bytes};
use super::{Kind, Loop, World, after};

const BYTES: usize = 1 << 17;

/// Between two children: they cost more than all else.
const PAUSE: Duration = Duration::from_millis(50);

/// The status that a child exits with.
const STATUS: u8 = 7;

/// The child's side.
///
/// # Errors
///
/// Those of its standard streams.
pub(crate) fn copy_stdin() -> io::Result<ExitCode> {
    let mut input = Vec::new();
    io::stdin().read_to_end(&mut input)?;
    io::stdout().write_all(&input)?;
    io::stdout().flush()?;
    Ok(ExitCode::from(STATUS))
}

/// Begins with a child, which is followed by the next until the world is ending.
pub(super) fn start(world: &Rc<World>, lp: &mut Loop) {
    if let Err(error) = spawn(world, lp) {
        world.fail(Kind::Process, error);
    }
}

/// One child: it has ended when its output has and its exit was reported.
struct One {
    world: Rc<World>,
    output: Expected,
    left: Cell<u32>,
}

fn spawn(world: &Rc<World>, lp: &mut Loop) -> io::Result<()> {
    let (input, output) = (Pipe::new(lp), Pipe::new(lp));
    let flags = (PipeFlags::READABLE, PipeFlags::WRITABLE);
    let command = Command::new(crate::process::program()?)
        .arg("soak-child")
        .stdio([Stdio::Pipe(input, flags.0), Stdio::Pipe(output, flags.1)]);
    let (seed, len) = (world.draw(), world.size(BYTES));
    let output_of = Expected::new(seed, len);
    let one = Rc::new(One { world: Rc::clone(world), output: output_of, left: Cell::new(2) });
    let this = Rc::clone(&one);
    let process = Process::spawn(lp, &command, move |lp, process, exit| {
        let world = &this.world;
        match exit {
            Ok(exit) if exit.code == i64::from(STATUS) && exit.signal.is_none() => {}
            Ok(exit) => world.fail(Kind::Process, format!("ended with {exit}")),
            Err(error) => world.fail(Kind::Process, format!("exit: {error}")),
        }
        let _ = process.close(lp);
        ended(&this, lp);
    });
    if let Err(error) = process {
        for pipe in [input, output] {
            pipe.close(lp)?;
        }
        return Err(error);
    }
    let this = Rc::clone(&one);
    output.read_start(lp, move |lp, output, result| {
        let arrived = match result {
            Ok([]) => this.output.end().map(Some),
            Ok(bytes) => this.output.take(bytes).map(|()| None),
            Err(error) => Err(error.to_string()),
        };
        match arrived {
            Ok(None) => return,
            Ok(Some(len)) => this.world.count(Kind::Process, len),
            Err(why) => this.world.fail(Kind::Process, why),
        }
        let _ = output.close(lp);
        ended(&this, lp);
    })?;
    let world = Rc::clone(world);
    input.write(lp, bytes(seed, 0, len), move |lp, input, result, _| {
        world.check(Kind::Process, "write", result);
        let _ = input.close(lp);
    })?;
    Ok(())
}

/// The output or the process has ended.
fn ended(one: &Rc<One>, lp: &mut Loop) {
    one.left.set(one.left.get() - 1);
    if one.left.get() > 0 || one.world.ending.get() {
        return;
    }
    let world = Rc::clone(&one.world);
    let paused = after(lp, PAUSE, Duration::ZERO, move |lp, timer| {
        if !world.ending.get() {
            start(&world, lp);
        }
        let _ = timer.close(lp);
    });
    one.world.check(Kind::Process, "pause", paused);
}
