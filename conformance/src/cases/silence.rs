//! Point 4: a source without an interest says nothing at all.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use poll_core::{Backend, Mode, Ready};

use crate::support::observe::{
    A, B, await_ready, lasts, modify, ready_now, register, silent, try_register, wait_once,
};
use crate::support::sources::{Source, arrived, half_close, reset, send, tcp_pair};
use crate::support::syscalls;
use crate::{Lab, Verdict};

/// What is never asked for is no interest: conditions that come unasked come only
/// beside one.
const SILENT: [Ready; 2] = [Ready::NONE, Ready::HANGUP.union(Ready::ERROR)];

/// A source registered without an interest reserves its token and its number, and is
/// not watched: it may be ready from the start or become so.
pub fn from_the_start<T: Backend>(lab: &Lab<T>) -> Verdict {
    for interest in SILENT {
        for mode in [Mode::Level, Mode::Oneshot] {
            let (near, far) = tcp_pair();
            let mut backend = lab.backend()?;
            send(&far, b"x");
            arrived(&near);
            register(&mut backend, A, &near, interest, mode);
            silent(&mut backend, "the interest is none, though the source is ready");
            send(&far, b"x");
            half_close(&far);
            silent(&mut backend, "the interest is none, whatever happens");

            let (other, _far) = tcp_pair();
            for (what, token, source) in [("token", A, other.raw()), ("source", B, near.raw())] {
                let error = try_register(&mut backend, token, source, Ready::READ, mode)
                    .expect_err("a silent registration holds its token and its source");
                assert_eq!(error.kind(), ErrorKind::AlreadyExists, "the same {what}: {error}");
            }
        }
    }
    Ok(())
}

/// `modify` to no interest is in force at once, also if the source was ready, was just
/// reported, or is changed again before the kernel hears of it.
pub fn by_modify<T: Backend>(lab: &Lab<T>) -> Verdict {
    for interest in SILENT {
        for mode in [Mode::Level, Mode::Oneshot] {
            let (near, far) = tcp_pair();
            let mut backend = lab.backend()?;
            register(&mut backend, A, &near, Ready::READ, mode);
            silent(&mut backend, "nothing was sent");
            send(&far, b"x");
            arrived(&near);
            modify(&mut backend, A, interest, mode);
            silent(&mut backend, "silenced when it was ready and not reported yet");

            modify(&mut backend, A, Ready::READ | Ready::WRITE, mode);
            await_ready(&mut backend, A, Ready::READ | Ready::WRITE);
            modify(&mut backend, A, interest, mode);
            silent(&mut backend, "silenced after a report");
            send(&far, b"x");
            silent(&mut backend, "silenced, and more was sent");

            modify(&mut backend, A, Ready::WRITE, mode);
            modify(&mut backend, A, interest, mode);
            silent(&mut backend, "silenced before the kernel heard of anything else");
        }
    }
    Ok(())
}

/// Silence covers what comes unasked: a hang-up or an error that nobody is there to
/// handle must not be reported. `epoll` reports both even for an empty set of events,
/// so that a connection that is paused and reset makes a naive loop spin.
pub fn covers_hangup_and_error<T: Backend>(lab: &Lab<T>) -> Verdict {
    for (what, end) in ENDS {
        for known in [false, true] {
            let (near, far) = tcp_pair();
            let mut backend = lab.backend()?;
            if known {
                register(&mut backend, A, &near, Ready::READ, Mode::Level);
                silent(&mut backend, "nothing was sent");
                modify(&mut backend, A, Ready::NONE, Mode::Level);
            } else {
                register(&mut backend, A, &near, Ready::NONE, Mode::Level);
            }
            end(&near, far);
            silent(&mut backend, what);

            modify(&mut backend, A, Ready::READ, Mode::Level);
            await_ready(&mut backend, A, Ready::READ);
            modify(&mut backend, A, Ready::NONE, Mode::Level);
            silent(&mut backend, what);
        }
    }
    Ok(())
}

/// An interest ends the silence: what happened meanwhile is reported at the next wait,
/// if it still holds.
pub fn ends_with_an_interest<T: Backend>(lab: &Lab<T>) -> Verdict {
    for mode in [Mode::Level, Mode::Oneshot] {
        for known in [false, true] {
            let (near, far) = tcp_pair();
            let mut backend = lab.backend()?;
            if known {
                register(&mut backend, A, &near, Ready::READ, mode);
                silent(&mut backend, "nothing was sent");
                modify(&mut backend, A, Ready::NONE, mode);
            } else {
                register(&mut backend, A, &near, Ready::NONE, mode);
            }
            silent(&mut backend, "the interest is none");
            send(&far, b"x");
            arrived(&near);
            modify(&mut backend, A, Ready::READ, mode);
            let ready = ready_now(&mut backend, A);
            assert_eq!(ready, Ready::READ, "{mode:?}: the data came during the silence");

            modify(&mut backend, A, Ready::NONE, mode);
            silent(&mut backend, "the interest is none again");
            modify(&mut backend, A, Ready::WRITE, mode);
            assert_eq!(ready_now(&mut backend, A), Ready::WRITE, "{mode:?}: and back");
        }
    }
    Ok(())
}

/// A silent source ends no wait, however it ends itself meanwhile, and is no reason to
/// turn in circles inside one: the wait sleeps for its whole time.
pub fn does_not_end_a_wait<T: Backend>(lab: &Lab<T>) -> Verdict {
    const TIMEOUT: Duration = Duration::from_millis(150);
    const WHY: &str = "only a silent source ended meanwhile";
    for (_, end) in ENDS {
        let (near, far) = tcp_pair();
        let mut backend = lab.backend()?;
        register(&mut backend, A, &near, Ready::READ, Mode::Level);
        silent(&mut backend, "nothing was sent");
        modify(&mut backend, A, Ready::NONE, Mode::Level);
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(TIMEOUT / 3);
                end(&near, far);
            });
            lasts(&mut backend, TIMEOUT, WHY);
        });
        lasts(&mut backend, TIMEOUT / 3, WHY);
    }

    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Ready::NONE, Mode::Level);
    reset(far);
    silent(&mut backend, WHY);
    // The kernel has been told all: one call is enough, and three leave room for a
    // clock that is coarser than the timeout. Where calls cannot be counted, the rest
    // of this case still holds.
    if let Ok((_, calls)) = syscalls::count(|| wait_once(&mut backend, Some(TIMEOUT))) {
        assert!(calls.total() <= 3, "a wait with nothing to report should sleep: {calls:?}");
    }
    Ok(())
}

/// Ends the connection `near` as its peer `far` would.
type End = fn(near: &TcpStream, far: TcpStream);

/// How a connection ends, and why that should not be reported.
const ENDS: [(&str, End); 3] = [
    ("a silent source does not report that its peer closed", |_, far| drop(far)),
    ("a silent source does not report a reset", |_, far| reset(far)),
    ("a silent source does not report a hang-up", |near, far| {
        half_close(near);
        drop(far);
    }),
];
