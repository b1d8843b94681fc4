//! Point 29: name resolution.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use uv_core::dns::{
    self, AddrFlags, AddrInfo, Eai, Family, Hints, LookupError, NameFlags, SocketType,
};
use uv_core::{Pool, RunMode, WorkKind};

use crate::support::gate::Gate;
use crate::support::loops::{new_loop, run, run_to_the_end};
use crate::support::streams::outcome;
use crate::support::trace::{Count, Log, Trace};
use crate::{Lab, Loop, Skip, Verdict};

/// Needs no resolver.
const DIGITS: AddrFlags = AddrFlags::NUMERICHOST.union(AddrFlags::NUMERICSERV);

/// Hints for a stream, with these flags.
fn stream(flags: AddrFlags) -> Hints {
    Hints { socket_type: SocketType::Stream, flags, ..Hints::default() }
}

/// Resolves with and without a loop: both give the same result.
#[track_caller]
fn resolve(
    lab: &Lab,
    host: Option<&str>,
    service: Option<&str>,
    hints: Hints,
) -> Result<io::Result<Vec<AddrInfo>>, Skip> {
    let (mut lp, callbacks) = (new_loop(lab)?, Log::default());
    let log = callbacks.clone();
    lp.getaddrinfo(host, service, hints, move |_, found| log.push(found)).expect("a lookup");
    run_to_the_end(&mut lp);
    let found = callbacks.take().pop().expect("a callback");
    let twin = dns::getaddrinfo(host, service, hints);
    let comparable = |result: &io::Result<Vec<AddrInfo>>| match result {
        Ok(found) => Ok(found.clone()),
        Err(error) => Err((error.kind(), error.to_string())),
    };
    assert_eq!(comparable(&found), comparable(&twin), "the loop's answer and the twin's");
    Ok(found)
}

fn addresses(found: io::Result<Vec<AddrInfo>>) -> Vec<SocketAddr> {
    found.expect("addresses").into_iter().map(|info| info.address).collect()
}

fn eai<R>(result: io::Result<R>) -> Option<Eai> {
    LookupError::of(&result.err()?).map(LookupError::eai)
}

/// A numeric address resolves to itself, with the port of the service.
pub fn numeric_addresses_resolve_to_themselves(lab: &Lab) -> Verdict {
    for host in ["127.0.0.1", "192.0.2.7", "255.255.255.255", "::1", "2001:db8::7"] {
        let found = resolve(lab, Some(host), Some("8080"), stream(DIGITS))?;
        let expected = SocketAddr::new(host.parse().expect("an address"), 8080);
        assert_eq!(addresses(found), [expected]);
    }
    let found = resolve(lab, Some("127.0.0.1"), None, stream(DIGITS))?;
    assert_eq!(addresses(found), [SocketAddr::from((Ipv4Addr::LOCALHOST, 0))], "no service");
    Ok(())
}

/// The family, socket type and protocol of the hints are those of the result.
pub fn hints_filter_results(lab: &Lab) -> Verdict {
    const TCP: i32 = 6;
    const UDP: i32 = 17;
    for (socket_type, protocol) in [(SocketType::Stream, TCP), (SocketType::Datagram, UDP)] {
        let hints = Hints { socket_type, flags: DIGITS, ..Hints::default() };
        let found = resolve(lab, Some("127.0.0.1"), Some("7"), hints)?.expect("an address");
        assert!(found.iter().all(|info| info.socket_type == socket_type), "{found:?}");
        // Windows leaves it unset.
        assert!(found.iter().all(|info| [protocol, 0].contains(&info.protocol)), "{found:?}");
    }
    for (family, host) in [(Family::Ipv4, "::1"), (Family::Ipv6, "127.0.0.1")] {
        let hints = Hints { family, ..stream(DIGITS) };
        let wrong = resolve(lab, Some(host), None, hints)?;
        assert!(wrong.is_err(), "{host} is not of {family:?}: {wrong:?}");
    }
    let hints = Hints { family: Family::Ipv6, ..stream(DIGITS) };
    let found = resolve(lab, Some("::1"), Some("1"), hints)?;
    assert_eq!(addresses(found), [SocketAddr::from((Ipv6Addr::LOCALHOST, 1))]);
    Ok(())
}

/// A service without a host resolves to this machine, or to the unspecified address for a listener.
pub fn a_service_without_host_is_local(lab: &Lab) -> Verdict {
    let numeric = AddrFlags::NUMERICSERV;
    let near = addresses(resolve(lab, None, Some("7000"), stream(numeric))?);
    assert!(!near.is_empty() && near.iter().all(|at| at.ip().is_loopback()), "{near:?}");
    let any = addresses(resolve(lab, None, Some("7000"), stream(numeric | AddrFlags::PASSIVE))?);
    assert!(!any.is_empty() && any.iter().all(|at| at.ip().is_unspecified()), "{any:?}");
    assert!(any.iter().chain(&near).all(|at| at.port() == 7000));
    Ok(())
}

