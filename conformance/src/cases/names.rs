//! Point 29: names of hosts and services.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use poll_core::Backend;
use uv_core::dns::{
    self, AddrFlags, AddrInfo, Eai, Family, Hints, LookupError, NameFlags, NameInfo, SocketType,
};
use uv_core::{Lane, Loop, Pool, RunMode};

use crate::support::gate::Gate;
use crate::support::loops::{new_loop, run, run_to_the_end};
use crate::support::streams::outcome;
use crate::support::trace::{Count, Log, Trace};
use crate::{Lab, Skip, Verdict};

/// Asks for nobody's help.
const DIGITS: AddrFlags = AddrFlags::NUMERICHOST.union(AddrFlags::NUMERICSERV);

/// For a stream, by these flags.
fn stream(flags: AddrFlags) -> Hints {
    Hints { socket_type: SocketType::Stream, flags, ..Hints::default() }
}

/// Looks up in a loop and without one: both find the same.
#[track_caller]
fn look_up<T: Backend>(
    lab: &Lab<T>,
    host: Option<&str>,
    service: Option<&str>,
    hints: Hints,
) -> Result<io::Result<Vec<AddrInfo>>, Skip> {
    let (mut lp, told) = (new_loop(lab)?, Log::default());
    let tell = told.clone();
    lp.getaddrinfo(host, service, hints, move |_, found| tell.push(found)).expect("a lookup");
    run_to_the_end(&mut lp);
    let found = told.take().pop().expect("a callback");
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

/// An address in digits is its own answer, with the port of the service.
pub fn digits_are_their_own_answer<T: Backend>(lab: &Lab<T>) -> Verdict {
    for host in ["127.0.0.1", "192.0.2.7", "255.255.255.255", "::1", "2001:db8::7"] {
        let found = look_up(lab, Some(host), Some("8080"), stream(DIGITS))?;
        let expected = SocketAddr::new(host.parse().expect("an address"), 8080);
        assert_eq!(addresses(found), [expected]);
    }
    let found = look_up(lab, Some("127.0.0.1"), None, stream(DIGITS))?;
    assert_eq!(addresses(found), [SocketAddr::from((Ipv4Addr::LOCALHOST, 0))], "no service");
    Ok(())
}

/// The family, the kind of socket and the protocol of the hints are those of the answer.
pub fn hints_choose<T: Backend>(lab: &Lab<T>) -> Verdict {
    const TCP: i32 = 6;
    const UDP: i32 = 17;
    for (socket_type, protocol) in [(SocketType::Stream, TCP), (SocketType::Datagram, UDP)] {
        let hints = Hints { socket_type, flags: DIGITS, ..Hints::default() };
        let found = look_up(lab, Some("127.0.0.1"), Some("7"), hints)?.expect("an address");
        assert!(found.iter().all(|info| info.socket_type == socket_type), "{found:?}");
        // Windows leaves it open.
        assert!(found.iter().all(|info| [protocol, 0].contains(&info.protocol)), "{found:?}");
    }
    for (family, host) in [(Family::Ipv4, "::1"), (Family::Ipv6, "127.0.0.1")] {
        let hints = Hints { family, ..stream(DIGITS) };
        let wrong = look_up(lab, Some(host), None, hints)?;
        assert!(wrong.is_err(), "{host} is not of {family:?}: {wrong:?}");
    }
    let hints = Hints { family: Family::Ipv6, ..stream(DIGITS) };
    let found = look_up(lab, Some("::1"), Some("1"), hints)?;
    assert_eq!(addresses(found), [SocketAddr::from((Ipv6Addr::LOCALHOST, 1))]);
    Ok(())
}

/// Without a host, a service is one of this machine, or of any address to listen at.
pub fn a_service_alone_is_of_this_machine<T: Backend>(lab: &Lab<T>) -> Verdict {
    let numeric = AddrFlags::NUMERICSERV;
    let near = addresses(look_up(lab, None, Some("7000"), stream(numeric))?);
    assert!(!near.is_empty() && near.iter().all(|at| at.ip().is_loopback()), "{near:?}");
    let any = addresses(look_up(lab, None, Some("7000"), stream(numeric | AddrFlags::PASSIVE))?);
    assert!(!any.is_empty() && any.iter().all(|at| at.ip().is_unspecified()), "{any:?}");
    assert!(any.iter().chain(&near).all(|at| at.port() == 7000));
    Ok(())
}

/// The machine's own names are found without asking anybody else, and are told if asked for.
pub fn localhost_is_found<T: Backend>(lab: &Lab<T>) -> Verdict {
    let hints = Hints { family: Family::Ipv4, ..stream(AddrFlags::CANONNAME) };
    let found = look_up(lab, Some("localhost"), Some("99"), hints)?.expect("this machine");
    let loopback = |info: &AddrInfo| info.address.ip().is_loopback() && info.address.port() == 99;
    assert!(!found.is_empty() && found.iter().all(loopback), "{found:?}");
    assert!(found[0].canonical_name.is_some(), "asked for: {found:?}");
    let hints = Hints { flags: AddrFlags::empty(), ..hints };
    let found = look_up(lab, Some("localhost"), None, hints)?.expect("this machine");
    assert!(found[0].canonical_name.is_none(), "not asked for: {found:?}");
    Ok(())
}

/// Names of the hosts file have the addresses that stand there.
pub fn the_hosts_file_is_read<T: Backend>(lab: &Lab<T>) -> Verdict {
    let lines = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
    let entries = lines.lines().filter_map(|line| {
        let mut words = line.split('#').next()?.split_whitespace();
        let address: IpAddr = words.next()?.parse().ok()?;
        Some((address, words.next()?.to_owned()))
    });
    let mut checked = 0;
    for (address, name) in entries.filter(|(address, _)| address.is_ipv4()).take(3) {
        let hints = Hints { family: Family::Ipv4, ..stream(AddrFlags::empty()) };
        let found = addresses(look_up(lab, Some(&name), None, hints)?);
        assert!(found.iter().any(|at| at.ip() == address), "{name} is {address}: {found:?}");
        checked += 1;
    }
    match checked {
        0 => Err(Skip::because("this system has no /etc/hosts with names in it")),
        _ => Ok(()),
    }
}

/// What is not there is an error that says so, with the resolver's own code.
pub fn unknown_names_are_errors<T: Backend>(lab: &Lab<T>) -> Verdict {
    let error = look_up(lab, Some("no.such.host"), None, stream(DIGITS))?.expect_err("no digits");
    let lookup = LookupError::of(&error).expect("a resolver's error");
    assert_eq!((error.kind(), lookup.eai()), (ErrorKind::NotFound, Eai::NoName));
    assert!(lookup.code() != 0 && error.to_string().contains("EAI_NONAME"), "{error}");
    let error = look_up(lab, Some("127.0.0.1"), Some("no-such-service"), stream(DIGITS))?;
    assert!(matches!(eai(error), Some(Eai::NoName | Eai::Service)), "no such service");
    let hints = Hints { socket_type: SocketType::Other(7777), ..stream(DIGITS) };
    let error = look_up(lab, Some("127.0.0.1"), None, hints)?.expect_err("no such socket");
    assert!(LookupError::of(&error).is_some(), "{error}");
    Ok(())
}

/// What makes no sense is refused at once, and leaves nothing behind in the loop.
pub fn impossible_questions_are_refused<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let long = "a.".repeat(200);
    let questions = [(None, None), (Some(""), None), (Some(&*long), None), (Some("a\0b"), None)];
    for (host, service) in questions.into_iter().chain([(None, Some("8\0"))]) {
        let refused = lp.getaddrinfo(host, service, Hints::default(), |_, _| {
            panic!("a lookup that was refused has called back")
        });
        let kind = refused.map(drop).map_err(|error| error.kind());
        assert_eq!(kind, Err(ErrorKind::InvalidInput), "{host:?}, {service:?}");
        let twin = dns::getaddrinfo(host, service, Hints::default());
        assert_eq!(twin.map_err(|error| error.kind()), Err(ErrorKind::InvalidInput));
    }
    assert!(!lp.alive(), "nothing was begun");
    run_to_the_end(&mut lp);
    Ok(())
}

