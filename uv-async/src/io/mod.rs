//! Streams, listeners and sockets.

pub(crate) mod buf;
mod halves;
mod input;
mod kept;
mod lent;
mod listener;
mod memory;
mod pipe;
mod reading;
mod received;
mod send_file;
pub(crate) mod stream;
mod tcp;
mod udp;
mod writing;

pub use buf::BufResult;
pub use halves::{ReadHalf, WriteHalf, copy_bidirectional};
pub use lent::Lent;
pub use listener::{Incoming, IoListener};
pub(crate) use memory::MemoryPool;
pub use pipe::{PipeListener, PipeStream, Tty};
#[cfg(unix)]
pub use pipe::{UnixListener, UnixStream};
pub(crate) use received::ReceivedPool;
pub use received::Unread;
pub use stream::IoStream;
pub use tcp::{TcpListener, TcpStream};
pub use udp::{OwnedDatagram, UdpSocket};
