//! The backend of a loop: the one that `UV_BACKEND` names, without the operations whose results
//! libuv reports immediately.

use std::io;

#[cfg(not(miri))]
use uv_core::backends::Auto;
use uv_core::poll_core::{MaskOps, OpKind};

/// Miri has no kernel facility that a loop could wait with: there the loop runs on simulated time.
#[cfg(miri)]
#[path = "../../uv-core/examples/simulated_time.rs"]
#[allow(dead_code)]
mod simulated_time;

#[cfg(miri)]
use simulated_time::Jumping as Auto;

/// A backend that connects and accepts by system calls.
///
/// After `uv_tcp_connect` the socket has an address, and an unreachable network is reported
/// immediately. A listener that several processes share accepts no more connections than it
/// reports. Operations of a kernel queue would break both.
#[cfg_attr(miri, allow(private_interfaces))]
pub type CallBackend = MaskOps<Auto>;

/// The first backend that works of the list in `UV_BACKEND`; `epoll` if it is not set.
pub(crate) fn new() -> io::Result<CallBackend> {
    #[cfg(not(miri))]
    let backend = match std::env::var_os("UV_BACKEND") {
        Some(_) => Auto::new(),
        None => Auto::named("epoll"),
    };
    #[cfg(miri)]
    let backend = io::Result::Ok(Auto::default());
    let by_operation =
        |kind| !matches!(kind, OpKind::Connect | OpKind::Accept | OpKind::AcceptMulti);
    Ok(MaskOps::new(backend?, by_operation))
}
