//! Point 27: TCP, its addresses and options, and the ways in which peers misbehave.

mod accepting;
mod addresses;
mod connecting;
mod hardship;
mod panics;

pub use accepting::*;
pub use addresses::*;
pub use connecting::*;
pub use hardship::*;
pub use panics::*;
