//! Callbacks that run when a handle is closed, for any reason.
//!
//! They are in a table beside the handles, because few handles have one: a handle without one pays
//! nothing in its slot.

use std::collections::HashMap;
use std::io;

use poll_core::Backend;

use crate::handles::AnyHandle;
use crate::storage::InlineFnOnce;
use crate::{Loop, error};

/// The callbacks, by handle. A callback has its handle already: the argument is ignored.
pub(crate) type OnClose<B> = HashMap<AnyHandle, InlineFnOnce<B, AnyHandle>>;

impl<B: Backend> Loop<B> {
    /// The handle with the kind that its slot has, which a number turned into a key may lack.
    fn with_its_kind(&self, handle: AnyHandle) -> AnyHandle {
        match handle {
            AnyHandle::Tcp(_) | AnyHandle::Pipe(_) | AnyHandle::Tty(_) => {
                let key = handle.key();
                self.streams.slots.get(key).map_or(handle, |slot| slot.kind.handle(key))
            }
            other => other,
        }
    }

    /// Takes the callback of a handle that is about to be freed.
    pub(crate) fn take_on_close(
        &mut self,
        handle: AnyHandle,
    ) -> Option<InlineFnOnce<B, AnyHandle>> {
        if self.on_close.is_empty() {
            return None;
        }
        let handle = self.with_its_kind(handle);
        self.on_close.remove(&handle)
    }
}

pub(super) fn set<B: Backend>(
    handle: AnyHandle,
    lp: &mut Loop<B>,
    callback: InlineFnOnce<B, AnyHandle>,
) -> io::Result<()> {
    if lp.base(handle).ok_or_else(error::stale)?.is_closing() {
        return Err(error::closing());
    }
    let handle = lp.with_its_kind(handle);
    drop(lp.on_close.insert(handle, callback));
    Ok(())
}
