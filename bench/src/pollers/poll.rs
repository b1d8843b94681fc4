//! Hand-written `poll(2)` over one dense array.

use std::io;
use std::time::Duration;

use poll_core::RawSource;

use super::{Interest, Poller, milliseconds, uninterrupted};

/// The array, the number of each entry, and the index of each number's entry.
#[derive(Debug, Default)]
pub(crate) struct HandPoll {
    entries: Vec<libc::pollfd>,
    numbers: Vec<usize>,
    places: Vec<usize>,
}

impl Poller for HandPoll {
    fn add(&mut self, number: usize, source: RawSource) -> io::Result<()> {
        self.places.resize(self.places.len().max(number + 1), 0);
        self.places[number] = self.entries.len();
        self.entries.push(libc::pollfd { fd: source.fd(), events: libc::POLLIN, revents: 0 });
        self.numbers.push(number);
        Ok(())
    }

    fn change(&mut self, number: usize, _: RawSource, interest: Interest) -> io::Result<()> {
        self.entries[self.places[number]].events = match interest {
            Interest::Read | Interest::ReadOnce => libc::POLLIN,
            Interest::Write => libc::POLLOUT,
        };
        Ok(())
    }

    fn remove(&mut self, number: usize, _: RawSource) -> io::Result<()> {
        let place = self.places[number];
        self.entries.swap_remove(place);
        self.numbers.swap_remove(place);
        if let Some(moved) = self.numbers.get(place) {
            self.places[*moved] = place;
        }
        Ok(())
    }

    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<usize>) -> io::Result<()> {
        let (entries, count) = (self.entries.as_mut_ptr(), self.entries.len());
        let timeout = milliseconds(timeout);
        let mut left =
            // SAFETY: pointer and length describe the array.
            uninterrupted(|| unsafe { libc::poll(entries, count as libc::nfds_t, timeout) })?;
        for (entry, number) in self.entries.iter().zip(&self.numbers) {
            if left == 0 {
                break;
            }
            if entry.revents != 0 {
                ready.push(*number);
                left -= 1;
            }
        }
        Ok(())
    }
}
