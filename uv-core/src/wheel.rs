//! When timers are due: a hierarchical wheel of nanoseconds.
//!
//! Eleven levels of 64 slots cover 64 bits. A timer stands at the level of the
//! highest digit (of six bits) in which its deadline differs from the time the
//! wheel has reached, in the slot that digit names: starting and stopping is
//! linking and unlinking, whatever the number of timers. As time enters a slot,
//! its timers move to lower levels; slots that time has passed altogether are
//! taken as a whole and sorted. So each timer moves a few times at the most, and
//! memory is walked in long runs. The timers of a crowded slot do not move down one
//! by one, as their memory is far away: they are taken and sorted when time enters
//! it, and wait in a line of their own.
//!
//! ```text
//!  level 2   ▢ ▢ ▣ ▢ …   64 slots of 4,096 ns      time has not entered these digits
//!  level 1   ▢ ▣ ▢ ▣ …   64 slots of 64 ns
//!  level 0   ▣ ▢ ▢ ▢ …   64 slots of 1 ns          one deadline a slot
//! ```
//!
//! Within a slot timers stand in the order they were started: a later one with the
//! same deadline either finds the earlier one in its slot, or time has entered that
//! slot and has moved the earlier one down first.

const DIGIT_BITS: u32 = 6;
const SLOTS: usize = 1 << DIGIT_BITS;
const LEVELS: usize = 64_usize.div_ceil(DIGIT_BITS as usize);

/// To know the next deadline exactly, a slot of several deadlines must be searched.
/// In one with more timers than this the start of the slot is taken instead: too
/// early for one of many timers, which costs a wake-up, where a search would cost more.
const MAX_SEARCH: u32 = 256;

/// A slot with so many timers, and not more, becomes the line when time enters it. More would
/// take memory of a megabyte and more for it.
const CROWD: std::ops::RangeInclusive<u32> = 256..=1 << 16;

/// No timer, and the index of none: the end of a list.
const NIL: u32 = i32::MAX as u32;
/// Instead of the previous timer: in no slot, as all that follow.
const OUT: u32 = NIL + 1;
/// Instead of the previous timer: expired, and about to be run.
const EXPIRED: u32 = NIL + 2;
/// Instead of the previous timer: in the line.
const IN_LINE: u32 = NIL + 3;

/// Instead of the next deadline: it is to be looked for. As a deadline, it is always past.
const UNKNOWN: u64 = 0;

/// A timer's place in the wheel, which is kept where its other state is. Timers are named by
/// their index there.
///
/// The slot follows from the deadline and the time that the wheel has reached: as time
/// enters a slot, the timers in it move. A node is small because millions of them are
/// walked through: their memory is what starting and stopping costs. It is packed so that what
/// is kept beside it needs no padding.
#[derive(Clone, Copy, Debug)]
#[repr(Rust, packed(4))]
pub(crate) struct Node {
    deadline: u64,
    /// The timer before it in the slot; or `NIL`, `OUT`, `EXPIRED` or `IN_LINE`.
    prev: u32,
    next: u32,
}

impl Node {
    /// Of a timer that is not scheduled.
    pub(crate) const OUT: Node = Node { deadline: 0, prev: OUT, next: NIL };

    /// When the timer is due, or was due when it was scheduled last.
    pub(crate) fn deadline(&self) -> u64 {
        self.deadline
    }

    /// Whether the timer has expired and was not stopped since; from then on it has not.
    #[inline]
    pub(crate) fn take_expired(&mut self) -> bool {
        let due = self.prev == EXPIRED;
        if due {
            self.prev = OUT;
        }
        due
    }

    #[inline]
    fn is_in_a_slot(&self) -> bool {
        self.prev <= NIL
    }
}

/// Where the nodes of timers are kept.
pub(crate) trait Nodes {
    /// The node of a timer; `None` for an index that no timer has.
    fn node(&self, index: u32) -> Option<&Node>;

    /// As [`node`](Nodes::node), to change it.
    fn node_mut(&mut self, index: u32) -> Option<&mut Node>;
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    first: u32,
    last: u32,
    len: u32,
}

const EMPTY: Slot = Slot { first: NIL, last: NIL, len: 0 };

/// A timer that was taken out of its slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expired {
    deadline: u64,
    /// The order of starting, among those with one deadline.
    order: u32,
    /// Which timer.
    pub(crate) index: u32,
}

