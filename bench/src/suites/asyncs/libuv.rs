//! Async handles of libuv.

use std::io;
use std::sync::mpsc;
use std::thread;

use super::both;
use crate::clock::{Spent, Stopwatch};
use crate::libuv::{self, Loop, Memory, sys};
use crate::suite::{Reading, Sample};

pub(super) fn pending(sends: u64) -> io::Result<Sample> {
    let handle = Memory::<sys::uv_async_t>::new(1);
    let mut calls = 0_u64;
    let lp = Loop::new()?;
    // SAFETY: the memory outlives the loop.
    libuv::check(unsafe { sys::uv_async_init(lp.raw(), handle.first(), Some(count_call)) })?;
    // SAFETY: the handle is initialised.
    unsafe { (*handle.first()).data = (&raw mut calls).cast() };
    libuv::check(send(handle.first()))?;
    let mut count = 0;
    let watch = Stopwatch::start();
    for _ in 0..sends {
        count += u64::from(send(handle.first()) == 0);
    }
    let spent = watch.spent();
    lp.run_no_wait();
    drop(lp);
    if calls != 1 {
        return Err(io::Error::other(format!("{calls} calls for sends that coalesce")));
    }
    Ok(Sample::new([Reading { count, spent }]))
}

fn send(handle: *mut sys::uv_async_t) -> i32 {
    // SAFETY: each thread sends only before the handle is closed.
    unsafe { sys::uv_async_send(handle) }
}

unsafe extern "C" fn count_call(handle: *mut sys::uv_async_t) {
    // SAFETY: libuv passes a valid handle.
    let calls = unsafe { (*handle).data }.cast::<u64>();
    // SAFETY: the data was set before the first send and outlives the loop.
    unsafe { *calls += 1 };
}

pub(super) fn round_trip(trips: u64) -> io::Result<Sample> {
    let (to_there, from_here) = mpsc::channel();
    let (to_here, from_there) = mpsc::channel();
    let there = thread::spawn(move || side(trips, false, &to_here, &from_here));
    let (here, spent) = side(trips, true, &to_there, &from_there)?;
    let there = there.join().map_err(|_| io::Error::other("the other thread panicked"))??;
    Ok(both((here, there.0), spent))
}

/// The handle, for sends from the other thread.
struct Address(*mut sys::uv_async_t);

// SAFETY: `uv_async_send` may be called from any thread.
unsafe impl Send for Address {}

/// The data of an async handle.
struct Side {
    peer: *mut sys::uv_async_t,
    counted: u64,
    trips: u64,
    serves: bool,
}

/// One of the two loops: answers each send, `trips` in all.
fn side(
    trips: u64,
    serves: bool,
    to_peer: &mpsc::Sender<Address>,
    from_peer: &mpsc::Receiver<Address>,
) -> io::Result<(u64, Spent)> {
    let handle = Memory::<sys::uv_async_t>::new(1);
    let lp = Loop::new()?;
    // SAFETY: the memory outlives the loop.
    libuv::check(unsafe { sys::uv_async_init(lp.raw(), handle.first(), Some(answer)) })?;
    let gone = || io::Error::other("the other thread exited early");
    to_peer.send(Address(handle.first())).map_err(|_| gone())?;
    let peer = from_peer.recv().map_err(|_| gone())?.0;
    let side = Box::into_raw(Box::new(Side { peer, counted: 0, trips, serves }));
    // SAFETY: the handle is initialised, and only this thread uses its data.
    unsafe { (*handle.first()).data = side.cast() };
    // No send precedes the setup of both sides: the first sender waits for it.
    let ready = Address(handle.first());
    to_peer.send(ready).map_err(|_| gone())?;
    from_peer.recv().map_err(|_| gone())?;
    let watch = Stopwatch::start();
    if serves {
        libuv::check(send(peer))?;
    }
    lp.run();
    let spent = watch.spent();
    // The other side may still be inside its last send to this handle.
    to_peer.send(Address(handle.first())).map_err(|_| gone())?;
    from_peer.recv().map_err(|_| gone())?;
    drop(lp);
    // SAFETY: the handle is closed, so no other code uses the data.
    let side = unsafe { Box::from_raw(side) };
    Ok((side.counted, spent))
}

unsafe extern "C" fn answer(handle: *mut sys::uv_async_t) {
    // SAFETY: libuv passes a valid handle.
    let side = unsafe { (*handle).data }.cast::<Side>();
    // SAFETY: the data was set before the first send and outlives the loop.
    let side = unsafe { &mut *side };
    side.counted += 1;
    let last = side.counted == side.trips;
    if !(last && side.serves) {
        send(side.peer);
    }
    if last {
        // SAFETY: libuv passes a valid handle.
        let lp = unsafe { (*handle).loop_ };
        // SAFETY: the loop is running.
        unsafe { sys::uv_stop(lp) };
    }
}
