//! TCP and what all streams share, on every backend of this machine.

mod accepting;
mod closing;
mod connecting;
mod reading;
mod writing;

use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::time::Duration;

use uv_core::backends::Auto;
use uv_core::{BindFlags, Loop, RunMode, Stream, Tcp};

type Lp = Loop<Auto>;

fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn bound(lp: &mut Lp) -> (Tcp, SocketAddr) {
    let server = Tcp::new(lp);
    server.bind(lp, any_port(), BindFlags::empty()).unwrap();
    let address = server.local_addr(lp).unwrap();
    (server, address)
}

/// A handle and a blocking peer.
fn connected(lp: &mut Lp) -> (Tcp, TcpStream) {
    let listener = TcpListener::bind(any_port()).unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let tcp = Tcp::new(lp);
    tcp.open(lp, listener.accept().unwrap().0).unwrap();
    (tcp, peer)
}

/// Writes until the kernel takes no more; returns how much it took.
fn fill(lp: &mut Lp, tcp: Tcp) -> usize {
    let (chunk, mut total) = (vec![7; 64 * 1024], 0);
    loop {
        match tcp.try_write(lp, &chunk) {
            Ok(count) => total += count,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                return total;
            }
        }
    }
}

/// Runs a case on every backend of this machine; each leaves an empty loop.
fn every(case: impl Fn(&mut Lp)) {
    for name in Auto::NAMES {
        let backend = match Auto::named(name) {
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                eprintln!("skip {name}: {error}");
                continue;
            }
            other => other.unwrap(),
        };
        eprintln!("on {name}");
        let mut lp = Loop::new(backend);
        case(&mut lp);
        assert!(!lp.run(RunMode::NoWait).unwrap(), "{name}: something is left to do");
        assert!(lp.close().is_ok(), "{name}: a handle is left open");
    }
}

/// True if a request was given up.
fn is_cancelled<T>(result: &io::Result<T>) -> bool {
    // There is no `ErrorKind` for it. Windows: WSAECANCELLED.
    #[cfg(windows)]
    let cancelled = 10103;
    #[cfg(unix)]
    let cancelled = libc::ECANCELED;
    result.as_ref().is_err_and(|error| error.raw_os_error() == Some(cancelled))
}

/// Runs the loop into a panic, which it must survive.
fn panics(lp: &mut Lp) {
    let run = std::panic::AssertUnwindSafe(|| lp.run(RunMode::Default));
    assert!(std::panic::catch_unwind(run).is_err());
}

/// A list that callbacks write to.
struct Log<T>(Rc<RefCell<Vec<T>>>);

fn log<T>() -> Log<T> {
    Log(Rc::default())
}

impl<T> Clone for Log<T> {
    fn clone(&self) -> Self {
        Log(Rc::clone(&self.0))
    }
}

impl<T> Log<T> {
    fn push(&self, value: T) {
        self.0.borrow_mut().push(value);
    }

    fn extend(&self, values: impl Iterator<Item = T>) {
        self.0.borrow_mut().extend(values);
    }

    fn len(&self) -> usize {
        self.0.borrow().len()
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What was written so far.
    fn take(&self) -> Vec<T> {
        self.0.take()
    }
}
