//! The steps of streams and of datagram sockets.

use std::cell::Cell;
use std::io;
use std::rc::Rc;

use uv_core::{AnyHandle, Handle, Stream};

use super::exec::{is_expected, on_stream, run_body};
use super::lanes::Lane;
use super::objects::{Extra, Item};
use super::passing;
use super::program::{Step, Verb};
use super::send_file::send_file;
use super::world::{Bomb, Life, Stage, World};
use crate::Loop;

/// A stream in a step: what its callbacks need.
#[derive(Clone)]
pub(super) struct Ctx {
    pub(super) world: Rc<World>,
    pub(super) name: Rc<str>,
    pub(super) handle: AnyHandle,
    pub(super) life: Rc<Life>,
    peer: Rc<Life>,
    input: Rc<Lane>,
    pub(super) output: Rc<Lane>,
}

impl Ctx {
    fn of(world: &Rc<World>, item: &Item) -> Option<Ctx> {
        let Extra::Stream { input, output, peer } = &item.extra else { return None };
        Some(Ctx {
            world: Rc::clone(world),
            name: Rc::clone(&item.name),
            handle: item.handle,
            life: Rc::clone(&item.life),
            peer: Rc::clone(peer),
            input: Rc::clone(input),
            output: Rc::clone(output),
        })
    }

    /// Bytes, the end of file or an error have been read.
    fn received(&self, result: io::Result<&[u8]>) {
        self.world.reads_reported.set(self.world.reads_reported.get() + 1);
        match result {
            Ok([]) => self.input.ended.set(!self.peer.closing.get() || self.input.ended.get()),
            Ok(bytes) => self.input.receive(bytes),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => self.failed("read", &error),
        }
    }

    pub(super) fn failed(&self, what: &str, error: &io::Error) {
        if uv_core::is_cancelled(error) {
            return;
        }
        self.input.broken.set(true);
        self.output.broken.set(true);
        if !is_expected(&self.world, error, [&self.life, &self.peer]) {
            self.world.fail(format!("{} {what}: failed without a cause: {error}", self.name));
        }
    }

    /// A verb that needs an open handle has returned.
    pub(super) fn returned<R>(&self, what: &str, result: &io::Result<R>) {
        if result.is_ok() && self.life.closing.get() {
            self.world.fail(format!("{} {what}: succeeded on a closed handle", self.name));
        }
    }
}

/// Executes a step of a stream.
pub(super) fn exec(world: &Rc<World>, lp: &mut Loop, step: &Step, item: &Item) {
    let Some(ctx) = Ctx::of(world, item) else { return };
    match step.verb {
        Verb::Write | Verb::Pass => write(&ctx, lp, step),
        Verb::SendFile => send_file(&ctx, lp, step),
        Verb::TryWrite | Verb::WriteCoalesced => try_write(&ctx, lp, step),
        Verb::Shutdown => shutdown(&ctx, lp, step),
        Verb::ReadStart => read_start(&ctx, lp, step),
        Verb::ReadStartWith => read_start_with(&ctx, lp, step),
        Verb::ReadStop => {
            let _ =
                world.verb("read_stop", || on_stream!(ctx.handle, it => it.read_stop(lp), Ok(())));
        }
        Verb::Read => read(&ctx, lp, step),
        Verb::TryRead => try_read(&ctx, lp, step),
        Verb::CancelRead => {
            let read = world.reads.borrow().last().copied();
            drop(read.map(|read| world.verb("cancel of a read", || read.cancel(lp))));
        }
        Verb::CancelWrite => {
            let write = world.writes.borrow().last().copied();
            drop(write.map(|write| world.verb("cancel of a write", || write.cancel(lp))));
        }
        Verb::ShrinkBuffers => {
            let _ = ctx.handle.set_send_buffer_size(lp, 1);
            // A receive window that shrinks while bytes arrive makes Linux's TCP send a few hundred
            // of them for each probe, five times a second: 300,000 bytes take twenty seconds.
            if !matches!(ctx.handle, AnyHandle::Tcp(_)) {
                let _ = ctx.handle.set_recv_buffer_size(lp, 1);
            }
        }
        _ => {}
    }
}

