//! Async handles of `uv-core`.

use std::cell::{Cell, OnceCell};
use std::io;
use std::rc::Rc;
use std::sync::mpsc;
use std::thread;

use poll_core::Backend;
use uv_core::{Async, AsyncSender, Handle, Loop, RunMode};

use super::both;
use crate::clock::{Spent, Stopwatch};
use crate::suite::{Reading, Sample};

pub(super) fn pending<B: Backend>(backend: B, sends: u64) -> io::Result<Sample> {
    let mut lp = Loop::new(backend);
    let calls = Rc::new(Cell::new(0));
    let called = Rc::clone(&calls);
    let (_, sender) = Async::new(&mut lp, move |_, _| called.set(called.get() + 1));
    sender.send()?;
    let mut count = 0;
    let watch = Stopwatch::start();
    for _ in 0..sends {
        count += u64::from(sender.send().is_ok());
    }
    let spent = watch.spent();
    lp.run(RunMode::NoWait)?;
    if calls.get() != 1 {
        return Err(io::Error::other(format!("{} calls for sends that coalesce", calls.get())));
    }
    Ok(Sample::new([Reading { count, spent }]))
}

pub(super) fn round_trip<B: Backend>(
    make: fn() -> io::Result<B>,
    trips: u64,
) -> io::Result<Sample> {
    let (to_there, from_here) = mpsc::channel();
    let (to_here, from_there) = mpsc::channel();
    let there = thread::spawn(move || {
        side(make()?, trips, &to_here, &from_here, Serve::Second).map(|(count, _)| count)
    });
    let here = side(make()?, trips, &to_there, &from_there, Serve::First)?;
    let there = there.join().map_err(|_| io::Error::other("the other thread panicked"))??;
    Ok(both((here.0, there), here.1))
}

/// The role of a side.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Serve {
    First,
    Second,
}

/// One of the two loops: answers each send, `trips` in all.
fn side<B: Backend>(
    backend: B,
    trips: u64,
    to_peer: &mpsc::Sender<AsyncSender>,
    from_peer: &mpsc::Receiver<AsyncSender>,
    serve: Serve,
) -> io::Result<(u64, Spent)> {
    let mut lp = Loop::new(backend);
    let counted = Rc::new(Cell::new(0));
    let peer = Rc::new(OnceCell::<AsyncSender>::new());
    let (count, answer) = (Rc::clone(&counted), Rc::clone(&peer));
    let (_, sender) = Async::new(&mut lp, move |lp, handle| {
        count.set(count.get() + 1);
        let last = count.get() == trips;
        // The side that started has received the last answer, and sends no more.
        if let Some(peer) = answer.get()
            && !(last && serve == Serve::First)
            && peer.send().is_err()
        {
            lp.stop();
        }
        if last && handle.close(lp).is_err() {
            lp.stop();
        }
    });
    let gone = || io::Error::other("the other thread exited early");
    to_peer.send(sender).map_err(|_| gone())?;
    let address = from_peer.recv().map_err(|_| gone())?;
    let peer = peer.get_or_init(|| address);
    let watch = Stopwatch::start();
    if serve == Serve::First {
        peer.send()?;
    }
    lp.run(RunMode::Default)?;
    Ok((counted.get(), watch.spent()))
}
