//! Point 3: when a condition is reported, and how often.

use std::io::{ErrorKind, Read};
use std::time::Instant;

use poll_core::{Backend, Mode, Ready};

use crate::support::observe::{
    A, B, SHORT, SOON, await_ready, deregister, modify, ready_now, register, silent, try_register,
    wait_for,
};
use crate::support::sources::{Source, arrived, drain, fill, send, shrink_buffers, tcp_pair};
use crate::{Lab, Skip, Verdict};

/// A level-triggered condition is reported by every wait while it holds, also if a
/// part of the data was read: a loop may read as little as it likes.
pub fn level_repeats_while_it_holds<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Ready::READ, Mode::Level);
    send(&far, b"data");
    await_ready(&mut backend, A, Ready::READ);
    for left in (1..4).rev() {
        for _ in 0..3 {
            assert_eq!(ready_now(&mut backend, A), Ready::READ, "there is still data to read");
        }
        near.read_exact(&mut [0]).expect("data");
        assert_eq!(ready_now(&mut backend, A), Ready::READ, "{left} bytes are left");
    }
    modify(&mut backend, A, Ready::WRITE, Mode::Level);
    for _ in 0..3 {
        assert_eq!(ready_now(&mut backend, A), Ready::WRITE, "there is still room to write");
    }
    Ok(())
}

/// A level-triggered condition is not reported once it has ended, and is when it comes
/// again. A poll that a backend re-armed a moment too early, before the data was read,
/// would report it once more.
pub fn level_ends_with_the_condition<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Ready::READ, Mode::Level);
    for _ in 0..3 {
        send(&far, b"x");
        await_ready(&mut backend, A, Ready::READ);
        drain(&near);
        assert_eq!(ready_now(&mut backend, A), Ready::NONE, "all data was read before the wait");
        silent(&mut backend, "all data was read");
    }

    shrink_buffers(&near);
    modify(&mut backend, A, Ready::WRITE, Mode::Level);
    await_ready(&mut backend, A, Ready::WRITE);
    // Acknowledgements that come late make room for a little more.
    let full = (0..5).any(|_| {
        fill(&near);
        wait_for(&mut backend, SHORT).is_empty()
    });
    assert!(full, "WRITE is reported, but there is no room left to write");
    let started = Instant::now();
    while ready_now(&mut backend, A) != Ready::WRITE {
        assert!(started.elapsed() < SOON, "WRITE is not reported, but the peer has read all");
        drain(&far);
    }
    Ok(())
}

/// A one-shot source is reported once and then sleeps, although its condition goes on
/// and more arrives.
pub fn oneshot_reports_once<T: Backend>(lab: &Lab<T>) -> Verdict {
    for ready_before in [false, true] {
        let (near, far) = tcp_pair();
        let mut backend = lab.backend()?;
        if ready_before {
            send(&far, b"x");
            arrived(&near);
        }
        register(&mut backend, A, &near, Ready::READ, Mode::Oneshot);
        if !ready_before {
            silent(&mut backend, "nothing was sent");
            send(&far, b"x");
        }
        assert_eq!(await_ready(&mut backend, A, Ready::READ), Ready::READ);
        silent(&mut backend, "a one-shot that was reported is spent");
        send(&far, b"x");
        silent(&mut backend, "a one-shot that was reported is spent, whatever else arrives");
        drain(&near);
        send(&far, b"x");
        silent(&mut backend, "reading does not re-arm a one-shot");
    }
    Ok(())
}

/// A one-shot source that was reported for one condition sleeps for all of them, the
/// hang-up included. With kqueue's filters, or a poll for each direction, the other
/// half would still be armed.
pub fn oneshot_sleeps_as_a_whole<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Ready::READ | Ready::WRITE, Mode::Oneshot);
    assert_eq!(await_ready(&mut backend, A, Ready::WRITE), Ready::WRITE);
    send(&far, b"x");
    silent(&mut backend, "READ sleeps too once WRITE was reported");

    modify(&mut backend, A, Ready::READ | Ready::WRITE, Mode::Oneshot);
    let ready = ready_now(&mut backend, A);
    assert_eq!(ready, Ready::READ | Ready::WRITE, "both hold, so both come in the one report");
    drop(far);
    silent(&mut backend, "a spent one-shot does not report the peer's close");
    Ok(())
}

/// `modify` re-arms a spent one-shot, with the same interest or another: what holds
/// already is reported at once, what comes later when it comes, each time once.
pub fn modify_rearms_a_spent_oneshot<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Ready::READ, Mode::Oneshot);
    send(&far, b"x");
    await_ready(&mut backend, A, Ready::READ);
    for _ in 0..3 {
        modify(&mut backend, A, Ready::READ, Mode::Oneshot);
        assert_eq!(ready_now(&mut backend, A), Ready::READ, "re-armed, and the data is there");
        assert_eq!(ready_now(&mut backend, A), Ready::NONE, "reported once");
    }
    modify(&mut backend, A, Ready::WRITE, Mode::Oneshot);
    assert_eq!(ready_now(&mut backend, A), Ready::WRITE, "re-armed for another condition");
    silent(&mut backend, "reported once");

    drain(&near);
    modify(&mut backend, A, Ready::READ, Mode::Oneshot);
    silent(&mut backend, "the data was read before the re-arming");
    send(&far, b"x");
    assert_eq!(await_ready(&mut backend, A, Ready::READ), Ready::READ, "re-armed, then sent");
    silent(&mut backend, "reported once");
    Ok(())
}

