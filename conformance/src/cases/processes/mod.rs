//! Point 33: processes.
//!
//! Children are counted, and belong to the whole process: these cases run alone. Those about
//! starting run in each of the ways there are to start a child.

mod ends;
mod failures;
mod inheritance;
mod lives;
mod pipes;
mod surroundings;

pub use ends::*;
pub use failures::*;
pub use inheritance::*;
pub use lives::*;
pub use pipes::*;
pub use surroundings::*;
