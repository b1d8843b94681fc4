//! Point 19: asyncs and channels, by which other threads reach the loop.

use std::cell::RefCell;
use std::io::ErrorKind;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use poll_core::Backend;
use uv_core::{Async, AsyncSender, Channel, Check, Closed, Handle, Loop, RunMode};

use crate::support::loops::{new_loop, run, run_to_the_end};
use crate::support::observe::SOON;
use crate::support::trace::{Count, Trace};
use crate::{Lab, Verdict};

/// An async that writes its name.
fn noting<T: Backend>(lp: &mut Loop<T>, trace: &Trace, name: &'static str) -> (Async, AsyncSender) {
    Async::new(lp, trace.noting(name))
}

fn send(sender: &AsyncSender) {
    sender.send().expect("a send to an open handle");
}

/// Any number of sends before the callback make one call: a busy sender cannot flood a
/// slow loop.
pub fn sends_coalesce<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let trace = Trace::default();
    let (_, sender) = noting(&mut lp, &trace, "called");
    for _ in 0..3 {
        (0..1_000).for_each(|_| send(&sender));
        run(&mut lp, RunMode::Once);
        trace.expect(&["called"], "a thousand sends are one call");
        run(&mut lp, RunMode::NoWait);
        trace.expect(&[], "a call answers all sends before it");
    }
    Ok(())
}

/// A send before the loop runs waits for it: no callback comes out of the API itself.
pub fn sends_wait_for_the_loop_to_run<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let trace = Trace::default();
    let (handle, sender) = noting(&mut lp, &trace, "called");
    send(&sender);
    thread::scope(|scope| scope.spawn(|| send(&sender)).join().expect("a send"));
    send(&handle.sender(&lp).expect("another sender"));
    trace.expect(&[], "the loop does not run");
    run(&mut lp, RunMode::NoWait);
    trace.expect(&["called"], "the loop runs");
    Ok(())
}

/// The flag is cleared before the callback runs, so that what is sent from then on makes
/// another call: in the next iteration, so that nothing starves.
pub fn a_send_in_the_callback_makes_another_call<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (trace, calls) = (Trace::default(), Count::default());
    let check = Check::new(&mut lp);
    check.start(&mut lp, trace.noting("check")).expect("a check");
    let (_, sender) = Async::new(
        &mut lp,
        trace.then("async", move |lp: &mut Loop<T>, handle: Async| match calls.add() {
            3 => {
                handle.close(lp).expect("an open handle");
                check.close(lp).expect("an open check");
            }
            _ => send(&handle.sender(lp).expect("a sender")),
        }),
    );
    send(&sender);
    run_to_the_end(&mut lp);
    trace.expect(&["async", "check", "async", "check", "async"], "one call an iteration");
    Ok(())
}

/// Handles that are due together are called in the order they were made, whoever sent
/// first, and whatever memory they got.
pub fn are_called_in_the_order_they_were_made<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let trace = Trace::default();
    let (first, a) = noting(&mut lp, &trace, "a");
    let (_, b) = noting(&mut lp, &trace, "b");
    let (_, c) = noting(&mut lp, &trace, "c");
    [&c, &a, &b].into_iter().for_each(send);
    run(&mut lp, RunMode::Once);
    trace.expect(&["a", "b", "c"], "in the order they were made");

    first.close(&mut lp).expect("an open handle");
    run(&mut lp, RunMode::NoWait);
    let (_, d) = noting(&mut lp, &trace, "d");
    [&d, &c, &b].into_iter().for_each(send);
    run(&mut lp, RunMode::Once);
    trace.expect(&["b", "c", "d"], "the latest comes last, in whose place it may be");
    Ok(())
}

/// A send wakes a loop that waits, and the callback runs in the loop's thread.
pub fn wake_a_loop_that_waits<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    for pause in [0, 1, 20] {
        let called_by = Rc::new(RefCell::new(None));
        let by = Rc::clone(&called_by);
        let (_, sender) = Async::new(&mut lp, move |lp: &mut Loop<T>, handle| {
            by.replace(Some(thread::current().id()));
            handle.close(lp).expect("an open handle");
        });
        let thread = thread::spawn(move || {
            thread::sleep(Duration::from_millis(pause));
            send(&sender);
        });
        run_to_the_end(&mut lp);
        thread.join().expect("the sender");
        assert_eq!(called_by.take(), Some(thread::current().id()), "in the loop's thread");
    }
    Ok(())
}

