//! The handle of a loop that waits for events of a descriptor, as libuv's table `watchers` has it.
//!
//! Two handles of a loop cannot wait for the same descriptor. A handle takes the place of its
//! descriptor when it gets one that it may wait for, or begins to wait, and leaves it when it is
//! closed.

use std::ffi::c_int;
use std::ptr::null_mut;

use crate::event_loop::LoopState;
use crate::handle::{descriptor, kind, loop_of, uv_is_active};
use crate::layout::{uv_handle_t, uv_loop_t, uv_stream_t};

/// The handles of a loop by the numbers of their descriptors. Each pointer is of a handle that is not
/// closing: `uv_close` leaves the place.
pub(crate) type Places = Vec<*mut uv_handle_t>;

unsafe fn places<'a>(c_loop: *mut uv_loop_t) -> &'a mut Places {
    let state: *mut LoopState = (*c_loop).internal_fields;
    &mut (*state).places
}

/// The word of a handle that has the number of its place, plus one.
unsafe fn place<'a>(handle: *mut uv_handle_t) -> &'a mut u64 {
    &mut (*handle).u[1]
}

/// True if a handle has taken a place.
#[inline]
pub(crate) unsafe fn has_place<T>(handle: *mut T) -> bool {
    *place(handle.cast()) != 0
}

/// Takes the place of a handle's descriptor, unless another handle waits there.
pub(crate) unsafe fn take_place<T>(handle: *mut T) {
    let handle = handle.cast::<uv_handle_t>();
    let Some(fd) = descriptor(handle) else { return };
    let (c_loop, index) = (loop_of(handle), fd as usize);
    if places(c_loop).get(index) == Some(&handle) || is_watched(c_loop, fd) {
        return;
    }
    leave_place(handle);
    *place(handle) = index as u64 + 1;
    let places = places(c_loop);
    if index >= places.len() {
        places.resize((index + 1).next_power_of_two(), null_mut());
    }
    places[index] = handle;
}

/// Leaves the place that a handle has taken, if it is still the handle's.
pub(crate) unsafe fn leave_place(handle: *mut uv_handle_t) {
    let index = std::mem::take(place(handle)).wrapping_sub(1) as usize;
    let places = places(loop_of(handle));
    if places.get(index) == Some(&handle) {
        places[index] = null_mut();
    }
}

/// True if a handle of the loop waits for events of a descriptor.
pub(crate) unsafe fn is_watched(c_loop: *mut uv_loop_t, fd: c_int) -> bool {
    let handle = usize::try_from(fd).ok().and_then(|index| places(c_loop).get(index).copied());
    match handle {
        Some(handle) if !handle.is_null() => {
            // Its socket may be another one by now.
            descriptor(handle) == Some(fd) && is_waiting(handle)
        }
        _ => false,
    }
}

/// True if a handle waits for events of its descriptor.
unsafe fn is_waiting(handle: *mut uv_handle_t) -> bool {
    let is_stream = matches!((*handle).type_, kind::TCP | kind::NAMED_PIPE | kind::TTY);
    let stream = handle.cast::<uv_stream_t>();
    uv_is_active(handle) != 0
        || is_stream && (!(*stream).connect_req.is_null() || (*stream).write_queue_size > 0)
}
