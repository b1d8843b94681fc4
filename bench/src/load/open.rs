//! Requests in an open loop: they are sent at times that do not depend on the server.
//!
//! The latency of a request counts from the time at which it should have been sent. If the server
//! or the client is late, the delay is in the numbers of every request that it affects, and no
//! request is left out: there is no coordinated omission.

use std::io;
use std::time::Duration;

use super::echo::{Clients, Echo};
use super::{Outcome, Target, Watch, Window};
use crate::random::Random;

/// The times between requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrivals {
    /// All equal.
    Constant,
    /// Exponentially distributed: as from many independent clients.
    Poisson,
}

/// The load: requests per second, over all connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    pub(crate) rate: f64,
    pub(crate) arrivals: Arrivals,
}

/// The requests per second of wall-clock time that the server answers in a closed loop.
pub(crate) fn maximum(server: &impl Target, plan: Echo, window: Window) -> io::Result<f64> {
    let outcome = super::echo(server, plan, window)?;
    Ok(outcome.count as f64 / outcome.spent.wall.as_secs_f64().max(1e-9))
}

/// Loads the server for the window.
pub(crate) fn open(
    server: &impl Target,
    plan: Echo,
    load: Open,
    window: Window,
) -> io::Result<Outcome> {
    let mut clients = Clients::connect(server, plan, window.check)?;
    clients.stop_answering();
    let mut gaps = Gaps::new(load);
    send(&mut clients, plan, &mut gaps, window.warm_up)?;
    clients.latencies.clear();
    let before = clients.answered;
    let watch = Watch::start(server)?;
    send(&mut clients, plan, &mut gaps, window.measured)?;
    let spent = watch.spent(server)?;
    let latencies = std::mem::take(&mut clients.latencies);
    Ok(Outcome { count: clients.answered - before, spent, latencies })
}

/// Sends for a time, at least one request, and waits for all answers.
fn send(clients: &mut Clients, plan: Echo, gaps: &mut Gaps, duration: Duration) -> io::Result<()> {
    let begun_ns = clients.epoch.elapsed().as_nanos() as f64;
    let end_ns = begun_ns + duration.as_nanos() as f64;
    let mut due_ns = begun_ns;
    let mut next = 0;
    loop {
        let now_ns = clients.epoch.elapsed().as_nanos() as f64;
        while due_ns <= now_ns && (due_ns < end_ns || next == 0) {
            clients.request_due(next % plan.main.connections, due_ns as u64)?;
            next += 1;
            due_ns += gaps.next_ns();
        }
        if due_ns >= end_ns && next > 0 {
            break;
        }
        // The client spins: a sleep would be late by more than the server's latency.
        clients.poll(0)?;
    }
    clients.settle()
}

/// The times between requests, the same in every run.
struct Gaps {
    random: Random,
    load: Open,
}

impl Gaps {
    fn new(load: Open) -> Gaps {
        Gaps { random: Random::new(crate::random::SEED), load }
    }

    fn next_ns(&mut self) -> f64 {
        let mean_ns = 1e9 / self.load.rate;
        match self.load.arrivals {
            Arrivals::Constant => mean_ns,
            Arrivals::Poisson => {
                // Uniform in (0, 1]: the logarithm is finite.
                let share = ((self.random.draw() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
                -share.ln() * mean_ns
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mean of both is that of the rate; an exponential distribution has its mean as deviation.
    #[test]
    fn arrivals_have_the_rate_and_the_distribution() {
        for (arrivals, deviation) in [(Arrivals::Constant, 0.0), (Arrivals::Poisson, 1_000.0)] {
            let mut gaps = Gaps::new(Open { rate: 1e6, arrivals });
            let all: Vec<f64> = (0..100_000).map(|_| gaps.next_ns()).collect();
            let mean = all.iter().sum::<f64>() / all.len() as f64;
            assert!((mean - 1_000.0).abs() < 15.0, "{arrivals:?}: {mean}");
            let square = all.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>();
            let found = (square / all.len() as f64).sqrt();
            assert!((found - deviation).abs() < 30.0, "{arrivals:?}: {found}");
        }
    }
}
