//! Children that do nothing, one after the other, of a small parent and of a large one.

mod core;
#[cfg(all(unix, feature = "libuv"))]
mod libuv;
mod program;
mod standard;

use std::cell::LazyCell;
use std::hint::black_box;
use std::io;
use std::path::Path;
use std::rc::Rc;

use poll_core::Backend;

use crate::backends::{self, OnBackend, Which};
use crate::cores::{self, Pinned};
use crate::suite::{Count, Entrants, Figure, Sample, Scenario, Suite, Unit, Who};
use crate::suites::Scale;

use program::Program;

/// How much of the parent's memory is touched at a time: the smallest page.
const PAGE: usize = 4096;

/// The suite.
pub fn suite(scale: Scale, which: Which) -> Suite {
    let children = scale.pick(5, 100, 250);
    let large_mib = scale.pick(1, 256, 1_024);
    // Made when it is first used: not everybody who lists suites starts children.
    let program = Rc::new(LazyCell::new(Program::new as fn() -> Program));
    let scenario = |name, heap| {
        let work = Children { children, heap, program: Rc::clone(&program) };
        scenario(name, which, work)
    };
    let scenarios = vec![
        scenario("small parent".into(), 0),
        scenario(format!("{large_mib} MiB parent"), large_mib << 20),
    ];
    Suite { name: "spawn", about: "children, one after the other", scenarios }
}

fn scenario(name: String, which: Which, work: Children) -> Scenario {
    let (children, heap) = (work.children, work.heap);
    let mut entrants = Entrants::default();
    backends::enter(&mut entrants, which, Who::Core, &work);
    #[cfg(all(unix, feature = "libuv"))]
    {
        let work = work.clone();
        entrants
            .enter(Who::Peer("libuv"), move || work.as_parent(|path| libuv::run(path, children)));
    }
    #[cfg(not(all(unix, feature = "libuv")))]
    super::excuse_libuv(&mut entrants);
    entrants.enter(Who::Hand("std"), move || work.as_parent(|path| standard::run(path, children)));
    let about = "a program that ends at once is started, with the null device for its standard \
                 streams, and when its end is known, the next; all on one core, and the parent \
                 has touched as much memory as the name says";
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
    /// How many bytes the parent has touched.
    heap: u64,
    program: Rc<LazyCell<Program>>,
}

impl Children {
    /// Runs while the process has touched as much memory, and stays on one core.
    ///
    /// Otherwise the scheduler puts the children on one core or on two, by what the parent has
    /// done before, and to wake the other one takes as long as all the rest.
    fn as_parent(&self, run: impl FnOnce(&Path) -> io::Result<Sample>) -> io::Result<Sample> {
        let mut heap = vec![0_u8; self.heap as usize];
        heap.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
        let core = cores::server_and_clients().map(|(core, _)| core);
        let _pinned = core.map(Pinned::to).transpose()?;
        let result = run(self.program.path()?);
        black_box(&heap);
        result
    }
}

impl OnBackend for Children {
    fn run<B: Backend>(&self, make: fn() -> io::Result<B>) -> io::Result<Sample> {
        self.as_parent(|path| core::run(make()?, path, self.children))
    }
}