/// Whatever was written before a send is seen by a callback that comes after, from many
/// threads at once: a lost send would be a loop that sleeps over work to do.
pub fn no_send_is_lost<T: Backend>(lab: &Lab<T>) -> Verdict {
    const THREADS: u64 = 4;
    const SENDS: u64 = 5_000;
    let mut lp = new_loop(lab)?;
    let written = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&written);
    let (_, sender) = Async::new(&mut lp, move |lp: &mut Loop<T>, handle| {
        if seen.load(Ordering::Relaxed) == THREADS * SENDS {
            handle.close(lp).expect("an open handle");
        }
    });
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let (written, sender) = (Arc::clone(&written), sender.clone());
            thread::spawn(move || {
                for _ in 0..SENDS {
                    written.fetch_add(1, Ordering::Relaxed);
                    // The handle closes when all has been written, and a send or two
                    // may be left then.
                    let _ = sender.send();
                }
            })
        })
        .collect();
    run_to_the_end(&mut lp);
    threads.into_iter().for_each(|thread| thread.join().expect("a sender"));
    Ok(())
}

/// A signal handler may send: it takes no lock and no memory.
#[cfg(unix)]
pub fn from_a_signal_handler<T: Backend>(lab: &Lab<T>) -> Verdict {
    use crate::support::signals::{Handler, Thread};

    let mut lp = new_loop(lab)?;
    let calls = Count::default();
    let counted = calls.clone();
    let (_, sender) = Async::new(&mut lp, move |lp: &mut Loop<T>, handle| {
        if counted.add() == 100 {
            handle.close(lp).expect("an open handle");
        } else {
            // Runs the handler right here, on this thread.
            Thread::current().call_handler();
        }
    });
    let handler = Handler::new(move || send(&sender));
    Thread::current().call_handler();
    run_to_the_end(&mut lp);
    assert_eq!(calls.get(), 100, "a call for each send of the handler");
    assert_eq!(handler.calls(), 100);
    Ok(())
}

/// A signal handler may send: it takes no lock and no memory.
#[cfg(not(unix))]
pub fn from_a_signal_handler<T: Backend>(_lab: &Lab<T>) -> Verdict {
    Err(crate::Skip::because("Windows has no signal handlers that interrupt a thread"))
}

/// A send to nobody is an error, not a crash and not a silent loss: the handle is closed,
/// or the whole loop is gone.
pub fn sends_to_a_closed_handle_are_errors<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let trace = Trace::default();
    let (handle, to_closed) = noting(&mut lp, &trace, "closed");
    let (_, to_gone) = noting(&mut lp, &trace, "gone");
    send(&to_closed);
    handle.close_with(&mut lp, |_, _| {}).expect("an open handle");
    let refused = |sender: &AsyncSender| sender.send().map_err(|error| error.kind());
    assert_eq!(refused(&to_closed), Err(ErrorKind::BrokenPipe), "from the moment of closing");
    run(&mut lp, RunMode::NoWait);
    trace.expect(&[], "what was sent before the close is not told after it");
    assert_eq!(refused(&to_closed), Err(ErrorKind::BrokenPipe), "after the close callback");
    let stale = handle.sender(&lp).map(drop).map_err(|error| error.kind());
    assert_eq!(stale, Err(ErrorKind::NotFound), "a sender from a stale key");
    send(&to_gone);
    drop(lp);
    for sender in [&to_closed, &to_gone] {
        assert_eq!(refused(sender), Err(ErrorKind::BrokenPipe), "after the loop");
    }
    Ok(())
}

/// A handle may be closed while threads are in the middle of sends to it: from then on they are
/// refused, nothing is called, and the loop ends.
pub fn a_close_amid_sends_is_the_last_word<T: Backend>(lab: &Lab<T>) -> Verdict {
    const THREADS: usize = 3;
    let mut lp = new_loop(lab)?;
    for round in 0..20 {
        let (called, closed) = (Count::default(), Count::default());
        let (calls, closes) = (called.clone(), closed.clone());
        let (_, sender) = Async::new(&mut lp, move |lp: &mut Loop<T>, handle| {
            assert_eq!(closes.get(), 0, "round {round}: called after the close");
            if calls.add() == 1 + round % 5 {
                let closes = closes.clone();
                handle.close_with(lp, move |_, _| closes.count()).expect("an open handle");
            }
        });
        let begun = Instant::now();
        let send_on = || loop {
            match sender.send() {
                Err(error) => return Some(error.kind()),
                Ok(()) if begun.elapsed() > SOON => return None,
                Ok(()) => {}
            }
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(send_on)).collect();
            run_to_the_end(&mut lp);
            for thread in threads {
                assert_eq!(thread.join().expect("a sender"), Some(ErrorKind::BrokenPipe));
            }
        });
        assert_eq!((called.get(), closed.get()), (1 + round % 5, 1), "round {round}");
    }
    Ok(())
}

