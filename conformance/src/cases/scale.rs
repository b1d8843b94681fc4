//! Point 11: thousands of sources, without quadratic cost or starvation.
//!
//! Quadratic behaviour does not show with three sources. These cases compare a backend with itself
//! at another size, never with absolute times.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use poll_core::{BoxedBackend, Event, Interest, Mode, RawSource, Readiness, Token};

use crate::support::effort::thread_time;
use crate::support::limits::need_descriptors;
use crate::support::observe::{
    A, SOON, await_ready, deregister, modify, quiet, register, try_register, wait_for, wait_once,
};
use crate::support::sources::{drain, send, tcp_pair};
use crate::support::wine::{tolerated_growth, walks_all_polls};
use crate::{Lab, Skip, Verdict};

use socket_set::SocketSet;

const NOW: Option<Duration> = Some(Duration::ZERO);

/// More sources than `FD_SETSIZE` (1,024): a few become ready, and exactly those are reported.
pub fn eleven_hundred_sources(lab: &Lab) -> Verdict {
    check_ready_sources(lab, 1_100)
}

/// Ten thousand sources, the C10K problem.
pub fn ten_thousand_sources(lab: &Lab) -> Verdict {
    check_ready_sources(lab, 10_000)
}

/// Registering, modifying and deregistering a source costs the same among ten thousand as among one
/// thousand. A linear search would make it ten times as expensive.
pub fn changes_take_linear_time(lab: &Lab) -> Verdict {
    const FEW: usize = 1_000;
    const MANY: usize = 10_000;
    /// A time limit for repeated attempts, not for the measured result.
    const PATIENCE: Duration = Duration::from_secs(10);
    let sockets = SocketSet::new(MANY)?;
    let mut backend = lab.backend()?;
    // Silent sources measure the backend's own structures without Wine's.
    let watched = if walks_all_polls() { Interest::NONE } else { Interest::READ };
    let mut round = |count: usize| -> Result<Duration, Skip> {
        let before = thread_time();
        sockets.register(&mut backend, count, watched, Mode::Level)?;
        assert_eq!(wait_once(&mut backend, NOW), [], "nothing was sent");
        for (interest, order) in [(Interest::NONE, 1), (watched, count - 1)] {
            // Forward and backward, so that neither end of a list is favoured.
            for index in (0..count).map(|index| index * order % count) {
                modify(&mut backend, token(index), interest, Mode::Oneshot);
            }
            assert_eq!(wait_once(&mut backend, NOW), [], "nothing was sent");
        }
        for index in (0..count).step_by(2).chain((1..count).step_by(2)) {
            deregister(&mut backend, token(index));
        }
        assert_eq!(wait_once(&mut backend, NOW), [], "nothing is registered");
        Ok((thread_time() - before) / count as u32)
    };
    // The best of several attempts counts, since other programs run too.
    let (mut few, mut many) = (Duration::MAX, Duration::MAX);
    let (growth, started) = (tolerated_growth(), Instant::now());
    while few == Duration::MAX || many > few * growth * 3 / 4 && started.elapsed() < PATIENCE {
        for _ in 0..3 {
            few = few.min(round(FEW)?);
        }
        many = many.min(round(MANY)?);
    }
    assert!(
        many < few * growth,
        "a source costs {few:?} among {FEW} and {many:?} among {MANY}: more than {growth} times"
    );
    Ok(())
}

/// More sources become ready together than a batch holds: each is reported, and once, since they
/// are `Oneshot`.
pub fn more_events_than_a_batch(lab: &Lab) -> Verdict {
    const COUNT: usize = 3_000;
    let sockets = SocketSet::new(COUNT)?;
    let mut backend = lab.backend()?;
    sockets.register(&mut backend, COUNT, Interest::WRITE, Mode::Oneshot)?;
    let mut seen = vec![false; COUNT];
    let mut count = 0;
    while count < COUNT {
        let events = wait_for(&mut backend, SOON);
        assert!(!events.is_empty(), "only {count} of {COUNT} ready sources are reported");
        for index in indices(&events) {
            assert!(!seen[index], "{:?} is Oneshot, and reported twice", token(index));
            seen[index] = true;
            count += 1;
        }
    }
    quiet(&mut backend);
    Ok(())
}

