//! Benchmarks of the loop's data structures, without system calls: `cargo bench -p uv-core`.
//!
//! The crate `bench` measures everything else and compares it with other libraries.

#[allow(dead_code, unused_imports, reason = "the loop and its tests use more of it")]
#[path = "../src/storage/arena.rs"]
mod arena;
#[allow(dead_code, unused_imports, reason = "the loop and its tests use more of it")]
#[path = "../src/handles/timer/wheel.rs"]
mod wheel;

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};

use arena::{Arena, Seed};
use wheel::{Node, Nodes, Wheel};

const COUNTS: [u32; 3] = [100, 10_000, 1_000_000];

fn main() {
    divan::main();
}

/// Pseudo-random deadlines within ten seconds, the same in each run.
fn deadlines(count: u32) -> Vec<u64> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % 10_000_000_000
    };
    (0..count).map(|_| next()).collect()
}

/// A wheel and its timers.
struct Timers {
    wheel: Wheel,
    nodes: NodeTable,
}

struct NodeTable(Vec<Node>);

impl Nodes for NodeTable {
    fn node(&self, index: u32) -> Option<&Node> {
        self.0.get(index as usize)
    }

    fn node_mut(&mut self, index: u32) -> Option<&mut Node> {
        self.0.get_mut(index as usize)
    }
}

fn filled(deadlines: &[u64]) -> Timers {
    let nodes = NodeTable(vec![Node::UNSCHEDULED; deadlines.len()]);
    let mut timers = Timers { wheel: Wheel::new(), nodes };
    for (index, deadline) in deadlines.iter().enumerate() {
        timers.wheel.schedule(&mut timers.nodes, index as u32, *deadline);
    }
    timers
}

#[divan::bench(args = COUNTS)]
fn wheel_schedule(bencher: Bencher<'_, '_>, count: u32) {
    let deadlines = deadlines(count);
    bencher.counter(ItemsCount::new(count)).bench(|| filled(&deadlines));
}

#[divan::bench(args = COUNTS)]
fn wheel_remove(bencher: Bencher<'_, '_>, count: u32) {
    let deadlines = deadlines(count);
    let bencher = bencher.counter(ItemsCount::new(count)).with_inputs(|| filled(&deadlines));
    bencher.bench_refs(|Timers { wheel, nodes }| {
        (0..count).for_each(|index| wheel.remove(nodes, index));
    });
}

#[divan::bench(args = COUNTS)]
fn wheel_expire(bencher: Bencher<'_, '_>, count: u32) {
    let deadlines = deadlines(count);
    let bencher = bencher.counter(ItemsCount::new(count)).with_inputs(|| filled(&deadlines));
    bencher.bench_refs(|Timers { wheel, nodes }| {
        let mut expired = Vec::new();
        let mut all = 0;
        // As in a loop that wakes every millisecond.
        for now in (0..=10_000_000_000).step_by(1_000_000) {
            wheel.expire(nodes, now, &mut expired);
            all += expired.len();
            expired.clear();
        }
        assert_eq!(all, count as usize);
    });
}

#[divan::bench(args = COUNTS)]
fn arena_insert_and_remove(bencher: Bencher<'_, '_>, count: u32) {
    bencher.counter(ItemsCount::new(count)).bench(|| {
        let mut arena = Arena::new(Seed::draw());
        let keys: Vec<_> = (0..count).map(|value| arena.insert(value)).collect();
        keys.into_iter().filter_map(|key| arena.remove(key)).count()
    });
}

#[divan::bench(args = COUNTS)]
fn arena_get(bencher: Bencher<'_, '_>, count: u32) {
    let mut arena = Arena::new(Seed::draw());
    let keys: Vec<_> = (0..count).map(|value| arena.insert(value)).collect();
    bencher.counter(ItemsCount::new(count)).bench_local(|| {
        keys.iter()
            .filter_map(|key| arena.get(black_box(*key)))
            .map(|value| u64::from(*value))
            .sum::<u64>()
    });
}
