//! Point 4: a source without interest reports nothing.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use poll_core::{Interest, Mode, Readiness};

use crate::support::observe::{
    A, B, await_ready, lasts, modify, ready_now, register, silent, try_register, wait_once,
};
use crate::support::sleep::sleeps;
use crate::support::sources::{Source, arrived, half_close, reset, send, tcp_pair};
use crate::support::syscalls;
use crate::{Lab, Verdict};

/// Bits that name no condition count as no interest.
const SILENT: [Interest; 2] = [Interest::NONE, Interest::from_bits_retain(!Interest::all().bits())];

/// A source registered without interest reserves its token and descriptor number and is not
/// watched, whether it is ready at registration or becomes ready later.
pub fn register_without_interest(lab: &Lab) -> Verdict {
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
                let error = try_register(&mut backend, token, source, Interest::READ, mode)
                    .expect_err("a silent registration holds its token and its source");
                assert_eq!(error.kind(), ErrorKind::AlreadyExists, "the same {what}: {error}");
            }
        }
    }
    Ok(())
}

/// `modify` to no interest takes effect immediately, also if the source was ready, was just
/// reported, or is changed again before the kernel is updated.
pub fn modify_to_no_interest(lab: &Lab) -> Verdict {
    for interest in SILENT {
        for mode in [Mode::Level, Mode::Oneshot] {
            let (near, far) = tcp_pair();
            let mut backend = lab.backend()?;
            register(&mut backend, A, &near, Interest::READ, mode);
            silent(&mut backend, "nothing was sent");
            send(&far, b"x");
            arrived(&near);
            modify(&mut backend, A, interest, mode);
            silent(&mut backend, "silenced when it was ready and not reported yet");

            modify(&mut backend, A, Interest::READ | Interest::WRITE, mode);
            await_ready(&mut backend, A, Readiness::READ | Readiness::WRITE);
            modify(&mut backend, A, interest, mode);
            silent(&mut backend, "silenced after a report");
            send(&far, b"x");
            silent(&mut backend, "silenced, and more data was sent");

            modify(&mut backend, A, Interest::WRITE, mode);
            modify(&mut backend, A, interest, mode);
            silent(&mut backend, "silenced before any change reached the kernel");
        }
    }
    Ok(())
}

/// Silence covers hang-ups and errors, which kernels report without interest. `epoll` reports both
/// even for an empty event mask, so that a paused and reset connection makes a naive loop spin.
pub fn covers_hangup_and_error(lab: &Lab) -> Verdict {
    for (what, end) in ENDS {
        for known in [false, true] {
            let (near, far) = tcp_pair();
            let mut backend = lab.backend()?;
            if known {
                register(&mut backend, A, &near, Interest::READ, Mode::Level);
                silent(&mut backend, "nothing was sent");
                modify(&mut backend, A, Interest::NONE, Mode::Level);
            } else {
                register(&mut backend, A, &near, Interest::NONE, Mode::Level);
            }
            end(&near, far);
            silent(&mut backend, what);

            modify(&mut backend, A, Interest::READ, Mode::Level);
            await_ready(&mut backend, A, Readiness::READ);
            modify(&mut backend, A, Interest::NONE, Mode::Level);
            silent(&mut backend, what);
        }
    }
    Ok(())
}

/// Setting an interest ends the silence: conditions that arose meanwhile and still hold are
/// reported at the next wait.
pub fn ends_when_interest_is_set(lab: &Lab) -> Verdict {
    for mode in [Mode::Level, Mode::Oneshot] {
        for known in [false, true] {
            let (near, far) = tcp_pair();
            let mut backend = lab.backend()?;
            if known {
                register(&mut backend, A, &near, Interest::READ, mode);
                silent(&mut backend, "nothing was sent");
                modify(&mut backend, A, Interest::NONE, mode);
            } else {
                register(&mut backend, A, &near, Interest::NONE, mode);
            }
            silent(&mut backend, "the interest is none");
            send(&far, b"x");
            arrived(&near);
            modify(&mut backend, A, Interest::READ, mode);
            let ready = ready_now(&mut backend, A);
            assert_eq!(ready, Readiness::READ, "{mode:?}: the data arrived during the silence");

            modify(&mut backend, A, Interest::NONE, mode);
            silent(&mut backend, "the interest is none again");
            modify(&mut backend, A, Interest::WRITE, mode);
            assert_eq!(
                ready_now(&mut backend, A),
                Readiness::WRITE,
                "{mode:?}: the interest was restored"
            );
        }
    }
    Ok(())
}

/// A silent source whose connection ends does not end a wait, and the wait does not busy-loop
/// inside: it sleeps for its whole timeout.
pub fn does_not_end_a_wait(lab: &Lab) -> Verdict {
    const TIMEOUT: Duration = Duration::from_millis(150);
    const WHY: &str = "only a silent source ended meanwhile";
    for (_, end) in ENDS {
        let (near, far) = tcp_pair();
        let mut backend = lab.backend()?;
        register(&mut backend, A, &near, Interest::READ, Mode::Level);
        silent(&mut backend, "nothing was sent");
        modify(&mut backend, A, Interest::NONE, Mode::Level);
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
    register(&mut backend, A, &near, Interest::NONE, Mode::Level);
    reset(far);
    silent(&mut backend, WHY);
    // All changes are flushed: one call suffices, and three allow for a clock coarser than the
    // timeout. Where calls cannot be counted, the rest of this case still applies.
    if let Ok((_, calls)) = syscalls::count(|| wait_once(&mut backend, Some(TIMEOUT))) {
        assert!(calls.total() <= 3, "a wait with nothing to report should sleep: {calls:?}");
    }
    Ok(())
}

/// Waits sleep while a silenced source and a spent one-shot are ready, although the kernel would
/// report them. A backend that only drops these events returns in time, and spins until then.
pub fn lets_waits_sleep(lab: &Lab) -> Verdict {
    const WHY: &str = "no source has an interest";
    let ((silenced, far), (spent, spent_far)) = (tcp_pair(), tcp_pair());
    let mut backend = lab.backend()?;
    register(&mut backend, A, &silenced, Interest::READ, Mode::Level);
    register(&mut backend, B, &spent, Interest::READ, Mode::Oneshot);
    for (token, near, far) in [(A, &silenced, &far), (B, &spent, &spent_far)] {
        send(far, b"x");
        arrived(near);
        await_ready(&mut backend, token, Readiness::READ);
        if token == A {
            modify(&mut backend, A, Interest::NONE, Mode::Level);
        }
    }
    // The kernel may report each once more, before the backend ends that.
    silent(&mut backend, WHY);
    sleeps(&mut backend, Duration::from_millis(200), WHY)
}

/// Ends the connection `near` as its peer `far` would.
type End = fn(near: &TcpStream, far: TcpStream);

/// The ways in which a connection ends, and why each must not be reported.
const ENDS: [(&str, End); 3] = [
    ("a silent source does not report that its peer closed", |_, far| drop(far)),
    ("a silent source does not report a reset", |_, far| reset(far)),
    ("a silent source does not report a hang-up", |near, far| {
        half_close(near);
        drop(far);
    }),
];
