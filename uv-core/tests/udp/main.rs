//! UDP handles, on every backend of this machine.

#[cfg(target_os = "linux")]
mod linux;
mod options;
mod receiving;
mod sending;
mod sockets;
#[cfg(unix)]
mod waiting;

use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::rc::Rc;
use std::time::Duration;

use uv_core::backends::Auto;
use uv_core::{Handle, Loop, RunMode, Timer, Udp, UdpBind};

type Lp = Loop<Auto>;

/// Runs a case on every backend of this machine.
fn every(case: impl Fn(&mut Lp)) {
    for name in Auto::NAMES {
        match Auto::named(name) {
            Ok(backend) => {
                eprintln!("on {name}");
                case(&mut Loop::new(backend));
            }
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                eprintln!("skip {name}: {error}")
            }
            Err(error) => panic!("{name}: {error}"),
        }
    }
}

/// What callbacks have seen, in order; shared by its clones.
struct Log<T>(Rc<RefCell<Vec<T>>>);

fn log<T>() -> Log<T> {
    Log(Rc::default())
}

impl<T> Clone for Log<T> {
    fn clone(&self) -> Log<T> {
        Log(Rc::clone(&self.0))
    }
}

impl<T> Log<T> {
    fn push(&self, entry: T) {
        self.0.borrow_mut().push(entry);
    }

    fn len(&self) -> usize {
        self.0.borrow().len()
    }

    fn take(&self) -> Vec<T> {
        self.0.take()
    }
}

fn local() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

fn bound(lp: &mut Lp) -> (Udp, SocketAddr) {
    let udp = Udp::new(lp);
    udp.bind(lp, local(), UdpBind::empty()).unwrap();
    (udp, udp.local_addr(lp).unwrap())
}

fn close_all(lp: &mut Lp) {
    for handle in lp.walk() {
        if !handle.is_closing(lp) {
            handle.close(lp).unwrap();
        }
    }
}

/// Runs until all handles are closed; fails after a time that no test should take.
fn run(lp: &mut Lp) {
    let watchdog = Timer::new(lp);
    let late = |_: &mut Lp, _| panic!("still waiting after ten seconds");
    watchdog.start(lp, Duration::from_secs(10), Duration::ZERO, late).unwrap();
    watchdog.unreference(lp).unwrap();
    lp.run(RunMode::Default).unwrap();
    close_all(lp);
    lp.run(RunMode::Default).unwrap();
}

fn is(error: &io::Error, code: i32) -> bool {
    error.raw_os_error() == Some(code)
}

/// Errors by one name on every system.
mod code {
    #[cfg(unix)]
    pub(crate) use libc::{
        EALREADY, EBADF, EBUSY, ECANCELED, EDESTADDRREQ, EISCONN, EMSGSIZE, ENOTCONN,
    };

    #[cfg(windows)]
    mod winsock {
        pub(crate) const EALREADY: i32 = 10037;
        pub(crate) const EBADF: i32 = 10009;
        pub(crate) const EBUSY: i32 = 170;
        pub(crate) const EDESTADDRREQ: i32 = 10039;
        pub(crate) const EISCONN: i32 = 10056;
        pub(crate) const EMSGSIZE: i32 = 10040;
        pub(crate) const ENOTCONN: i32 = 10057;
    }
    #[cfg(windows)]
    pub(crate) use winsock::*;
}

/// Sends numbered datagrams from outside of the loop, which wait in the socket's buffer.
fn numbers(to: SocketAddr, numbers: std::ops::Range<u8>) {
    let client = UdpSocket::bind(local()).unwrap();
    for number in numbers {
        client.send_to(&[number], to).unwrap();
    }
}
