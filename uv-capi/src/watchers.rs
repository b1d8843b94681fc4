//! Idle, prepare and check handles.

use std::ffi::c_int;

use libc::EINVAL;
use uv_core::{Check, Handle as _, Idle, Prepare};

use crate::errors::status;
use crate::event_loop::{core, enter, sync};
use crate::handle::{core_of, init, is_closing, key, kind, loop_of};
use crate::layout::{Callback, uv_loop_t, uv_watcher_t};

/// Defines the three functions of one kind. A start of an active handle keeps its callback.
macro_rules! watcher {
    ($init:ident $start:ident $stop:ident $kind:path, $key:ty) => {
        #[cfg_attr(feature = "export", unsafe(no_mangle))]
        pub unsafe extern "C" fn $init(
            c_loop: *mut uv_loop_t,
            watcher: *mut uv_watcher_t,
        ) -> c_int {
            let key = <$key>::new(core(c_loop));
            init(c_loop, watcher, $kind, key);
            (*watcher).cb = None;
            0
        }

        #[cfg_attr(feature = "export", unsafe(no_mangle))]
        pub unsafe extern "C" fn $start(
            watcher: *mut uv_watcher_t,
            callback: Callback<uv_watcher_t>,
        ) -> c_int {
            let (c_loop, key) = (loop_of(watcher), key::<$key, _>(watcher));
            if is_closing(watcher) || key.is_active(core(c_loop)) {
                return 0;
            }
            if callback.is_none() {
                return -EINVAL;
            }
            (*watcher).cb = callback;
            let result = key.start(core(c_loop), move |lp, _| {
                if let Some(callback) = (*watcher).cb {
                    enter(c_loop, lp, || callback(watcher));
                }
            });
            sync(c_loop);
            status(result)
        }

        #[cfg_attr(feature = "export", unsafe(no_mangle))]
        pub unsafe extern "C" fn $stop(watcher: *mut uv_watcher_t) -> c_int {
            if is_closing(watcher) {
                return 0;
            }
            let result = key::<$key, _>(watcher).stop(core_of(watcher));
            sync(loop_of(watcher));
            status(result)
        }
    };
}

watcher! { uv_idle_init uv_idle_start uv_idle_stop kind::IDLE, Idle }
watcher! { uv_prepare_init uv_prepare_start uv_prepare_stop kind::PREPARE, Prepare }
watcher! { uv_check_init uv_check_start uv_check_stop kind::CHECK, Check }
