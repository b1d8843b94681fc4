//! Watching files and directories.

cfg_if::cfg_if! {
    if #[cfg(any(target_os = "linux", target_os = "android"))] {
        mod inotify;
        mod trees;
        pub(crate) use trees::Watching;
    } else {
        mod vnodes;
        pub(crate) use vnodes::Watching;
    }
}
