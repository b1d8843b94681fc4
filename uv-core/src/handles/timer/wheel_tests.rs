//! The wheel alone, with nodes in a vector.

use super::*;

/// A wheel and its timers.
struct Fixture {
    wheel: Wheel,
    nodes: Vec<Node>,
}

impl Nodes for Vec<Node> {
    fn node(&self, index: u32) -> Option<&Node> {
        self.get(index as usize)
    }

    fn node_mut(&mut self, index: u32) -> Option<&mut Node> {
        self.get_mut(index as usize)
    }
}

impl Fixture {
    fn new() -> Fixture {
        Fixture { wheel: Wheel::new(), nodes: vec![Node::UNSCHEDULED; 1_000] }
    }

    fn schedule(&mut self, index: u32, deadline: u64) {
        self.wheel.schedule(&mut self.nodes, index, deadline);
    }

    fn remove(&mut self, index: u32) {
        self.wheel.remove(&mut self.nodes, index);
    }

    fn next_deadline(&mut self) -> Option<u64> {
        self.wheel.next_deadline(&self.nodes)
    }
}

fn expire(fixture: &mut Fixture, now: u64) -> Vec<u32> {
    let mut expired = Vec::new();
    fixture.wheel.expire(&mut fixture.nodes, now, &mut expired);
    expired.iter().map(|timer| timer.index).collect()
}

#[test]
fn timers_expire_by_deadline_then_by_start_order() {
    let mut wheel = Fixture::new();
    for (index, deadline) in [(0, 5_000), (1, 70), (2, 5_000), (3, 4_999), (4, 70)] {
        wheel.schedule(index, deadline);
    }
    assert_eq!(wheel.next_deadline(), Some(70));
    assert_eq!(expire(&mut wheel, 69), [0; 0]);
    assert_eq!(expire(&mut wheel, 70), [1, 4]);
    assert_eq!(wheel.next_deadline(), Some(4_999));
    assert_eq!(expire(&mut wheel, 1 << 40), [3, 0, 2]);
    assert_eq!(wheel.next_deadline(), None);
}

#[test]
fn equal_deadlines_keep_start_order_across_levels() {
    let mut wheel = Fixture::new();
    wheel.schedule(0, 1_000_000);
    wheel.schedule(9, 999_000);
    assert_eq!(expire(&mut wheel, 999_500), [9]);
    wheel.schedule(1, 1_000_000);
    assert_eq!(expire(&mut wheel, 999_990), [0; 0]);
    wheel.schedule(2, 1_000_000);
    assert_eq!(expire(&mut wheel, 1_000_000), [0, 1, 2]);
}

#[test]
fn the_smallest_and_largest_deadlines_expire() {
    let mut wheel = Fixture::new();
    wheel.schedule(0, u64::MAX);
    wheel.schedule(1, 0);
    assert_eq!(expire(&mut wheel, 0), [1]);
    assert_eq!(wheel.next_deadline(), Some(u64::MAX));
    assert_eq!(expire(&mut wheel, u64::MAX - 1), [0; 0]);
    assert_eq!(expire(&mut wheel, u64::MAX), [0]);
}

#[test]
fn the_next_deadline_of_a_large_slot_is_a_lower_bound() {
    let mut wheel = Fixture::new();
    for index in 0..1_000 {
        wheel.schedule(index, 1_000_000_000 + u64::from(index));
    }
    let mut run = 0;
    while let Some(next) = wheel.next_deadline() {
        run += expire(&mut wheel, next).len();
    }
    assert_eq!(run, 1_000);
}

#[test]
fn a_sorted_slot_merges_with_timers_started_later() {
    let mut wheel = Fixture::new();
    let start = 1 << 30;
    // All in one slot, which the current time enters before any of them is due.
    let timers: Vec<_> =
        (0..400).map(|index| (index, start + 1_000 * (index as u64 % 7))).collect();
    for (index, deadline) in &timers {
        wheel.schedule(*index, *deadline + 10);
    }
    assert_eq!(expire(&mut wheel, start), [0; 0]);
    assert_eq!(wheel.wheel.sorted.len(), 400);
    wheel.remove(0);
    wheel.schedule(7, start + 10); // The same deadline as before, but started last.
    wheel.schedule(14, start + 500);
    wheel.schedule(500, start + 10);
    assert_eq!(wheel.next_deadline(), Some(start + 10));
    let mut first: Vec<_> = (21..400).step_by(7).collect();
    first.extend([7, 500]);
    assert_eq!(expire(&mut wheel, start + 10), first);
    assert_eq!(wheel.next_deadline(), Some(start + 500));
    let second: Vec<_> = (1..400).step_by(7).collect();
    assert_eq!(expire(&mut wheel, start + 1_010), [&[14][..], &second].concat());
    let rest = (2..7).flat_map(|from| (from..400).step_by(7)).collect::<Vec<_>>();
    assert_eq!(expire(&mut wheel, u64::MAX), rest);
    assert_eq!(wheel.next_deadline(), None);
}

