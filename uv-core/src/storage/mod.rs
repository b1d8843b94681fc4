//! Data structures of the loop that know no handle and make no system call.

mod arena;
mod batch_policy;
mod buf;
mod inline;
mod inline_fn;
mod run_list;
mod shared_bufs;

pub(crate) use arena::{Arena, Seed};
pub(crate) use batch_policy::BatchPolicy;
pub use buf::{IntoIoBuf, IoBuf, IoBufMut};
pub(crate) use inline::InlineStorage;
pub(crate) use inline_fn::{
    Argument, InlineFnMut, InlineFnMutRef, InlineFnOnce, StatelessFn, contain,
};
pub(crate) use run_list::RunQueue;
