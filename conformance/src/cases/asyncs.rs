//! Point 19: asyncs and channels, through which other threads reach the loop.

use std::cell::RefCell;
use std::io::ErrorKind;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use uv_core::{Async, AsyncSender, Channel, Check, Disconnect, Handle, RunMode, SendError};

use crate::support::loops::{new_loop, run, run_to_the_end, timer_in};
use crate::support::observe::SOON;
use crate::support::trace::{Count, Trace};
use crate::{Lab, Loop, Verdict};

/// An async that records its name.
fn noting(lp: &mut Loop, trace: &Trace, name: &'static str) -> (Async, AsyncSender) {
    Async::new(lp, trace.noting(name))
}

fn send(sender: &AsyncSender) {
    sender.send().expect("a send to an open handle");
}

/// Any number of sends before the callback coalesce into one call: a busy sender cannot flood a
/// slow loop.
pub fn sends_coalesce(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let trace = Trace::default();
    let (_, sender) = noting(&mut lp, &trace, "called");
    for _ in 0..3 {
        (0..1_000).for_each(|_| send(&sender));
        run(&mut lp, RunMode::Once);
        trace.expect(&["called"], "a thousand sends coalesce into one call");
        run(&mut lp, RunMode::NoWait);
        trace.expect(&[], "one call consumes all earlier sends");
    }
    Ok(())
}

