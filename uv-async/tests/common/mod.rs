//! What the tests share: every backend of this machine behind one type, and random numbers.

#![allow(dead_code, reason = "each test uses a part")]

use std::io::ErrorKind;
use std::sync::{Mutex, MutexGuard, PoisonError};

use conformance::Faulty;
use uv_async::Rt;
use uv_core::Loop;
use uv_core::backends::Auto;
use uv_core::poll_core::BoxedBackend;

pub(crate) type Backend = BoxedBackend;
pub(crate) type Runtime = Rt<BoxedBackend>;

/// Tests that count descriptors of the process run one at a time.
pub(crate) fn serial() -> MutexGuard<'static, ()> {
    static SERIAL: Mutex<()> = Mutex::new(());
    SERIAL.lock().unwrap_or_else(PoisonError::into_inner)
}

fn backends() -> Vec<(&'static str, Auto)> {
    let mut found = Vec::new();
    for name in Auto::NAMES {
        match Auto::named(name) {
            Ok(backend) => found.push((*name, backend)),
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                eprintln!("skip {name}: {error}");
            }
            Err(error) => panic!("{name}: {error}"),
        }
    }
    found
}

/// Runs a case on a loop of each backend.
pub(crate) fn every(case: impl Fn(&mut Loop<Backend>)) {
    for (name, backend) in backends() {
        eprintln!("on {name}");
        case(&mut Loop::new(BoxedBackend::new(backend)));
    }
}

/// Runs a case on each backend, and on each with faults that a kernel may produce.
pub(crate) fn every_and_faulty(seed: u64, case: impl Fn(&mut Loop<Backend>)) {
    every(&case);
    for (name, backend) in backends() {
        eprintln!("on {name} with faults of seed {seed}");
        case(&mut Loop::new(BoxedBackend::new(Faulty::new(backend, seed))));
    }
}

/// A small generator of random numbers (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// The number of open descriptors of this process.
#[cfg(target_os = "linux")]
pub(crate) fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}
