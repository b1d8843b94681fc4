//! A mistake of the caller gives the same error on every handle: that of the table on the page of
//! the crate.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::rc::Rc;
use std::time::Duration;

use uv_core::{
    Check, FsEvent, FsEventFlags, FsPoll, Handle, Idle, Listener, Loop, Pipe, Prepare, RunMode,
    Signal, Stream, Tcp, TcpBindFlags, Timer, Udp, UdpBindFlags, error_name, signum,
};

/// The page with the table.
const PAGE: &str = include_str!("../src/lib.rs");

/// What gave an error, and the error.
type Found = Vec<(&'static str, io::Error)>;

/// Makes a mistake in each way.
type Make = fn(&mut Loop) -> Found;

fn any_port() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

/// The rows of the table: a mistake, and its kind and its number, each empty if it may be any.
fn table() -> BTreeMap<String, (String, String)> {
    let rows = PAGE.lines().skip_while(|line| !line.contains("| mistake | kind |")).skip(2);
    let rows = rows.map_while(|line| line.strip_prefix("//! | "));
    rows.map(|row| {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let word = |cell: &str| cell.split('`').nth(1).unwrap_or_default().to_owned();
        (cells[0].replace('`', ""), (word(cells[1]), word(cells[2])))
    })
    .collect()
}

/// Starts each kind of handle, by `key`: keys that are stale, foreign or of closing handles.
fn start_all(lp: &mut Loop, keys: &Keys) -> Found {
    let second = Duration::from_secs(1);
    let no_flags = FsEventFlags::empty();
    [
        ("timer", keys.timer.start(lp, second, second, |_, _| {})),
        ("idle", keys.idle.start(lp, |_, _| {})),
        ("prepare", keys.prepare.start(lp, |_, _| {})),
        ("check", keys.check.start(lp, |_, _| {})),
        ("signal", keys.signal.start(lp, signum::SIGINT, |_, _, _| {})),
        ("tcp", keys.tcp.read_start(lp, |_, _, _| {})),
        ("tcp bind", keys.tcp.bind(lp, any_port(), TcpBindFlags::empty())),
        ("tcp connect", keys.tcp.connect(lp, any_port(), |_, _, _| {})),
        ("tcp write", keys.tcp.write(lp, "x", |_, _, _, _| {}).map(drop)),
        ("pipe", keys.pipe.read_start(lp, |_, _, _| {})),
        ("udp", keys.udp.recv_start(lp, |_, _, _| {})),
        ("udp send", keys.udp.send(lp, "x", any_port(), |_, _, _, _| {})),
        ("fs_event", keys.fs_event.start(lp, ".", no_flags, |_, _, _| {})),
        ("fs_poll", keys.fs_poll.start(lp, ".", second, |_, _, _, _| {})),
    ]
    .into_iter()
    .map(|(what, result)| (what, result.unwrap_err()))
    .collect()
}

/// A handle of each kind.
struct Keys {
    timer: Timer,
    idle: Idle,
    prepare: Prepare,
    check: Check,
    signal: Signal,
    tcp: Tcp,
    pipe: Pipe,
    udp: Udp,
    fs_event: FsEvent,
    fs_poll: FsPoll,
}

impl Keys {
    fn new(lp: &mut Loop) -> Keys {
        Keys {
            timer: Timer::new(lp),
            idle: Idle::new(lp),
            prepare: Prepare::new(lp),
            check: Check::new(lp),
            signal: Signal::new(lp),
            tcp: Tcp::new(lp),
            pipe: Pipe::new(lp),
            udp: Udp::new(lp),
            fs_event: FsEvent::new(lp),
            fs_poll: FsPoll::new(lp),
        }
    }
}

fn close_all(lp: &mut Loop) {
    for handle in lp.walk() {
        handle.close_if_open(lp);
    }
}

fn stale_and_foreign(lp: &mut Loop) -> Found {
    let keys = Keys::new(lp);
    close_all(lp);
    lp.run(RunMode::Default).unwrap();
    let mut found = start_all(lp, &keys);
    let mut other = Loop::with_default_backend().unwrap();
    found.extend(start_all(lp, &Keys::new(&mut other)));
    found
}

fn closing(lp: &mut Loop) -> Found {
    let keys = Keys::new(lp);
    close_all(lp);
    start_all(lp, &keys)
}

fn running(lp: &mut Loop) -> Found {
    let found = Rc::new(RefCell::new(Found::new()));
    let log = Rc::clone(&found);
    lp.defer(move |lp| log.borrow_mut().push(("run", lp.run(RunMode::NoWait).unwrap_err())));
    lp.run(RunMode::Default).unwrap();
    found.take()
}

fn already(lp: &mut Loop) -> Found {
    let second = Duration::from_secs(1);
    let (tcp, _peer) = Tcp::pair(lp).unwrap();
    let (pipe, _end) = Pipe::pair(lp).unwrap();
    let Keys { udp, fs_event, fs_poll, tcp: client, .. } = Keys::new(lp);
    let server = std::net::TcpListener::bind(any_port()).unwrap();
    let address = server.local_addr().unwrap();
    let no_flags = FsEventFlags::empty();
    let mut found = Found::new();
    for round in 0..2 {
        let results = [
            ("tcp", tcp.read_start(lp, |_, _, _| {})),
            ("pipe", pipe.read_start(lp, |_, _, _| {})),
            ("udp", udp.recv_start(lp, |_, _, _| {})),
            ("fs_event", fs_event.start(lp, ".", no_flags, |_, _, _| {})),
            ("fs_poll", fs_poll.start(lp, ".", second, |_, _, _, _| {})),
            ("connect", client.connect(lp, address, |_, _, _| {})),
        ];
        for (what, result) in results {
            match round {
                0 => result.unwrap(),
                _ => found.push((what, result.unwrap_err())),
            }
        }
    }
    found.push(("read", tcp.read(lp, vec![0; 1], |_, _, _, _| {}).unwrap_err()));
    found.push(("try_read", tcp.try_read(lp, &mut [0]).unwrap_err()));
    found
}

fn opened_twice(lp: &mut Loop) -> Found {
    let (tcp, _peer) = Tcp::pair(lp).unwrap();
    let listener = std::net::TcpListener::bind(any_port()).unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let udp = Udp::new(lp);
    udp.bind(lp, any_port(), UdpBindFlags::empty()).unwrap();
    vec![
        ("tcp", tcp.open(lp, socket).unwrap_err()),
        ("udp", udp.open(lp, UdpSocket::bind(any_port()).unwrap()).unwrap_err()),
    ]
}

fn no_socket(lp: &mut Loop) -> Found {
    let Keys { tcp, pipe, udp, .. } = Keys::new(lp);
    vec![
        ("tcp", tcp.raw_source(lp).unwrap_err()),
        ("tcp address", tcp.local_addr(lp).unwrap_err()),
        ("pipe", pipe.raw_source(lp).unwrap_err()),
        ("udp", udp.raw_source(lp).unwrap_err()),
        ("udp address", udp.local_addr(lp).unwrap_err()),
        ("option", tcp.send_buffer_size(lp).unwrap_err()),
    ]
}

fn no_peer(lp: &mut Loop) -> Found {
    let Keys { tcp, pipe, udp, .. } = Keys::new(lp);
    let listener = Tcp::new(lp);
    listener.bind(lp, any_port(), TcpBindFlags::empty()).unwrap();
    listener.listen(lp, 1, |_, _, _| {}).unwrap();
    udp.bind(lp, any_port(), UdpBindFlags::empty()).unwrap();
    vec![
        ("tcp", tcp.read_start(lp, |_, _, _| {}).unwrap_err()),
        ("tcp shutdown", tcp.shutdown(lp, |_, _, _| {}).unwrap_err()),
        ("pipe", pipe.read(lp, vec![0; 1], |_, _, _, _| {}).unwrap_err()),
        ("listener", listener.peer_addr(lp).unwrap_err()),
        ("udp", udp.peer_addr(lp).unwrap_err()),
    ]
}

fn connected(lp: &mut Loop) -> Found {
    let (tcp, _peer) = Tcp::pair(lp).unwrap();
    let (udp, peer) = (Udp::new(lp), UdpSocket::bind(any_port()).unwrap());
    let address = peer.local_addr().unwrap();
    udp.connect(lp, address).unwrap();
    vec![
        ("tcp", tcp.connect(lp, address, |_, _, _| {}).unwrap_err()),
        ("udp", udp.connect(lp, address).unwrap_err()),
        ("send to an address", udp.try_send(lp, b"x", address).unwrap_err()),
    ]
}

fn not_listening(lp: &mut Loop) -> Found {
    let Keys { tcp, pipe, .. } = Keys::new(lp);
    vec![("tcp", tcp.accept(lp).unwrap_err()), ("pipe", pipe.accept(lp).unwrap_err())]
}

fn no_memory(lp: &mut Loop) -> Found {
    let found = Rc::new(RefCell::new(Found::new()));
    let (tcp, peer) = Tcp::pair(lp).unwrap();
    let log = Rc::clone(&found);
    let empty = |_: &mut Loop, _, _| Vec::<u8>::new();
    tcp.read_start_with(lp, empty, move |lp, tcp, result, _| {
        log.borrow_mut().push(("tcp", result.unwrap_err()));
        tcp.close(lp).unwrap();
    })
    .unwrap();
    peer.try_write(lp, b"x").unwrap();
    let (udp, log) = (Udp::new(lp), Rc::clone(&found));
    udp.bind(lp, any_port(), UdpBindFlags::empty()).unwrap();
    let empty = |_: &mut Loop, _, _| Vec::<u8>::new();
    udp.recv_start_with(lp, 1, empty, move |lp, udp, result, _| {
        log.borrow_mut().push(("udp", result.unwrap_err().into()));
        udp.close(lp).unwrap();
    })
    .unwrap();
    let address = udp.local_addr(lp).unwrap();
    udp.try_send(lp, b"x", address).unwrap();
    peer.close(lp).unwrap();
    lp.run(RunMode::Default).unwrap();
    found.take()
}

fn empty_buffers(lp: &mut Loop) -> Found {
    let (tcp, _peer) = Tcp::pair(lp).unwrap();
    let (pipe, _end) = Pipe::pair(lp).unwrap();
    vec![
        ("tcp", tcp.read(lp, Vec::<u8>::new(), |_, _, _, _| {}).unwrap_err()),
        ("try_read", tcp.try_read(lp, &mut []).unwrap_err()),
        ("pipe", pipe.read(lp, Vec::<u8>::new(), |_, _, _, _| {}).unwrap_err()),
    ]
}

fn cancelled(lp: &mut Loop) -> Found {
    let found = Rc::new(RefCell::new(Found::new()));
    let (tcp, _peer) = Tcp::pair(lp).unwrap();
    let (udp, log) = (Udp::new(lp), Rc::clone(&found));
    tcp.read(lp, vec![0; 1], move |_, _, result, _| {
        log.borrow_mut().push(("closed", result.unwrap_err()));
    })
    .unwrap();
    let log = Rc::clone(&found);
    let request = udp.recv(lp, vec![0; 1], move |_, _, result, _| {
        log.borrow_mut().push(("cancelled", result.unwrap_err().into()));
    });
    request.unwrap().cancel(lp).unwrap();
    close_all(lp);
    lp.run(RunMode::Default).unwrap();
    found.take()
}

#[test]
fn each_mistake_has_the_error_of_the_table() {
    let makers: [(&str, Make); 12] = [
        ("stale or foreign key", stale_and_foreign),
        ("the handle is closing", closing),
        ("run called by a callback", running),
        ("started, read, received or connecting already", already),
        ("opened twice", opened_twice),
        ("the handle has no socket or descriptor", no_socket),
        ("the stream or socket has no peer", no_peer),
        ("connected already", connected),
        ("accept on a stream that does not listen", not_listening),
        ("an allocation callback that gives no memory", no_memory),
        ("an empty buffer to read into", empty_buffers),
        ("cancelled, or the handle was closed", cancelled),
    ];
    let mut table = table();
    let mut wrong: Vec<String> = Vec::new();
    for (mistake, make) in makers {
        let (kind, name) = table.remove(mistake).unwrap_or_else(|| panic!("no row: {mistake}"));
        let found = make(&mut Loop::with_default_backend().unwrap());
        assert!(!found.is_empty(), "{mistake}: nothing was reported");
        for (what, error) in found {
            let has_kind = kind.is_empty() || format!("{:?}", error.kind()) == kind;
            let has_name = name.is_empty() || error_name(&error) == Some(&name);
            if !has_kind || !has_name {
                wrong.push(format!("{mistake}, {what}: {error:?}, not {kind} {name}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(table.is_empty(), "rows without a test: {table:?}");
}