/// In the order of a timer that comes after those of the line.
const FROM_SLOTS: u32 = 1 << 31;

impl Expired {
    const NONE: Expired = Expired { deadline: 0, order: 0, index: NIL };
}

#[derive(Debug)]
pub(crate) struct Wheel {
    slots: Box<[Slot; SLOTS * LEVELS]>,
    /// A bit for each slot of a level that is not empty.
    occupied: [u64; LEVELS],
    /// A bit for each level that is not empty.
    levels: u16,
    /// The time the wheel has reached. No deadline is before it.
    reached: u64,
    /// The deadline that was placed last, and its slot: timers that are started together often
    /// have one deadline.
    placed: (u64, u32),
    /// The next deadline, or `UNKNOWN`.
    next: u64,
    /// The line: timers of a crowded slot that time has entered, in order. Those that were
    /// stopped or started anew since are not `IN_LINE` any more.
    line: Vec<Expired>,
    /// How many of the line are gone.
    left_line: usize,
}

impl Wheel {
    pub(crate) fn new() -> Wheel {
        Wheel {
            slots: Box::new([EMPTY; SLOTS * LEVELS]),
            occupied: [0; LEVELS],
            levels: 0,
            reached: 0,
            placed: (0, 0),
            next: UNKNOWN,
            line: Vec::new(),
            left_line: 0,
        }
    }

    /// Schedules a timer, anew if it is scheduled.
    #[inline(always)]
    pub(crate) fn schedule(
        &mut self,
        nodes: &mut (impl Nodes + ?Sized),
        index: u32,
        deadline: u64,
    ) {
        let Some(node) = nodes.node_mut(index) else { return };
        let was = std::mem::replace(node, Node::OUT);
        self.leave(nodes, was);
        self.enter(nodes, index, deadline);
    }

    /// Schedules a timer that is not scheduled.
    #[inline(always)]
    pub(crate) fn enter(&mut self, nodes: &mut (impl Nodes + ?Sized), index: u32, deadline: u64) {
        let node = self.admit(nodes, index, deadline);
        store(nodes, index, node);
    }

    /// As [`enter`](Wheel::enter), for a timer that has no node yet: this is what it is to be.
    #[inline(always)]
    pub(crate) fn admit(
        &mut self,
        nodes: &mut (impl Nodes + ?Sized),
        index: u32,
        deadline: u64,
    ) -> Node {
        debug_assert!(nodes.node(index).is_none_or(|node| node.prev == OUT));
        let deadline = deadline.max(self.reached);
        if deadline < self.next {
            self.next = deadline;
        }
        self.link(nodes, index, deadline)
    }

    /// Takes a timer out, whether it waits or has expired and was not run yet.
    #[inline]
    pub(crate) fn remove(&mut self, nodes: &mut (impl Nodes + ?Sized), index: u32) {
        let Some(node) = nodes.node_mut(index) else { return };
        let was = *node;
        node.prev = OUT;
        self.leave(nodes, was);
    }

    /// No timer is due before this; one is due then, unless its slot is crowded.
    #[inline]
    pub(crate) fn next_deadline(&mut self, nodes: &(impl Nodes + ?Sized)) -> Option<u64> {
        if self.next == UNKNOWN || self.levels == 0 {
            self.next = UNKNOWN; // A crowded slot may have left an earlier time.
            let in_line = self.next_in_line(nodes);
            let in_slot = (self.levels != 0).then(|| self.next_in_slots(nodes));
            self.next = in_line.into_iter().chain(in_slot).min()?;
        }
        Some(self.next)
    }

    #[inline]
    fn next_in_line(&mut self, nodes: &(impl Nodes + ?Sized)) -> Option<u64> {
        while let Some(timer) = self.line.get(self.left_line) {
            if nodes.node(timer.index).is_some_and(|node| node.prev == IN_LINE) {
                return Some(timer.deadline);
            }
            self.left_line += 1;
        }
        None
    }

    /// There is a timer in a slot.
    #[inline(never)]
    fn next_in_slots(&self, nodes: &(impl Nodes + ?Sized)) -> u64 {
        let level = self.levels.trailing_zeros() as usize;
        let digit = self.occupied[level].trailing_zeros() as usize;
        let slot = &self.slots[level * SLOTS + digit];
        let shift = level as u32 * DIGIT_BITS;
        if level == 0 || slot.len > MAX_SEARCH {
            // Digits above are those of the time reached, digits below are zero.
            let above = self.reached.checked_shr(shift + DIGIT_BITS).unwrap_or(0);
            let above = above.checked_shl(shift + DIGIT_BITS).unwrap_or(0);
            return above | (digit as u64) << shift;
        }
        let mut earliest = u64::MAX;
        let mut index = slot.first;
        while let Some(node) = nodes.node(index) {
            earliest = earliest.min(node.deadline);
            index = node.next;
        }
        earliest
    }

