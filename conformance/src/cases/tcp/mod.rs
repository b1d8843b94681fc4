//! Point 27: TCP, its addresses and options, and misbehaving peers.

mod accept_requests;
mod accepting;
mod addresses;
mod connecting;
mod corners;
mod panics;
mod robustness;

pub use accept_requests::*;
pub use accepting::*;
pub use addresses::*;
pub use connecting::*;
pub use corners::*;
pub use panics::*;
pub use robustness::*;
