//! Handles: long-lived objects of a loop that run callbacks until they are closed.

mod addresses;
pub(crate) mod async_handle;
mod base;
mod channel;
pub(crate) mod debug_list;
pub(crate) mod error_path;
pub(crate) mod fs_event;
pub(crate) mod fs_poll;
pub(crate) mod lifecycle;
mod on_close;
mod origins;
mod pipe;
pub(crate) mod poll;
pub(crate) mod process;
mod raw;
pub(crate) mod signal;
mod tcp;
mod tcp_short_forms;
pub(crate) mod timer;
mod tty;
pub(crate) mod udp;
pub(crate) mod watcher;

pub use addresses::Addresses;
pub use async_handle::{Async, AsyncSender};
pub use base::{AnyHandle, Handle};
pub use channel::{Channel, Disconnect, SendError, Sender};
pub use debug_list::DebugHandles;
pub use fs_event::{FsEvent, FsEventFlags, FsEventKind};
pub use fs_poll::FsPoll;
pub use pipe::{PendingKind, Pipe, PipeAccess, PipeEnd, pipe_pair, socket_pair};
pub use poll::{Poll, PollEvents};
pub use process::{Command, Exit, PipeFlags, Process, Stdio, disable_stdio_inheritance, kill};
pub use signal::Signal;
pub use tcp::{Keepalive, Tcp, TcpBindFlags};
pub use timer::Timer;
#[cfg(fuzzing)]
pub(crate) use timer::wheel;
pub use tty::{HandleKind, Tty, TtyMode, WindowSize, guess_handle};
pub use udp::{
    Datagram, Destination, Ecn, Received, RecvRequest, Udp, UdpBindFlags, UdpError, UdpReady,
};
pub use watcher::{Check, Idle, Prepare};

pub(crate) use async_handle::Asyncs;
pub(crate) use base::{Base, Closing, Sealed, key_from_bits, key_to_bits};
pub(crate) use error_path::{ErrorHandler, FailedPeer};
#[cfg(any(target_os = "macos", windows))]
pub(crate) use fs_event::Inbox;
pub(crate) use fs_event::{FsEvents, Notices, Watcher, What};
pub(crate) use fs_poll::FsPollSlot;
pub(crate) use on_close::OnClose;
pub(crate) use origins::Origins;
#[cfg(windows)]
pub(crate) use pipe::GivenUp;
pub(crate) use poll::PollSlot;
#[cfg(windows)]
pub(crate) use process::Environment;
pub(crate) use process::{CommandFlags, Processes};
#[cfg(unix)]
pub(crate) use signal::SIGNALS;
pub(crate) use signal::{Kind, PendingSignals, Signals, check_number};
pub(crate) use tcp::apply_options as apply_tcp_options;
pub(crate) use timer::{Timers, nanoseconds};
pub(crate) use udp::Udps;
pub(crate) use watcher::{Phase, Watchers};