    /// Moves time forward to `now` and appends what is due by then, in order.
    pub(crate) fn expire(
        &mut self,
        nodes: &mut (impl Nodes + ?Sized),
        now: u64,
        expired: &mut Vec<Expired>,
    ) {
        if self.next_deadline(nodes).is_none_or(|next| next > now) {
            // Nothing is due. The wheel stays where it is: to move would only cost.
            return;
        }
        let now = now.max(self.reached);
        let from = expired.len();
        self.expire_line(nodes, now, expired);
        let from_slots = expired.len();
        self.expire_slots(nodes, now, expired);
        self.next = UNKNOWN;
        if from_slots > from && from_slots < expired.len() {
            // Of one deadline, those in the line were started first.
            expired[from_slots..].iter_mut().for_each(|timer| timer.order |= FROM_SLOTS);
            sort(&mut expired[from..]);
        }
    }

    /// Takes what is due from the line.
    fn expire_line(
        &mut self,
        nodes: &mut (impl Nodes + ?Sized),
        now: u64,
        expired: &mut Vec<Expired>,
    ) {
        for timer in &self.line[self.left_line..] {
            if timer.deadline > now {
                break;
            }
            self.left_line += 1;
            if let Some(node) = nodes.node_mut(timer.index).filter(|node| node.prev == IN_LINE) {
                node.prev = EXPIRED;
                expired.push(*timer);
            }
        }
    }

    /// Takes what is due from the slots, and moves time forward.
    fn expire_slots(
        &mut self,
        nodes: &mut (impl Nodes + ?Sized),
        now: u64,
        expired: &mut Vec<Expired>,
    ) {
        let top = level_of(self.reached, now);
        // Below the highest digit that changes, everything has passed.
        for level in 0..top {
            while self.occupied[level] != 0 {
                let digit = self.occupied[level].trailing_zeros() as usize;
                self.expire_slot(nodes, level, digit, expired);
            }
        }
        // At that digit, so have the slots before the one that time is in now.
        let digit_now = digit_of(now, top);
        while self.occupied[top] != 0 {
            let digit = self.occupied[top].trailing_zeros() as usize;
            if digit > digit_now || (digit == digit_now && top > 0) {
                break;
            }
            self.expire_slot(nodes, top, digit, expired);
        }
        self.reached = now;
        self.placed = (now, digit_of(now, 0) as u32);
        if top > 0 && self.occupied[top] & (1 << digit_now) != 0 {
            self.enter_slot(nodes, top, digit_now, expired);
        }
    }

    /// Takes all timers of a slot that has passed.
    fn expire_slot(
        &mut self,
        nodes: &mut (impl Nodes + ?Sized),
        level: usize,
        digit: usize,
        expired: &mut Vec<Expired>,
    ) {
        let from = expired.len();
        take_all(nodes, self.empty_slot(level, digit), EXPIRED, expired);
        if level > 0 {
            sort(&mut expired[from..]);
        }
    }

    /// Spreads the timers of the slot that time has entered, some of which are due.
    fn enter_slot(
        &mut self,
        nodes: &mut (impl Nodes + ?Sized),
        level: usize,
        digit: usize,
        expired: &mut Vec<Expired>,
    ) {
        let slot = self.empty_slot(level, digit);
        if CROWD.contains(&slot.len) && self.left_line == self.line.len() {
            self.line.clear();
            self.left_line = 0;
            take_all(nodes, slot, IN_LINE, &mut self.line);
            sort(&mut self.line);
            return self.expire_line(nodes, self.reached, expired);
        }
        let from = expired.len();
        let mut index = slot.first;
        while let Some(node) = nodes.node_mut(index) {
            let Node { deadline, next, .. } = *node;
            if deadline <= self.reached {
                let order = (expired.len() - from) as u32;
                node.prev = EXPIRED;
                expired.push(Expired { deadline, order, index });
            } else {
                let node = self.link(nodes, index, deadline);
                store(nodes, index, node);
            }
            index = next;
        }
        sort(&mut expired[from..]);
    }

