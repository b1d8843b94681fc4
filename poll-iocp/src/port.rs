//! The completion port: a queue in the kernel that everything here ends in.

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

/// What a packet is about. It is the completion key that the packet's origin was
/// given, so that [`Packet::context`] is read as what that origin put there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Key {
    /// Somebody has rung. No context.
    Wake = 0,
    /// An AFD poll has ended. The context is that of its slot, see `afd.rs`.
    Poll = 1,
    /// The timer has expired. No context.
    Timer = 2,
    /// An overlapped call has ended. The context is its `OVERLAPPED`, see `slots.rs`.
    Operation = 3,
}

/// One entry of the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    pub(crate) key: usize,
    pub(crate) context: usize,
}

/// An I/O completion port.
#[derive(Debug)]
pub(crate) struct Port(OwnedHandle);

impl Port {
    /// A port for one thread at a time, as a backend is waited on by one.
    pub(crate) fn new() -> io::Result<Port> {
        // SAFETY: the arguments ask for a new port and name no other object.
        let port = unsafe { CreateIoCompletionPort(INVALID_HANDLE_VALUE, ptr::null_mut(), 0, 1) };
        if port.is_null() {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the port was just made, and nobody else has its handle.
        Ok(Port(unsafe { OwnedHandle::from_raw_handle(port) }))
    }

    pub(crate) fn handle(&self) -> *mut std::ffi::c_void {
        self.0.as_raw_handle()
    }

    /// From now on what `file` completes is queued here, under `key`.
    pub(crate) fn associate(&self, file: &OwnedHandle, key: Key) -> io::Result<()> {
        let file = file.as_raw_handle();
        // SAFETY: both handles are borrowed from their owners.
        let port = unsafe { CreateIoCompletionPort(file, self.handle(), key as usize, 0) };
        if port.is_null() { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Queues an empty packet.
    pub(crate) fn post(&self, key: Key) -> io::Result<()> {
        // SAFETY: the handle is this port's; no memory is passed.
        let posted =
            unsafe { PostQueuedCompletionStatus(self.handle(), 0, key as usize, ptr::null()) };
        if posted == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Takes packets off the queue, oldest first, into `batch`. Waits for the
    /// first; after `timeout`, the batch is empty.
    pub(crate) fn dequeue(&self, batch: &mut Batch, timeout: Option<Duration>) -> io::Result<()> {
        batch.filled = 0;
        let room = batch.entries.len() as u32;
        // SAFETY: the pointers describe `batch`, which outlives the call.
        let dequeued = unsafe {
            GetQueuedCompletionStatusEx(
                self.handle(),
                batch.entries.as_mut_ptr(),
                room,
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

/// Room for what one call dequeues, used again and again.
pub(crate) struct Batch {
    entries: Box<[OVERLAPPED_ENTRY]>,
    filled: u32,
}

// SAFETY: the entries' addresses are never followed, only compared.
unsafe impl Send for Batch {}

impl Batch {
    pub(crate) fn new(room: usize) -> Batch {
        Batch { entries: vec![OVERLAPPED_ENTRY::default(); room].into(), filled: 0 }
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

/// The timeout as the kernel takes it: rounded up, and short of [`INFINITE`], which
/// is the largest number.
fn milliseconds(timeout: Option<Duration>) -> u32 {
    timeout.map_or(INFINITE, |timeout| {
        timeout.as_nanos().div_ceil(1_000_000).min(u128::from(INFINITE - 1)) as u32
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_rounded_up_and_never_infinite_by_accident() {
        assert_eq!(milliseconds(None), INFINITE);
        assert_eq!(milliseconds(Some(Duration::ZERO)), 0);
        assert_eq!(milliseconds(Some(Duration::from_nanos(1))), 1);
        assert_eq!(milliseconds(Some(Duration::from_micros(1_001))), 2);
        assert_eq!(milliseconds(Some(Duration::MAX)), INFINITE - 1);
    }

    #[test]
    fn packets_come_in_the_order_they_were_queued_in() {
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
