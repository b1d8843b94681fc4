//! Point 33: processes.
//!
//! Children are counted, and belong to the whole process: these cases run alone. Those about
//! starting run in each of the ways there are to start a child.

/// The cases about what Windows has not.
#[cfg(windows)]
macro_rules! unix_alone {
    ($($name:ident: $why:literal)*) => { $(
        #[doc = $why]
        pub fn $name<T: poll_core::Backend>(_lab: &crate::Lab<T>) -> crate::Verdict {
            Err(crate::Skip::because($why))
        }
    )* };
}

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