fn write(ctx: &Ctx, lp: &mut Loop, step: &Step) {
    let (number, bytes) = ctx.output.next_write(step.size);
    let (this, body, bomb) = (ctx.clone(), Rc::clone(&step.body), Bomb(step.bomb));
    let what = format!("{} write {}", ctx.name, step.size);
    let ticket = ctx.world.ticket(what.clone());
    let (id, len, passes) = (ticket.id, step.size, step.verb == Verb::Pass);
    let called = move |lp: &mut Loop, result: io::Result<()>, buffer: Vec<u8>| {
        let _bomb = bomb;
        let before_close = !this.world.tolerated.late_writes;
        ticket.report(before_close.then_some(&*this.life));
        this.world.begin_callback(lp, &format!("{} write", this.name), None);
        if buffer.len() != len {
            this.world.fail(format!("{} write: another buffer came back", this.name));
        }
        match result {
            Ok(()) => this.output.settle(number, len),
            // The handle was closed before it was passed: only this write fails.
            Err(error) if passes && uv_core::error_name(&error) == Some("EBADF") => {}
            Err(error) => this.failed("write", &error),
        }
        run_body(&this.world, lp, &body);
    };
    let none = Err(io::ErrorKind::Unsupported.into());
    let written = ctx.world.verb(&what, || match (step.verb, ctx.handle) {
        (Verb::Pass, AnyHandle::Pipe(pipe)) => {
            let handles: Vec<_> = passing::passed(&ctx.world, step).into_iter().collect();
            pipe.write_with_handles(lp, bytes, &handles, move |lp, _, result, buffer| {
                called(lp, result, buffer);
            })
        }
        _ => on_stream!(ctx.handle, it => {
            it.write(lp, bytes, move |lp, _, result, buffer| called(lp, result, buffer))
        }, none),
    });
    ctx.returned("write", &written);
    match written {
        Ok(write) => ctx.world.writes.borrow_mut().push(write),
        Err(_) => {
            ctx.output.settle(number, 0);
            ctx.world.refuse(id);
        }
    }
}

fn try_write(ctx: &Ctx, lp: &mut Loop, step: &Step) {
    let (number, bytes) = ctx.output.next_write(step.size);
    let written = ctx.world.verb(&format!("{} {:?}", ctx.name, step.verb), || {
        on_stream!(ctx.handle, it => match step.verb {
            Verb::TryWrite => it.try_write(lp, &bytes),
            _ => it.write_coalesced(lp, &bytes),
        }, Ok(0))
    });
    ctx.returned("try_write", &written);
    if written.as_ref().is_ok_and(|count| *count > bytes.len()) {
        ctx.world.fail(format!("{} {:?}: more than all was written", ctx.name, step.verb));
    }
    ctx.output.settle(number, written.unwrap_or(0).min(bytes.len()));
}

fn shutdown(ctx: &Ctx, lp: &mut Loop, step: &Step) {
    let (this, body, bomb) = (ctx.clone(), Rc::clone(&step.body), Bomb(step.bomb));
    let what = format!("{} shutdown", ctx.name);
    let ticket = ctx.world.ticket(what.clone());
    let id = ticket.id;
    let called = move |lp: &mut Loop, result: io::Result<()>| {
        let _bomb = bomb;
        ticket.report(Some(&this.life));
        this.world.begin_callback(lp, &format!("{} shutdown", this.name), None);
        if let Err(error) = result {
            this.failed("shutdown", &error);
        }
        run_body(&this.world, lp, &body);
    };
    let none = Err(io::ErrorKind::Unsupported.into());
    let begun = ctx.world.verb(&what, || {
        on_stream!(ctx.handle, it => it.shutdown(lp, move |lp, _, result| called(lp, result)), none)
    });
    ctx.returned("shutdown", &begun);
    if begun.is_err() {
        ctx.world.refuse(id);
    }
}

fn read_start(ctx: &Ctx, lp: &mut Loop, step: &Step) {
    let (this, body, bomb) = (ctx.clone(), Rc::clone(&step.body), Bomb(step.bomb));
    let mut calls = 0;
    let mut called = move |lp: &mut Loop, result: io::Result<&[u8]>| {
        let _bomb = &bomb;
        this.world.begin_callback(lp, &format!("{} reads", this.name), Some(&this.life));
        this.received(result);
        calls += 1;
        if calls <= 3 {
            run_body(&this.world, lp, &body);
        }
    };
    let what = format!("{} read_start", ctx.name);
    let none = Err(io::ErrorKind::Unsupported.into());
    let started = ctx.world.verb(&what, || {
        on_stream!(ctx.handle, it => it.read_start(lp, move |lp, _, result| called(lp, result)), none)
    });
    ctx.returned("read_start", &started);
}

fn read_start_with(ctx: &Ctx, lp: &mut Loop, step: &Step) {
    let (this, body, bomb) = (ctx.clone(), Rc::clone(&step.body), Bomb(step.bomb));
    let outstanding = Rc::new(Cell::new(0_u32));
    let (for_alloc, allocated) = (ctx.clone(), Rc::clone(&outstanding));
    let len = step.size.max(1);
    let alloc = move |_: &mut Loop| {
        if allocated.replace(allocated.get() + 1) > 0 {
            for_alloc.world.fail(format!("{} reads: two buffers allocated", for_alloc.name));
        }
        vec![0; len]
    };
    let mut calls = 0;
    let mut called = move |lp: &mut Loop, result: io::Result<usize>, buffer: Vec<u8>| {
        let _bomb = &bomb;
        this.world.begin_callback(lp, &format!("{} reads", this.name), None);
        if outstanding.replace(0) != 1 {
            this.world.fail(format!("{} reads: a buffer came back twice", this.name));
        }
        this.received(result.map(|count| &buffer[..count]));
        calls += 1;
        if calls <= 3 {
            run_body(&this.world, lp, &body);
        }
    };
    let what = format!("{} read_start_with", ctx.name);
    let none = Err(io::ErrorKind::Unsupported.into());
    let started = ctx.world.verb(&what, || {
        on_stream!(ctx.handle, it => it.read_start_with(
            lp,
            move |lp, _, _| alloc(lp),
            move |lp, _, count, buffer| called(lp, count, buffer),
        ), none)
    });
    ctx.returned("read_start_with", &started);
}

