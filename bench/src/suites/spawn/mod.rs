//! Children that do nothing, one after the other, of a small parent and of a large one.

mod core;
#[cfg(all(unix, feature = "libuv"))]
mod libuv;
mod standard;

use std::hint::black_box;
use std::io;

use poll_core::Backend;

use crate::backends::{self, OnBackend, Which};
use crate::suite::{Count, Entrants, Figure, Sample, Scenario, Suite, Unit, Who};
use crate::suites::Scale;

/// A program that ends at once.
const PROGRAM: &str = if cfg!(windows) { "hostname.exe" } else { "/bin/true" };

/// How much of the parent's memory is touched at a time: the smallest page.
const PAGE: usize = 4096;

/// The suite.
pub fn suite(scale: Scale, which: Which) -> Suite {
    let children = scale.pick(5, 100, 250);
    let large_mib = scale.pick(1, 256, 1_024);
    let scenarios = vec![
        scenario("small parent".into(), 0, children, which),
        scenario(format!("{large_mib} MiB parent"), large_mib << 20, children, which),
    ];
    Suite { name: "spawn", about: "children, one after the other", scenarios }
}

fn scenario(name: String, heap: u64, children: u64, which: Which) -> Scenario {
    let mut entrants = Entrants::default();
    backends::enter(&mut entrants, which, Who::Core, &Children { children, heap });
    #[cfg(all(unix, feature = "libuv"))]
    entrants.enter(Who::Peer("libuv"), move || with_heap(heap, || libuv::run(children)));
    #[cfg(not(all(unix, feature = "libuv")))]
    super::excuse_libuv(&mut entrants);
    entrants.enter(Who::Hand("std"), move || with_heap(heap, || standard::run(children)));
    let about = "a program that does nothing is started, with the null device for its standard \
                 streams, and when its end is known, the next; the parent has touched as much \
                 memory as the name says";
    let count = Count::Exactly(children);
    let figures = vec![
        Figure { name: "children", about, unit: Unit::PerSecond, count },
        Figure { name: "children, CPU of the parent", about, unit: Unit::CpuTimeEach, count },
    ];
    Scenario { name, parameter: Some(heap), figures, entrants }
}

#[derive(Clone)]
struct Children {
    children: u64,
    heap: u64,
}

impl OnBackend for Children {
    fn run<B: Backend>(&self, make: fn() -> io::Result<B>) -> io::Result<Sample> {
        with_heap(self.heap, || core::run(make()?, self.children))
    }
}

/// Runs while the process has touched as much memory.
fn with_heap<R>(bytes: u64, run: impl FnOnce() -> R) -> R {
    let mut heap = vec![0_u8; bytes as usize];
    heap.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
    let result = run();
    black_box(&heap);
    result
}
