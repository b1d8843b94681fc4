//! AFD polls: requests to the socket driver that complete when a socket is ready.
//!
//! `\Device\Afd` is the driver of all sockets on Windows. `select` and `WSAPoll` are built on
//! its request `IOCTL_AFD_POLL`, which is undocumented but has not changed since Windows 2000.
//! The request names a socket and conditions and stays in flight until one of them holds; then
//! a packet is queued to the completion port. A poll in flight cannot be changed, only
//! cancelled, and the kernel may write to its memory until its packet is queued.
//!
//! So polls live in slots of their own, which outlive registrations:
//!
//! ```text
//!            start()                        abandon()
//!     Free ───────────▶ Watched(owner) ───────────────▶ Abandoned
//!      ▲                      │                             │
//!      │   finish(): Some     │       finish(): None        │
//!      └──────────────────────┴─────────────────────────────┘
//! ```

use std::ffi::c_void;
use std::io;
use std::mem::{MaybeUninit, offset_of, size_of};
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle, RawSocket};
use std::ptr::{self, NonNull};

use poll_core::Token;
use windows_sys::Wdk::Foundation::OBJECT_ATTRIBUTES;
use windows_sys::Wdk::Storage::FileSystem::{FILE_OPEN, NtCancelIoFileEx, NtCreateFile};
use windows_sys::Wdk::System::IO::NtDeviceIoControlFile;
use windows_sys::Win32::Foundation::{
    HANDLE, NTSTATUS, RtlNtStatusToDosError, STATUS_CANCELLED, STATUS_PENDING, UNICODE_STRING,
};
use windows_sys::Win32::Storage::FileSystem::{
    FILE_SHARE_READ, FILE_SHARE_WRITE, SYNCHRONIZE, SetFileCompletionNotificationModes,
};
use windows_sys::Win32::System::IO::{IO_STATUS_BLOCK, IO_STATUS_BLOCK_0};
use windows_sys::Win32::System::WindowsProgramming::FILE_SKIP_SET_EVENT_ON_HANDLE;

use crate::port::{Key, Port};

/// Data can be received.
pub(crate) const RECEIVE: u32 = 1;
/// Out-of-band data can be received.
pub(crate) const RECEIVE_EXPEDITED: u32 = 1 << 1;
/// Data can be sent.
pub(crate) const SEND: u32 = 1 << 2;
/// The peer has shut down its writing side.
pub(crate) const DISCONNECT: u32 = 1 << 3;
/// The connection was reset.
pub(crate) const ABORT: u32 = 1 << 4;
/// The socket was closed in this process.
pub(crate) const LOCAL_CLOSE: u32 = 1 << 5;
/// A connection can be accepted.
pub(crate) const ACCEPT: u32 = 1 << 7;
/// An attempt to connect has failed.
pub(crate) const CONNECT_FAIL: u32 = 1 << 8;

const IOCTL_AFD_POLL: u32 = 0x0001_2024;

/// The number of polls that share a handle to the driver. To cancel one, the kernel searches
/// the requests in flight on its handle: one handle for all sockets would make that search
/// long, one per socket would double the handles of a program.
const POLLS_PER_DEVICE: usize = 32;

/// `AFD_POLL_INFO` for one socket: both the input and the output of the request.
#[repr(C)]
struct PollInfo {
    /// In units of 100 ns. Never used: the wait on the completion port has the timeout.
    timeout: i64,
    number_of_handles: u32,
    /// If set, ends all other polls in flight for the same socket.
    unique: u32,
    socket: HANDLE,
    events: u32,
    status: NTSTATUS,
}

const _: () = assert!(size_of::<PollInfo>() == 32 && offset_of!(PollInfo, socket) == 16);

/// The memory that the kernel writes to while a poll is in flight.
#[repr(C)]
struct Memory {
    outcome: IO_STATUS_BLOCK,
    info: PollInfo,
}

/// A handle to the driver, and the memory of the polls that use it.
#[derive(Debug)]
struct Device {
    handle: OwnedHandle,
    /// A leaked `Box`. A `Box` would claim exclusive access, but the kernel writes to it.
    memory: NonNull<MaybeUninit<[Memory; POLLS_PER_DEVICE]>>,
}

// SAFETY: the device owns the memory, which is not bound to a thread.
unsafe impl Send for Device {}

/// Names a poll in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Poll(usize);

/// The receiver of a poll's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A registered source.
    Source(Token),
    /// An operation.
    Operation(Token),
}

/// The state of a slot. The kernel may write to its memory unless it is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Free,
    Watched(Owner),
    Abandoned,
}

