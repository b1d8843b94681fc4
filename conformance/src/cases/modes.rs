//! Point 3: level-triggered, edge-triggered and one-shot delivery.

use std::io::{ErrorKind, Read};
use std::time::Instant;

use poll_core::{Backend, BoxedBackend, Interest, Mode, Readiness};

use crate::support::observe::{
    A, B, SHORT, SOON, await_ready, deregister, modify, ready_now, register, silent, try_register,
    wait_for,
};
use crate::support::sources::{Source, arrived, drain, fill, send, shrink_buffers, tcp_pair};
use crate::{Lab, Skip, Verdict};

/// A level-triggered condition is reported by every wait while it holds, also after a partial read.
pub fn level_repeats_while_condition_holds(lab: &Lab) -> Verdict {
    let (mut near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Interest::READ, Mode::Level);
    send(&far, b"data");
    await_ready(&mut backend, A, Readiness::READ);
    for left in (1..4).rev() {
        for _ in 0..3 {
            assert_eq!(ready_now(&mut backend, A), Readiness::READ, "unread data is left");
        }
        near.read_exact(&mut [0]).expect("data");
        assert_eq!(ready_now(&mut backend, A), Readiness::READ, "{left} bytes are left");
    }
    modify(&mut backend, A, Interest::WRITE, Mode::Level);
    for _ in 0..3 {
        assert_eq!(ready_now(&mut backend, A), Readiness::WRITE, "the send buffer has space");
    }
    Ok(())
}

/// A level-triggered condition is not reported once it has ended, and is reported when it recurs. A
/// poll that a backend re-arms before the data is read would report a stale event.
pub fn level_stops_when_condition_ends(lab: &Lab) -> Verdict {
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Interest::READ, Mode::Level);
    for _ in 0..3 {
        send(&far, b"x");
        await_ready(&mut backend, A, Readiness::READ);
        drain(&near);
        assert_eq!(
            ready_now(&mut backend, A),
            Readiness::NONE,
            "all data was read before the wait"
        );
        silent(&mut backend, "all data was read");
    }

    shrink_buffers(&near);
    modify(&mut backend, A, Interest::WRITE, Mode::Level);
    await_ready(&mut backend, A, Readiness::WRITE);
    // Late acknowledgements may free space for a few more bytes.
    let full = (0..5).any(|_| {
        fill(&near);
        wait_for(&mut backend, SHORT).is_empty()
    });
    assert!(full, "WRITE is reported, but the send buffer is full");
    let started = Instant::now();
    while ready_now(&mut backend, A) != Readiness::WRITE {
        assert!(started.elapsed() < SOON, "WRITE is not reported, but the peer has read all");
        drain(&far);
    }
    Ok(())
}

/// A one-shot source is reported once and is then disarmed, although its condition persists and
/// more data arrives.
pub fn oneshot_reports_once(lab: &Lab) -> Verdict {
    for ready_before in [false, true] {
        let (near, far) = tcp_pair();
        let mut backend = lab.backend()?;
        if ready_before {
            send(&far, b"x");
            arrived(&near);
        }
        register(&mut backend, A, &near, Interest::READ, Mode::Oneshot);
        if !ready_before {
            silent(&mut backend, "nothing was sent");
            send(&far, b"x");
        }
        assert_eq!(await_ready(&mut backend, A, Readiness::READ), Readiness::READ);
        silent(&mut backend, "a one-shot that was reported is spent");
        send(&far, b"x");
        silent(&mut backend, "a one-shot that was reported is spent, even if more data arrives");
        drain(&near);
        send(&far, b"x");
        silent(&mut backend, "reading does not re-arm a one-shot");
    }
    Ok(())
}

/// A one-shot source that was reported for one condition is disarmed for all of them, including the
/// hang-up. With one kqueue filter or one poll per direction, the other direction would stay armed.
pub fn oneshot_disarms_all_conditions(lab: &Lab) -> Verdict {
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Interest::READ | Interest::WRITE, Mode::Oneshot);
    assert_eq!(await_ready(&mut backend, A, Readiness::WRITE), Readiness::WRITE);
    send(&far, b"x");
    silent(&mut backend, "READ is disarmed too once WRITE was reported");

    modify(&mut backend, A, Interest::READ | Interest::WRITE, Mode::Oneshot);
    let ready = ready_now(&mut backend, A);
    assert_eq!(
        ready,
        Readiness::READ | Readiness::WRITE,
        "both conditions hold and belong in one event"
    );
    drop(far);
    silent(&mut backend, "a spent one-shot does not report the peer's close");
    Ok(())
}

/// `modify` re-arms a spent one-shot, with the same interest or another: a condition that holds is
/// reported by the next wait, a later one when it occurs, each time once.
pub fn modify_rearms_a_spent_oneshot(lab: &Lab) -> Verdict {
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Interest::READ, Mode::Oneshot);
    send(&far, b"x");
    await_ready(&mut backend, A, Readiness::READ);
    for _ in 0..3 {
        modify(&mut backend, A, Interest::READ, Mode::Oneshot);
        assert_eq!(ready_now(&mut backend, A), Readiness::READ, "re-armed with unread data");
        assert_eq!(ready_now(&mut backend, A), Readiness::NONE, "reported once");
    }
    modify(&mut backend, A, Interest::WRITE, Mode::Oneshot);
    assert_eq!(ready_now(&mut backend, A), Readiness::WRITE, "re-armed for another condition");
    silent(&mut backend, "reported once");

    drain(&near);
    modify(&mut backend, A, Interest::READ, Mode::Oneshot);
    silent(&mut backend, "the data was read before the re-arming");
    send(&far, b"x");
    assert_eq!(
        await_ready(&mut backend, A, Readiness::READ),
        Readiness::READ,
        "data was sent after re-arming"
    );
    silent(&mut backend, "reported once");
    Ok(())
}

