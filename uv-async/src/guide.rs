//! Async on this loop: a guide.
#![doc = include_str!("../docs/guide.md")]
