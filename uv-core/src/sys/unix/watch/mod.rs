//! File system notifications: inotify, FSEvents and kqueue behind one `Watching`.

// Pure code, so its tests run on every Unix.
#[cfg(any(target_os = "macos", test))]
mod fsevents_flags;

cfg_if::cfg_if! {
    if #[cfg(any(target_os = "linux", target_os = "android"))] {
        pub(crate) mod inotify_calls;
        mod inotify;
        pub(crate) use inotify::Watching;
    } else if #[cfg(target_os = "macos")] {
        mod macos;
        mod fsevents;
        mod kqueue;
        pub(crate) use macos::Watching;
    } else {
        mod kqueue;
        pub(crate) use kqueue::Watching;
    }
}
