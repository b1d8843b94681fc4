//! `libuv.so.1`: exports the functions of `uv-capi`. Empty where that crate is.

extern crate uv_capi as _;