/// Names in other scripts reach the resolver in ASCII; their dots are dots.
pub fn unicode_becomes_ascii<T: Backend>(lab: &Lab<T>) -> Verdict {
    let found = look_up(lab, Some("127。0．0｡1"), Some("1"), stream(DIGITS))?;
    assert_eq!(addresses(found), [SocketAddr::from((Ipv4Addr::LOCALHOST, 1))]);
    let found = look_up(lab, Some("bücher.invalid"), None, stream(DIGITS))?;
    assert_eq!(eai(found), Some(Eai::NoName), "a name, and no digits");
    Ok(())
}

/// Addresses and ports have names, or their digits.
pub fn addresses_have_names<T: Backend>(lab: &Lab<T>) -> Verdict {
    let digits = NameFlags::NUMERICHOST | NameFlags::NUMERICSERV;
    let cases = [("127.0.0.1:80", "127.0.0.1", "80"), ("[2001:db8::1]:443", "2001:db8::1", "443")];
    for (address, host, service) in cases {
        let (mut lp, told) = (new_loop(lab)?, Log::default());
        let (tell, address) = (told.clone(), address.parse().expect("an address"));
        let begun = lp.getnameinfo(address, digits, move |_, names| tell.push(names));
        begun.expect("a lookup");
        run_to_the_end(&mut lp);
        let expected = NameInfo { host: host.into(), service: service.into() };
        assert_eq!(told.take().pop().expect("a callback").expect("digits"), expected);
        assert_eq!(dns::getnameinfo(address, digits).expect("digits"), expected, "the twin");
    }
    let loopback = (Ipv4Addr::LOCALHOST, 9).into();
    let names = dns::getnameinfo(loopback, NameFlags::NAMEREQD | NameFlags::NUMERICSERV);
    let names = names.expect("this machine has a name");
    assert!(names.host.parse::<IpAddr>().is_err() && !names.host.is_empty(), "{names:?}");
    Ok(())
}

