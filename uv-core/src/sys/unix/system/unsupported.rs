//! Systems without an implementation of these queries.

use std::io;

use crate::system::{CpuInfo, unsupported};

pub(crate) fn cpu_info() -> io::Result<Vec<CpuInfo>> {
    Err(unsupported("its processors"))
}

pub(crate) fn total_memory() -> io::Result<u64> {
    Err(unsupported("the amount of memory"))
}

pub(crate) fn free_memory() -> io::Result<u64> {
    Err(unsupported("the amount of free memory"))
}

pub(crate) fn resident_memory() -> io::Result<u64> {
    Err(unsupported("the resident memory"))
}
