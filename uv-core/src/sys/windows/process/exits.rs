//! Exit notifications of children: a wait thread of Windows waits for all of them.

use std::io;
use std::os::windows::io::AsRawHandle;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use poll_core::Token;
use windows_sys::Win32::Foundation::{HANDLE, INVALID_HANDLE_VALUE};
use windows_sys::Win32::System::Threading::{
    INFINITE, RegisterWaitForSingleObject, UnregisterWaitEx, WT_EXECUTEINWAITTHREAD,
    WT_EXECUTEONLYONCE,
};

use super::Child;
use crate::event_loop::{Notification, Notifier};

/// The children of one loop that have exited.
#[derive(Debug)]
struct Exits {
    exited: Mutex<Vec<Token>>,
    notifier: Arc<Notifier>,
}

#[derive(Debug)]
pub(crate) struct ExitWatch {
    exits: Arc<Exits>,
}

impl ExitWatch {
    pub(crate) fn new(notifier: Arc<Notifier>) -> ExitWatch {
        ExitWatch { exits: Arc::new(Exits { exited: Mutex::default(), notifier }) }
    }

    /// Called before a child is started.
    pub(crate) fn prepare(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Starts to wait for a started child.
    pub(crate) fn begin(&mut self, child: &mut Child, key: Token) -> io::Result<()> {
        child.wait = Some(Wait::new(child.process.as_raw_handle(), &self.exits, key)?);
        Ok(())
    }

    /// Called when a child is no longer waited for.
    pub(crate) fn release(&mut self) {}

    /// Appends the keys of children that have exited; true if there may be others.
    pub(crate) fn take(&mut self, exited: &mut Vec<Token>) -> bool {
        exited.append(&mut self.exits.exited.lock().unwrap_or_else(PoisonError::into_inner));
        false
    }
}

/// The context of a wait: the key of the child, and the loop to notify.
#[derive(Debug)]
struct Waited {
    exits: Arc<Exits>,
    key: Token,
}

/// A registered wait for a child, unregistered on drop.
#[derive(Debug)]
pub(super) struct Wait {
    handle: HANDLE,
    /// Made by `Box::into_raw`; Windows uses it while the wait is registered.
    waited: *mut Waited,
}

impl Wait {
    fn new(process: HANDLE, exits: &Arc<Exits>, key: Token) -> io::Result<Wait> {
        let waited = Box::into_raw(Box::new(Waited { exits: Arc::clone(exits), key }));
        let (mut handle, flags) = (ptr::null_mut(), WT_EXECUTEINWAITTHREAD | WT_EXECUTEONLYONCE);
        let context = waited.cast();
        // SAFETY: `Child` drops the wait before the process's handle, and `Wait::drop` frees the
        // context only after the wait is unregistered.
        let registered = unsafe {
            RegisterWaitForSingleObject(
                &raw mut handle,
                process,
                Some(has_ended),
                context,
                INFINITE,
                flags,
            )
        };
        if registered == 0 {
            let error = io::Error::last_os_error();
            // SAFETY: made by `Box::into_raw` above; the failed call does not keep it.
            drop(unsafe { Box::from_raw(waited) });
            return Err(error);
        }
        Ok(Wait { handle, waited })
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        // SAFETY: the wait is registered; with this argument the call returns after any callback.
        unsafe { UnregisterWaitEx(self.handle, INVALID_HANDLE_VALUE) };
        // SAFETY: made by `Box::into_raw`, and no longer used by Windows after the call above.
        drop(unsafe { Box::from_raw(self.waited) });
    }
}

/// The callback of a wait. It runs on the thread that serves all waits, so it must not block.
unsafe extern "system" fn has_ended(context: *mut std::ffi::c_void, _timed_out: bool) {
    // SAFETY: the context of `Wait::new`, which `Wait::drop` frees only after this has returned.
    let waited = unsafe { &*context.cast::<Waited>() };
    waited.exits.exited.lock().unwrap_or_else(PoisonError::into_inner).push(waited.key);
    // If the wake fails, the next iteration of the loop still finds the exit.
    let _ = waited.exits.notifier.notify(Notification::CHILD);
}
