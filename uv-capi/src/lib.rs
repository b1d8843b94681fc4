//! libuv's C ABI over [`uv_core`]: a C program that was built for libuv 1.53 runs on `epoll`,
//! `io_uring`, `poll` or `select`, unchanged.
//!
//! The crate is an rlib and a static library. With the feature `export` its functions have their C
//! names. The shared library, `libuv.so.1`, is built by the package `uv-capi-shared`. The header is
//! libuv's own. `README.md` states how to run a program on it, and what differs.
//!
//! # Structure
//!
//! A `uv_loop_t` has a pointer to a [`LoopState`](event_loop::LoopState), which owns the `Loop` of
//! `uv-core`. Every other struct of the caller has the key of a handle or a request of that loop in
//! a reserved word, so no state of `uv-core` is in the caller's memory, and what a program writes
//! there reaches no memory of the loop.
//!
//! Exactly one `&mut Loop` is used at a time. A callback of `uv-core` gets one as its argument and
//! enters C with it (`event_loop::enter`): it is stored as the current one for the time of the
//! call, and functions of this library that C calls borrow it from there.
//!
//! # Safety
//!
//! The contract of every function is libuv's: pointers are valid and of the named type, a handle is
//! used after its `init` and before its memory is reused, a request's memory and buffers are valid
//! until its callback, and a loop is used on one thread at a time, except in `uv_async_send` and
//! `uv_metrics_idle_time`. This is the invariant of each use of a pointer in this crate, and the
//! caller keeps it. `NULL` and invalid values are refused where libuv refuses them.
//!
//! A panic does not unwind into C: it aborts the process with its message.
//!
//! # Platforms
//!
//! Linux with the GNU C library, on x86-64 and AArch64. Elsewhere the crate does not compile, and the
//! error says so. If the environment variable `UV_CAPI_MAY_BE_EMPTY` is set, it compiles and is
//! empty, as in its own workspace, which builds for other systems.

#![allow(non_camel_case_types, reason = "the names are libuv's")]

cfg_if::cfg_if! {
    if #[cfg(all(
        target_os = "linux",
        target_env = "gnu",
        any(target_arch = "x86_64", target_arch = "aarch64")
    ))] {
        pub mod alloc;
        pub mod async_handle;
        pub mod backend;
        pub mod dns;
        pub mod errors;
        pub mod event_loop;
        pub mod fs;
        pub mod fs_event;
        pub mod handle;
        pub mod layout;
        pub mod libraries;
        pub mod network;
        pub mod pipe;
        pub mod poll;
        pub mod process;
        pub mod request;
        pub mod signal;
        pub mod stream;
        pub mod system;
        pub mod tcp;
        pub mod text;
        pub mod threads;
        pub mod timer;
        pub mod title;
        pub mod tty;
        pub mod udp;
        pub mod udp_options;
        pub mod users;
        pub mod watchers;
        pub mod work;
        pub mod write;

        mod descriptors;
        mod strings;
        mod udp_receive;
    } else {
        const _: () = assert!(
            option_env!("UV_CAPI_MAY_BE_EMPTY").is_some(),
            "uv-capi is not there yet for this target: it needs Linux with the GNU C library, on \
             x86-64 or AArch64. Depend on it for these targets only, or set the environment \
             variable UV_CAPI_MAY_BE_EMPTY to build it empty"
        );
    }
}
