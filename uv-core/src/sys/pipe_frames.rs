//! The frame format of a Windows pipe that passes handles: headers, and their parser.
//!
//! A frame has a header, at most one handle, and bytes. The format is libuv's for bytes and TCP
//! sockets; libuv rejects the frames of other handles.
//!
//! ```text
//!  0       4       8         12      16
//!  ┌───────┬───────┬─────────┬───────┬───────────────┬───────────┐
//!  │ flags │ pid   │ length  │ 0     │ handle        │ bytes …   │
//!  └───────┴───────┴─────────┴───────┴───────────────┴───────────┘
//!   1 bytes · 2 a socket: 632 bytes (WSAPROTOCOL_INFOW, a number) · 4 that is connected
//!   ours: 8 the socket is a datagram socket · 16 a pipe: 8 bytes (its HANDLE)
//! ```
//!
//! Handles are duplicated into the peer before they are sent, and are valid in its process only.
//! So the header contains the id of that process, and a receiver with another id ignores the
//! handle; without a handle it contains the id of the sender. libuv ignores it, and writes 0.

use std::io;

pub(crate) const HAS_BYTES: u32 = 1;
pub(crate) const HAS_SOCKET: u32 = 2;
pub(crate) const IS_CONNECTED: u32 = 4;
pub(crate) const HAS_DATAGRAMS: u32 = 8;
pub(crate) const HAS_PIPE: u32 = 16;

/// The length of a header.
pub(crate) const HEAD: usize = 16;

/// The length of a socket's description, a `WSAPROTOCOL_INFOW`, and of libuv's error field.
pub(crate) const SOCKET_INFO: usize = 632;

/// The length of a pipe's handle.
pub(crate) const PIPE_INFO: usize = 8;

/// The maximum number of frames without bytes that one read takes.
const MAX_FRAMES: usize = 1024;

/// The header of a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) flags: u32,
    pub(crate) process: u32,
    pub(crate) length: u32,
}

impl Head {
    pub(crate) fn bytes(self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        for (place, number) in
            bytes.chunks_exact_mut(4).zip([self.flags, self.process, self.length])
        {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// # Errors
    ///
    /// `InvalidData` if the peer has written something else.
    pub(crate) fn of(bytes: &[u8; HEAD]) -> io::Result<Head> {
        let number = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let head = Head { flags: number(0), process: number(4), length: number(8) };
        let has = |flag| head.flags & flag != 0;
        let known = HAS_BYTES | HAS_SOCKET | IS_CONNECTED | HAS_DATAGRAMS | HAS_PIPE;
        let is_wrong = head.flags & !known != 0
            || number(12) != 0
            || !has(HAS_BYTES) && head.length != 0
            || !has(HAS_SOCKET) && has(IS_CONNECTED | HAS_DATAGRAMS)
            || has(HAS_SOCKET) && has(HAS_PIPE);
        if is_wrong {
            let why = "the data on the pipe is not in frames: both sides have to pass handles, \
                       from the first byte on";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        Ok(head)
    }

    /// The length of the handle between header and bytes.
    pub(crate) fn info(self) -> usize {
        match self.flags & (HAS_SOCKET | HAS_PIPE) {
            HAS_SOCKET => SOCKET_INFO,
            HAS_PIPE => PIPE_INFO,
            _ => 0,
        }
    }
}

/// The state of the frame parser.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    /// The bytes received of a header and its handle.
    head: Vec<u8>,
    /// The number of bytes left in the current frame.
    left: usize,
    /// A handle was lost.
    lost: bool,
    /// The process id of the sender, if a frame contained it.
    sender: Option<u32>,
}

impl Incoming {
    /// Reads the bytes of one frame with `read`, and passes the handles up to that frame to `take`,
    /// which returns false for one that is lost. False if handles were lost.
    pub(crate) fn receive(
        &mut self,
        memory: &mut [u8],
        mut take: impl FnMut(Head, &[u8]) -> bool,
        read: impl Fn(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<(usize, bool)> {
        for _ in 0..MAX_FRAMES {
            if self.left > 0 {
                let length = memory.len().min(self.left);
                let count = read(&mut memory[..length])?;
                self.left -= count;
                return Ok((count, !std::mem::take(&mut self.lost)));
            }
            let Some(head) = self.read_head(&read)? else {
                return Ok((0, !std::mem::take(&mut self.lost)));
            };
            self.lost |= !take(head, &self.head[HEAD..]);
            if head.info() == 0 && head.process != 0 {
                self.sender = Some(head.process);
            }
            self.head.clear();
            self.left = head.length as usize;
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// The process id of the sender, if a frame contained it.
    pub(crate) fn sender(&self) -> Option<u32> {
        self.sender
    }

    /// Reads the header and the handle of the next frame. `None` at the end of file.
    fn read_head(
        &mut self,
        read: impl Fn(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<Option<Head>> {
        loop {
            let head = self.head.first_chunk().map(Head::of).transpose()?;
            let wanted = HEAD + head.map_or(0, Head::info);
            let received = self.head.len();
            if let Some(head) = head.filter(|_| received == wanted) {
                return Ok(Some(head));
            }
            self.head.resize(wanted, 0);
            let result = read(&mut self.head[received..]);
            self.head.truncate(received + result.as_ref().map_or(0, |count| *count));
            if result? == 0 {
                return Ok(None);
            }
        }
    }
}
