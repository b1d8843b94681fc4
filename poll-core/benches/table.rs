//! The cost of a lookup by token: `cargo bench -p poll-core`.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use poll_core::{Table, Token};

const COUNTS: [u32; 3] = [100, 10_000, 1_000_000];

fn main() {
    divan::main();
}

fn filled(count: u32) -> Table<u64> {
    let mut table = Table::default();
    for index in 0..count {
        table.insert(Token::new(index, 0), u64::from(index)).expect("each index is inserted once");
    }
    table
}

#[divan::bench(args = COUNTS)]
fn insert_and_remove(bencher: Bencher<'_, '_>, count: u32) {
    bencher.counter(ItemsCount::new(count)).bench(|| {
        let mut table = filled(count);
        (0..count).filter_map(|index| table.remove(Token::new(index, 0))).count()
    });
}

#[divan::bench(args = COUNTS)]
fn get(bencher: Bencher<'_, '_>, count: u32) {
    let table = filled(count);
    bencher.counter(ItemsCount::new(count)).bench_local(|| {
        let found = (0..count).filter_map(|index| table.get(black_box(Token::new(index, 0))));
        found.sum::<u64>()
    });
}
