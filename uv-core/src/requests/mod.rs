//! Requests: things asked for once, which call back once.

mod task;
mod work;

pub(crate) use work::Works;
pub use work::{Work, WorkError};
