//! Point 26: streams, which carry bytes both ways in order.

mod batching;
mod cancelling;
mod costs;
mod ending;
mod late;
mod leftovers;
mod panics;
mod reading;
mod writing;

pub use batching::*;
pub use cancelling::*;
pub use costs::*;
pub use ending::*;
pub use late::*;
pub use leftovers::*;
pub use panics::*;
pub use reading::*;
pub use writing::*;
