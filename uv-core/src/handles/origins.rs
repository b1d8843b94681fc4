//! Where handles were made, by the feature `origins`.
//!
//! Without the feature a loop stores nothing, and handles of which there may be millions pay
//! nothing.

#[cfg(feature = "origins")]
use std::collections::HashMap;
use std::panic::Location;

/// The places in the program that have made handles, by creation number.
#[derive(Debug, Default)]
pub(crate) struct Origins {
    #[cfg(feature = "origins")]
    made: HashMap<u32, &'static Location<'static>>,
}

#[cfg(feature = "origins")]
impl Origins {
    #[track_caller]
    pub(crate) fn add(&mut self, id: u32) {
        self.made.insert(id, Location::caller());
    }

    pub(crate) fn remove(&mut self, id: u32) {
        self.made.remove(&id);
    }

    pub(crate) fn get(&self, id: u32) -> Option<&'static Location<'static>> {
        self.made.get(&id).copied()
    }

    /// Gives new numbers to the handles with these numbers, in their order from 1.
    pub(crate) fn renumber(&mut self, old: impl Iterator<Item = u32>) {
        let made = std::mem::take(&mut self.made);
        let places = old.zip(1..).filter_map(|(old, new)| Some((new, *made.get(&old)?)));
        self.made = places.collect();
    }
}

#[cfg(not(feature = "origins"))]
#[allow(clippy::unused_self, reason = "the signatures are those of the feature")]
impl Origins {
    #[inline(always)]
    pub(crate) fn add(&mut self, _id: u32) {}

    pub(crate) fn get(&self, _id: u32) -> Option<&'static Location<'static>> {
        None
    }

    pub(crate) fn renumber(&mut self, _old: impl Iterator<Item = u32>) {}
}

#[cfg(all(test, feature = "origins"))]
mod tests {
    use crate::{Async, Handle, Idle, Loop, Pipe, RunMode, Signal, Stream, Tcp, Timer, Udp};

    #[test]
    fn every_handle_names_the_line_that_has_made_it() {
        let mut lp = Loop::with_default_backend().unwrap();
        let line = line!();
        let timer = Timer::new(&mut lp);
        let _ = (Idle::new(&mut lp), Signal::new(&mut lp), Udp::new(&mut lp), Pipe::new(&mut lp));
        let _ = Async::new(&mut lp, |_, _| {});
        let _ = (Tcp::pair(&mut lp).unwrap(), Pipe::pair(&mut lp).unwrap());
        let server = Tcp::listen_on(&mut lp, "127.0.0.1:0", |_, _| Ok(())).unwrap();
        let listed = lp.debug_handles().to_string();
        let lines: Vec<_> = listed.lines().collect();
        assert_eq!(lines.len(), 11, "{listed}");
        let of = |at: u32| format!("origins.rs:{}:", line + at);
        for (text, at) in lines.iter().zip([1, 2, 2, 2, 2, 3, 4, 4, 4, 4, 5]) {
            assert!(text.contains(&of(at)), "line {}: {text}", line + at);
        }
        assert!(server.is_active(&lp) && !server.is_readable(&lp));
        timer.close(&mut lp).unwrap();
        lp.run(RunMode::NoWait).unwrap();
        assert_eq!(lp.origins.made.len(), 10, "a closed handle is forgotten");
    }
}
