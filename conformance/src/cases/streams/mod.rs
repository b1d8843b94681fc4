//! Point 26: streams, which carry bytes in both directions in order.

mod allocating;
mod batching;
mod buffered;
mod cancelling;
mod ending;
mod handing_on;
mod panics;
mod reading;
mod refused;
mod sending_files;
mod system_calls;
mod trying;
mod writing;

pub use allocating::*;
pub use batching::*;
pub use buffered::*;
pub use cancelling::*;
pub use ending::*;
pub use handing_on::*;
pub use panics::*;
pub use reading::*;
pub use refused::*;
pub use sending_files::*;
pub use system_calls::*;
pub use trying::*;
pub use writing::*;
