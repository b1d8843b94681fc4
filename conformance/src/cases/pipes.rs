//! Point 32: pipes, their names, the descriptors they take over, and the handles they pass.

mod connecting;
#[cfg(unix)]
mod descriptors;
mod names;
#[cfg(unix)]
mod passing;
mod traffic;

pub use connecting::*;
#[cfg(unix)]
pub use descriptors::*;
pub use names::*;
#[cfg(unix)]
pub use passing::*;
pub use traffic::*;

/// The cases about descriptors, and about what goes over Unix domain sockets only.
#[cfg(not(unix))]
macro_rules! unix_alone {
    ($($name:ident)*) => { $(
        /// Needs descriptors, or sockets that pass them.
        pub fn $name<T: poll_core::Backend>(_lab: &crate::Lab<T>) -> crate::Verdict {
            Err(crate::Skip::because("Windows' pipes are no descriptors, and pass none"))
        }
    )* };
}

#[cfg(not(unix))]
unix_alone! {
    a_descriptor_says_what_it_can_do files_are_refused a_handle_takes_one_descriptor
    raw_pairs_block_or_not standard_streams_stay_open
    handles_arrive_with_their_bytes several_handles_go_with_one_write handles_keep_their_order
    handles_go_once_with_a_large_write listeners_can_be_passed
    a_closed_handle_is_not_passed a_cancelled_write_passes_nothing passing_has_rules
    an_immediate_write_passes_handles what_is_not_taken_is_closed_with_the_pipe
    other_descriptors_can_be_taken pulled_reads_get_handles handles_reach_another_process
    out_of_descriptors_is_told_of_handles
}
