//! Handles of every kind.

use std::io;
use std::time::Duration;

use uv_core::{
    AnyHandle, Check, FsEvent, FsEventFlags, FsPoll, Idle, Pipe, Poll, PollEvents, Prepare, Signal,
    Stream, Timer, Udp,
};

use super::loops::{AN_HOUR, ZERO};
use super::sources::{tcp_pair, udp_pair};
use super::streams::opened;
use crate::Loop;

/// One handle of each kind that begins inactive, in this order: all but asyncs and processes, and
/// terminals where the system has none.
pub(crate) fn one_of_each(lp: &mut Loop) -> Vec<AnyHandle> {
    let mut handles: Vec<AnyHandle> = vec![
        Timer::new(lp).into(),
        Idle::new(lp).into(),
        Prepare::new(lp).into(),
        Check::new(lp).into(),
        Poll::new(lp, udp_pair().0).expect("a poll").into(),
        Signal::new(lp).into(),
        opened(lp, tcp_pair().0).into(),
        Pipe::new(lp).into(),
        Udp::new(lp).into(),
        FsEvent::new(lp).into(),
        FsPoll::new(lp).into(),
    ];
    handles.extend(terminal(lp));
    handles
}

#[cfg(unix)]
fn terminal(lp: &mut Loop) -> Option<AnyHandle> {
    let pty = super::ptys::Pty::new().ok()?;
    // The other end closes with this function, so the terminal reads an end of file.
    Some(uv_core::Tty::new(lp, &pty.slave).expect("a terminal").into())
}

#[cfg(windows)]
fn terminal(_lp: &mut Loop) -> Option<AnyHandle> {
    None
}

/// True if [`start`] can start it. Signals change the process, pipes have no peer here, and an
/// active file poll keeps a request in flight.
pub(crate) fn can_start(handle: AnyHandle) -> bool {
    !["signal", "pipe", "fs_poll"].contains(&handle.kind())
}

/// Starts a handle of [`one_of_each`], or fails without side effects.
pub(crate) fn start(handle: AnyHandle, lp: &mut Loop) -> io::Result<()> {
    const RARELY: Duration = AN_HOUR;
    let none = FsEventFlags::empty();
    match handle {
        AnyHandle::Timer(timer) => timer.start(lp, RARELY, ZERO, |_, _| {}),
        AnyHandle::Idle(idle) => idle.start(lp, |_, _| {}),
        AnyHandle::Prepare(prepare) => prepare.start(lp, |_, _| {}),
        AnyHandle::Check(check) => check.start(lp, |_, _| {}),
        AnyHandle::Poll(poll) => poll.start(lp, PollEvents::READABLE, |_, _, _| {}),
        // An invalid signal number: an error before anything changes, whatever the handle.
        AnyHandle::Signal(signal) => signal.start(lp, 0, |_, _, _| {}),
        AnyHandle::Tcp(tcp) => tcp.read_start(lp, |_, _, _| {}),
        AnyHandle::Pipe(pipe) => pipe.read_start(lp, |_, _, _| {}),
        AnyHandle::Tty(tty) => tty.read_start(lp, |_, _, _| {}),
        AnyHandle::Udp(udp) => udp.recv_start(lp, |_, _, _| {}),
        AnyHandle::FsEvent(event) => event.start(lp, std::env::temp_dir(), none, |_, _, _| {}),
        AnyHandle::FsPoll(poll) => poll.start(lp, ".", RARELY, |_, _, _, _| {}),
        other => panic!("{other} is not created here"),
    }
}

/// Stops a handle of [`one_of_each`], started or not.
pub(crate) fn stop(handle: AnyHandle, lp: &mut Loop) -> io::Result<()> {
    match handle {
        AnyHandle::Timer(timer) => timer.stop(lp),
        AnyHandle::Idle(idle) => idle.stop(lp),
        AnyHandle::Prepare(prepare) => prepare.stop(lp),
        AnyHandle::Check(check) => check.stop(lp),
        AnyHandle::Poll(poll) => poll.stop(lp),
        AnyHandle::Signal(signal) => signal.stop(lp),
        AnyHandle::Tcp(tcp) => tcp.read_stop(lp),
        AnyHandle::Pipe(pipe) => pipe.read_stop(lp),
        AnyHandle::Tty(tty) => tty.read_stop(lp),
        AnyHandle::Udp(udp) => udp.recv_stop(lp),
        AnyHandle::FsEvent(event) => event.stop(lp),
        AnyHandle::FsPoll(poll) => poll.stop(lp),
        other => panic!("{other} is not created here"),
    }
}
