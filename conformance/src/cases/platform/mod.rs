//! Point 30: random bytes, and information about the system.

mod machine;
mod process;
mod random;

pub use machine::*;
pub use process::*;
pub use random::*;
