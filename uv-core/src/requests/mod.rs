//! Requests: operations that are started once and call back once.

mod task;
mod work;

pub(crate) use work::Works;
pub use work::{WorkError, WorkRequest};
