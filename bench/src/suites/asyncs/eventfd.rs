//! The hand-written round trip: two eventfds and two epoll loops.

use std::io;
use std::os::fd::AsRawFd;
use std::thread;

use super::both;
use crate::clock::Stopwatch;
use crate::pollers::epoll::{Epoll, EventFd};
use crate::suite::Sample;

/// Far longer than a wake-up takes: the other side has failed then.
const TIMEOUT_MS: i32 = 10_000;

pub(super) fn round_trip(trips: u64) -> io::Result<Sample> {
    let (here, there) = (EventFd::new()?, EventFd::new()?);
    let mut epolls = [Epoll::new()?, Epoll::new()?];
    for (epoll, eventfd) in epolls.iter().zip([&here, &there]) {
        epoll.control(libc::EPOLL_CTL_ADD, eventfd.as_raw_fd(), libc::EPOLLIN, 0)?;
    }
    let [epoll_here, epoll_there] = &mut epolls;
    thread::scope(|scope| {
        let peer = scope.spawn(|| {
            let mut count = 0;
            for _ in 0..trips {
                count += receive(epoll_there, &there)?;
                here.signal()?;
            }
            io::Result::Ok(count)
        });
        let mut count = 0;
        let watch = Stopwatch::start();
        for _ in 0..trips {
            there.signal()?;
            count += receive(epoll_here, &here)?;
        }
        let spent = watch.spent();
        let peer = peer.join().map_err(|_| io::Error::other("the other thread panicked"))??;
        Ok(both((count, peer), spent))
    })
}

/// Waits for the eventfd and drains it; fails after a timeout.
fn receive(epoll: &mut Epoll, eventfd: &EventFd) -> io::Result<u64> {
    let ready = epoll.wait_ms(TIMEOUT_MS)?;
    if ready == 0 {
        return Err(io::ErrorKind::TimedOut.into());
    }
    eventfd.clear()?;
    Ok(ready as u64)
}
