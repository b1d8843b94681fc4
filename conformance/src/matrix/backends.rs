//! The backends of this workspace, as far as the target supports them.

// `--cfg libkqueue` is documented in poll-kqueue.
#![allow(unexpected_cfgs)]

#[cfg(any(target_os = "linux", windows))]
use poll_core::MaskOps;

use super::Candidate;

/// Every backend of the workspace: those that this machine can run, and the others with the reason
/// why not.
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
        Candidate::new("uring_ready", || poll_uring::Uring::new().map(MaskOps::to_readiness))
            .noted("without operations: readiness only"),
    ]
}

#[cfg(not(target_os = "linux"))]
fn linux() -> [Candidate; 3] {
    ["epoll", "uring", "uring_ready"].map(|name| Candidate::absent(name, "needs Linux"))
}

/// On Linux, the backend's own code over a model of the BSD kernels.
#[cfg(all(target_os = "linux", not(libkqueue)))]
fn kqueue() -> Vec<Candidate> {
    use poll_kqueue::{Kqueue, Rules};
    vec![
        Candidate::new("kqueue", Kqueue::new)
            .noted("over a model of kqueue with the rules of FreeBSD 14, not a BSD kernel"),
        Candidate::new("kqueue_netbsd", || Kqueue::with_rules(Rules::NetBsd))
            .noted("over a model of kqueue with the rules of NetBSD before 10"),
        Candidate::new("kqueue_apple", || Kqueue::with_rules(Rules::Apple))
            .noted("over a model of kqueue with the rules of Apple's kernel, by reading it"),
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
        Candidate::new("iocp_ready", || poll_iocp::Iocp::new().map(MaskOps::to_readiness))
            .noted("without operations: readiness only"),
    ]
}

#[cfg(not(windows))]
fn windows() -> [Candidate; 2] {
    ["iocp", "iocp_ready"].map(|name| Candidate::absent(name, "needs Windows"))
}
