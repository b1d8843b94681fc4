//! The guarantees of a backend, in numbered points.
//!
//! The crate `poll-conformance` has a group of cases for each point, and runs them against every
//! backend. `cargo run -p poll-conformance -- --list` prints the cases of each point.
//!
//! # Points
//!
#![doc = include_str!("../docs/contract.md")]
//!
//! # How conditions are reported
//!
//! The readiness of a source with an interest in `READ` and `WRITE`:
//!
//! | condition | every backend | also, where the kernel reports it |
//! |---|---|---|
//! | the peer sent data | `READ` | |
//! | the peer shut down its writing side | `READ`: a read returns 0 | `DISCONNECT`, if requested |
//! | the peer closed | `READ` | `DISCONNECT`, if requested; `HANGUP` once both directions are closed |
//! | the peer reset the connection | `READ`, `WRITE` | `ERROR`, `HANGUP` |
//! | a connect succeeded | `WRITE` | |
//! | a connect failed | `WRITE`, `READ` | `ERROR`, `HANGUP` |
//! | the last writer of a pipe closed | `READ` | `HANGUP` |
//! | the last reader of a pipe closed | `WRITE` | `ERROR` |
//! | urgent data arrived | `PRIORITY`, if requested | |
//! | the descriptor was closed | `ERROR` | |
//!
//! Each backend's documentation lists how its kernel's flags map to
//! these. [`Interest::report`] is the last step of each map.
#[allow(unused_imports, reason = "the links above are resolved here")]
use crate::*;
