//! Watching files and directories.

// Its tests run where FSEvents is not, too.
#[cfg(any(target_os = "macos", test))]
mod flags;

cfg_if::cfg_if! {
    if #[cfg(any(target_os = "linux", target_os = "android"))] {
        mod inotify;
        mod trees;
        pub(crate) use trees::Watching;
    } else if #[cfg(target_os = "macos")] {
        mod macos;
        mod streams;
        mod vnodes;
        pub(crate) use macos::Watching;
    } else {
        mod vnodes;
        pub(crate) use vnodes::Watching;
    }
}
