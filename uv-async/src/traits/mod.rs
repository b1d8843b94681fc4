//! Implementations of the traits of other crates, each behind a feature.

#[cfg(feature = "futures-io")]
mod futures_io;
#[cfg(feature = "hyper")]
mod hyper;
#[cfg(feature = "stream")]
mod stream;
#[cfg(feature = "tokio-io")]
mod tokio_io;

#[cfg(feature = "hyper")]
pub use hyper::HyperTimer;
