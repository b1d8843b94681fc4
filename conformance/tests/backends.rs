//! Every backend of the workspace passes the suite, on the targets that have it.
//!
//! On Linux, kqueue runs over a model of the kernel, with the rules of FreeBSD 14, of NetBSD before
//! 10 and of Apple's systems. Backends with operations run twice: with them, and with readiness
//! only. io_uring also runs with zero-copy sends, which hold their memory beyond the first
//! completion.

// `--cfg libkqueue` is documented in poll-kqueue.
#![allow(unexpected_cfgs)]

#[cfg(any(target_os = "linux", windows))]
use poll_core::MaskOps;

conformance::suite!(select, poll_select::Select::new);
conformance::suite!(poll, poll_poll::Poll::new);

#[cfg(target_os = "linux")]
conformance::suite!(epoll, poll_epoll::Epoll::new);

#[cfg(target_os = "linux")]
conformance::suite!(uring, poll_uring::Uring::new);

#[cfg(target_os = "linux")]
conformance::suite!(uring_ready, || poll_uring::Uring::new().map(MaskOps::to_readiness));

#[cfg(target_os = "linux")]
conformance::suite!(uring_lent, || {
    let mut uring = poll_uring::Uring::new()?;
    uring.set_zero_copy(Some(64));
    Ok(uring)
});

#[cfg(unix)]
conformance::suite!(kqueue, poll_kqueue::Kqueue::new);

#[cfg(all(target_os = "linux", not(libkqueue)))]
conformance::suite!(kqueue_netbsd, || poll_kqueue::Kqueue::with_rules(poll_kqueue::Rules::NetBsd));

#[cfg(all(target_os = "linux", not(libkqueue)))]
conformance::suite!(kqueue_apple, || poll_kqueue::Kqueue::with_rules(poll_kqueue::Rules::Apple));

#[cfg(windows)]
conformance::suite!(iocp, poll_iocp::Iocp::new);

#[cfg(windows)]
conformance::suite!(iocp_ready, || poll_iocp::Iocp::new().map(MaskOps::to_readiness));
