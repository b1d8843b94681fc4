//! The structure and constants of kqueue on Linux, which has no header for them: those of
//! FreeBSD 11, which libkqueue uses too.

use std::ffi::c_void;

pub(crate) type RawFilter = i16;
pub(crate) type RawFlags = u16;

/// `struct kevent`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct RawKevent {
    pub(crate) ident: usize,
    pub(crate) filter: RawFilter,
    pub(crate) flags: RawFlags,
    pub(crate) fflags: u32,
    pub(crate) data: isize,
    pub(crate) udata: *mut c_void,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(std::mem::size_of::<RawKevent>() == 32);

pub(crate) const EVFILT_READ: RawFilter = -1;
pub(crate) const EVFILT_WRITE: RawFilter = -2;
pub(crate) const EVFILT_USER: RawFilter = -11;
/// Apple's number.
pub(crate) const EVFILT_EXCEPT: RawFilter = -15;
/// libkqueue has no filter for out-of-band data.
pub(crate) const HAS_EXCEPT: bool = cfg!(not(libkqueue));

pub(crate) const EV_ADD: RawFlags = 0x1;
pub(crate) const EV_DELETE: RawFlags = 0x2;
pub(crate) const EV_ONESHOT: RawFlags = 0x10;
pub(crate) const EV_CLEAR: RawFlags = 0x20;
pub(crate) const EV_RECEIPT: RawFlags = 0x40;
pub(crate) const EV_ERROR: RawFlags = 0x4000;
pub(crate) const EV_EOF: RawFlags = 0x8000;

pub(crate) const NOTE_TRIGGER: u32 = 0x0100_0000;
/// libkqueue has no low-water mark. It ignores zero.
pub(crate) const NOTE_LOWAT: u32 = if cfg!(libkqueue) { 0 } else { 1 };
pub(crate) const NOTE_OOB: u32 = 2;
