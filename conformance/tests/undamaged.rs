//! The wrapper of `defects.rs` passes the suite without a defect, so that a failure there is caused
//! by the defect.
#![cfg(unix)]

#[allow(dead_code)]
mod broken;
#[allow(unreachable_pub)]
#[path = "../../poll-core/docs/minimal.rs"]
mod documented;

use broken::{Broken, Defect};
use documented::Minimal;

conformance::suite!(undamaged, || Ok(Broken::new(Minimal::new()?, Defect::Nothing)));
