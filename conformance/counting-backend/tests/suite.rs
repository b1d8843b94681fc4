//! The whole suite on a custom backend, in one line.

use counting_backend::Counting;
#[cfg(target_os = "linux")]
use poll_epoll::Epoll as Counted;
#[cfg(not(target_os = "linux"))]
use poll_poll::Poll as Counted;

conformance::suite!(counting, || Counted::new().map(Counting::new));
