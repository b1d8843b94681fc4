//! Executes the steps of a program.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use uv_core::{AnyHandle, FsEventFlags, Handle, PollEvents, Stream, WorkError, kill, signum};

use super::objects::{self, Extra, Item};
use super::program::{Step, Verb};
use super::world::{Bomb, Life, Stage, World, panic_as_planned};
use super::{children, descriptors, files, passing, streams};
use crate::Loop;

/// Executes the steps of a callback, while the program runs.
pub(super) fn run_body(world: &Rc<World>, lp: &mut Loop, body: &[Step]) {
    for step in body {
        if world.stage.get() == Stage::Program {
            exec(world, lp, step);
        }
    }
}

/// Executes one step.
pub(super) fn exec(world: &Rc<World>, lp: &mut Loop, step: &Step) {
    world.has_bomb.set(step.bomb);
    match step.verb {
        Verb::Open => return objects::open(world, lp, step),
        Verb::Panic => panic_as_planned(),
        Verb::StopLoop => return lp.stop(),
        Verb::Swap => {
            if let Some(other) = world.spare.borrow_mut().as_mut() {
                std::mem::swap(lp, other);
            }
            return;
        }
        Verb::Defer => return defer(world, lp, step),
        Verb::Work => return work(world, lp, step),
        Verb::CancelWork => {
            let work = world.works.borrow().last().copied();
            drop(work.map(|work| world.verb("cancel of work", || work.cancel(lp))));
            return;
        }
        Verb::Stat | Verb::FileRead | Verb::FileWrite | Verb::Scandir | Verb::CancelFile => {
            return files::exec(world, lp, step);
        }
        _ => {}
    }
    let item = world.slots.borrow()[step.slot][step.end].clone();
    let item = item.or_else(|| world.slots.borrow()[step.slot][0].clone());
    if step.verb == Verb::Spawn {
        return children::spawn(world, lp, step, item.as_ref());
    }
    let Some(item) = item else { return };
    match step.verb {
        Verb::Replace => descriptors::replace(world, lp, &item),
        Verb::AcceptPassed | Verb::LimitPassed => passing::exec(world, lp, step, &item),
        Verb::Close => objects::close(world, lp, &item, Some(step)),
        Verb::Reference => drop(item.handle.reference(lp)),
        Verb::Unreference => drop(item.handle.unreference(lp)),
        _ => with_item(world, lp, step, &item),
    }
}

fn with_item(world: &Rc<World>, lp: &mut Loop, step: &Step, item: &Item) {
    match &item.extra {
        Extra::None => watch(world, lp, step, item),
        Extra::Async(sender) => {
            let sent = sender.send();
            if sent.is_ok() && item.life.closed.get() {
                world.fail(format!("{}: a send to a closed handle succeeded", item.name));
            }
        }
        Extra::Channel(sender, next) => {
            if sender.send(next.get()).is_ok() {
                next.set(next.get() + 1);
            }
        }
        Extra::Poll { peer, watched } => match step.verb {
            Verb::Send => drop(peer.send(&[0])),
            Verb::CloseBehind => drop(watched.take()),
            _ => watch(world, lp, step, item),
        },
        Extra::Signal => match step.verb {
            Verb::Send => drop(kill(std::process::id(), signal_of(step))),
            _ => watch(world, lp, step, item),
        },
        Extra::Stream { .. } => streams::exec(world, lp, step, item),
        Extra::Udp { .. } => streams::exec_udp(world, lp, step, item),
    }
}

/// A repeated callback stops its handle after as many calls, and runs its steps in each.
const CALLS: usize = 3;

/// Starts and stops timers and watchers.
fn watch(world: &Rc<World>, lp: &mut Loop, step: &Step, item: &Item) {
    let what = format!("{} {:?}", item.name, step.verb);
    let started = match step.verb {
        Verb::Start => start(world, lp, step, item, &what),
        Verb::Stop => {
            let _ = world.verb(&what, || stop(lp, item.handle));
            return;
        }
        Verb::Again => {
            let AnyHandle::Timer(timer) = item.handle else { return };
            world.verb(&what, || timer.again(lp))
        }
        _ => return,
    };
    if started.is_ok() && item.life.closing.get() {
        world.fail(format!("{what}: succeeded on a handle that was closed"));
    }
}

fn stop(lp: &mut Loop, handle: AnyHandle) -> io::Result<()> {
    match handle {
        AnyHandle::Timer(timer) => timer.stop(lp),
        AnyHandle::Idle(idle) => idle.stop(lp),
        AnyHandle::Prepare(prepare) => prepare.stop(lp),
        AnyHandle::Check(check) => check.stop(lp),
        AnyHandle::Poll(poll) => poll.stop(lp),
        AnyHandle::Signal(signal) => signal.stop(lp),
        AnyHandle::FsEvent(event) => event.stop(lp),
        AnyHandle::FsPoll(poll) => poll.stop(lp),
        _ => Ok(()),
    }
}