/// An edge is reported when the condition starts and again when more arrives, not in
/// between.
pub fn edge_reports_news_only<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (near, far) = tcp_pair();
    let (early, early_far) = tcp_pair();
    send(&early_far, b"x");
    arrived(&early);
    let mut backend = edge_backend(lab)?;
    register(&mut backend, B, &early, Ready::READ, Mode::Edge);
    assert_eq!(ready_now(&mut backend, B), Ready::READ, "to a new registration all is news");
    deregister(&mut backend, B);

    register(&mut backend, A, &near, Ready::READ, Mode::Edge);
    silent(&mut backend, "nothing was sent");
    for _ in 0..3 {
        send(&far, b"x");
        assert_eq!(await_ready(&mut backend, A, Ready::READ), Ready::READ, "new data is news");
        silent(&mut backend, "the data is not new any more");
    }
    drain(&near);
    silent(&mut backend, "reading is no news");
    send(&far, b"x");
    assert_eq!(await_ready(&mut backend, A, Ready::READ), Ready::READ, "new data is news");

    modify(&mut backend, A, Ready::WRITE, Mode::Edge);
    assert_eq!(await_ready(&mut backend, A, Ready::WRITE), Ready::WRITE);
    silent(&mut backend, "there was room before");
    Ok(())
}

/// `modify` makes an edge-triggered source report again what holds already, so that a
/// loop that stops early, to be fair to others, can come back.
pub fn modify_rearms_an_edge<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (near, far) = tcp_pair();
    let mut backend = edge_backend(lab)?;
    register(&mut backend, A, &near, Ready::READ, Mode::Edge);
    send(&far, b"x");
    await_ready(&mut backend, A, Ready::READ);
    silent(&mut backend, "the data is not new any more");
    for _ in 0..3 {
        modify(&mut backend, A, Ready::READ, Mode::Edge);
        assert_eq!(ready_now(&mut backend, A), Ready::READ, "modify makes it news again");
        assert_eq!(ready_now(&mut backend, A), Ready::NONE, "but once");
    }
    modify(&mut backend, A, Ready::READ | Ready::WRITE, Mode::Edge);
    let ready = ready_now(&mut backend, A);
    assert_eq!(ready, Ready::READ | Ready::WRITE, "all that holds is news after a modify");
    Ok(())
}

/// A registration can go from any mode to any other, and behaves from then on as if it
/// had been registered so.
pub fn modes_can_change<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Ready::READ, Mode::Level);
    let modes: &[Mode] = match backend.modify(A, Ready::READ, Mode::Edge) {
        Ok(()) => &[Mode::Level, Mode::Oneshot, Mode::Edge],
        Err(_) => &[Mode::Level, Mode::Oneshot],
    };
    send(&far, b"x");
    arrived(&near);
    for &from in modes {
        for &to in modes {
            modify(&mut backend, A, Ready::READ, from);
            assert_eq!(ready_now(&mut backend, A), Ready::READ, "{from:?} before {to:?}");
            modify(&mut backend, A, Ready::READ, to);
            assert_eq!(ready_now(&mut backend, A), Ready::READ, "{to:?} after {from:?}");
            let again = if to == Mode::Level { Ready::READ } else { Ready::NONE };
            for _ in 0..2 {
                assert_eq!(ready_now(&mut backend, A), again, "{to:?} after {from:?}, later");
            }
        }
    }
    Ok(())
}

/// A backend whose kernel has no edges says `Unsupported` at once, to `register` and
/// to `modify`, and nothing has changed. Falling back to level in silence would make
/// a loop spin that relies on edges.
pub fn a_missing_edge_is_said_at_once<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    let Err(error) = try_register(&mut backend, A, near.raw(), Ready::READ, Mode::Edge) else {
        return Err(Skip::because("this backend has Mode::Edge"));
    };
    assert_eq!(error.kind(), ErrorKind::Unsupported, "register in Mode::Edge: {error}");
    let unknown = backend.modify(A, Ready::READ, Mode::Level).expect_err("nothing registered");
    assert_eq!(unknown.kind(), ErrorKind::NotFound, "after a register that was refused: {unknown}");

    register(&mut backend, A, &near, Ready::READ, Mode::Level);
    let error = backend.modify(A, Ready::READ, Mode::Edge).expect_err("register says Unsupported");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "modify to Mode::Edge: {error}");
    send(&far, b"x");
    await_ready(&mut backend, A, Ready::READ);
    assert_eq!(ready_now(&mut backend, A), Ready::READ, "still Mode::Level");
    Ok(())
}

/// A backend that has [`Mode::Edge`], or a skip with its own words.
fn edge_backend<T: Backend>(lab: &Lab<T>) -> Result<T, Skip> {
    let (near, _far) = tcp_pair();
    let mut backend = lab.backend()?;
    match try_register(&mut backend, A, near.raw(), Ready::READ, Mode::Edge) {
        Ok(()) => deregister(&mut backend, A),
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            return Err(Skip::because(error.to_string()));
        }
        Err(error) => panic!("register in Mode::Edge: {error}"),
    }
    Ok(backend)
}