/// A send before the loop runs stays pending: no API call runs the callback.
pub fn callbacks_run_only_during_run(lab: &Lab) -> Verdict {
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

/// The pending flag is cleared before the callback runs, so that a send from then on causes another
/// call, in the next iteration to avoid starvation.
pub fn send_in_the_callback_causes_another_call(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (trace, calls) = (Trace::default(), Count::default());
    let check = Check::new(&mut lp);
    check.start(&mut lp, trace.noting("check")).expect("a check");
    let (_, sender) = Async::new(
        &mut lp,
        trace.then("async", move |lp: &mut Loop, handle: Async| match calls.add() {
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

/// Pending handles are called in creation order, whatever the order of sends and whatever slots
/// they occupy.
pub fn are_called_in_creation_order(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let trace = Trace::default();
    let (first, a) = noting(&mut lp, &trace, "a");
    let (_, b) = noting(&mut lp, &trace, "b");
    let (_, c) = noting(&mut lp, &trace, "c");
    [&c, &a, &b].into_iter().for_each(send);
    run(&mut lp, RunMode::Once);
    trace.expect(&["a", "b", "c"], "in creation order");

    first.close(&mut lp).expect("an open handle");
    run(&mut lp, RunMode::NoWait);
    let (_, d) = noting(&mut lp, &trace, "d");
    [&d, &c, &b].into_iter().for_each(send);
    run(&mut lp, RunMode::Once);
    trace.expect(&["b", "c", "d"], "the newest is last, even in a reused slot");
    Ok(())
}

/// A send wakes a blocked loop, and the callback runs on the loop's thread.
pub fn wake_a_blocked_loop(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    for pause in [0, 1, 20] {
        let called_by = Rc::new(RefCell::new(None));
        let by = Rc::clone(&called_by);
        let (_, sender) = Async::new(&mut lp, move |lp: &mut Loop, handle| {
            by.replace(Some(thread::current().id()));
            handle.close(lp).expect("an open handle");
        });
        let thread = thread::spawn(move || {
            thread::sleep(Duration::from_millis(pause));
            send(&sender);
        });
        run_to_the_end(&mut lp);
        thread.join().expect("the sender");
        assert_eq!(called_by.take(), Some(thread::current().id()), "on the loop's thread");
    }
    Ok(())
}

/// Each send of another thread is followed by a callback: a thread that awaits the callback before
/// it sends again gets ten thousand of them. The sends reach the loop as it is about to block,
/// blocked or awake, and one lost wake leaves the thread without an answer.
pub fn no_send_is_lost(lab: &Lab) -> Verdict {
    const SENDS: u32 = 10_000;
    let mut lp = new_loop(lab)?;
    let (answer, answers) = mpsc::channel();
    let (handle, sender) = Async::new(&mut lp, move |_: &mut Loop, _| {
        let _ = answer.send(()); // The thread may have given up.
    });
    // Ends a wait that a lost wake left blocked, long after the thread has given up.
    let rescue = timer_in(&mut lp, 3 * SOON, |_, _| {});
    rescue.set_repeat(&mut lp, SOON).expect("an open timer");
    rescue.unreference(&mut lp).expect("an open timer");
    let (_, end) = Async::new(&mut lp, move |lp: &mut Loop, end| {
        end.close(lp).expect("an open handle");
        handle.close(lp).expect("an open handle");
        rescue.close(lp).expect("an open timer");
    });
    let thread = thread::spawn(move || {
        // A busy machine may complete only a part of them.
        let started = Instant::now();
        let lost = (0..SENDS).take_while(|_| started.elapsed() < SOON).find(|_| {
            send(&sender);
            answers.recv_timeout(SOON).is_err()
        });
        send(&end);
        lost
    });
    run_to_the_end(&mut lp);
    assert_eq!(thread.join().expect("the sender"), None, "the send without a callback");
    Ok(())
}

/// Concurrent sends coalesce, but the last one is never lost: a callback follows it and sees data
/// written before it.
pub fn last_send_is_always_delivered(lab: &Lab) -> Verdict {
    const THREADS: u64 = 4;
    const SENDS: u64 = 5_000;
    let mut lp = new_loop(lab)?;
    let written = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&written);
    let (_, sender) = Async::new(&mut lp, move |lp: &mut Loop, handle| {
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
                    // The handle closes once everything was written; a few sends may follow and
                    // fail.
                    let _ = sender.send();
                }
            })
        })
        .collect();
    run_to_the_end(&mut lp);
    threads.into_iter().for_each(|thread| thread.join().expect("a sender"));
    Ok(())
}

/// A signal handler may send: a send takes no lock and allocates nothing.
#[cfg(unix)]
pub fn from_a_signal_handler(lab: &Lab) -> Verdict {
    use crate::support::signals::{Handler, Thread};

    let mut lp = new_loop(lab)?;
    let calls = Count::default();
    let counted = calls.clone();
    let (_, sender) = Async::new(&mut lp, move |lp: &mut Loop, handle| {
        if counted.add() == 100 {
            handle.close(lp).expect("an open handle");
        } else {
            // Runs the handler synchronously on this thread.
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

/// A signal handler may send: a send takes no lock and allocates nothing.
#[cfg(not(unix))]
pub fn from_a_signal_handler(_lab: &Lab) -> Verdict {
    Err(crate::Skip::because("Windows has no signal handlers that interrupt a thread"))
}

/// A send to a closed handle or a dropped loop is an error, not a crash and not a silent loss.
pub fn sends_to_a_closed_handle_are_errors(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let trace = Trace::default();
    let (handle, to_closed) = noting(&mut lp, &trace, "closed");
    let (_, to_gone) = noting(&mut lp, &trace, "gone");
    send(&to_closed);
    handle.close_with(&mut lp, |_, _| {}).expect("an open handle");
    let refused = |sender: &AsyncSender| sender.send().map_err(|error| error.kind());
    assert_eq!(refused(&to_closed), Err(ErrorKind::BrokenPipe), "immediately after `close`");
    run(&mut lp, RunMode::NoWait);
    trace.expect(&[], "a send before the close has no callback after it");
    assert_eq!(refused(&to_closed), Err(ErrorKind::BrokenPipe), "after the close callback");
    let stale = handle.sender(&lp).map(drop).map_err(|error| error.kind());
    assert_eq!(stale, Err(ErrorKind::NotFound), "a sender from a stale key");
    send(&to_gone);
    drop(lp);
    for sender in [&to_closed, &to_gone] {
        assert_eq!(refused(sender), Err(ErrorKind::BrokenPipe), "after the loop was dropped");
    }
    Ok(())
}

/// A handle may be closed while threads send to it: from then on, sends fail, no callback runs, and
/// the loop ends.
pub fn no_callback_after_close_during_sends(lab: &Lab) -> Verdict {
    const THREADS: usize = 3;
    let mut lp = new_loop(lab)?;
    for round in 0..20 {
        let (called, closed) = (Count::default(), Count::default());
        let (calls, closes) = (called.clone(), closed.clone());
        let (_, sender) = Async::new(&mut lp, move |lp: &mut Loop, handle| {
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

/// An async is always active and keeps the loop alive unless it is unreferenced; sends reach it
/// either way.
pub fn keep_the_loop_alive_unless_unreferenced(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let trace = Trace::default();
    let (handle, sender) = noting(&mut lp, &trace, "called");
    assert!(handle.is_active(&lp) && lp.is_alive(), "active without a start");
    assert!(run(&mut lp, RunMode::NoWait), "it keeps the loop alive");

    handle.unreference(&mut lp).expect("an open handle");
    assert!(handle.is_active(&lp) && !lp.is_alive(), "active, but the loop may end");
    run_to_the_end(&mut lp);
    send(&sender);
    let (other, _) = noting(&mut lp, &trace, "other");
    run(&mut lp, RunMode::Once);
    trace.expect(&["called"], "an unreferenced handle is called while the loop runs");

    handle.close(&mut lp).expect("an open handle");
    other.close(&mut lp).expect("an open handle");
    assert!(!handle.is_active(&lp) && lp.is_alive(), "a closing handle keeps the loop alive");
    run_to_the_end(&mut lp);
    assert!(lp.close().is_ok(), "nothing is open");
    Ok(())
}

/// A handle that is closed by another in the same pass is not called, though a send was pending.
pub fn closed_by_another_is_not_called(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let trace = Trace::default();
    let doomed = Rc::new(RefCell::new(None::<Async>));
    let victim = Rc::clone(&doomed);
    let close = move |lp: &mut Loop, handle: Async| {
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

/// Every value arrives once, and the values of one thread in the order of its sends.
pub fn channels_deliver_in_order(lab: &Lab) -> Verdict {
    const THREADS: usize = 4;
    const VALUES: usize = 5_000;
    let mut lp = new_loop(lab)?;
    let mut next = [0; THREADS];
    let (_, sender) =
        Channel::new(&mut lp, move |lp: &mut Loop, channel, (thread, value): (usize, usize)| {
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

/// Queued values cost one wake of the loop and are delivered in one batch.
pub fn channels_deliver_a_batch_per_wake(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (delivered, counted) = (Count::default(), Count::default());
    let count = delivered.clone();
    let (_, sender) = Channel::new(&mut lp, move |_: &mut Loop, _, ()| {
        count.add();
    });
    let check = Check::new(&mut lp);
    let iterations = counted.clone();
    check
        .start(&mut lp, move |_, _| {
            iterations.add();
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

/// Values that the callback sends to its own channel are delivered in the next iteration.
pub fn channels_deliver_own_sends_next_iteration(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let trace = Trace::default();
    let check = Check::new(&mut lp);
    check.start(&mut lp, trace.noting("check")).expect("a check");
    let own = Rc::new(RefCell::new(None::<uv_core::Sender<u32>>));
    let (own_sender, noted) = (Rc::clone(&own), trace.clone());
    let (_, sender) = Channel::new(&mut lp, move |lp: &mut Loop, channel, value: u32| {
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
    trace.expect(&["zero", "check", "one", "check", "two"], "one value per iteration");
    Ok(())
}

/// A channel closed by its callback delivers no more values, not even those of the current batch;
/// the rest is dropped.
pub fn channels_closed_in_a_batch_stop_delivery(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (value, delivered) = (Arc::new(()), Count::default());
    let count = delivered.clone();
    let (_, sender) = Channel::new(&mut lp, move |lp: &mut Loop, channel, _: Arc<()>| {
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

/// A send to a closed channel returns the value; values sent but not delivered are dropped with the
/// channel, even while senders exist.
pub fn closed_channels_return_values(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let never = |_: &mut Loop, _: Channel<Arc<u32>>, _| panic!("a closed channel delivers");
    let value = Arc::new(7);
    let (closed, to_closed) = Channel::new(&mut lp, never);
    let (_, to_gone) = Channel::new(&mut lp, never);
    to_closed.send(Arc::clone(&value)).expect("an open channel");
    assert_eq!(Arc::strong_count(&value), 2, "queued");
    closed.handle().close(&mut lp).expect("an open channel");
    let give_back = |sender: &uv_core::Sender<Arc<u32>>| {
        let Err(SendError(back)) = sender.send(Arc::clone(&value)) else {
            panic!("a closed channel takes a value");
        };
        assert!(Arc::ptr_eq(&back, &value), "the same value");
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

/// Zero-sized values and values of many pages arrive unchanged.
pub fn channels_take_values_of_any_size(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let nothings = Count::default();
    let count = nothings.clone();
    let (_, nothing) = Channel::new(&mut lp, move |lp: &mut Loop, channel, ()| {
        if count.add() == 100_000 {
            channel.handle().close(lp).expect("an open channel");
        }
    });
    let mut large = 0;
    let (_, pages) = Channel::new(&mut lp, move |lp: &mut Loop, channel, page: [u8; 16_384]| {
        assert!(page.iter().all(|&byte| byte == large), "value {large} arrives unchanged");
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

/// A channel whose last sender was dropped delivers the queued values and lets the loop end. Its
/// callback's captures are dropped, and the handle can be closed.
pub fn channels_without_senders_let_the_loop_end(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (delivered, held) = (Count::default(), Rc::new(()));
    let (counted, kept) = (delivered.clone(), Rc::clone(&held));
    let (channel, sender) = Channel::new(&mut lp, move |_: &mut Loop, _, _: u32| {
        counted.add();
        assert_eq!(Rc::strong_count(&kept), 2);
    });
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let sender = sender.clone();
            thread::spawn(move || (0..100).for_each(|value| sender.send(value).expect("open")))
        })
        .collect();
    assert!(channel.handle().is_active(&lp), "one sender is left");
    drop(sender);
    run_to_the_end(&mut lp);
    assert_eq!(delivered.get(), 400, "all values");
    threads.into_iter().for_each(|thread| thread.join().expect("a thread that sends"));
    assert!(!channel.handle().is_active(&lp), "nothing can arrive");
    assert_eq!(Rc::strong_count(&held), 1, "the callback's captures are dropped");
    channel.handle().close(&mut lp).expect("an open handle");
    run_to_the_end(&mut lp);
    assert!(lp.close().is_ok(), "the handle is closed");
    Ok(())
}

/// A channel may close after its last sender, or stay active without one, as configured.
pub fn channels_without_senders_close_or_stay_if_asked(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let delivered = Count::default();
    let callback = || {
        let counted = delivered.clone();
        move |_: &mut Loop, _, ()| {
            counted.add();
        }
    };
    let (closed, sender) = Channel::with_disconnect(&mut lp, Disconnect::Close, callback());
    sender.send(()).expect("an open channel");
    drop(sender);
    run_to_the_end(&mut lp);
    assert_eq!(delivered.get(), 1, "delivered before the close");
    let stale = closed.handle().close(&mut lp).map_err(|error| error.kind());
    assert_eq!(stale, Err(ErrorKind::NotFound), "the key is stale");

    let (stays, sender) = Channel::with_disconnect(&mut lp, Disconnect::Stay, callback());
    sender.send(()).expect("an open channel");
    drop(sender);
    assert!(run(&mut lp, RunMode::NoWait) && stays.handle().is_active(&lp), "still active");
    assert_eq!(delivered.get(), 2);
    Ok(())
}
