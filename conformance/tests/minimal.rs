//! The backend in poll-core's documentation passes the suite.
#![cfg(unix)]

#[allow(unreachable_pub)]
#[path = "../../poll-core/docs/minimal.rs"]
mod documented;

use documented::Minimal;

conformance::suite!(minimal, Minimal::new);
