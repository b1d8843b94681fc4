//! AFD polls: requests to the socket driver that end when a socket is ready.
//!
//! `\Device\Afd` is the driver under all sockets of Windows. Its request
//! `IOCTL_AFD_POLL`, on which `select` and `WSAPoll` are built, is not documented,
//! but has not changed since Windows 2000. It names a socket and some conditions
//! and stays in flight until one of them holds; then a packet arrives at the
//! completion port. A poll in flight cannot be changed, only cancelled, and even
//! then its memory is the kernel's until its packet has been dequeued.
//!
//! So polls live in slots that are apart from the registrations:
//!
//! ```text
//!            start()                        abandon()
//!     Free ───────────▶ Watched(owner) ───────────────▶ Abandoned
//!      ▲                      │                             │
//!      │      finish(): tell  │        finish(): hush       │
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
/// This process has closed the socket.
pub(crate) const LOCAL_CLOSE: u32 = 1 << 5;
/// A connection can be accepted.
pub(crate) const ACCEPT: u32 = 1 << 7;
/// An attempt to connect has failed.
pub(crate) const CONNECT_FAIL: u32 = 1 << 8;

const IOCTL_AFD_POLL: u32 = 0x0001_2024;

/// How many polls share a handle to the driver. To cancel one, the kernel searches
/// the requests that are in flight on its handle: a handle for all sockets would
/// make that search long, a handle for each would double the handles of a program.
const GROUP: usize = 32;

/// `AFD_POLL_INFO` with room for one socket: both what is asked and the answer.
#[repr(C)]
struct PollInfo {
    /// In units of 100 ns; the completion port has timeouts of its own.
    timeout: i64,
    number_of_handles: u32,
    /// Would end the polls that others have in flight for the same socket.
    unique: u32,
    socket: HANDLE,
    events: u32,
    status: NTSTATUS,
}

const _: () = assert!(size_of::<PollInfo>() == 32 && offset_of!(PollInfo, socket) == 16);

/// What the kernel writes to while a poll is in flight.
#[repr(C)]
struct Memory {
    outcome: IO_STATUS_BLOCK,
    info: PollInfo,
}

/// A handle to the driver, and the memory of the polls that are made through it.
#[derive(Debug)]
struct Group {
    device: OwnedHandle,
    /// A leaked `Box`: not a `Box`, as the kernel writes to it behind Rust's back.
    memory: NonNull<MaybeUninit<[Memory; GROUP]>>,
}

// SAFETY: the memory is owned by the group and bound to no thread.
unsafe impl Send for Group {}

/// Names a poll in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Poll(usize);

/// Who wants to know how a poll ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A registered source.
    Source(Token),
    /// An operation.
    Operation(Token),
}

/// Whether a slot's memory is the kernel's, and who wants to know how its poll ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Free,
    Watched(Owner),
    Abandoned,
}

/// All polls in flight.
#[derive(Debug, Default)]
pub(crate) struct Polls {
    groups: Vec<Group>,
    /// Slot `n` has the memory `n % GROUP` of group `n / GROUP`.
    slots: Vec<Slot>,
    free: Vec<usize>,
}

impl Polls {
    /// Makes sure that there are slots for `total` polls, and one that is free.
    pub(crate) fn reserve(&mut self, port: &Port, total: usize) -> io::Result<()> {
        while self.slots.len() < total || self.free.is_empty() {
            self.groups.push(Group::new(port)?);
            let first = self.slots.len();
            self.slots.resize(first + GROUP, Slot::Free);
            self.free.extend((first..first + GROUP).rev());
        }
        Ok(())
    }

    /// Asks for a packet when one of `events` holds for `socket`, which may be at
    /// once. An error is about the socket, and no packet follows.
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
        // SAFETY: the slot is free, so the memory is ours alone.
        unsafe { memory.write(Memory { outcome, info }) };
        // SAFETY: the field lies within the memory.
        let outcome = unsafe { &raw mut (*memory.as_ptr()).outcome };
        // SAFETY: the field lies within the memory.
        let info = unsafe { &raw mut (*memory.as_ptr()).info };
        // SAFETY: both stay where they are, and nobody touches them, until the
        // packet has arrived: the slot is not free until then.
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

    /// Cancels a poll. Nobody will be told how it ends.
    pub(crate) fn abandon(&mut self, poll: Poll) {
        self.slots[poll.0] = Slot::Abandoned;
        self.cancel(poll);
    }

