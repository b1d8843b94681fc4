//! The task of a server, which is the same code in every server: what it answers to received bytes.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::http::Requests;

/// The delay of an answer that a timer sends.
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "the servers need Linux"))]
pub(crate) const DELAY: Duration = Duration::from_millis(1);

/// The task of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Writes back what it reads.
    Echo,
    /// Discards what it reads.
    Sink,
    /// Answers each HTTP/1.1 request with a fixed text.
    Http,
    /// Computes for about this number of microseconds for each read, then writes it back.
    Compute(u32),
    /// Writes back what it reads after a millisecond, from a timer.
    Delay,
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Service::Echo => f.write_str("echo"),
            Service::Sink => f.write_str("sink"),
            Service::Http => f.write_str("http"),
            Service::Compute(microseconds) => write!(f, "compute-{microseconds}"),
            Service::Delay => f.write_str("delay"),
        }
    }
}

impl FromStr for Service {
    type Err = String;

    fn from_str(text: &str) -> Result<Service, String> {
        let compute = text.strip_prefix("compute-").and_then(|number| number.parse().ok());
        match (text, compute) {
            ("echo", _) => Ok(Service::Echo),
            ("sink", _) => Ok(Service::Sink),
            ("http", _) => Ok(Service::Http),
            ("delay", _) => Ok(Service::Delay),
            (_, Some(microseconds)) => Ok(Service::Compute(microseconds)),
            _ => Err("use echo, sink, http, delay or compute-N (N microseconds)".into()),
        }
    }
}

/// The task of one connection.
#[derive(Debug)]
pub(crate) struct Handler {
    service: Service,
    /// Boxed: a connection of another service has none.
    requests: Option<Box<Requests>>,
}

impl Handler {
    pub(crate) fn new(service: Service) -> Handler {
        let requests = (service == Service::Http).then(Box::default);
        Handler { service, requests }
    }

    /// The answer to received bytes: the same bytes, others, or none.
    ///
    /// # Errors
    ///
    /// `InvalidData` for malformed requests, after which the connection is closed.
    #[inline]
    pub(crate) fn answer<'a>(&'a mut self, bytes: &'a [u8]) -> std::io::Result<&'a [u8]> {
        match (self.service, &mut self.requests) {
            (_, Some(requests)) => requests.answer(bytes),
            (Service::Sink, _) => Ok(&[]),
            (Service::Compute(microseconds), _) => {
                compute(microseconds);
                Ok(bytes)
            }
            _ => Ok(bytes),
        }
    }

    /// Whether the answer is the received bytes themselves. If so, [`answer`](Handler::answer) is
    /// called nevertheless: it may compute.
    #[cfg(all(target_os = "linux", any(feature = "compio", feature = "monoio")))]
    pub(crate) fn echoes(&self) -> bool {
        !matches!(self.service, Service::Sink | Service::Http)
    }
}

/// Steps of a dependent multiplication that take about a microsecond on a processor of 3 GHz. The
/// number is fixed, so that every server does the same work.
const STEPS_PER_MICROSECOND: u32 = 600;

/// Computes, without memory and without a clock.
#[inline(never)]
fn compute(microseconds: u32) {
    let mut value = 1_u64;
    for _ in 0..microseconds * STEPS_PER_MICROSECOND {
        value = value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // Otherwise the loop is replaced with a closed form.
        value = std::hint::black_box(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_has_a_name_for_the_command_line() {
        use Service::*;
        for service in [Echo, Sink, Http, Compute(20), Delay] {
            assert_eq!(service.to_string().parse(), Ok(service));
        }
        assert!("compute-".parse::<Service>().is_err());
        assert!("tea".parse::<Service>().is_err());
    }

    #[test]
    fn each_service_has_its_answer() {
        assert_eq!(Handler::new(Service::Echo).answer(b"abc").unwrap(), b"abc");
        assert_eq!(Handler::new(Service::Sink).answer(b"abc").unwrap(), b"");
        assert_eq!(Handler::new(Service::Compute(1)).answer(b"abc").unwrap(), b"abc");
        assert!(Handler::new(Service::Http).answer(b"abc\r\n\r\n").is_err());
    }
}