/// Sources that are always ready, more than a batch holds, are served fairly: each is reported
/// within a bounded number of waits, and so is one that becomes ready later. A backend that scans
/// from the front of its list and stops at a full batch never reaches the end.
pub fn busy_sources_do_not_starve_others(lab: &Lab) -> Verdict {
    const COUNT: usize = 2_500;
    const WAITS: usize = 100;
    let sockets = SocketSet::new(COUNT)?;
    let ((first, first_far), (last, last_far)) = (tcp_pair(), tcp_pair());
    let mut backend = lab.backend()?;
    // One registered before the others and one after, since backends scan in different orders.
    let (before, after) = (Token::new(COUNT as u32, 0), Token::new(COUNT as u32 + 1, 0));
    register(&mut backend, before, &first, Interest::READ, Mode::Level);
    sockets.register(&mut backend, COUNT, Interest::WRITE, Mode::Level)?;
    register(&mut backend, after, &last, Interest::READ, Mode::Level);
    wait_once(&mut backend, Some(SOON));

    send(&first_far, b"x");
    send(&last_far, b"x");
    let mut missing: BTreeSet<usize> = (0..COUNT + 2).collect();
    for _ in 0..WAITS {
        for index in indices(&wait_once(&mut backend, Some(SOON))) {
            missing.remove(&index);
        }
        if missing.is_empty() {
            return Ok(());
        }
    }
    panic!(
        "{} of {} ready sources are not reported in {WAITS} waits, {:?} the first of them",
        missing.len(),
        COUNT + 2,
        missing.first().map(|index| token(*index)),
    );
}

/// A descriptor beyond `FD_SETSIZE` works or is refused with a reason: setting its bit
/// unconditionally overwrites the stack. A huge number must not cost memory in proportion: an array
/// indexed by descriptor would.
pub fn high_descriptor_numbers(lab: &Lab) -> Verdict {
    #[cfg(unix)]
    {
        use crate::support::child::Child;
        use crate::support::limits::high_descriptor;
        use std::net::TcpStream;

        let ((low, low_far), (near, far)) = (tcp_pair(), tcp_pair());
        let high = TcpStream::from(high_descriptor(&near, 4_000)?);
        let mut backend = lab.backend()?;
        register(&mut backend, A, &low, Interest::READ, Mode::Level);
        match try_register(
            &mut backend,
            token(1),
            RawSource::of(&high),
            Interest::READ,
            Mode::Level,
        ) {
            Err(error) => assert!(!error.to_string().is_empty(), "refused without a reason"),
            Ok(()) => {
                quiet(&mut backend);
                send(&far, b"x");
                await_ready(&mut backend, token(1), Readiness::READ);
                drain(&high);
                quiet(&mut backend);
                deregister(&mut backend, token(1));
            }
        }
        send(&low_far, b"x");
        await_ready(&mut backend, A, Readiness::READ);
        drop(backend);

        // In a child with limited memory, which is killed if it exceeds the limit.
        Child::fork(|| {
            limit_memory(256 << 20)?;
            let mut backend = lab.backend()?;
            let absurd = RawSource::from_fd(i32::MAX);
            if try_register(&mut backend, A, absurd, Interest::READ, Mode::Level).is_ok() {
                await_ready(&mut backend, A, Readiness::ERROR);
                deregister(&mut backend, A);
            }
            Ok(())
        })
        .join(SOON * 2)?;
    }
    unix_only(lab, "Windows does not let a program choose a handle value")
}

/// Tokens with sparse indices and all 31 bits of generation work: dense indices are a convention,
/// not a requirement.
pub fn sparse_tokens(lab: &Lab) -> Verdict {
    let pairs = [tcp_pair(), tcp_pair(), tcp_pair()];
    let tokens = [Token::new(70_000, Token::MAX_GENERATION), A, Token::new(3, 1 << 30)];
    let mut backend = lab.backend()?;
    for (token, (near, _)) in tokens.iter().zip(&pairs) {
        register(&mut backend, *token, near, Interest::READ, Mode::Level);
    }
    for (token, (near, far)) in tokens.iter().zip(&pairs) {
        quiet(&mut backend);
        send(far, b"x");
        let events = wait_for(&mut backend, SOON);
        assert_eq!(events, [Event::Ready { token: *token, ready: Readiness::READ }]);
        modify(&mut backend, *token, Interest::READ, Mode::Oneshot);
        await_ready(&mut backend, *token, Readiness::READ);
        drain(near);
    }
    for token in tokens {
        deregister(&mut backend, token);
    }
    Ok(())
}