    /// Has a poll end soon.
    pub(crate) fn cancel(&self, poll: Poll) {
        let (device, memory) = self.parts(poll.0);
        // SAFETY: the field lies within the memory.
        let outcome = unsafe { &raw mut (*memory.as_ptr()).outcome };
        let mut ignored = IO_STATUS_BLOCK::default();
        // Fails only if the poll has ended already. Either way its packet comes.
        // SAFETY: the kernel compares the first address and fills the other block.
        let _ = unsafe { NtCancelIoFileEx(device, outcome, &mut ignored) };
    }

    /// Takes note of a packet, which frees the slot. Says which conditions hold and
    /// for whom, unless the poll was abandoned. None hold if it was cancelled.
    pub(crate) fn finish(&mut self, context: usize) -> Option<(Owner, u32)> {
        let index = context.wrapping_sub(1);
        let slot = self.slots.get_mut(index).filter(|slot| **slot != Slot::Free)?;
        let was = std::mem::replace(slot, Slot::Free);
        self.free.push(index);
        let Slot::Watched(owner) = was else { return None };
        let (_, memory) = self.parts(index);
        // SAFETY: the packet has arrived, so the memory is ours again.
        let Memory { outcome, info } = unsafe { memory.as_ref() };
        // SAFETY: the kernel has written a status, and before that we had.
        let status = unsafe { outcome.Anonymous.Status };
        let events = match status {
            STATUS_CANCELLED => 0,
            _ if is_error(status) => LOCAL_CLOSE,
            _ if info.number_of_handles == 0 => 0,
            _ => info.events,
        };
        Some((owner, events))
    }

    /// Cancels everything. Nobody will be told.
    pub(crate) fn abandon_all(&mut self) {
        for slot in self.slots.iter_mut().filter(|slot| **slot != Slot::Free) {
            *slot = Slot::Abandoned;
        }
        for (group, slots) in self.groups.iter().zip(self.slots.chunks(GROUP)) {
            if slots.contains(&Slot::Abandoned) {
                let (device, mut ignored) = (group.device.as_raw_handle(), Default::default());
                // SAFETY: a null request stands for all of the handle's.
                let _ = unsafe { NtCancelIoFileEx(device, ptr::null(), &mut ignored) };
            }
        }
    }

    /// How many packets are still to come.
    pub(crate) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn parts(&self, index: usize) -> (HANDLE, NonNull<Memory>) {
        let group = &self.groups[index / GROUP];
        let first: NonNull<Memory> = group.memory.cast();
        // SAFETY: the remainder is less than the number of elements.
        (group.device.as_raw_handle(), unsafe { first.add(index % GROUP) })
    }
}

impl Drop for Polls {
    fn drop(&mut self) {
        for (group, slots) in self.groups.iter().zip(self.slots.chunks(GROUP)) {
            // The kernel would write to the memory of a poll that has not ended. If
            // one does not end, to leak it is all that is left.
            if slots.iter().all(|slot| *slot == Slot::Free) {
                // SAFETY: it was a `Box`, and nobody has its address any more.
                drop(unsafe { Box::from_raw(group.memory.as_ptr()) });
            }
        }
    }
}

impl Group {
    fn new(port: &Port) -> io::Result<Group> {
        let device = open_driver()?;
        port.associate(&device, Key::Poll)?;
        // Nobody waits on the handle itself. A failure costs only time.
        // SAFETY: the handle is borrowed from its owner.
        let _ = unsafe {
            SetFileCompletionNotificationModes(
                device.as_raw_handle(),
                FILE_SKIP_SET_EVENT_ON_HANDLE as u8,
            )
        };
        let memory = Box::<[Memory; GROUP]>::new_uninit();
        Ok(Group { device, memory: NonNull::from(Box::leak(memory)) })
    }
}

/// Opens the driver for requests that name their sockets themselves. The last part
/// of the path is only a name for debuggers to show.
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
    // SAFETY: every pointer is null or to a local variable, and the call is synchronous.
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
    // SAFETY: the handle was just made, and nobody else has it.
    Ok(unsafe { OwnedHandle::from_raw_handle(device) })
}

/// What a packet of slot `index` carries. Never null: that would mean "no packet".
fn context(index: usize) -> *const c_void {
    ptr::without_provenance(index + 1)
}

/// True if a request failed at once, so that no packet follows (`NT_ERROR`).
pub(crate) fn is_error(status: NTSTATUS) -> bool {
    status as u32 >> 30 == 3
}

fn os_error(status: NTSTATUS) -> io::Error {
    io::Error::from_raw_os_error(code_of(status))
}

/// The error of Windows for a status of its kernel.
pub(crate) fn code_of(status: NTSTATUS) -> i32 {
    // SAFETY: a pure function.
    unsafe { RtlNtStatusToDosError(status) as i32 }
}
