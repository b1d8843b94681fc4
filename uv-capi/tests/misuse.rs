//! What a program must not do ends the process with a message: nothing unwinds into C, and no memory
//! is touched. Each misuse runs in a process of its own.

#![cfg(all(
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use uv_capi::event_loop::{uv_default_loop, uv_run};
use uv_capi::handle::{uv_close, uv_is_active};
use uv_capi::layout::{uv_handle_t, uv_timer_t};
use uv_capi::timer::{uv_timer_init, uv_timer_start};

/// Names the misuse to the child.
const VARIABLE: &str = "UV_CAPI_MISUSE";
const DEFAULT: c_int = 0;

/// A misuse, and a part of its message.
const MISUSES: [(&str, fn(), &str); 4] = [
    ("nested", run_in_a_callback, "uv_run"),
    ("twice", close_twice, "closing"),
    ("uninitialized", use_without_init, "not initialized"),
    ("panic", panic_in_a_callback, "a callback panics"),
];

fn timer_with(callback: unsafe extern "C" fn(*mut uv_timer_t)) {
    let timer = Box::leak(Box::new(MaybeUninit::<uv_timer_t>::zeroed())).as_mut_ptr();
    // SAFETY: the timer lives as long as the process.
    unsafe {
        uv_timer_init(uv_default_loop(), timer);
        uv_timer_start(timer, Some(callback), 0, 0);
        uv_run(uv_default_loop(), DEFAULT);
    }
}

fn run_in_a_callback() {
    unsafe extern "C" fn nested(_: *mut uv_timer_t) {
        // SAFETY: the loop exists; that it runs already is what the library detects.
        unsafe { uv_run(uv_default_loop(), DEFAULT) };
    }
    timer_with(nested);
}

fn close_twice() {
    unsafe extern "C" fn close(timer: *mut uv_timer_t) {
        for _ in 0..2 {
            // SAFETY: the handle exists; that it is closing is what the library detects.
            unsafe { uv_close(timer.cast(), None) };
        }
    }
    timer_with(close);
}

fn use_without_init() {
    let mut handle = MaybeUninit::<uv_handle_t>::zeroed();
    // SAFETY: the memory is a handle's; its type of 0 is what the library detects.
    unsafe {
        (*handle.as_mut_ptr()).loop_ = uv_default_loop();
        uv_is_active(handle.as_ptr());
    }
}

fn panic_in_a_callback() {
    unsafe extern "C" fn panics(_: *mut uv_timer_t) {
        panic!("a callback panics");
    }
    timer_with(panics);
}

#[test]
fn a_misuse_aborts_with_a_message() {
    if let Ok(wanted) = std::env::var(VARIABLE) {
        let (_, misuse, _) = MISUSES.into_iter().find(|(name, ..)| *name == wanted).unwrap();
        misuse();
        return;
    }
    for (name, _, message) in MISUSES {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "a_misuse_aborts_with_a_message", "--nocapture"]);
        let output = child.env(VARIABLE, name).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{name}: {text}");
        assert!(text.contains(message), "{name}: {text}");
    }
}
