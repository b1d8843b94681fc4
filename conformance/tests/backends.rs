//! Every backend of the family passes the suite, on the targets that have it.
//!
//! On Linux kqueue runs over a model, with the rules of today's BSDs and with the
//! strictest of older ones.

// `--cfg libkqueue` is poll-kqueue's; see there.
#![allow(unexpected_cfgs)]

conformance::suite!(select, poll_select::Select::new);
conformance::suite!(poll, poll_poll::Poll::new);

#[cfg(target_os = "linux")]
conformance::suite!(epoll, poll_epoll::Epoll::new);

#[cfg(target_os = "linux")]
conformance::suite!(uring, poll_uring::Uring::new);

#[cfg(unix)]
conformance::suite!(kqueue, poll_kqueue::Kqueue::new);

#[cfg(all(target_os = "linux", not(libkqueue)))]
conformance::suite!(kqueue_strict, || poll_kqueue::Kqueue::with_rules(poll_kqueue::Rules::Strict));

#[cfg(windows)]
conformance::suite!(iocp, poll_iocp::Iocp::new);
