//! Point 33: processes.
//!
//! Children are counted, and belong to the whole process: these cases run alone. Cases about
//! spawning run with each implementation of it.

/// Cases that Windows does not support.
#[cfg(windows)]
macro_rules! unix_alone {
    ($($name:ident: $why:literal)*) => { $(
        #[doc = $why]
        pub fn $name(_lab: &crate::Lab) -> crate::Verdict {
            Err(crate::Skip::because($why))
        }
    )* };
}

mod environment;
mod exits;
mod failures;
mod inheritance;
mod lifetimes;
mod pipes;

pub use environment::*;
pub use exits::*;
pub use failures::*;
pub use inheritance::*;
pub use lifetimes::*;
pub use pipes::*;
