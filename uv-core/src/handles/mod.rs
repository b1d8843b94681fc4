//! Handles: things that live in a loop and call back until they are closed.

mod async_handle;
mod base;
mod channel;
mod directory;
mod fs_event;
mod fs_poll;
mod listing;
mod pipe;
mod poll;
mod process;
mod signal;
mod sockets;
mod tcp;
mod timer;
mod tty;
mod udp;
mod watcher;

pub use async_handle::{Async, AsyncSender};
pub use base::{AnyHandle, Handle};
pub use channel::{Channel, Closed, Sender};
pub use fs_event::{FsEvent, FsEventFlags, FsNews};
pub use fs_poll::FsPoll;
pub use listing::HandleList;
pub use pipe::{PendingKind, Pipe, PipeAccess, PipeEnd, pipe_pair, socket_pair};
pub use poll::{AsSource, Poll, PollEvents};
pub use process::{Command, Exit, PipeFlags, Process, Stdio, disable_stdio_inheritance, kill};
pub use signal::Signal;
pub use tcp::{BindFlags, Keepalive, Tcp};
pub use timer::Timer;
pub use tty::{Guess, Tty, TtyMode, WindowSize, guess_handle};
pub use udp::{Datagram, Ecn, Udp, UdpBind, UdpError};
pub use watcher::{Check, Idle, Prepare};

pub(crate) use async_handle::Asyncs;
pub(crate) use base::{Base, Closing};
#[cfg(any(target_os = "macos", windows))]
pub(crate) use fs_event::Inbox;
pub(crate) use fs_event::{FsEvents, Notices, Watcher, What};
pub(crate) use fs_poll::FsPollSlot;
#[cfg(windows)]
pub(crate) use pipe::GivenUp;
pub(crate) use poll::PollSlot;
#[cfg(windows)]
pub(crate) use process::Environment;
pub(crate) use process::{CommandFlags, Processes};
pub(crate) use signal::Signals;
pub(crate) use timer::{Timers, nanoseconds};
pub(crate) use udp::UdpSlot;
pub(crate) use watcher::{Phase, Watchers};