/// All polls in flight.
#[derive(Debug, Default)]
pub(crate) struct Polls {
    devices: Vec<Device>,
    /// Slot `n` has the memory `n % POLLS_PER_DEVICE` of device `n / POLLS_PER_DEVICE`.
    slots: Vec<Slot>,
    free: Vec<usize>,
}

impl Polls {
    /// Allocates slots until there are `total`, and at least one is free.
    pub(crate) fn reserve(&mut self, port: &Port, total: usize) -> io::Result<()> {
        while self.slots.len() < total || self.free.is_empty() {
            self.devices.push(Device::new(port)?);
            let first = self.slots.len();
            self.slots.resize(first + POLLS_PER_DEVICE, Slot::Free);
            self.free.extend((first..first + POLLS_PER_DEVICE).rev());
        }
        Ok(())
    }

    /// Starts a poll, whose packet is queued when one of `events` holds for `socket`. An error
    /// concerns the socket, and no packet follows.
    ///
    /// # Panics
    ///
    /// Unless [`reserve`](Polls::reserve) was called before.
    pub(crate) fn start(
        &mut self,
        owner: Owner,
        socket: RawSocket,
        events: u32,
    ) -> io::Result<Poll> {
        let index = *self.free.last().expect("a slot was reserved");
        let (device, memory) = self.parts(index);
        let info = PollInfo {
            timeout: i64::MAX,
            number_of_handles: 1,
            unique: 0,
            socket: socket as HANDLE,
            events,
            status: 0,
        };
        let outcome = IO_STATUS_BLOCK {
            Anonymous: IO_STATUS_BLOCK_0 { Status: STATUS_PENDING },
            Information: 0,
        };
        // SAFETY: the slot is free, so the kernel does not use its memory.
        unsafe { memory.write(Memory { outcome, info }) };
        // SAFETY: `parts` returns the memory of a slot, so the field is in bounds.
        let outcome = unsafe { &raw mut (*memory.as_ptr()).outcome };
        // SAFETY: `parts` returns the memory of a slot, so the field is in bounds.
        let info = unsafe { &raw mut (*memory.as_ptr()).info };
        // SAFETY: both pointers stay valid and this process does not access them until `finish`,
        // which the packet of this request triggers: the slot is not free until then, and
        // `Polls::drop` leaks memory of slots that are not free.
        let status = unsafe {
            NtDeviceIoControlFile(
                device,
                ptr::null_mut(),
                None,
                context(index),
                outcome,
                IOCTL_AFD_POLL,
                info.cast(),
                size_of::<PollInfo>() as u32,
                info.cast(),
                size_of::<PollInfo>() as u32,
            )
        };
        if is_error(status) {
            return Err(os_error(status));
        }
        self.free.pop();
        self.slots[index] = Slot::Watched(owner);
        Ok(Poll(index))
    }

    /// Cancels a poll and discards its result.
    pub(crate) fn abandon(&mut self, poll: Poll) {
        self.slots[poll.0] = Slot::Abandoned;
        self.cancel(poll);
    }

    /// Cancels a poll. Its result is still delivered.
    pub(crate) fn cancel(&self, poll: Poll) {
        let (device, memory) = self.parts(poll.0);
        // SAFETY: `parts` returns the memory of a slot, so the field is in bounds.
        let outcome = unsafe { &raw mut (*memory.as_ptr()).outcome };
        let mut ignored = IO_STATUS_BLOCK::default();
        // This fails only if the poll has already ended. Its packet is queued in both cases.
        // SAFETY: the kernel only compares the first address, and writes to a local variable.
        let _ = unsafe { NtCancelIoFileEx(device, outcome, &mut ignored) };
    }

    /// Handles a packet and frees its slot. Returns the owner and the conditions that hold,
    /// none if the poll was cancelled. `None` if the poll was abandoned.
    pub(crate) fn finish(&mut self, context: usize) -> Option<(Owner, u32)> {
        let index = context.wrapping_sub(1);
        let slot = self.slots.get_mut(index).filter(|slot| **slot != Slot::Free)?;
        let was = std::mem::replace(slot, Slot::Free);
        self.free.push(index);
        let Slot::Watched(owner) = was else { return None };
        let (_, memory) = self.parts(index);
        // SAFETY: the packet was dequeued, so the kernel does not use the memory any more;
        // `start` has initialized it.
        let Memory { outcome, info } = unsafe { memory.as_ref() };
        // SAFETY: `start` and then the kernel have written the status variant of the union.
        let status = unsafe { outcome.Anonymous.Status };
        let events = match status {
            STATUS_CANCELLED => 0,
            _ if is_error(status) => LOCAL_CLOSE,
            _ if info.number_of_handles == 0 => 0,
            _ => info.events,
        };
        Some((owner, events))
    }

