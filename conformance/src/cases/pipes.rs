//! Point 32: pipes, their names, the descriptors they take, and the handles they pass.

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

/// The cases that need file descriptors.
#[cfg(not(unix))]
macro_rules! unix_alone {
    ($($name:ident: $why:literal)*) => { $(
        #[doc = $why]
        pub fn $name(_lab: &crate::Lab) -> crate::Verdict {
            Err(crate::Skip::because($why))
        }
    )* };
}

#[cfg(not(unix))]
unix_alone! {
    other_descriptors_can_be_accepted: "only sockets and pipes are passed on Windows"
    handles_lost_for_want_of_descriptors_are_reported: "Windows has no limit on handles to reach"
    unaccepted_handles_are_limited: "Windows has no limit on handles to reach"
    a_writer_can_be_notified_when_its_reader_is_closed: "a write end cannot be read on Windows"
    widening_permissions_follows_no_link: "no link leads to a named pipe on Windows"
}
