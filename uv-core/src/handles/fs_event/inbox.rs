//! Where threads of the system put changes for a loop.

use std::ffi::{OsStr, OsString};
use std::sync::{Mutex, PoisonError};

use super::{Notices, Watcher, What};

/// As many changes are kept for a loop that does not run; what comes then is lost, and said
/// to be.
const ROOM: usize = if cfg!(miri) { 16 } else { 16 * 1024 };

/// What threads have been told, for the loop.
#[derive(Debug, Default)]
pub(crate) struct Inbox(Mutex<Vec<(Watcher, What, OsString)>>);

impl Inbox {
    pub(crate) fn put(&self, watcher: Watcher, what: What, name: OsString) {
        let mut inbox = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if inbox.len() < ROOM {
            inbox.push((watcher, what, name));
            return;
        }
        let said = |(of, what, _): &(Watcher, What, OsString)| {
            *of == watcher && matches!(what, What::Lost)
        };
        if !inbox[ROOM..].iter().any(said) {
            inbox.push((watcher, What::Lost, OsString::new()));
        }
    }

    /// Moves all to `notices`.
    pub(crate) fn empty(&self, notices: &mut Notices) {
        let mut inbox = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (watcher, what, name) in inbox.drain(..) {
            notices.push(watcher, what, OsStr::new(""), &name);
        }
    }
}

#[cfg(test)]
mod tests {
    use poll_core::Token;

    use super::*;

    #[test]
    fn what_there_is_no_room_for_is_lost_and_said_to_be() {
        let (inbox, mut notices) = (Inbox::default(), Notices::default());
        let watcher = |key| Watcher { key: Token::new(key, 0), started: 1 };
        for _ in 0..ROOM + 5 {
            inbox.put(watcher(1), What::Changed, "name".into());
        }
        inbox.put(watcher(2), What::Changed, "other".into());
        inbox.empty(&mut notices);
        assert_eq!(notices.len(), ROOM + 2, "one for each who has lost something");
        let lost = std::iter::from_fn(|| notices.pop()).skip(ROOM);
        let lost: Vec<_> = lost.map(|it| (it.watcher, matches!(it.what, What::Lost))).collect();
        assert_eq!(lost, [(watcher(1), true), (watcher(2), true)]);
        inbox.put(watcher(1), What::Changed, "name".into());
        inbox.empty(&mut notices);
        assert!(matches!(notices.pop(), Some(it) if it.path == std::path::Path::new("name")));
    }
}
