//! A timer that ends a wait on a completion port, finer than the port's own.
//!
//! The timeout of a completion port is in milliseconds and ends with a tick of the
//! system clock, by default every 15.6 ms. A high-resolution timer (Windows 10,
//! version 1803) is good to about half a millisecond, and a wait completion packet
//! (Windows 8, not documented) queues a packet to the port when it expires.
//!
//! The packet only makes a wait look at the clock earlier than the port would.
//! Where anything of this is missing or fails, waits are late, and nothing else.

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

/// A high-resolution timer and the packet that it sends.
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
        // SAFETY: the type is that of the function in Windows' own headers.
        let create: Create = unsafe { mem::transmute(ntdll(c"NtCreateWaitCompletionPacket")?) };
        // SAFETY: as above.
        let associate: Associate =
            unsafe { mem::transmute(ntdll(c"NtAssociateWaitCompletionPacket")?) };
        // SAFETY: as above.
        let cancel: Cancel = unsafe { mem::transmute(ntdll(c"NtCancelWaitCompletionPacket")?) };

        let flags = CREATE_WAITABLE_TIMER_HIGH_RESOLUTION;
        // SAFETY: the null pointers stand for no name and no attributes.
        let timer =
            unsafe { CreateWaitableTimerExW(ptr::null(), ptr::null(), flags, TIMER_ALL_ACCESS) };
        if timer.is_null() {
            return None;
        }
        // SAFETY: the timer was just made, and nobody else has its handle.
        let timer = unsafe { OwnedHandle::from_raw_handle(timer) };
        let mut packet = ptr::null_mut();
        // SAFETY: the first pointer is to a local variable, the other stands for no name.
        if unsafe { create(&mut packet, GENERIC_ALL, ptr::null()) } != STATUS_SUCCESS {
            return None;
        }
        // SAFETY: the packet was just made, and nobody else has its handle.
        let packet = unsafe { OwnedHandle::from_raw_handle(packet) };
        Some(Timer { timer, packet, associate, cancel, started: false })
    }

    /// Queues a packet to `port` after `delay`, in place of an earlier one that has
    /// not come yet. That one may come all the same, if it was about to. False if
    /// no packet is sure to come.
    pub(crate) fn start(&mut self, port: &Port, delay: Duration) -> bool {
        if self.started {
            // SAFETY: the handle is borrowed from its owner.
            let status = unsafe { (self.cancel)(self.packet.as_raw_handle(), 1) };
            // Cancelled: the packet was in the queue and has been taken out of it.
            if status != STATUS_SUCCESS && status != STATUS_CANCELLED {
                return false;
            }
            self.started = false;
        }
        let due = relative(delay);
        // SAFETY: the pointers are to a local variable or null, for no callback.
        let set =
            unsafe { SetWaitableTimer(self.timer.as_raw_handle(), &due, 0, None, ptr::null(), 0) };
        if set == 0 {
            return false;
        }
        let mut signalled = 0;
        // SAFETY: the handles are borrowed from their owners, the key and the
        // context are plain numbers, and the last pointer is to a local variable.
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

    /// The packet was dequeued.
    pub(crate) fn expired(&mut self) {
        self.started = false;
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer").field("started", &self.started).finish_non_exhaustive()
    }
}

/// A function that only some versions of Windows have.
fn ntdll(name: &CStr) -> Option<unsafe extern "system" fn() -> isize> {
    // SAFETY: the name is a literal that ends with a NUL.
    let module = unsafe { GetModuleHandleW(w!("ntdll.dll")) };
    if module.is_null() {
        return None;
    }
    // SAFETY: every process has this module as long as it lives.
    unsafe { GetProcAddress(module, name.as_ptr().cast()) }
}

/// A delay as timers take it: negative, in units of 100 ns, rounded up.
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
    fn a_packet_comes_when_the_timer_expires() {
        use crate::port::Batch;
        use std::io::Write;
        use std::time::Instant;

        let Some(mut timer) = Timer::new() else {
            // Not `eprintln!`: the test harness would swallow it.
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
