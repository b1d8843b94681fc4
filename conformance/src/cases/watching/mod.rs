//! Point 34: changes to files and directories.

mod handles;
mod limits;
mod trees;

pub use handles::*;
pub use limits::*;
pub use trees::*;