    fn empty_slot(&mut self, level: usize, digit: usize) -> Slot {
        self.mark_empty(level, digit);
        std::mem::replace(&mut self.slots[level * SLOTS + digit], EMPTY)
    }

    fn mark_empty(&mut self, level: usize, digit: usize) {
        self.occupied[level] &= !(1 << digit);
        if self.occupied[level] == 0 {
            self.levels &= !(1 << level);
        }
    }

    /// Makes a timer the last of its slot. Returns what its node is to be.
    #[inline]
    fn link(&mut self, nodes: &mut (impl Nodes + ?Sized), index: u32, deadline: u64) -> Node {
        if deadline != self.placed.0 {
            let (level, digit) = place_of(self.reached, deadline);
            self.placed = (deadline, (level * SLOTS + digit) as u32);
        }
        let place = self.placed.1 as usize;
        let slot = &mut self.slots[place];
        let last = std::mem::replace(&mut slot.last, index);
        slot.len += 1;
        match nodes.node_mut(last) {
            Some(last) => last.next = index,
            None => {
                slot.first = index;
                let (level, digit) = (place / SLOTS, place % SLOTS);
                self.occupied[level] |= 1 << digit;
                self.levels |= 1 << level;
            }
        }
        Node { deadline, prev: last, next: NIL }
    }

    /// A timer is not where it was any more.
    #[inline]
    fn leave(&mut self, nodes: &mut (impl Nodes + ?Sized), node: Node) {
        if self.next == node.deadline {
            self.next = UNKNOWN;
        }
        if node.is_in_a_slot() {
            self.take_out(nodes, node);
        }
    }

    /// Joins the neighbours of a timer in a slot.
    #[inline]
    fn take_out(&mut self, nodes: &mut (impl Nodes + ?Sized), node: Node) {
        let Node { deadline, prev, next } = node;
        let (level, digit) = place_of(self.reached, deadline);
        let slot = &mut self.slots[level * SLOTS + digit];
        slot.len -= 1;
        let is_empty = slot.len == 0;
        match nodes.node_mut(prev) {
            Some(prev) => prev.next = next,
            None => slot.first = next,
        }
        match nodes.node_mut(next) {
            Some(next) => next.prev = prev,
            None => slot.last = prev,
        }
        if is_empty {
            self.mark_empty(level, digit);
        }
    }
}

#[inline]
fn store(nodes: &mut (impl Nodes + ?Sized), index: u32, node: Node) {
    if let Some(place) = nodes.node_mut(index) {
        *place = node;
    }
}

/// Appends all timers of an emptied slot, in order, and marks them with `state`.
///
/// They are walked through from both ends: each tells where its neighbour is, so the memory
/// of two is waited for at once.
fn take_all(nodes: &mut (impl Nodes + ?Sized), slot: Slot, state: u32, taken: &mut Vec<Expired>) {
    let mut take = |index, order| {
        let node = nodes.node_mut(index).expect("a timer in the wheel is there");
        let prev = std::mem::replace(&mut node.prev, state);
        (Expired { deadline: node.deadline, order, index }, node.next, prev)
    };
    let Slot { mut first, mut last, len } = slot;
    let from = taken.len();
    taken.resize(from + len as usize, Expired::NONE);
    let taken = &mut taken[from..];
    for order in 0..len / 2 {
        let from_end = len - 1 - order;
        (taken[order as usize], first, _) = take(first, order);
        (taken[from_end as usize], _, last) = take(last, from_end);
    }
    if len % 2 == 1 {
        let order = len / 2;
        (taken[order as usize], ..) = take(first, order);
    }
}

/// Which digit a bit is in.
const LEVEL_OF_BIT: [u8; 64] = {
    let mut levels = [0; 64];
    let mut bit = 0;
    while bit < 64 {
        levels[bit] = (bit as u32 / DIGIT_BITS) as u8;
        bit += 1;
    }
    levels
};

/// The highest digit in which two times differ; 0 if they do not.
#[inline]
fn level_of(reached: u64, time: u64) -> usize {
    let bit = ((reached ^ time) | (SLOTS as u64 - 1)).ilog2();
    LEVEL_OF_BIT[bit as usize].into()
}

/// The level and the slot of it where a deadline stands, once time has reached `reached`.
#[inline]
fn place_of(reached: u64, deadline: u64) -> (usize, usize) {
    let level = level_of(reached, deadline);
    (level, digit_of(deadline, level))
}

