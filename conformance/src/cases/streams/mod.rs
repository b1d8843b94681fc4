//! Point 26: streams, which carry bytes both ways in order.

mod ending;
mod reading;
mod writing;

pub use ending::*;
pub use reading::*;
pub use writing::*;
