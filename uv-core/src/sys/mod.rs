//! The operating system's part, where `std` has none.

pub(crate) mod datagrams;
mod gather;
mod slices;

pub(crate) use gather::Gather;
pub(crate) use slices::Slices;

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
