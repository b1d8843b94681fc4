//! Requests: operations that are started once and call back once.

pub(crate) mod task;
pub(crate) mod work;

pub(crate) use work::Works;
pub use work::{WorkError, WorkRequest};
