//! The step that sends a range of a file, in order with the writes of its stream.

use std::io;
use std::ops::Range;
use std::rc::Rc;

use uv_core::Stream;
use uv_core::fs::File;

use super::exec::{on_stream, run_body};
use super::program::Step;
use super::streams::Ctx;
use super::world::{Bomb, World};
use crate::Loop;

/// The bytes of the file before and behind the range.
const AROUND: &[u8] = b"not sent";

/// Writes bytes to a new file. Returns the file, and the range that is to be sent. One range in
/// three ends behind the file.
fn file_of(world: &World, id: u64, bytes: &[u8]) -> io::Result<(File, Range<u64>)> {
    let file = new_file(world, id, bytes);
    if let Err(error) = &file
        && !world.tolerated.errors
    {
        world.fail(format!("a file to send: {error}"));
    }
    file
}

fn new_file(world: &World, id: u64, bytes: &[u8]) -> io::Result<(File, Range<u64>)> {
    let path = world.directory().path(&format!("sent{id}"));
    let beyond = id.is_multiple_of(3);
    let behind = if beyond { &[][..] } else { AROUND };
    std::fs::write(&path, [AROUND, bytes, behind].concat())?;
    let (from, more) = (AROUND.len() as u64, if beyond { 100 } else { 0 });
    let range = from..from + bytes.len() as u64 + more;
    Ok((std::fs::File::open(&path)?.into(), range))
}

/// Sends a file with the bytes of the next write.
pub(super) fn send_file(ctx: &Ctx, lp: &mut Loop, step: &Step) {
    let (number, bytes) = ctx.output.next_write(step.size);
    let what = format!("{} send_file {}", ctx.name, step.size);
    let ticket = ctx.world.ticket(what.clone());
    let (id, len) = (ticket.id, step.size);
    let (this, body, bomb) = (ctx.clone(), Rc::clone(&step.body), Bomb(step.bomb));
    let called = move |lp: &mut Loop, result: io::Result<()>, sent: u64| {
        let _bomb = bomb;
        let before_close = !this.world.tolerated.late_writes;
        ticket.report(before_close.then_some(&*this.life));
        this.world.begin_callback(lp, &format!("{} send_file", this.name), None);
        match result {
            Ok(()) if sent == len as u64 => this.output.settle(number, len),
            Ok(()) => {
                this.world.fail(format!("{} send_file: {sent} of {len} bytes", this.name));
            }
            Err(_) if sent > len as u64 => {
                this.world.fail(format!("{} send_file: {sent} of {len} bytes", this.name));
            }
            Err(error) => this.failed("send_file", &error),
        }
        run_body(&this.world, lp, &body);
    };
    let none = Err(io::ErrorKind::Unsupported.into());
    let sending = ctx.world.verb(&what, || {
        let (file, range) = file_of(&ctx.world, id, &bytes)?;
        on_stream!(ctx.handle, it => {
            it.send_file(lp, &file, range, move |lp, _, result, sent| called(lp, result, sent))
        }, none)
    });
    ctx.returned("send_file", &sending);
    match sending {
        Ok(write) => ctx.world.writes.borrow_mut().push(write),
        Err(_) => {
            ctx.output.settle(number, 0);
            ctx.world.refuse(id);
        }
    }
}