    /// Cancels all polls and discards their results.
    pub(crate) fn abandon_all(&mut self) {
        for slot in self.slots.iter_mut().filter(|slot| **slot != Slot::Free) {
            *slot = Slot::Abandoned;
        }
        for (device, slots) in self.devices.iter().zip(self.slots.chunks(POLLS_PER_DEVICE)) {
            if slots.contains(&Slot::Abandoned) {
                let (handle, mut ignored) = (device.handle.as_raw_handle(), Default::default());
                // SAFETY: null cancels all requests of the handle; `ignored` is a local variable.
                let _ = unsafe { NtCancelIoFileEx(handle, ptr::null(), &mut ignored) };
            }
        }
    }

    /// Returns the number of polls whose packets were not dequeued yet.
    pub(crate) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn parts(&self, index: usize) -> (HANDLE, NonNull<Memory>) {
        let device = &self.devices[index / POLLS_PER_DEVICE];
        let first: NonNull<Memory> = device.memory.cast();
        // SAFETY: the remainder is less than `POLLS_PER_DEVICE`, the length of the array.
        (device.handle.as_raw_handle(), unsafe { first.add(index % POLLS_PER_DEVICE) })
    }
}

impl Drop for Polls {
    fn drop(&mut self) {
        for (device, slots) in self.devices.iter().zip(self.slots.chunks(POLLS_PER_DEVICE)) {
            // The kernel may write to the memory of a poll that has not ended: it is leaked.
            if slots.iter().all(|slot| *slot == Slot::Free) {
                // SAFETY: `Device::new` has leaked the `Box`; all slots are free, so the kernel
                // does not use the memory any more.
                drop(unsafe { Box::from_raw(device.memory.as_ptr()) });
            }
        }
    }
}

impl Device {
    fn new(port: &Port) -> io::Result<Device> {
        let device = open_driver()?;
        port.associate(&device, Key::Poll)?;
        // Saves the kernel from signalling the handle, which no code waits on. A failure costs
        // time only.
        // SAFETY: `device` is open, and the call takes no pointer.
        let _ = unsafe {
            SetFileCompletionNotificationModes(
                device.as_raw_handle(),
                FILE_SKIP_SET_EVENT_ON_HANDLE as u8,
            )
        };
        let memory = Box::<[Memory; POLLS_PER_DEVICE]>::new_uninit();
        Ok(Device { handle: device, memory: NonNull::from(Box::leak(memory)) })
    }
}

/// Opens a handle to the driver. The last component of the path is a label for debuggers.
fn open_driver() -> io::Result<OwnedHandle> {
    let path: Vec<u16> = r"\Device\Afd\poll-iocp".encode_utf16().collect();
    let bytes = (path.len() * 2) as u16;
    let name =
        UNICODE_STRING { Length: bytes, MaximumLength: bytes, Buffer: path.as_ptr().cast_mut() };
    let attributes = OBJECT_ATTRIBUTES {
        Length: size_of::<OBJECT_ATTRIBUTES>() as u32,
        ObjectName: &name,
        ..Default::default()
    };
    let (mut device, mut outcome) = (ptr::null_mut(), IO_STATUS_BLOCK::default());
    // SAFETY: each pointer is null or to a local variable, and the call is synchronous.
    let status = unsafe {
        NtCreateFile(
            &mut device,
            SYNCHRONIZE,
            &attributes,
            &mut outcome,
            ptr::null(),
            0,
            FILE_SHARE_READ | FILE_SHARE_WRITE,
            FILE_OPEN,
            0,
            ptr::null(),
            0,
        )
    };
    if is_error(status) {
        return Err(os_error(status));
    }
    // SAFETY: `NtCreateFile` has just returned the handle, so it has no other owner.
    Ok(unsafe { OwnedHandle::from_raw_handle(device) })
}

/// Returns the context of the packets of slot `index`. Never null: a request with a null
/// context queues no packet.
fn context(index: usize) -> *const c_void {
    ptr::without_provenance(index + 1)
}

/// `NT_ERROR`: true if a request failed immediately, so that no packet follows.
pub(crate) fn is_error(status: NTSTATUS) -> bool {
    status as u32 >> 30 == 3
}

fn os_error(status: NTSTATUS) -> io::Error {
    io::Error::from_raw_os_error(win32_error(status))
}

/// Returns the Win32 error for a status of the kernel.
pub(crate) fn win32_error(status: NTSTATUS) -> i32 {
    // SAFETY: the function takes a number and accesses no memory of the caller.
    unsafe { RtlNtStatusToDosError(status) as i32 }
}
