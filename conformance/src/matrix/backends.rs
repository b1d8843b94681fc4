//! The family's own backends, as far as this target has them.

// `--cfg libkqueue` is poll-kqueue's; see there.
#![allow(unexpected_cfgs)]

#[cfg(any(target_os = "linux", windows))]
use poll_core::Limited;

use super::Candidate;

/// Every backend of the family: those that this machine can run, and the others
/// with the reason.
pub fn backends() -> Vec<Candidate> {
    let mut backends = vec![
        Candidate::new("select", poll_select::Select::new),
        Candidate::new("poll", poll_poll::Poll::new),
    ];
    backends.extend(linux());
    backends.extend(kqueue());
    backends.extend(windows());
    backends
}

#[cfg(target_os = "linux")]
fn linux() -> [Candidate; 3] {
    [
        Candidate::new("epoll", poll_epoll::Epoll::new),
        Candidate::new("uring", poll_uring::Uring::new),
        Candidate::new("uring_ready", || poll_uring::Uring::new().map(Limited::to_readiness))
            .noted("without operations: all by readiness"),
    ]
}

#[cfg(not(target_os = "linux"))]
fn linux() -> [Candidate; 3] {
    ["epoll", "uring", "uring_ready"].map(|name| Candidate::absent(name, "needs Linux"))
}

/// On Linux, the backend's own code over a model of the kernels that it is for.
#[cfg(all(target_os = "linux", not(libkqueue)))]
fn kqueue() -> Vec<Candidate> {
    use poll_kqueue::{Kqueue, Rules};
    vec![
        Candidate::new("kqueue", Kqueue::new).noted("over a model of kqueue, not a BSD kernel"),
        Candidate::new("kqueue_strict", || Kqueue::with_rules(Rules::Strict))
            .noted("over a model of kqueue with the rules of old NetBSD"),
    ]
}

#[cfg(all(target_os = "linux", libkqueue))]
fn kqueue() -> Vec<Candidate> {
    vec![Candidate::new("kqueue", poll_kqueue::Kqueue::new).noted("over libkqueue")]
}

#[cfg(all(unix, not(target_os = "linux")))]
fn kqueue() -> Vec<Candidate> {
    vec![Candidate::new("kqueue", poll_kqueue::Kqueue::new)]
}

#[cfg(not(unix))]
fn kqueue() -> Vec<Candidate> {
    vec![Candidate::absent("kqueue", "needs a BSD or an Apple system")]
}

#[cfg(windows)]
fn windows() -> [Candidate; 2] {
    [
        Candidate::new("iocp", poll_iocp::Iocp::new),
        Candidate::new("iocp_ready", || poll_iocp::Iocp::new().map(Limited::to_readiness))
            .noted("without operations: all by readiness"),
    ]
}

#[cfg(not(windows))]
fn windows() -> [Candidate; 2] {
    ["iocp", "iocp_ready"].map(|name| Candidate::absent(name, "needs Windows"))
}
