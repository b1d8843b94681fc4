//! Point 28: UDP.
//!
//! All sockets are on the loopback interface, which loses no datagram that fits the receiver's
//! buffer.

mod in_flight;
mod options;
mod receiving;
mod requests;
mod sending;
mod sockets;
mod traffic;
mod unix;

pub use in_flight::*;
pub use options::*;
pub use receiving::*;
pub use requests::*;
pub use sending::*;
pub use sockets::*;
pub use traffic::*;
pub use unix::*;
