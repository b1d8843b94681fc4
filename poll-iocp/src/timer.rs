//! A high-resolution timer that ends a wait on the completion port.
//!
//! The timeout of a completion port has milliseconds and ends at a tick of the system clock, by
//! default every 15.6 ms. A high-resolution timer (Windows 10, version 1803) has an error of
//! about half a millisecond, and a wait completion packet (Windows 8, undocumented) queues a
//! packet to the port when the timer expires.
//!
//! The packet only makes a wait read the clock earlier than the port's timeout would. Where the
//! timer is missing or fails, waits end late and are otherwise correct.

use std::ffi::{CStr, c_void};
use std::fmt;
use std::mem;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::ptr;
use std::time::Duration;

use windows_sys::Win32::Foundation::{
    GENERIC_ALL, HANDLE, NTSTATUS, STATUS_CANCELLED, STATUS_SUCCESS,
};
use windows_sys::Win32::System::LibraryLoader::{GetModuleHandleW, GetProcAddress};
use windows_sys::Win32::System::Threading::{
    CREATE_WAITABLE_TIMER_HIGH_RESOLUTION, CreateWaitableTimerExW, SetWaitableTimer,
    TIMER_ALL_ACCESS,
};
use windows_sys::core::w;

use crate::port::{Key, Port};

type Create = unsafe extern "system" fn(*mut HANDLE, u32, *const c_void) -> NTSTATUS;
type Associate = unsafe extern "system" fn(
    HANDLE,
    HANDLE,
    HANDLE,
    *const c_void,
    *const c_void,
    NTSTATUS,
    usize,
    *mut u8,
) -> NTSTATUS;
type Cancel = unsafe extern "system" fn(HANDLE, u8) -> NTSTATUS;

/// A high-resolution timer and the packet that it queues.
pub(crate) struct Timer {
    timer: OwnedHandle,
    packet: OwnedHandle,
    associate: Associate,
    cancel: Cancel,
    /// The packet was associated with the timer and has not been dequeued since.
    started: bool,
}

impl Timer {
    /// `None` where the system has no such timer or no such packet.
    pub(crate) fn new() -> Option<Timer> {
        // SAFETY: the Windows headers declare the function with this type.
        let create: Create = unsafe { mem::transmute(ntdll(c"NtCreateWaitCompletionPacket")?) };
        // SAFETY: the Windows headers declare the function with this type.
        let associate: Associate =
            unsafe { mem::transmute(ntdll(c"NtAssociateWaitCompletionPacket")?) };
        // SAFETY: the Windows headers declare the function with this type.
        let cancel: Cancel = unsafe { mem::transmute(ntdll(c"NtCancelWaitCompletionPacket")?) };

        let flags = CREATE_WAITABLE_TIMER_HIGH_RESOLUTION;
        // SAFETY: null pointers are allowed: no attributes, no name.
        let timer =
            unsafe { CreateWaitableTimerExW(ptr::null(), ptr::null(), flags, TIMER_ALL_ACCESS) };
        if timer.is_null() {
            return None;
        }
        // SAFETY: the call has just returned the handle, so it has no other owner.
        let timer = unsafe { OwnedHandle::from_raw_handle(timer) };
        let mut packet = ptr::null_mut();
        // SAFETY: the first pointer is to a local variable; null is allowed for the attributes.
        if unsafe { create(&mut packet, GENERIC_ALL, ptr::null()) } != STATUS_SUCCESS {
            return None;
        }
        // SAFETY: the call has just returned the handle, so it has no other owner.
        let packet = unsafe { OwnedHandle::from_raw_handle(packet) };
        Some(Timer { timer, packet, associate, cancel, started: false })
    }

    /// Starts or restarts the timer: a packet is queued to `port` after `delay`. The packet of an
    /// earlier start may still be queued if that was about to expire. False if the timer was not
    /// started.
    pub(crate) fn start(&mut self, port: &Port, delay: Duration) -> bool {
        if self.started {
            // SAFETY: `self` owns the handle, and the call takes no pointer.
            let status = unsafe { (self.cancel)(self.packet.as_raw_handle(), 1) };
            // STATUS_CANCELLED: the packet was queued already, and was removed.
            if status != STATUS_SUCCESS && status != STATUS_CANCELLED {
                return false;
            }
            self.started = false;
        }
        let due = relative(delay);
        // SAFETY: `due` is a local variable; there is no callback, so its argument may be null.
        let set =
            unsafe { SetWaitableTimer(self.timer.as_raw_handle(), &due, 0, None, ptr::null(), 0) };
        if set == 0 {
            return false;
        }
        let mut signalled = 0;
        // SAFETY: `self` and `port` own the handles; the key and the context are numbers that are
        // not dereferenced; the last pointer is to a local variable.
        let status = unsafe {
            (self.associate)(
                self.packet.as_raw_handle(),
                port.handle(),
                self.timer.as_raw_handle(),
                ptr::without_provenance(Key::Timer as usize),
                ptr::null(),
                STATUS_SUCCESS,
                0,
                &mut signalled,
            )
        };
        self.started = status == STATUS_SUCCESS;
        self.started
    }

    /// Records that the packet was dequeued.
    pub(crate) fn expired(&mut self) {
        self.started = false;
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer").field("started", &self.started).finish_non_exhaustive()
    }
}

/// Looks up a function that only some versions of Windows have.
fn ntdll(name: &CStr) -> Option<unsafe extern "system" fn() -> isize> {
    // SAFETY: `w!` appends the NUL that ends the name.
    let module = unsafe { GetModuleHandleW(w!("ntdll.dll")) };
    if module.is_null() {
        return None;
    }
    // SAFETY: `ntdll.dll` is never unloaded, and `CStr` ends with a NUL.
    unsafe { GetProcAddress(module, name.as_ptr().cast()) }
}

/// Converts a delay to a relative due time: negative, in units of 100 ns, rounded up.
fn relative(delay: Duration) -> i64 {
    -(delay.as_nanos().div_ceil(100).clamp(1, i64::MAX as u128) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_negative_and_rounded_up() {
        assert_eq!(relative(Duration::ZERO), -1);
        assert_eq!(relative(Duration::from_nanos(101)), -2);
        assert_eq!(relative(Duration::from_millis(1)), -10_000);
        assert_eq!(relative(Duration::MAX), -i64::MAX);
    }

    /// Runs on Windows only: Wine has no wait completion packets.
    #[test]
    fn an_expired_timer_queues_one_packet() {
        use crate::port::Batch;
        use std::io::Write;
        use std::time::Instant;

        let Some(mut timer) = Timer::new() else {
            // Not `eprintln!`: the test harness captures it.
            let _ = std::io::stderr().write_all(b"skip: no wait completion packets here\n");
            return;
        };
        let (port, mut batch) = (Port::new().unwrap(), Batch::new(4));
        let started = Instant::now();
        assert!(timer.start(&port, Duration::from_secs(3600)));
        assert!(timer.start(&port, Duration::from_micros(500)));
        port.dequeue(&mut batch, Some(Duration::from_secs(10))).unwrap();
        assert_eq!(batch.len(), 1);
        assert_eq!(batch.get(0).key, Key::Timer as usize);
        assert!(started.elapsed() < Duration::from_secs(10));
    }
}
