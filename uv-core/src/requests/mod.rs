//! Requests: things asked for once, which call back once.

mod work;

pub(crate) use work::Works;
pub use work::{Work, WorkError};