/// An async is active from the first to the last and keeps the loop, unless it is
/// unreferenced; sends reach it all the same.
pub fn keep_the_loop_unless_unreferenced<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let trace = Trace::default();
    let (handle, sender) = noting(&mut lp, &trace, "called");
    assert!(handle.is_active(&lp) && lp.alive(), "active without a start");
    assert!(run(&mut lp, RunMode::NoWait), "it keeps the loop");

    handle.unreference(&mut lp).expect("an open handle");
    assert!(handle.is_active(&lp) && !lp.alive(), "active, and the loop may end");
    run_to_the_end(&mut lp);
    send(&sender);
    let (other, _) = noting(&mut lp, &trace, "other");
    run(&mut lp, RunMode::Once);
    trace.expect(&["called"], "an unreferenced handle is called while the loop runs");

    handle.close(&mut lp).expect("an open handle");
    other.close(&mut lp).expect("an open handle");
    assert!(!handle.is_active(&lp) && lp.alive(), "closing keeps the loop");
    run_to_the_end(&mut lp);
    assert!(lp.close().is_ok(), "nothing is open");
    Ok(())
}

/// A handle that is closed by another in the same pass is not called, though it was sent
/// to before.
pub fn one_may_close_another<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let trace = Trace::default();
    let doomed = Rc::new(RefCell::new(None::<Async>));
    let victim = Rc::clone(&doomed);
    let close = move |lp: &mut Loop<T>, handle: Async| {
        victim.take().expect("called once").close(lp).expect("an open handle");
        handle.close(lp).expect("an open handle");
    };
    let (_, first) = Async::new(&mut lp, trace.then("first", close));
    let (second, to_second) = noting(&mut lp, &trace, "second");
    doomed.replace(Some(second));
    send(&to_second);
    send(&first);
    run_to_the_end(&mut lp);
    trace.expect(&["first"], "the second was closed by the first");
    Ok(())
}

/// Every value arrives once, and those of one thread in the order it sent them.
pub fn channels_deliver_all_in_order<T: Backend>(lab: &Lab<T>) -> Verdict {
    const THREADS: usize = 4;
    const VALUES: usize = 5_000;
    let mut lp = new_loop(lab)?;
    let mut next = [0; THREADS];
    let (_, sender) =
        Channel::new(&mut lp, move |lp: &mut Loop<T>, channel, (thread, value): (usize, usize)| {
            assert_eq!(value, next[thread], "the next value of thread {thread}");
            next[thread] += 1;
            if next == [VALUES; THREADS] {
                channel.handle().close(lp).expect("an open channel");
            }
        });
    let threads = [0, 1, 2, 3].map(|thread| {
        let sender = sender.clone();
        thread::spawn(move || {
            (0..VALUES).for_each(|value| sender.send((thread, value)).expect("an open channel"));
        })
    });
    run_to_the_end(&mut lp);
    threads.into_iter().for_each(|thread| thread.join().expect("a sender"));
    Ok(())
}

/// Values that have gathered cost one wake of the loop, and are delivered together.
pub fn channels_wake_the_loop_once_for_many<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (delivered, counted) = (Count::default(), Count::default());
    let count = delivered.clone();
    let (_, sender) = Channel::new(&mut lp, move |_: &mut Loop<T>, _, ()| {
        count.add();
    });
    let check = Check::new(&mut lp);
    let turns = counted.clone();
    check
        .start(&mut lp, move |_, _| {
            turns.add();
        })
        .expect("a check");
    (0..1_000).for_each(|_| sender.send(()).expect("an open channel"));
    run(&mut lp, RunMode::Once);
    assert_eq!((delivered.get(), counted.get()), (1_000, 1), "values, and iterations");
    assert_eq!(lp.metrics().events(), 1, "a batch is one event");
    run(&mut lp, RunMode::NoWait);
    assert_eq!(delivered.get(), 1_000, "each value once");
    Ok(())
}