#[inline]
fn digit_of(time: u64, level: usize) -> usize {
    (time >> (level as u32 * DIGIT_BITS)) as usize % SLOTS
}

fn sort(expired: &mut [Expired]) {
    let key = |timer: &Expired| (timer.deadline, timer.order);
    if !expired.is_sorted_by_key(key) {
        expired.sort_unstable_by_key(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wheel and its timers.
    struct Timed {
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

    impl Timed {
        fn new() -> Timed {
            Timed { wheel: Wheel::new(), nodes: vec![Node::OUT; 1_000] }
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

    fn expire(timed: &mut Timed, now: u64) -> Vec<u32> {
        let mut expired = Vec::new();
        timed.wheel.expire(&mut timed.nodes, now, &mut expired);
        expired.iter().map(|timer| timer.index).collect()
    }

    #[test]
    fn deadlines_come_in_order_and_ties_in_order_of_starting() {
        let mut wheel = Timed::new();
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
    fn a_tie_keeps_its_order_across_levels() {
        let mut wheel = Timed::new();
        wheel.schedule(0, 1_000_000);
        wheel.schedule(9, 999_000);
        assert_eq!(expire(&mut wheel, 999_500), [9]);
        wheel.schedule(1, 1_000_000);
        assert_eq!(expire(&mut wheel, 999_990), [0; 0]);
        wheel.schedule(2, 1_000_000);
        assert_eq!(expire(&mut wheel, 1_000_000), [0, 1, 2]);
    }

    #[test]
    fn the_ends_of_time_work() {
        let mut wheel = Timed::new();
        wheel.schedule(0, u64::MAX);
        wheel.schedule(1, 0);
        assert_eq!(expire(&mut wheel, 0), [1]);
        assert_eq!(wheel.next_deadline(), Some(u64::MAX));
        assert_eq!(expire(&mut wheel, u64::MAX - 1), [0; 0]);
        assert_eq!(expire(&mut wheel, u64::MAX), [0]);
    }

    #[test]
    fn a_crowded_slot_gives_a_bound_that_is_never_late() {
        let mut wheel = Timed::new();
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
    fn a_crowd_waits_in_line_and_others_come_between() {
        let mut wheel = Timed::new();
        let start = 1 << 30;
        // One slot of time, which is entered before any of them is due.
        let crowd: Vec<_> =
            (0..400).map(|index| (index, start + 1_000 * (index as u64 % 7))).collect();
        for (index, deadline) in &crowd {
            wheel.schedule(*index, *deadline + 10);
        }
        assert_eq!(expire(&mut wheel, start), [0; 0]);
        assert_eq!(wheel.wheel.line.len(), 400);
        wheel.remove(0);
        wheel.schedule(7, start + 10); // The same deadline as it had, and so behind all of that.
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
    fn it_agrees_with_a_sorted_list() {
        agrees_with_a_sorted_list(200, 0..36, if cfg!(miri) { 300 } else { 50_000 });
    }

    /// So many that slots are crowded, and become the line.
    #[test]
    fn a_crowd_agrees_with_a_sorted_list() {
        agrees_with_a_sorted_list(1_000, 29..31, if cfg!(miri) { 300 } else { 10_000 });
    }

    /// Random starts, stops and passes of time against a sorted list. Deadlines are so many bits
    /// ahead.
    fn agrees_with_a_sorted_list(timers: u64, ahead: std::ops::Range<u64>, rounds: u32) {
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        let mut draw = move |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        let mut wheel = Timed::new();
        let mut list: Vec<(u64, u64, u32)> = Vec::new();
        let (mut now, mut started, mut lines) = (0_u64, 0, 0);
        for _ in 0..rounds {
            let index = draw(timers) as u32;
            // Of many timers, few pass at a time.
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
            lines += u32::from(wheel.wheel.left_line < wheel.wheel.line.len());
            let (next, first) = (wheel.next_deadline(), list.first().map(|timer| timer.0));
            if timers <= u64::from(MAX_SEARCH) {
                assert_eq!(next, first);
            } else {
                assert!(next <= first && next.is_some() == first.is_some());
            }
        }
        // Miri has no time for so many timers; the test above is for it.
        if !cfg!(miri) {
            assert_eq!(lines > 0, timers >= u64::from(*CROWD.start()), "lines: {lines}");
        }
    }
}