/// The callback comes out of the loop, once, and the loop lives for it.
pub fn lookups_are_requests<T: Backend>(lab: &Lab<T>) -> Verdict {
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
    assert!(lp.alive(), "the loop waits for it");
    run_to_the_end(&mut lp);
    trace.expect(&["address", "begun", "name"], "each once");
    let kind = request.cancel(&mut lp).map_err(|error| error.kind());
    assert_eq!(kind, Err(ErrorKind::NotFound), "it has called back");
    Ok(())
}

/// A loop with a pool of two threads, of which lookups may use one: it is taken.
fn with_a_busy_lane<T: Backend>(lab: &Lab<T>) -> Result<(Loop<T>, Pool, Gate), Skip> {
    let (mut lp, pool) = (new_loop(lab)?, Pool::new(2).expect("a pool"));
    lp.set_pool(pool.clone());
    let gate = Gate::default();
    let at = gate.clone();
    lp.queue_work_on(&pool, Lane::Slow, move || at.pass(), |_, _| {}).expect("queued work");
    gate.await_waiting(1);
    Ok((lp, pool, gate))
}

/// Lookups that wait for a thread can be cancelled: they end with `ECANCELED`, though every
/// thread that they could have is taken.
pub fn waiting_lookups_can_be_cancelled<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, _pool, gate) = with_a_busy_lane(lab)?;
    let told = Log::default();
    let (one, two) = (told.clone(), told.clone());
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
    assert_eq!(told.len(), 0, "never inline");
    run(&mut lp, RunMode::Once);
    assert_eq!(told.take(), ["cancelled", "cancelled"]);
    assert_eq!(gate.waiting(), 1, "the thread is still taken");
    gate.open();
    run_to_the_end(&mut lp);
    Ok(())
}

/// Lookups share the threads for what may be slow: they wait, and other work does not.
pub fn lookups_leave_threads_for_others<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, _pool, gate) = with_a_busy_lane(lab)?;
    let (found, worked) = (Count::default(), Count::default());
    let (counted, counted_too) = (found.clone(), worked.clone());
    lp.getaddrinfo(Some("127.0.0.1"), None, stream(DIGITS), move |_, _| counted.count())
        .expect("a lookup");
    lp.queue_work(|| {}, move |_, _| counted_too.count()).expect("queued work");
    while worked.get() == 0 {
        run(&mut lp, RunMode::Once);
    }
    assert_eq!(found.get(), 0, "its lane is taken");
    gate.open();
    run_to_the_end(&mut lp);
    assert_eq!(found.get(), 1);
    Ok(())
}
