//! Systems that nobody has taught this crate to ask.

use std::io;

use crate::system::{CpuInfo, unsupported};

pub(crate) fn cpu_info() -> io::Result<Vec<CpuInfo>> {
    Err(unsupported("what processors it has"))
}

pub(crate) fn total_memory() -> io::Result<u64> {
    Err(unsupported("how much memory there is"))
}

pub(crate) fn free_memory() -> io::Result<u64> {
    Err(unsupported("how much memory is free"))
}

pub(crate) fn resident_memory() -> io::Result<u64> {
    Err(unsupported("how much memory is in RAM"))
}
