//! What the loop does, point by point.
//!
//! The points are numbered on from those of [poll-core's contract](poll_core::contract). The crate
//! `poll-conformance` has a group of cases for each point, and runs them on every backend.
//! `cargo run -p poll-conformance -- --list` prints the cases of each point.
//!
#![doc = include_str!("../docs/behaviour.md")]