/// What the callback sends to its own channel comes in the next iteration.
pub fn channels_take_what_their_callback_sends<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let trace = Trace::default();
    let check = Check::new(&mut lp);
    check.start(&mut lp, trace.noting("check")).expect("a check");
    let own = Rc::new(RefCell::new(None::<uv_core::Sender<u32>>));
    let (own_sender, noted) = (Rc::clone(&own), trace.clone());
    let (_, sender) = Channel::new(&mut lp, move |lp: &mut Loop<T>, channel, value: u32| {
        noted.note(["zero", "one", "two"][value as usize]);
        if value == 2 {
            channel.handle().close(lp).expect("an open channel");
            check.close(lp).expect("an open check");
        } else if let Some(sender) = &*own_sender.borrow() {
            sender.send(value + 1).expect("an open channel");
        }
    });
    sender.send(0).expect("an open channel");
    own.replace(Some(sender));
    run_to_the_end(&mut lp);
    trace.expect(&["zero", "check", "one", "check", "two"], "one iteration after the other");
    Ok(())
}

/// A channel that its callback closes delivers no more, not even of the batch at hand, and
/// the rest is dropped.
pub fn channels_closed_in_mid_batch_deliver_no_more<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (value, delivered) = (Arc::new(()), Count::default());
    let count = delivered.clone();
    let (_, sender) = Channel::new(&mut lp, move |lp: &mut Loop<T>, channel, _: Arc<()>| {
        if count.add() == 3 {
            channel.handle().close(lp).expect("an open channel");
        }
    });
    (0..10).for_each(|_| sender.send(Arc::clone(&value)).expect("an open channel"));
    run_to_the_end(&mut lp);
    assert_eq!(delivered.get(), 3, "closed by the third");
    assert_eq!(Arc::strong_count(&value), 1, "the other seven are dropped");
    Ok(())
}

/// A sender of a closed channel gets its value back; values that were sent and never
/// delivered are dropped with the channel, even while senders live.
pub fn channels_that_are_closed_give_values_back<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let never = |_: &mut Loop<T>, _: Channel<Arc<u32>>, _| panic!("a closed channel delivers");
    let value = Arc::new(7);
    let (closed, to_closed) = Channel::new(&mut lp, never);
    let (_, to_gone) = Channel::new(&mut lp, never);
    to_closed.send(Arc::clone(&value)).expect("an open channel");
    assert_eq!(Arc::strong_count(&value), 2, "on its way");
    closed.handle().close(&mut lp).expect("an open channel");
    let give_back = |sender: &uv_core::Sender<Arc<u32>>| {
        let Err(Closed(back)) = sender.send(Arc::clone(&value)) else {
            panic!("a closed channel takes a value");
        };
        assert!(Arc::ptr_eq(&back, &value), "the value itself");
    };
    give_back(&to_closed);
    run(&mut lp, RunMode::NoWait);
    give_back(&to_closed);
    assert_eq!(Arc::strong_count(&value), 1, "dropped with the channel");
    to_gone.send(Arc::clone(&value)).expect("an open channel");
    drop(lp);
    give_back(&to_gone);
    assert_eq!(Arc::strong_count(&value), 1, "dropped with the loop");
    Ok(())
}

/// Values of no size and values of many pages arrive as they were sent.
pub fn channels_take_values_of_any_size<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let nothings = Count::default();
    let count = nothings.clone();
    let (_, nothing) = Channel::new(&mut lp, move |lp: &mut Loop<T>, channel, ()| {
        if count.add() == 100_000 {
            channel.handle().close(lp).expect("an open channel");
        }
    });
    let mut large = 0;
    let (_, pages) = Channel::new(&mut lp, move |lp: &mut Loop<T>, channel, page: [u8; 16_384]| {
        assert!(page.iter().all(|&byte| byte == large), "value {large} is as it was sent");
        large += 1;
        if large == 20 {
            channel.handle().close(lp).expect("an open channel");
        }
    });
    let thread = thread::spawn(move || {
        (0..100_000).for_each(|_| nothing.send(()).expect("an open channel"));
        (0..20).for_each(|value| pages.send([value; 16_384]).expect("an open channel"));
    });
    run_to_the_end(&mut lp);
    thread.join().expect("the sender");
    assert_eq!(nothings.get(), 100_000);
    Ok(())
}