/// The machine's own names resolve without another host, and are returned on request.
pub fn localhost_is_found(lab: &Lab) -> Verdict {
    let hints = Hints { family: Family::Ipv4, ..stream(AddrFlags::CANONNAME) };
    let found = resolve(lab, Some("localhost"), Some("99"), hints)?.expect("this machine");
    let loopback = |info: &AddrInfo| info.address.ip().is_loopback() && info.address.port() == 99;
    assert!(!found.is_empty() && found.iter().all(loopback), "{found:?}");
    assert!(found[0].canonical_name.is_some(), "asked for: {found:?}");
    let hints = Hints { flags: AddrFlags::empty(), ..hints };
    let found = resolve(lab, Some("localhost"), None, hints)?.expect("this machine");
    assert!(found[0].canonical_name.is_none(), "not asked for: {found:?}");
    Ok(())
}

/// Names in the hosts file resolve to their addresses there.
pub fn the_hosts_file_is_read(lab: &Lab) -> Verdict {
    let lines = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
    let entries = lines.lines().filter_map(|line| {
        let mut words = line.split('#').next()?.split_whitespace();
        let address: IpAddr = words.next()?.parse().ok()?;
        Some((address, words.next()?.to_owned()))
    });
    let mut checked = 0;
    for (address, name) in entries.filter(|(address, _)| address.is_ipv4()).take(3) {
        let hints = Hints { family: Family::Ipv4, ..stream(AddrFlags::empty()) };
        let found = addresses(resolve(lab, Some(&name), None, hints)?);
        assert!(found.iter().any(|at| at.ip() == address), "{name} is {address}: {found:?}");
        checked += 1;
    }
    match checked {
        0 => Err(Skip::because("this system has no /etc/hosts with names in it")),
        _ => Ok(()),
    }
}

/// An unknown name is an error with its cause and the resolver's own code.
pub fn unknown_names_are_errors(lab: &Lab) -> Verdict {
    let error = resolve(lab, Some("no.such.host"), None, stream(DIGITS))?.expect_err("no digits");
    let lookup = LookupError::of(&error).expect("a resolver's error");
    assert_eq!((error.kind(), lookup.eai()), (ErrorKind::NotFound, Eai::NoName));
    assert!(lookup.code() != 0 && error.to_string().contains("EAI_NONAME"), "{error}");
    let error = resolve(lab, Some("127.0.0.1"), Some("no-such-service"), stream(DIGITS))?;
    assert!(matches!(eai(error), Some(Eai::NoName | Eai::Service)), "no such service");
    let hints = Hints { socket_type: SocketType::Other(7777), ..stream(DIGITS) };
    let error = resolve(lab, Some("127.0.0.1"), None, hints)?.expect_err("no such socket");
    assert!(LookupError::of(&error).is_some(), "{error}");
    Ok(())
}

/// An invalid query is refused immediately, and leaves no request in the loop.
pub fn invalid_queries_are_refused(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let long = "a.".repeat(200);
    let questions = [(None, None), (Some(""), None), (Some(&*long), None), (Some("a\0b"), None)];
    for (host, service) in questions.into_iter().chain([(None, Some("8\0"))]) {
        let refused = lp.getaddrinfo(host, service, Hints::default(), |_, _| {
            panic!("a refused lookup has called back")
        });
        let kind = refused.map(drop).map_err(|error| error.kind());
        assert_eq!(kind, Err(ErrorKind::InvalidInput), "{host:?}, {service:?}");
        let twin = dns::getaddrinfo(host, service, Hints::default());
        assert_eq!(twin.map_err(|error| error.kind()), Err(ErrorKind::InvalidInput));
    }
    assert!(!lp.is_alive(), "nothing was started");
    run_to_the_end(&mut lp);
    Ok(())
}

/// Unicode names reach the resolver in ASCII, and Unicode full stops as dots.
pub fn unicode_names_are_converted_to_ascii(lab: &Lab) -> Verdict {
    let found = resolve(lab, Some("127。0．0｡1"), Some("1"), stream(DIGITS))?;
    assert_eq!(addresses(found), [SocketAddr::from((Ipv4Addr::LOCALHOST, 1))]);
    let found = resolve(lab, Some("bücher.invalid"), None, stream(DIGITS))?;
    assert_eq!(eai(found), Some(Eai::NoName), "a name, and no digits");
    Ok(())
}