#[test]
fn the_last_timer_of_a_large_slot_does_not_expire_early() {
    let mut wheel = Fixture::new();
    for index in 0..1_000 {
        wheel.schedule(index, 1_000_000_000 + u64::from(index));
    }
    let bound = wheel.next_deadline().unwrap();
    assert!(bound < 1_000_000_000, "it is the start of the slot");
    (0..999).for_each(|index| wheel.remove(index));
    assert_eq!(expire(&mut wheel, bound), [0; 0]);
    assert_eq!(wheel.next_deadline(), Some(1_000_000_999));
    assert_eq!(expire(&mut wheel, 1_000_000_999), [999]);
}

#[test]
fn the_only_timer_expires_when_it_is_due() {
    let mut wheel = Fixture::new();
    wheel.schedule(7, 1_000);
    assert_eq!(wheel.wheel.expire_only(&mut wheel.nodes, 999), None);
    assert_eq!(wheel.wheel.expire_only(&mut wheel.nodes, 1_000), Some(7));
    assert_eq!(wheel.next_deadline(), None);
    wheel.schedule(7, 500);
    assert_eq!(wheel.next_deadline(), Some(1_000), "time does not go back");
    wheel.schedule(8, 1_001);
    assert_eq!(wheel.wheel.expire_only(&mut wheel.nodes, 2_000), None, "there are two");
    assert_eq!(expire(&mut wheel, 2_000), [7, 8]);
}

#[test]
fn random_operations_match_a_model() {
    compare_with_a_model(200, 0..36, if cfg!(miri) { 300 } else { 50_000 });
}

/// With enough timers that large slots are sorted instead of cascaded.
#[test]
fn random_operations_on_sorted_slots_match_a_model() {
    compare_with_a_model(1_000, 29..31, if cfg!(miri) { 300 } else { 10_000 });
}

/// Compares random starts, stops and advances with a sorted list. Deadlines are up to 2^n
/// nanoseconds ahead, with n from `ahead`.
fn compare_with_a_model(timers: u64, ahead: std::ops::Range<u64>, rounds: u32) {
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut draw = move |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let mut wheel = Fixture::new();
    let mut list: Vec<(u64, u64, u32)> = Vec::new();
    let (mut now, mut started, mut sorted_rounds) = (0_u64, 0, 0);
    for _ in 0..rounds {
        let index = draw(timers) as u32;
        // With many timers, time advances less often, so that slots fill up.
        match draw(4 + timers / 50) {
            0 => {
                wheel.remove(index);
                list.retain(|timer| timer.2 != index);
            }
            1 => {
                let reach = 1 << draw(ahead.end - 2);
                now += draw(reach);
                let due = list.iter().take_while(|timer| timer.0 <= now).count();
                let expected: Vec<_> = list.drain(..due).map(|timer| timer.2).collect();
                assert_eq!(expire(&mut wheel, now), expected);
            }
            _ => {
                list.retain(|timer| timer.2 != index);
                let reach = 1 << (ahead.start + draw(ahead.end - ahead.start));
                let deadline = now + draw(reach);
                wheel.schedule(index, deadline);
                started += 1;
                list.push((deadline, started, index));
                list.sort_unstable();
            }
        }
        sorted_rounds += u32::from(wheel.wheel.sorted_start < wheel.wheel.sorted.len());
        let (next, first) = (wheel.next_deadline(), list.first().map(|timer| timer.0));
        if timers <= u64::from(MAX_SEARCH) {
            assert_eq!(next, first);
        } else {
            assert!(next <= first && next.is_some() == first.is_some());
        }
    }
    // Miri runs too few rounds to fill a slot.
    if !cfg!(miri) {
        assert_eq!(
            sorted_rounds > 0,
            timers >= u64::from(*SORT_RANGE.start()),
            "rounds with a sorted slot: {sorted_rounds}"
        );
    }
}
