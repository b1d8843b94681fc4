//! The wrapper that `defects.rs` breaks passes the suite while nothing is broken, so
//! that what is caught there is the defect.
#![cfg(unix)]

#[allow(dead_code)]
mod broken;
#[allow(unreachable_pub)]
#[path = "../../poll-core/docs/minimal.rs"]
mod documented;

use broken::{Broken, Defect};
use documented::Minimal;

conformance::suite!(undamaged, || Ok(Broken::new(Minimal::new()?, Defect::Nothing)));
