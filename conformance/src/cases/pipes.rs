//! Point 32: pipes, their names, the descriptors they take over, and the handles they pass.

mod connecting;
mod descriptors;
mod names;
mod passing;
mod traffic;

pub use connecting::*;
pub use descriptors::*;
pub use names::*;
pub use passing::*;
pub use traffic::*;

/// The cases about what only descriptors have.
#[cfg(not(unix))]
macro_rules! unix_alone {
    ($($name:ident: $why:literal)*) => { $(
        #[doc = $why]
        pub fn $name<T: poll_core::Backend>(_lab: &crate::Lab<T>) -> crate::Verdict {
            Err(crate::Skip::because($why))
        }
    )* };
}

#[cfg(not(unix))]
unix_alone! {
    other_descriptors_can_be_taken: "only sockets and pipes are passed on Windows"
    out_of_descriptors_is_told_of_handles: "Windows has no limit on handles to reach"
}
