//! The I/O completion port: a queue of completion packets in the kernel.

use std::fmt;
use std::io;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::ptr;
use std::time::Duration;

use windows_sys::Win32::Foundation::{INVALID_HANDLE_VALUE, WAIT_TIMEOUT};
use windows_sys::Win32::System::IO::{
    CreateIoCompletionPort, GetQueuedCompletionStatusEx, OVERLAPPED_ENTRY,
    PostQueuedCompletionStatus,
};
use windows_sys::Win32::System::Threading::INFINITE;

/// The completion key: the origin of a packet, which determines the meaning of
/// [`Packet::context`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Key {
    /// A wake. No context.
    Wake = 0,
    /// The end of an AFD poll. The context names its slot, see `afd.rs`.
    Poll = 1,
    /// The expiry of the timer. No context.
    Timer = 2,
    /// The end of an overlapped call. The context is the address of its `OVERLAPPED`, see
    /// `slots.rs`.
    Operation = 3,
}

/// A completion packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    pub(crate) key: usize,
    pub(crate) context: usize,
}

/// An I/O completion port.
#[derive(Debug)]
pub(crate) struct Port(OwnedHandle);

impl Port {
    /// Creates a port for one thread at a time: only one waits on a backend.
    pub(crate) fn new() -> io::Result<Port> {
        // SAFETY: these arguments create a new port and refer to no other object.
        let port = unsafe { CreateIoCompletionPort(INVALID_HANDLE_VALUE, ptr::null_mut(), 0, 1) };
        if port.is_null() {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `CreateIoCompletionPort` has just returned the handle, so it has no other owner.
        Ok(Port(unsafe { OwnedHandle::from_raw_handle(port) }))
    }

    pub(crate) fn handle(&self) -> *mut std::ffi::c_void {
        self.0.as_raw_handle()
    }

    /// Associates `file` with this port: its completions are queued here with `key`.
    pub(crate) fn associate(&self, file: &OwnedHandle, key: Key) -> io::Result<()> {
        let file = file.as_raw_handle();
        // SAFETY: the borrows of `file` and `self` keep both handles open.
        let port = unsafe { CreateIoCompletionPort(file, self.handle(), key as usize, 0) };
        if port.is_null() { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Queues a packet without a context.
    pub(crate) fn post(&self, key: Key) -> io::Result<()> {
        // SAFETY: `self` keeps the handle open; the null pointer is not dereferenced.
        let posted =
            unsafe { PostQueuedCompletionStatus(self.handle(), 0, key as usize, ptr::null()) };
        if posted == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Replaces the contents of `batch` by packets from the queue, oldest first. Blocks until
    /// there is one; after `timeout`, the batch is empty.
    pub(crate) fn dequeue(&self, batch: &mut Batch, timeout: Option<Duration>) -> io::Result<()> {
        batch.filled = 0;
        let capacity = batch.entries.len() as u32;
        // SAFETY: the pointers and the capacity describe `batch`, which is borrowed for the call.
        let dequeued = unsafe {
            GetQueuedCompletionStatusEx(
                self.handle(),
                batch.entries.as_mut_ptr(),
                capacity,
                &mut batch.filled,
                milliseconds(timeout),
                0,
            )
        };
        if dequeued != 0 {
            return Ok(());
        }
        batch.filled = 0;
        let error = io::Error::last_os_error();
        if error.raw_os_error() == Some(WAIT_TIMEOUT as i32) { Ok(()) } else { Err(error) }
    }
}

/// The packets of one call. Its memory is reused.
pub(crate) struct Batch {
    entries: Box<[OVERLAPPED_ENTRY]>,
    filled: u32,
}

// SAFETY: the pointers in the entries are never dereferenced, only compared as addresses.
unsafe impl Send for Batch {}

impl Batch {
    pub(crate) fn new(capacity: usize) -> Batch {
        Batch { entries: vec![OVERLAPPED_ENTRY::default(); capacity].into(), filled: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.filled as usize
    }

    pub(crate) fn get(&self, index: usize) -> Packet {
        let entry = &self.entries[..self.len()][index];
        Packet { key: entry.lpCompletionKey, context: entry.lpOverlapped.addr() }
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let packets = (0..self.len()).map(|index| self.get(index));
        f.debug_list().entries(packets).finish()
    }
}

/// Converts a timeout to milliseconds, rounded up and capped below [`INFINITE`].
fn milliseconds(timeout: Option<Duration>) -> u32 {
    timeout.map_or(INFINITE, |timeout| {
        timeout.as_nanos().div_ceil(1_000_000).min(u128::from(INFINITE - 1)) as u32
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finite_timeouts_are_rounded_up_and_stay_finite() {
        assert_eq!(milliseconds(None), INFINITE);
        assert_eq!(milliseconds(Some(Duration::ZERO)), 0);
        assert_eq!(milliseconds(Some(Duration::from_nanos(1))), 1);
        assert_eq!(milliseconds(Some(Duration::from_micros(1_001))), 2);
        assert_eq!(milliseconds(Some(Duration::MAX)), INFINITE - 1);
    }

    #[test]
    fn packets_are_dequeued_in_order() {
        let (port, mut batch) = (Port::new().unwrap(), Batch::new(2));
        for key in [Key::Timer, Key::Wake, Key::Poll] {
            port.post(key).unwrap();
        }
        let mut keys = Vec::new();
        while keys.len() < 3 {
            port.dequeue(&mut batch, None).unwrap();
            keys.extend((0..batch.len()).map(|index| batch.get(index).key));
        }
        assert_eq!(keys, [Key::Timer as usize, Key::Wake as usize, Key::Poll as usize]);
        port.dequeue(&mut batch, Some(Duration::ZERO)).unwrap();
        assert_eq!(batch.len(), 0);
    }
}
