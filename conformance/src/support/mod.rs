//! Building blocks of cases: sources, waits, limits, signals, children, counters.

#[cfg(unix)]
pub(crate) mod child;
pub(crate) mod children;
pub(crate) mod datagrams;
pub(crate) mod disks;
#[cfg(unix)]
pub(crate) mod dispositions;
pub(crate) mod effort;
pub(crate) mod files;
pub(crate) mod gate;
pub(crate) mod kinds;
pub(crate) mod limits;
pub(crate) mod loops;
pub(crate) mod observe;
pub(crate) mod operations;
pub(crate) mod pipes;
pub(crate) mod program;
#[cfg(unix)]
pub(crate) mod ptys;
#[cfg(unix)]
pub(crate) mod rights;
pub(crate) mod scenes;
#[cfg(unix)]
pub(crate) mod signals;
pub(crate) mod sleep;
pub(crate) mod sources;
pub(crate) mod streams;
pub(crate) mod syscalls;
pub(crate) mod trace;
pub(crate) mod watching;
pub(crate) mod wine;
pub(crate) mod work;
