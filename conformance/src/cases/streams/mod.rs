//! Point 26: streams, which carry bytes both ways in order.

mod batching;
mod costs;
mod ending;
mod leftovers;
mod panics;
mod reading;
mod writing;

pub use batching::*;
pub use costs::*;
pub use ending::*;
pub use leftovers::*;
pub use panics::*;
pub use reading::*;
pub use writing::*;
