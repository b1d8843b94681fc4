//! Point 26: streams, which carry bytes both ways in order.

mod batching;
mod ending;
mod reading;
mod writing;

pub use batching::*;
pub use ending::*;
pub use reading::*;
pub use writing::*;
