//! Where to find what libuv has.
//!
#![doc = include_str!("../docs/libuv.md")]
// A test has this checked: the table names nothing that is not there.
#![deny(rustdoc::broken_intra_doc_links)]
#[allow(unused_imports, reason = "the table's links are looked up here")]
use crate::*;