fn read(ctx: &Ctx, lp: &mut Loop, step: &Step) {
    let (this, body, bomb) = (ctx.clone(), Rc::clone(&step.body), Bomb(step.bomb));
    let what = format!("{} read {}", ctx.name, step.size);
    let ticket = ctx.world.ticket(what.clone());
    let (id, len) = (ticket.id, step.size);
    let called = move |lp: &mut Loop, result: io::Result<usize>, buffer: Vec<u8>| {
        let _bomb = bomb;
        ticket.report(Some(&this.life));
        this.world.begin_callback(lp, &format!("{} read", this.name), None);
        if buffer.len() != len {
            this.world.fail(format!("{} read: another buffer came back", this.name));
        }
        this.received(result.map(|count| &buffer[..count]));
        run_body(&this.world, lp, &body);
        if this.world.stage.get() == Stage::Drain {
            start_reading_to_end(&this, lp);
        }
    };
    let none = Err(io::ErrorKind::Unsupported.into());
    let begun = ctx.world.verb(&what, || {
        on_stream!(ctx.handle, it => {
            it.read(lp, vec![0; len], move |lp, _, count, buffer| called(lp, count, buffer))
        }, none)
    });
    ctx.returned("read", &begun);
    match begun {
        Ok(read) => ctx.world.reads.borrow_mut().push(read),
        Err(_) => ctx.world.refuse(id),
    }
}

fn try_read(ctx: &Ctx, lp: &mut Loop, step: &Step) {
    let mut buffer = vec![0; step.size.max(1)];
    let what = format!("{} try_read", ctx.name);
    let none = Err(io::ErrorKind::WouldBlock.into());
    let count =
        ctx.world.verb(&what, || on_stream!(ctx.handle, it => it.try_read(lp, &mut buffer), none));
    ctx.returned("try_read", &count);
    match count {
        Ok(count) => ctx.received(Ok(&buffer[..count])),
        Err(error) if is_refusal(&error) => {}
        Err(error) => ctx.failed("try_read", &error),
    }
}

/// True if a stream is not read because of its state.
fn is_refusal(error: &io::Error) -> bool {
    let kinds = [
        io::ErrorKind::WouldBlock,
        io::ErrorKind::NotConnected,
        io::ErrorKind::NotFound,
        io::ErrorKind::InvalidInput,
    ];
    kinds.contains(&error.kind()) || uv_core::error_name(error) == Some("EALREADY")
}

/// Reads what is left, after the requests that wait.
pub(super) fn read_to_end(world: &Rc<World>, lp: &mut Loop, item: &Item) {
    if let Some(ctx) = Ctx::of(world, item) {
        start_reading_to_end(&ctx, lp);
    }
}

fn start_reading_to_end(ctx: &Ctx, lp: &mut Loop) {
    if ctx.life.closing.get() || ctx.input.ended.get() {
        return;
    }
    let this = ctx.clone();
    // Refused while requests wait: the last of them starts it.
    let _ = on_stream!(ctx.handle, it => it.read_start(lp, move |_, _, result| {
        this.received(result);
    }), Ok(()));
}

/// Executes a step of a datagram socket.
pub(super) fn exec_udp(world: &Rc<World>, lp: &mut Loop, step: &Step, item: &Item) {
    let Extra::Udp { input, output, peer } = &item.extra else { return };
    let AnyHandle::Udp(udp) = item.handle else { return };
    let (this, life, body) = (Rc::clone(world), Rc::clone(&item.life), Rc::clone(&step.body));
    let (bomb, what) = (Bomb(step.bomb), format!("{} {:?}", item.name, step.verb));
    match step.verb {
        Verb::Start => {
            let (input, label) = (Rc::clone(input), what.clone());
            let mut calls = 0;
            let _ = world.verb(&what, || {
                udp.recv_start(lp, move |lp, _, received| {
                    let _bomb = &bomb;
                    this.begin_callback(lp, &label, Some(&life));
                    if let Ok(datagram) = received
                        && let Err(why) = input.receive(datagram.data)
                    {
                        this.fail(format!("{label}: {why}"));
                    }
                    calls += 1;
                    if calls <= 3 {
                        run_body(&this, lp, &body);
                    }
                })
            });
        }
        Verb::Send => {
            let ticket = world.ticket(what.clone());
            let (id, label) = (ticket.id, what.clone());
            let sent = world.verb(&what, || {
                udp.send(lp, output.next(step.size), *peer, move |lp, _, _, _| {
                    let _bomb = bomb;
                    ticket.report(Some(&life));
                    this.begin_callback(lp, &label, None);
                    run_body(&this, lp, &body);
                })
            });
            if sent.is_err() {
                world.refuse(id);
            }
        }
        Verb::TryWrite => drop(udp.try_send(lp, &output.next(step.size), *peer)),
        Verb::Stop => drop(world.verb(&what, || udp.recv_stop(lp))),
        _ => {}
    }
}
