//! UDP ping-pong and flood. Both ends are in one loop, which never blocks, so that CPU time is the
//! complete cost.

mod core;
mod flood;
#[cfg(all(unix, feature = "libuv"))]
mod libuv;
mod pingpong;
#[cfg(target_os = "linux")]
mod segments;

use std::io;
use std::time::Duration;

use poll_core::Backend;

use crate::backends::{self, OnBackend, Which};
use crate::clock::Spent;
use crate::pollers;
use crate::suite::{ContestantId, Count, Entrants, Figure, Reading, Sample, Scenario, Suite, Unit};
use crate::suites::Scale;

/// The size of a datagram, except of those that the kernel splits. It starts with a number.
const SIZE: usize = 64;
/// A datagram without progress for this time is lost.
const PATIENCE: Duration = Duration::from_millis(200);
/// The number of sends of a flood in flight.
const AT_ONCE: usize = 64;

/// The suite.
pub fn suite(scale: Scale) -> Suite {
    let trips = scale.pick(100, 1_000, 5_000);
    let window = Duration::from_millis(scale.pick(5, 15, 50));
    let scenarios = vec![
        ping_pong(1, trips),
        ping_pong(64, 2 * trips),
        flood(window),
        #[cfg(target_os = "linux")]
        segments::scenario(window),
    ];
    Suite { name: "udp", about: "datagrams, both ends in one loop", scenarios }
}

fn ping_pong(pingers: usize, trips: u64) -> Scenario {
    let mut entrants = Entrants::default();
    let task = PingPong { pingers, trips };
    backends::enter(&mut entrants, Which::All, ContestantId::Core, &task);
    pollers::enter(&mut entrants, &task);
    #[cfg(all(unix, feature = "libuv"))]
    {
        entrants
            .enter(ContestantId::Peer("libuv"), move || libuv::ping_pong(task, libuv::Style::Try));
        entrants.enter(ContestantId::Peer("libuv-send"), move || {
            libuv::ping_pong(task, libuv::Style::Send)
        });
    }
    #[cfg(not(all(unix, feature = "libuv")))]
    super::skip_libuv(&mut entrants);
    let figure = Figure {
        name: "ping-pong",
        about: "round trips between pinging sockets and one that answers. Lost datagrams are \
                resent and reported. libuv sends by uv_udp_try_send, libuv-send by \
                uv_udp_send",
        unit: Unit::PerCpuSecond,
        count: Count::Exactly(trips),
    };
    let name = if pingers == 1 { "1 pair".into() } else { format!("{pingers} to one") };
    let parameter = Some(pingers as u64);
    Scenario { name, parameter, figures: vec![figure], entrants }
}

fn flood(window: Duration) -> Scenario {
    let mut entrants = Entrants::default();
    backends::enter(&mut entrants, Which::All, ContestantId::Core, &Flood { window });
    flood::enter(&mut entrants, window);
    #[cfg(all(unix, feature = "libuv"))]
    {
        entrants
            .enter(ContestantId::Peer("libuv"), move || libuv::flood(window, libuv::Style::Try));
        entrants.enter(ContestantId::Peer("libuv-send"), move || {
            libuv::flood(window, libuv::Style::Send)
        });
    }
    #[cfg(not(all(unix, feature = "libuv")))]
    super::skip_libuv(&mut entrants);
    let rate =
        |name, about| Figure { name, about, unit: Unit::PerCpuSecond, count: Count::AtLeast(1) };
    Scenario {
        name: "one way".into(),
        parameter: None,
        figures: vec![
            rate(
                "flood received",
                "one socket sends without a limit, another receives what the kernel does not drop: datagrams \
                 received. By hand, and by uv-core where the kernel can, many in one call; \
                 libuv requests it too, libuv-send does not",
            ),
            rate("flood sent", "the same: datagrams that the kernel accepted"),
        ],
        entrants,
    }
}

/// The task: `pingers` sockets with a round trip in flight each, `trips` in all.
#[derive(Clone, Copy)]
struct PingPong {
    pingers: usize,
    trips: u64,
}

impl OnBackend for PingPong {
    fn run<B: Backend>(&self, make: fn() -> io::Result<B>) -> io::Result<Sample> {
        core::ping_pong(make()?, *self)
    }
}

#[derive(Clone)]
struct Flood {
    window: Duration,
}

impl OnBackend for Flood {
    fn run<B: Backend>(&self, make: fn() -> io::Result<B>) -> io::Result<Sample> {
        let flow = core::Flow { batch: &[0x5a; SIZE], segment: None, at_once: AT_ONCE };
        core::flood(make()?, self.window, flow)
    }
}

/// The state of the round trips: the number that each pinger awaits, and the trips left.
#[derive(Debug)]
struct Trips {
    left: u64,
    done: u64,
    lost: u64,
    /// The number that each pinger awaits, or 0.
    expected: Vec<u64>,
    /// The same at the last check: a pinger without progress has lost a datagram.
    seen: Vec<u64>,
    next: u64,
}

impl Trips {
    fn new(PingPong { pingers, trips }: PingPong) -> Trips {
        let (expected, seen) = (vec![0; pingers], vec![u64::MAX; pingers]);
        Trips { left: trips, done: 0, lost: 0, expected, seen, next: 0 }
    }

    /// The next datagram of a pinger; `None` if all were sent.
    fn ping(&mut self, pinger: usize) -> Option<[u8; SIZE]> {
        self.left = self.left.checked_sub(1)?;
        self.next += 1;
        self.expected[pinger] = self.next;
        Some(datagram(self.next))
    }

    /// Handles an answer: true if the pinger awaits it. Otherwise it answers a datagram that was
    /// considered lost.
    fn pong(&mut self, pinger: usize, answer: &[u8]) -> bool {
        if answer != datagram(self.expected[pinger]) || self.expected[pinger] == 0 {
            return false;
        }
        self.expected[pinger] = 0;
        self.done += 1;
        true
    }

    fn is_over(&self) -> bool {
        self.left == 0 && self.expected.iter().all(|number| *number == 0)
    }

    /// The datagrams to resend: those without progress since the last call.
    fn lost(&mut self) -> Vec<(usize, [u8; SIZE])> {
        let mut again = Vec::new();
        for (pinger, (expected, seen)) in self.expected.iter().zip(&mut self.seen).enumerate() {
            if *expected != 0 && expected == seen {
                again.push((pinger, datagram(*expected)));
            }
            *seen = *expected;
        }
        self.lost += again.len() as u64;
        again
    }

    fn sample(&self, spent: Spent) -> Sample {
        let mut sample = Sample::new([Reading { count: self.done, spent }]);
        if self.lost > 0 {
            sample.notes.push(format!("{} datagrams were lost and resent", self.lost));
        }
        sample
    }
}

/// The datagram with that number.
fn datagram(number: u64) -> [u8; SIZE] {
    let mut bytes = [0x5a; SIZE];
    bytes[..8].copy_from_slice(&number.to_ne_bytes());
    bytes
}

/// The two readings of a flood.
fn flooded(received: u64, sent: u64, spent: Spent) -> Sample {
    Sample::new([received, sent].map(|count| Reading { count, spent }))
}
