//! The steps of pipes that pass handles.

use std::io;
use std::rc::Rc;

use uv_core::{AnyHandle, Handle, Pipe};

use super::objects::{Extra, Item, stream_pair};
use super::program::{Step, Verb};
use super::world::World;
use crate::Loop;

/// Two connected pipes that pass handles.
pub(super) fn open(lp: &mut Loop, name: &str) -> io::Result<[Option<Item>; 2]> {
    let (one, other) = Pipe::pair(lp)?;
    one.enable_passing(lp)?;
    other.enable_passing(lp)?;
    Ok(stream_pair(name, one, other))
}

/// The handle that a step passes: of another slot, or the one that passes it.
///
/// The far end of a pipe of one direction ends when all duplicates are closed, and one may be on
/// its way: those are not passed.
pub(super) fn passed(world: &Rc<World>, step: &Step) -> Option<AnyHandle> {
    let slots = world.slots.borrow();
    let item = slots[(step.slot + step.size) % slots.len()][step.end].as_ref()?;
    let (Extra::Stream { .. } | Extra::Udp { .. }) = item.extra else { return None };
    if item.name.starts_with("oneway") || item.name.starts_with("child") {
        return None;
    }
    item.life.passed.set(true);
    Some(item.handle)
}

/// Accepts the handles that have arrived, and closes some of them. Or limits their number.
pub(super) fn exec(world: &Rc<World>, lp: &mut Loop, step: &Step, item: &Item) {
    let AnyHandle::Pipe(pipe) = item.handle else { return };
    if step.verb == Verb::LimitPassed {
        let limited = world.verb("set_pending_limit", || pipe.set_pending_limit(lp, 1));
        // At the limit the connection breaks.
        if let (Ok(()), Extra::Stream { peer, .. }) = (limited, &item.extra) {
            item.life.excused.set(true);
            peer.excused.set(true);
        }
        return;
    }
    while pipe.pending_count(lp) > 0 {
        let taken = match step.size % 3 {
            0 => world.verb("take_pending", || pipe.take_pending(lp).map(drop)),
            1 => world.verb("accept_pending", || pipe.accept_pending(lp)?.close(lp)),
            // It stays open until the program ends.
            _ => world.verb("accept_pending", || pipe.accept_pending(lp).map(drop)),
        };
        match taken {
            Ok(()) => {}
            Err(_) if item.life.closing.get() || world.tolerated.errors => return,
            Err(error) => {
                return world.fail(format!("{}: a handle is not accepted: {error}", item.name));
            }
        }
    }
}
