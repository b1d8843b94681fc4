//! The queue of file events from system threads to a loop.

use std::ffi::{OsStr, OsString};
use std::sync::{Mutex, PoisonError};

use super::{Notices, Watcher, What};

/// The limit of queued events for a loop that does not run. Later events are lost, and each
/// watcher that has lost some gets one [`What::Lost`].
const CAPACITY: usize = if cfg!(miri) { 16 } else { 16 * 1024 };

/// Events that system threads have received, for the loop.
#[derive(Debug, Default)]
pub(crate) struct Inbox(Mutex<Vec<(Watcher, What, OsString)>>);

impl Inbox {
    pub(crate) fn put(&self, watcher: Watcher, what: What, name: OsString) {
        let mut inbox = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if inbox.len() < CAPACITY {
            inbox.push((watcher, what, name));
            return;
        }
        let reported = |(of, what, _): &(Watcher, What, OsString)| {
            *of == watcher && matches!(what, What::Lost)
        };
        if !inbox[CAPACITY..].iter().any(reported) {
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
    fn overflow_is_reported_once_per_watcher() {
        let (inbox, mut notices) = (Inbox::default(), Notices::default());
        let watcher = |key| Watcher { key: Token::new(key, 0), started: 1 };
        for _ in 0..CAPACITY + 5 {
            inbox.put(watcher(1), What::Changed, "name".into());
        }
        inbox.put(watcher(2), What::Changed, "other".into());
        inbox.empty(&mut notices);
        assert_eq!(notices.len(), CAPACITY + 2, "one for each watcher that has lost events");
        let lost = std::iter::from_fn(|| notices.pop()).skip(CAPACITY);
        let lost: Vec<_> = lost.map(|it| (it.watcher, matches!(it.what, What::Lost))).collect();
        assert_eq!(lost, [(watcher(1), true), (watcher(2), true)]);
        inbox.put(watcher(1), What::Changed, "name".into());
        inbox.empty(&mut notices);
        assert!(matches!(notices.pop(), Some(it) if it.path == std::path::Path::new("name")));
    }
}
