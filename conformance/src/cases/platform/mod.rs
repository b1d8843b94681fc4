//! Point 30: random bytes, and what the system says of itself.

mod machine;
mod process;
mod random;

pub use machine::*;
pub use process::*;
pub use random::*;
