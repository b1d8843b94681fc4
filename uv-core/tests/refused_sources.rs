//! A backend that takes no more sources and no more interest in those it has: requests that would
//! wait call back with its error, and give their buffers back.
#![cfg(unix)]

use std::io;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use poll_core::{Backend, Interest, MaskOps, Mode, RawSource, Token, delegate_backend};
use uv_core::backends::Auto;
use uv_core::{Handle, Loop, RunMode, Stream, Tcp, Udp};

/// A backend that refuses while `refuses` is set.
struct Refusing {
    inner: MaskOps<Auto>,
    refuses: Arc<AtomicBool>,
}

impl Refusing {
    fn check(&self) -> io::Result<()> {
        match self.refuses.load(Ordering::Relaxed) {
            true => Err(io::Error::from_raw_os_error(libc::ENOMEM)),
            false => Ok(()),
        }
    }
}

// SAFETY: calls and events are those of `inner`, which keeps the guarantees; a source that is refused
// is not registered.
#[allow(unsafe_code, reason = "the trait is unsafe to implement")]
unsafe impl Backend for Refusing {
    delegate_backend! {
        self => self.inner, Waker = <Auto as Backend>::Waker, except { register, modify }
    }

    unsafe fn register(
        &mut self,
        token: Token,
        source: RawSource,
        interest: Interest,
        mode: Mode,
    ) -> io::Result<()> {
        self.check()?;
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.register(token, source, interest, mode) }
    }

    fn modify(&mut self, token: Token, interest: Interest, mode: Mode) -> io::Result<()> {
        self.check()?;
        self.inner.modify(token, interest, mode)
    }
}

/// The buffers that came back with `ENOMEM`.
type Back = Vec<Vec<u8>>;

fn back(lp: &mut Loop<Refusing>, error: Option<&io::Error>, buffer: Vec<u8>) {
    assert_eq!(error.and_then(io::Error::raw_os_error), Some(libc::ENOMEM));
    lp.state::<Back>().push(buffer);
}

fn loops() -> impl Iterator<Item = (Loop<Refusing>, Arc<AtomicBool>)> {
    Auto::NAMES.iter().filter_map(|&name| {
        let inner = MaskOps::to_readiness(Auto::named(name).ok()?); // Otherwise this machine lacks it.
        let refuses = Arc::new(AtomicBool::new(false));
        Some((Loop::new(Refusing { inner, refuses: Arc::clone(&refuses) }), refuses))
    })
}

/// Runs to the end, with the buffers that are expected back; then closes everything.
fn expect(mut lp: Loop<Refusing>, buffers: &[&[u8]]) {
    assert!(lp.state::<Back>().is_empty(), "never inline");
    lp.run(RunMode::Default).unwrap();
    assert_eq!(*lp.state::<Back>(), buffers);
    lp.walk().into_iter().for_each(|handle| handle.close_if_open(&mut lp));
    lp.run(RunMode::Default).unwrap();
    assert!(lp.close().is_ok(), "no request is left");
}

#[test]
fn reads_give_their_buffers_back() {
    for (mut lp, refuses) in loops() {
        let (one, _other) = Tcp::pair(&mut lp).unwrap();
        refuses.store(true, Ordering::Relaxed);
        let read = one.read(&mut lp, vec![1], |lp, _, count, buffer| {
            back(lp, count.err().as_ref(), buffer);
        });
        read.unwrap();
        one.read_with(&mut lp, vec![2], |lp, _, count, buffer| {
            back(lp, count.err().as_ref(), buffer);
        });
        expect(lp, &[&[1], &[2]]);
    }
}

#[test]
fn receives_give_their_buffers_back() {
    for (mut lp, refuses) in loops() {
        let udp = Udp::bind_to(&mut lp, "127.0.0.1:0").unwrap();
        refuses.store(true, Ordering::Relaxed);
        assert!(udp.recv(&mut lp, vec![1], |_, _, _, _| panic!("it was refused")).is_err());
        udp.recv_with(&mut lp, vec![2], |lp, _, result, buffer| {
            back(lp, result.err().map(io::Error::from).as_ref(), buffer);
        });
        expect(lp, &[&[2]]);
    }
}

#[test]
fn sends_that_would_wait_give_their_buffers_back() {
    for (mut lp, refuses) in loops() {
        // Unix sockets do not drop datagrams: the receiver's queue gets full.
        let (near, _far) = UnixDatagram::pair().unwrap();
        let udp = Udp::new(&mut lp);
        udp.open(&mut lp, near).unwrap();
        while udp.try_send(&mut lp, b"fill", None).is_ok() {}
        refuses.store(true, Ordering::Relaxed);
        let sent = udp.send(&mut lp, vec![1], None, |lp, _, result, buffer| {
            back(lp, result.err().as_ref(), buffer);
        });
        sent.unwrap();
        udp.send_with(&mut lp, vec![2], None, |lp, _, result, buffer| {
            back(lp, result.err().as_ref(), buffer);
        });
        expect(lp, &[&[1], &[2]]);
    }
}
