//! System calls that `std` has no function for: one module tree for each platform family.
//!
//! `unix` and `windows` export the same names, so that the rest of the crate needs no `cfg`.

pub(crate) mod datagrams;
mod iovecs;
#[cfg(any(windows, fuzzing))]
pub(crate) mod pipe_frames;
mod send_file;
mod send_message;

pub(crate) use iovecs::Slices;
pub(crate) use send_file::{SendCached, send_cached, sends_files};
pub(crate) use send_message::SendMessage;

cfg_if::cfg_if! {
    if #[cfg(unix)] {
        mod unix;
        pub(crate) use unix::*;
    } else if #[cfg(windows)] {
        mod windows;
        pub(crate) use windows::*;
        pub use windows::Passed;
    }
}