/// An edge is reported when the condition begins and again when more data arrives, not in between.
pub fn edge_reports_transitions_only(lab: &Lab) -> Verdict {
    let (near, far) = tcp_pair();
    let (early, early_far) = tcp_pair();
    send(&early_far, b"x");
    arrived(&early);
    let mut backend = edge_backend(lab)?;
    register(&mut backend, B, &early, Interest::READ, Mode::Edge);
    assert_eq!(
        ready_now(&mut backend, B),
        Readiness::READ,
        "a new registration reports conditions that hold"
    );
    deregister(&mut backend, B);

    register(&mut backend, A, &near, Interest::READ, Mode::Edge);
    silent(&mut backend, "nothing was sent");
    for _ in 0..3 {
        send(&far, b"x");
        assert_eq!(
            await_ready(&mut backend, A, Readiness::READ),
            Readiness::READ,
            "new data is an edge"
        );
        silent(&mut backend, "the data was reported already");
    }
    drain(&near);
    silent(&mut backend, "a partial read is no edge");
    send(&far, b"x");
    assert_eq!(
        await_ready(&mut backend, A, Readiness::READ),
        Readiness::READ,
        "new data is an edge"
    );

    modify(&mut backend, A, Interest::WRITE, Mode::Edge);
    assert_eq!(await_ready(&mut backend, A, Readiness::WRITE), Readiness::WRITE);
    silent(&mut backend, "the send buffer had space before");
    Ok(())
}

/// `modify` makes an edge-triggered source report conditions that hold already, so that a loop that
/// stops reading early for fairness can resume.
pub fn modify_rearms_an_edge(lab: &Lab) -> Verdict {
    let (near, far) = tcp_pair();
    let mut backend = edge_backend(lab)?;
    register(&mut backend, A, &near, Interest::READ, Mode::Edge);
    send(&far, b"x");
    await_ready(&mut backend, A, Readiness::READ);
    silent(&mut backend, "the data was reported already");
    for _ in 0..3 {
        modify(&mut backend, A, Interest::READ, Mode::Edge);
        assert_eq!(ready_now(&mut backend, A), Readiness::READ, "modify re-arms the edge");
        assert_eq!(ready_now(&mut backend, A), Readiness::NONE, "re-armed once only");
    }
    modify(&mut backend, A, Interest::READ | Interest::WRITE, Mode::Edge);
    let ready = ready_now(&mut backend, A);
    assert_eq!(
        ready,
        Readiness::READ | Readiness::WRITE,
        "all conditions that hold are reported after a modify"
    );
    Ok(())
}

/// A registration can change from any mode to any other and then behaves as if registered in the
/// new mode.
pub fn mode_can_be_modified(lab: &Lab) -> Verdict {
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Interest::READ, Mode::Level);
    let modes: &[Mode] = match backend.modify(A, Interest::READ, Mode::Edge) {
        Ok(()) => &[Mode::Level, Mode::Oneshot, Mode::Edge],
        Err(_) => &[Mode::Level, Mode::Oneshot],
    };
    send(&far, b"x");
    arrived(&near);
    for &from in modes {
        for &to in modes {
            modify(&mut backend, A, Interest::READ, from);
            assert_eq!(ready_now(&mut backend, A), Readiness::READ, "{from:?} before {to:?}");
            modify(&mut backend, A, Interest::READ, to);
            assert_eq!(ready_now(&mut backend, A), Readiness::READ, "{to:?} after {from:?}");
            let again = if to == Mode::Level { Readiness::READ } else { Readiness::NONE };
            for _ in 0..2 {
                assert_eq!(ready_now(&mut backend, A), again, "{to:?} after {from:?}, later");
            }
        }
    }
    Ok(())
}

/// A backend whose kernel has no edge-triggered mode refuses it as `Unsupported` in `register` and
/// `modify`, without side effects. Falling back to level-triggered delivery would make a loop that
/// relies on edges spin.
pub fn unsupported_edge_is_refused(lab: &Lab) -> Verdict {
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    let Err(error) = try_register(&mut backend, A, near.raw(), Interest::READ, Mode::Edge) else {
        return Err(Skip::because("this backend has Mode::Edge"));
    };
    assert_eq!(error.kind(), ErrorKind::Unsupported, "register in Mode::Edge: {error}");
    let unknown = backend.modify(A, Interest::READ, Mode::Level).expect_err("nothing registered");
    assert_eq!(unknown.kind(), ErrorKind::NotFound, "after a register that was refused: {unknown}");

    register(&mut backend, A, &near, Interest::READ, Mode::Level);
    let error =
        backend.modify(A, Interest::READ, Mode::Edge).expect_err("register returns Unsupported");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "modify to Mode::Edge: {error}");
    send(&far, b"x");
    await_ready(&mut backend, A, Readiness::READ);
    assert_eq!(ready_now(&mut backend, A), Readiness::READ, "still Mode::Level");
    Ok(())
}

/// A backend that supports [`Mode::Edge`], or a skip with the backend's error text.
fn edge_backend(lab: &Lab) -> Result<BoxedBackend, Skip> {
    let (near, _far) = tcp_pair();
    let mut backend = lab.backend()?;
    match try_register(&mut backend, A, near.raw(), Interest::READ, Mode::Edge) {
        Ok(()) => deregister(&mut backend, A),
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            return Err(Skip::because(error.to_string()));
        }
        Err(error) => panic!("register in Mode::Edge: {error}"),
    }
    Ok(backend)
}
