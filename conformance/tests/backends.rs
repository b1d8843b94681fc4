//! Every backend of the family passes the suite, on the targets that have it.
//!
//! On Linux kqueue runs over a model, with the rules of today's BSDs and with the
//! strictest of older ones. Backends that perform operations run twice: with them, and by
//! readiness alone. io_uring runs once more with sends that are not copied, whose memory it holds
//! for longer than they take.

// `--cfg libkqueue` is poll-kqueue's; see there.
#![allow(unexpected_cfgs)]

#[cfg(any(target_os = "linux", windows))]
use poll_core::Limited;

conformance::suite!(select, poll_select::Select::new);
conformance::suite!(poll, poll_poll::Poll::new);

#[cfg(target_os = "linux")]
conformance::suite!(epoll, poll_epoll::Epoll::new);

#[cfg(target_os = "linux")]
conformance::suite!(uring, poll_uring::Uring::new);

#[cfg(target_os = "linux")]
conformance::suite!(uring_ready, || poll_uring::Uring::new().map(Limited::to_readiness));

#[cfg(target_os = "linux")]
conformance::suite!(uring_lent, || {
    let mut uring = poll_uring::Uring::new()?;
    uring.set_zero_copy(Some(64));
    Ok(uring)
});

#[cfg(unix)]
conformance::suite!(kqueue, poll_kqueue::Kqueue::new);

#[cfg(all(target_os = "linux", not(libkqueue)))]
conformance::suite!(kqueue_strict, || poll_kqueue::Kqueue::with_rules(poll_kqueue::Rules::Strict));

#[cfg(windows)]
conformance::suite!(iocp, poll_iocp::Iocp::new);

#[cfg(windows)]
conformance::suite!(iocp_ready, || poll_iocp::Iocp::new().map(Limited::to_readiness));