/// Registers `count` sources, makes a few ready at a time, and asserts that exactly those are
/// reported.
fn check_ready_sources(lab: &Lab, count: usize) -> Verdict {
    let sockets = SocketSet::new(count)?;
    let mut backend = lab.backend()?;
    sockets.register(&mut backend, count, Interest::READ, Mode::Level)?;
    quiet(&mut backend);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for few in [1, 7, 100] {
        let ready: BTreeSet<usize> = (0..few).map(|_| random.below(count)).collect();
        ready.iter().for_each(|index| sockets.make_readable(*index));
        let mut seen = BTreeSet::new();
        let started = Instant::now();
        while seen != ready {
            for index in indices(&wait_for(&mut backend, SOON)) {
                assert!(ready.contains(&index), "{:?} is reported but not ready", token(index));
                seen.insert(index);
            }
            assert!(started.elapsed() < SOON, "ready {ready:?}, reported {seen:?}");
        }
        ready.iter().for_each(|index| sockets.read(*index));
        quiet(&mut backend);
    }
    for index in 0..count {
        deregister(&mut backend, token(index));
    }
    sockets.make_readable(0);
    quiet(&mut backend);
    Ok(())
}

/// The result of a Unix-only case elsewhere.
fn unix_only(_lab: &Lab, why: &str) -> Verdict {
    if cfg!(unix) { Ok(()) } else { Err(Skip::because(why)) }
}

fn token(index: usize) -> Token {
    Token::new(index as u32, 0)
}

fn indices(events: &[Event]) -> impl Iterator<Item = usize> {
    events.iter().map(|event| event.token().index() as usize)
}

/// A reproducible pseudo-random sequence (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// Limits this child process to `more` bytes of address space beyond its current size.
#[cfg(unix)]
fn limit_memory(more: libc::rlim_t) -> Verdict {
    let statm = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = statm.and_then(|statm| statm.split(' ').next()?.parse::<libc::rlim_t>().ok());
    let Some(pages) = pages else {
        let why = "descriptor 4,000 passed; larger ones need /proc to limit the memory";
        return Err(Skip::because(why));
    };
    // SAFETY: `sysconf` has no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as libc::rlim_t;
    let limit = libc::rlimit { rlim_cur: pages * page + more, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: `limit` is a valid `rlimit` that outlives the call, which only reads it.
    match unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) } {
        0 => Ok(()),
        _ => Err(Skip::because(format!("RLIMIT_AS: {}", std::io::Error::last_os_error()))),
    }
}

/// Many sources at one descriptor each: socket pairs, both ends of which are sources. A send on one
/// end makes its partner readable.
mod socket_set {
    use super::*;

    #[cfg(unix)]
    type Socket = std::os::unix::net::UnixDatagram;
    #[cfg(windows)]
    type Socket = std::net::UdpSocket;

    pub(super) struct SocketSet(Vec<Socket>);

    impl SocketSet {
        /// Creates an even number of sources.
        pub(super) fn new(count: usize) -> Result<SocketSet, Skip> {
            need_descriptors(count as u64)?;
            let mut sockets = Vec::with_capacity(count);
            while sockets.len() < count {
                let (even, odd) = pair();
                for socket in [&even, &odd] {
                    socket.set_nonblocking(true).expect("a non-blocking socket");
                }
                sockets.extend([even, odd]);
            }
            Ok(SocketSet(sockets))
        }

        /// Registers the first `count` sources, or skips with the backend's error. The sources
        /// before the refused one must work nevertheless.
        pub(super) fn register(
            &self,
            backend: &mut BoxedBackend,
            count: usize,
            interest: Interest,
            mode: Mode,
        ) -> Verdict {
            for (index, socket) in self.0[..count].iter().enumerate() {
                let source = RawSource::of(socket);
                if let Err(error) = try_register(backend, token(index), source, interest, mode) {
                    assert!(index > 0, "the first source is refused: {error}");
                    modify(backend, token(index - 1), Interest::WRITE, Mode::Level);
                    await_ready(backend, token(index - 1), Readiness::WRITE);
                    let why = format!("takes {index} sources here, then {source:?}: {error}");
                    return Err(Skip::because(why));
                }
            }
            Ok(())
        }

        pub(super) fn make_readable(&self, index: usize) {
            self.0[index ^ 1].send(b"x").expect("a datagram sent");
        }

        pub(super) fn read(&self, index: usize) {
            let read = self.0[index].recv(&mut [0; 8]).expect("the datagram that was sent");
            assert_eq!(read, 1);
        }
    }

    #[cfg(unix)]
    fn pair() -> (Socket, Socket) {
        Socket::pair().expect("a pair of sockets")
    }

    #[cfg(windows)]
    fn pair() -> (Socket, Socket) {
        crate::support::sources::udp_pair()
    }
}
