//! Sequential spawns of children that exit immediately, from a small and from a large parent.

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
use crate::suite::{ContestantId, Count, Entrants, Figure, Sample, Scenario, Suite, Unit};
use crate::suites::Scale;

use program::Program;

/// The stride for touching the parent's memory: the smallest page size.
const PAGE: usize = 4096;

/// The suite.
pub fn suite(scale: Scale, which: Which) -> Suite {
    let children = scale.pick(5, 100, 250);
    let large_mib = scale.pick(1, 64, 1_024);
    // Created at the first use, not when suites are listed.
    let program = Rc::new(LazyCell::new(Program::new as fn() -> Program));
    let scenario = |name, heap| {
        let work = Children { children, heap, program: Rc::clone(&program) };
        scenario(name, which, work)
    };
    let scenarios = vec![
        scenario("small parent".into(), 0),
        scenario(format!("{large_mib} MiB parent"), large_mib << 20),
    ];
    Suite { name: "spawn", about: "children, spawned sequentially", scenarios }
}

fn scenario(name: String, which: Which, work: Children) -> Scenario {
    let (children, heap) = (work.children, work.heap);
    let mut entrants = Entrants::default();
    backends::enter(&mut entrants, which, ContestantId::Core, &work);
    #[cfg(all(unix, feature = "libuv"))]
    {
        let work = work.clone();
        entrants.enter(ContestantId::Peer("libuv"), move || {
            work.as_parent(|path| libuv::run(path, children))
        });
    }
    #[cfg(not(all(unix, feature = "libuv")))]
    super::skip_libuv(&mut entrants);
    entrants.enter(ContestantId::Hand("std"), move || {
        work.as_parent(|path| standard::run(path, children))
    });
    let about = "a program that exits immediately is started, with the null device for its standard \
                 streams, and when its end is known, the next; all on one core, and the parent \
                 has touched the memory that the name states";
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
    /// The number of bytes that the parent has touched.
    heap: u64,
    program: Rc<LazyCell<Program>>,
}

impl Children {
    /// Runs with that memory touched, pinned to one core.
    ///
    /// Otherwise the scheduler places the children on one core or on two, depending on the parent's
    /// history, and waking the other core costs as much as everything else.
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
