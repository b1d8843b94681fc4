//! Whether datagrams or connections come one by one or many at a time.
//!
//! Who takes one at an event is told of the next by the next wait, which looks at all sources
//! anyway. Who looks for another finds out for sure, but if there is none that look was a system
//! call for nothing. So one is taken while they come one by one. A source that is ready turn
//! after turn has more of them than one a turn: then an event takes all.

/// In how many turns in a row a source is ready before an event looks for more than one.
const LOOK_AFTER: u32 = 3;

/// What the last events of a source were like.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Crowd {
    /// The turn of the last event.
    turn: u32,
    /// In how many turns before that there was an event as well.
    in_a_row: u32,
    /// The last look has found more than one.
    many: bool,
}

impl Crowd {
    /// There is an event in this turn. True if it is to look for more than one.
    #[inline]
    pub(crate) fn is_to_look(&mut self, turn: u32) -> bool {
        self.in_a_row = if turn.wrapping_sub(self.turn) == 1 { self.in_a_row + 1 } else { 0 };
        self.turn = turn;
        self.many || self.in_a_row >= LOOK_AFTER
    }

    /// The look has found so many.
    pub(crate) fn found(&mut self, count: usize) {
        self.many = count > 1;
        self.in_a_row = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_one_by_one_is_not_looked_for() {
        let mut crowd = Crowd::default();
        for turn in (0..100).map(|turn| turn * 2) {
            assert!(!crowd.is_to_look(turn), "nothing came in the turn before");
        }
    }

    #[test]
    fn what_comes_turn_after_turn_is_looked_for() {
        let mut crowd = Crowd::default();
        let looks = [7, 8, 9, 10].map(|turn| crowd.is_to_look(turn));
        assert_eq!(looks, [false, false, false, true]);
        crowd.found(1);
        let looks = [11, 12, 13].map(|turn| crowd.is_to_look(turn));
        assert_eq!(looks, [false, false, true], "the look was for nothing: it starts over");
        crowd.found(2);
        assert!(crowd.is_to_look(90), "many at a time need not come in every turn");
        crowd.found(1);
        assert!(!crowd.is_to_look(91));
    }

    #[test]
    fn turns_may_wrap() {
        let mut crowd = Crowd::default();
        let first = u32::MAX - 1;
        let looks = (0..4).map(|turn| crowd.is_to_look(first.wrapping_add(turn)));
        assert_eq!(looks.collect::<Vec<_>>(), [false, false, false, true]);
    }
}
