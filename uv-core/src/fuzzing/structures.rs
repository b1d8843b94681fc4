//! Data structures, compared with simple models.

use std::collections::{BTreeMap, HashMap};

use poll_core::Token;

use super::Input;
use crate::handles::wheel::{Node, Nodes, Wheel};
use crate::storage::{Arena, Seed};

struct Timers(Vec<Node>);

impl Nodes for Timers {
    fn node(&self, index: u32) -> Option<&Node> {
        self.0.get(index as usize)
    }

    fn node_mut(&mut self, index: u32) -> Option<&mut Node> {
        self.0.get_mut(index as usize)
    }
}

/// Starts, stops and advances a timer wheel, and compares it with a sorted list.
pub fn timer_wheel(data: &[u8]) {
    const TIMERS: u32 = 1000;
    let (mut input, mut wheel) = (Input(data), Wheel::new());
    let mut nodes = Timers(vec![Node::UNSCHEDULED; TIMERS as usize]);
    // By deadline, then by start.
    let mut list = BTreeMap::<(u64, u64), u32>::new();
    let mut deadlines = HashMap::<u32, (u64, u64)>::new();
    let (mut now, mut started) = (0_u64, 0);
    while !input.is_empty() {
        let index = input.word() as u32 % TIMERS;
        match input.byte() % 8 {
            0 | 1 => {
                wheel.remove(&mut nodes, index);
                deadlines.remove(&index).map(|key| list.remove(&key));
            }
            2 => {
                now = now.saturating_add(input.number());
                let mut expired = Vec::new();
                wheel.expire(&mut nodes, now, &mut expired);
                let later = list.split_off(&(now.saturating_add(1), 0));
                let due = std::mem::replace(&mut list, later);
                let mut due: Vec<_> = due.into_values().collect();
                if now == u64::MAX {
                    due.extend(std::mem::take(&mut list).into_values());
                }
                for index in &due {
                    deadlines.remove(index);
                }
                assert!(expired.iter().map(|timer| timer.index).eq(due.iter().copied()));
                for index in due {
                    assert!(nodes.0[index as usize].take_expired());
                }
            }
            // Many at once: enough for a slot that is sorted and not cascaded.
            many => {
                let (count, base) = (if many == 3 { 300 } else { 1 }, input.number());
                let spread = input.number().max(1);
                for more in 0..count {
                    let index = (index + more) % TIMERS;
                    let ahead = base.saturating_add(u64::from(more).wrapping_mul(7919) % spread);
                    let deadline = now.saturating_add(ahead);
                    wheel.schedule(&mut nodes, index, deadline);
                    started += 1;
                    if let Some(before) = deadlines.insert(index, (deadline, started)) {
                        list.remove(&before);
                    }
                    list.insert((deadline, started), index);
                }
            }
        }
        // A lower bound: the slot of many timers is not searched.
        let (next, first) = (wheel.next_deadline(&nodes), list.keys().next().map(|key| key.0));
        assert_eq!(next.is_some(), first.is_some());
        assert!(next <= first, "{next:?} is after {first:?}");
    }
}

/// Inserts and removes, and compares an arena with a map. Keys are never given out twice.
pub fn arena(data: &[u8]) {
    // Few values make a large arena, and copying them does not take most of the time.
    const WORDS: usize = 128;
    let (mut input, mut arena) = (Input(data), Arena::<[u64; WORDS]>::new(Seed::draw()));
    let mut live = HashMap::<Token, u64>::new();
    let (mut keys, mut value) = (Vec::<Token>::new(), 0);
    while !input.is_empty() {
        match input.byte() % 8 {
            kind @ 0..3 => {
                // Four times this is an arena that releases its memory when it is empty again.
                for _ in 0..if kind == 0 { 300 } else { 1 } {
                    value += 1;
                    let key = arena.insert([value; WORDS]);
                    assert_eq!(live.insert(key, value), None, "a live key was given out again");
                    keys.push(key);
                }
                if keys.len() > 4_000 {
                    return;
                }
            }
            3 => {
                for key in live.drain().map(|(key, _)| key) {
                    assert!(arena.remove(key).is_some());
                }
            }
            4 => {
                // A key that nothing may have.
                let key = Token::new(input.word() as u32 & 0x7fff_ffff, input.word() as u32 >> 1);
                assert_eq!(arena.get(key).map(|it| it[0]), live.get(&key).copied());
            }
            _ if keys.is_empty() => {}
            _ => {
                // Live or stale.
                let key = keys[input.word() as usize % keys.len()];
                assert_eq!(arena.get(key).map(|it| it[WORDS - 1]), live.get(&key).copied());
                assert_eq!(arena.remove(key).map(|it| it[0]), live.remove(&key));
                assert!(arena.get_mut(key).is_none());
            }
        }
        assert_eq!(arena.len(), live.len());
    }
    let found: HashMap<_, _> = arena.iter().map(|(key, it)| (key, it[0])).collect();
    assert_eq!(found, live);
}
