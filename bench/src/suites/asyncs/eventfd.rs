//! Two eventfds and two epoll loops: the round trip by hand.

use std::io;
use std::os::fd::AsRawFd;
use std::thread;

use super::both;
use crate::clock::Stopwatch;
use crate::pollers::epoll::{Epoll, EventFd};
use crate::suite::Sample;

/// Far more than a wake-up takes.
const PATIENCE_MS: i32 = 10_000;

pub(super) fn round_trip(trips: u64) -> io::Result<Sample> {
    let (here, there) = (EventFd::new()?, EventFd::new()?);
    let mut epolls = [Epoll::new()?, Epoll::new()?];
    for (epoll, bell) in epolls.iter().zip([&here, &there]) {
        epoll.control(libc::EPOLL_CTL_ADD, bell.as_raw_fd(), libc::EPOLLIN, 0)?;
    }
    let [epoll_here, epoll_there] = &mut epolls;
    thread::scope(|scope| {
        let peer = scope.spawn(|| {
            let mut count = 0;
            for _ in 0..trips {
                count += heard(epoll_there, &there)?;
                here.ring()?;
            }
            io::Result::Ok(count)
        });
        let mut count = 0;
        let watch = Stopwatch::start();
        for _ in 0..trips {
            there.ring()?;
            count += heard(epoll_here, &here)?;
        }
        let spent = watch.spent();
        let peer = peer.join().map_err(|_| io::Error::other("the other thread panicked"))??;
        Ok(both((count, peer), spent))
    })
}

/// Waits for the bell and silences it. Not for ever: the other side may have failed.
fn heard(epoll: &mut Epoll, bell: &EventFd) -> io::Result<u64> {
    let ready = epoll.wait_ms(PATIENCE_MS)?;
    if ready == 0 {
        return Err(io::ErrorKind::TimedOut.into());
    }
    bell.clear()?;
    Ok(ready as u64)
}
