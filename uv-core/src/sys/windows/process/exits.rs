//! Tells the loop of the ends of children: a thread of Windows' waits for all of them.

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
use crate::notify::{Notes, Notifier};

/// Whose children have ended.
#[derive(Debug)]
struct Exits {
    over: Mutex<Vec<Token>>,
    notifier: Arc<Notifier>,
}

#[derive(Debug)]
pub(crate) struct ExitWatch {
    exits: Arc<Exits>,
}

impl ExitWatch {
    pub(crate) fn new(notifier: Arc<Notifier>) -> ExitWatch {
        ExitWatch { exits: Arc::new(Exits { over: Mutex::default(), notifier }) }
    }

    /// One more child is about to start.
    pub(crate) fn prepare(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// It has started.
    pub(crate) fn begin(&mut self, child: &mut Child, key: Token) -> io::Result<()> {
        child.wait = Some(Wait::new(child.process.as_raw_handle(), &self.exits, key)?);
        Ok(())
    }

    /// One child less.
    pub(crate) fn release(&mut self) {}

    /// Adds the keys of children that have ended; true if others may have, too.
    pub(crate) fn take(&mut self, over: &mut Vec<Token>) -> bool {
        over.append(&mut self.exits.over.lock().unwrap_or_else(PoisonError::into_inner));
        false
    }
}

/// Who is waited for, and whom to tell.
#[derive(Debug)]
struct Waited {
    exits: Arc<Exits>,
    key: Token,
}

/// A wait for a child, until it is dropped.
#[derive(Debug)]
pub(super) struct Wait {
    handle: HANDLE,
    /// Made by `Box::into_raw`; Windows has it as long as it waits.
    waited: *mut Waited,
}

impl Wait {
    fn new(process: HANDLE, exits: &Arc<Exits>, key: Token) -> io::Result<Wait> {
        let waited = Box::into_raw(Box::new(Waited { exits: Arc::clone(exits), key }));
        let (mut handle, flags) = (ptr::null_mut(), WT_EXECUTEINWAITTHREAD | WT_EXECUTEONLYONCE);
        let context = waited.cast();
        // SAFETY: the process's handle and the context are there until the wait is over: who
        // drops this sees to it.
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
            // SAFETY: made above, and Windows does not have it.
            drop(unsafe { Box::from_raw(waited) });
            return Err(error);
        }
        Ok(Wait { handle, waited })
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        // SAFETY: the wait is there; this returns when its callback has run or never will.
        unsafe { UnregisterWaitEx(self.handle, INVALID_HANDLE_VALUE) };
        // SAFETY: made by `Box::into_raw`, and Windows does not use it any more.
        drop(unsafe { Box::from_raw(self.waited) });
    }
}

/// Windows calls this on the thread that waits, so it must be quick.
unsafe extern "system" fn has_ended(context: *mut std::ffi::c_void, _timed_out: bool) {
    // SAFETY: what `Wait::new` gave, which is there until this has returned.
    let waited = unsafe { &*context.cast::<Waited>() };
    waited.exits.over.lock().unwrap_or_else(PoisonError::into_inner).push(waited.key);
    // If waking fails the loop finds it when it next looks.
    let _ = waited.exits.notifier.notify(Notes::CHILD);
}
