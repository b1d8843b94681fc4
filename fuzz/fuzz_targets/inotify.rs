#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| uv_core::fuzzing::inotify(data));
