//! Point 28: datagrams.
//!
//! All sockets are on the loopback interface, which loses nothing that fits the receiver's
//! buffer.

mod flights;
mod options;
mod receiving;
mod sending;
mod sockets;
mod traffic;

pub use flights::*;
pub use options::*;
pub use receiving::*;
pub use sending::*;
pub use sockets::*;
pub use traffic::*;