/// Addresses and ports resolve to names, or to digits.
pub fn addresses_resolve_to_names(lab: &Lab) -> Verdict {
    let digits = NameFlags::NUMERICHOST | NameFlags::NUMERICSERV;
    let cases = [("127.0.0.1:80", "127.0.0.1", "80"), ("[2001:db8::1]:443", "2001:db8::1", "443")];
    for (address, host, service) in cases {
        let (mut lp, callbacks) = (new_loop(lab)?, Log::default());
        let (log, address) = (callbacks.clone(), address.parse().expect("an address"));
        let begun = lp.getnameinfo(address, digits, move |_, names| log.push(names));
        begun.expect("a lookup");
        run_to_the_end(&mut lp);
        let found = callbacks.take().pop().expect("a callback").expect("digits");
        assert_eq!((found.host.as_str(), found.service.as_str()), (host, service));
        assert_eq!(dns::getnameinfo(address, digits).expect("digits"), found, "the blocking call");
    }
    let loopback = (Ipv4Addr::LOCALHOST, 9).into();
    let names = dns::getnameinfo(loopback, NameFlags::NAMEREQD | NameFlags::NUMERICSERV);
    let names = names.expect("this machine has a name");
    assert!(names.host.parse::<IpAddr>().is_err() && !names.host.is_empty(), "{names:?}");
    Ok(())
}

/// A lookup calls back once, in the loop, and keeps the loop alive.
pub fn lookups_are_requests(lab: &Lab) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    let (done, inner) = (trace.clone(), trace.clone());
    let hints = stream(DIGITS);
    let begun = lp.getaddrinfo(Some("127.0.0.1"), None, hints, move |lp, found| {
        found.expect("an address");
        done.note("address");
        let loopback = (Ipv4Addr::LOCALHOST, 0).into();
        let flags = NameFlags::NUMERICHOST | NameFlags::NUMERICSERV;
        lp.getnameinfo(loopback, flags, move |_, _| inner.note("name")).expect("a lookup");
        done.note("begun");
    });
    let request = begun.expect("a lookup");
    trace.expect(&[], "never inline");
    assert!(lp.is_alive(), "the loop waits for it");
    run_to_the_end(&mut lp);
    trace.expect(&["address", "begun", "name"], "each once");
    let kind = request.cancel(&mut lp).map_err(|error| error.kind());
    assert_eq!(kind, Err(ErrorKind::NotFound), "it has called back");
    Ok(())
}

/// A loop with a pool of two threads; lookups may use one, which is busy.
fn with_a_busy_lane(lab: &Lab) -> Result<(Loop, Pool, Gate), Skip> {
    let (mut lp, pool) = (new_loop(lab)?, Pool::new(2).expect("a pool"));
    lp.set_pool(pool.clone());
    let gate = Gate::default();
    let at = gate.clone();
    lp.queue_work_on(&pool, WorkKind::SlowIo, move || at.pass(), |_, _| {}).expect("queued work");
    gate.await_waiting(1);
    Ok((lp, pool, gate))
}

/// Queued lookups can be cancelled: they complete with `ECANCELED`, although all their threads are
/// busy.
pub fn queued_lookups_can_be_cancelled(lab: &Lab) -> Verdict {
    let (mut lp, _pool, gate) = with_a_busy_lane(lab)?;
    let callbacks = Log::default();
    let (one, two) = (callbacks.clone(), callbacks.clone());
    let address = lp.getaddrinfo(Some("127.0.0.1"), None, stream(DIGITS), move |_, found| {
        one.push(outcome(&found));
    });
    let loopback = (Ipv4Addr::LOCALHOST, 0).into();
    let name = lp.getnameinfo(loopback, NameFlags::empty(), move |_, names| {
        two.push(outcome(&names));
    });
    for request in [address.expect("a lookup"), name.expect("a lookup")] {
        request.cancel(&mut lp).expect("it waits");
        let again = request.cancel(&mut lp).map_err(|error| error.kind());
        assert_eq!(again, Err(ErrorKind::ResourceBusy), "cancelled already");
    }
    assert_eq!(callbacks.len(), 0, "never inline");
    run(&mut lp, RunMode::Once);
    assert_eq!(callbacks.take(), ["cancelled", "cancelled"]);
    assert_eq!(gate.waiting(), 1, "the thread is still busy");
    gate.open();
    run_to_the_end(&mut lp);
    Ok(())
}

/// Lookups run on the threads of the slow lane: they wait, and other work does not.
pub fn lookups_do_not_occupy_all_threads(lab: &Lab) -> Verdict {
    let (mut lp, _pool, gate) = with_a_busy_lane(lab)?;
    let (found, worked) = (Count::default(), Count::default());
    let (counted, counted_too) = (found.clone(), worked.clone());
    lp.getaddrinfo(Some("127.0.0.1"), None, stream(DIGITS), move |_, _| counted.count())
        .expect("a lookup");
    lp.queue_work(|| {}, move |_, _| counted_too.count()).expect("queued work");
    while worked.get() == 0 {
        run(&mut lp, RunMode::Once);
    }
    assert_eq!(found.get(), 0, "its lane is busy");
    gate.open();
    run_to_the_end(&mut lp);
    assert_eq!(found.get(), 1);
    Ok(())
}