fn start(world: &Rc<World>, lp: &mut Loop, step: &Step, item: &Item, what: &str) -> io::Result<()> {
    let (this, life, body) = (Rc::clone(world), Rc::clone(&item.life), Rc::clone(&step.body));
    let (name, bomb, handle) = (Rc::clone(&item.name), Bomb(step.bomb), item.handle);
    // Another callback than the one before: a name of its own in the trace.
    let size = step.size;
    let mut calls = 0;
    let mut called = move |lp: &mut Loop| {
        let _bomb = &bomb;
        this.begin_callback(lp, &format!("{name} runs, started with {size}"), Some(&life));
        calls += 1;
        if calls >= CALLS {
            let _ = stop(lp, handle);
        }
        if calls <= CALLS {
            run_body(&this, lp, &body);
        }
    };
    world.verb(what, || match item.handle {
        AnyHandle::Timer(timer) => {
            let repeat = Duration::from_millis(if size % 2 == 1 { 1 + size as u64 % 3 } else { 0 });
            let timeout = Duration::from_millis(size as u64 % 4);
            timer.start(lp, timeout, repeat, move |lp, _| called(lp))
        }
        AnyHandle::Idle(idle) => idle.start(lp, move |lp, _| called(lp)),
        AnyHandle::Prepare(prepare) => prepare.start(lp, move |lp, _| called(lp)),
        AnyHandle::Check(check) => check.start(lp, move |lp, _| called(lp)),
        AnyHandle::Poll(poll) => {
            let both = PollEvents::READABLE | PollEvents::WRITABLE;
            let events = if size.is_multiple_of(2) { PollEvents::READABLE } else { both };
            poll.start(lp, events, move |lp, _, _| called(lp))
        }
        AnyHandle::Signal(signal) => signal.start(lp, signal_of(step), move |lp, _, _| called(lp)),
        AnyHandle::FsEvent(event) => {
            let path = world.directory().path("");
            event.start(lp, path, FsEventFlags::empty(), move |lp, _, _| called(lp))
        }
        AnyHandle::FsPoll(poll) => {
            let path = world.directory().path("");
            poll.start(lp, path, Duration::from_millis(1), move |lp, _, _, _| called(lp))
        }
        _ => Ok(()),
    })
}

/// A signal that does nothing if no handle is started: one of two, where there are two.
fn signal_of(step: &Step) -> i32 {
    #[cfg(unix)]
    const OTHER: i32 = signum::SIGURG;
    #[cfg(not(unix))]
    const OTHER: i32 = signum::SIGWINCH;
    if step.size.is_multiple_of(2) { signum::SIGWINCH } else { OTHER }
}

fn defer(world: &Rc<World>, lp: &mut Loop, step: &Step) {
    let (this, body, bomb) = (Rc::clone(world), Rc::clone(&step.body), Bomb(step.bomb));
    let what = format!("deferred callback {}", step.size);
    let ticket = world.ticket(what.clone());
    lp.defer(move |lp| {
        let _bomb = bomb;
        ticket.report(None);
        this.begin_callback(lp, &what, None);
        run_body(&this, lp, &body);
    });
}

fn work(world: &Rc<World>, lp: &mut Loop, step: &Step) {
    let (this, body, bomb) = (Rc::clone(world), Rc::clone(&step.body), Bomb(step.bomb));
    let ticket = world.ticket("work".into());
    let (id, size) = (ticket.id, step.size);
    let queued = world.verb("work", || {
        lp.queue_work(
            move || size * 2,
            move |lp, result| {
                let _bomb = bomb;
                ticket.report(None);
                this.begin_callback(lp, "work", None);
                match result {
                    Ok(result) if result != size * 2 => this.fail("work: another one's result"),
                    Err(WorkError::Panicked(_)) => this.fail("work: panicked"),
                    Ok(_) | Err(_) => {}
                }
                run_body(&this, lp, &body);
            },
        )
    });
    match queued {
        Ok(work) => world.works.borrow_mut().push(work),
        Err(_) => world.refuse(id),
    }
}

/// True if an error needs no explanation: the request was cancelled, its own handle or its peer is
/// closing or was broken by the program, or errors are injected.
pub(super) fn is_expected(world: &World, error: &io::Error, lives: [&Life; 2]) -> bool {
    let excuses = |life: &&Life| life.closing.get() || life.excused.get();
    world.tolerated.errors || uv_core::is_cancelled(error) || lives.iter().any(excuses)
}

/// Calls a verb of a TCP or pipe handle.
macro_rules! on_stream {
    ($handle:expr, $stream:ident => $call:expr, $none:expr) => {
        match $handle {
            uv_core::AnyHandle::Tcp($stream) => $call,
            uv_core::AnyHandle::Pipe($stream) => $call,
            _ => $none,
        }
    };
}
pub(super) use on_stream;

/// Shuts a stream down and reads it to its end.
pub(super) fn drain(world: &Rc<World>, lp: &mut Loop, item: &Item) {
    let _ = item.handle.reference(lp);
    let _ = on_stream!(item.handle, it => it.read_stop(lp), Ok(()));
    let _ = on_stream!(item.handle, it => it.shutdown(lp, |_, _, _| {}), Ok(()));
    streams::read_to_end(world, lp, item);
}
