//! Backends that refuse operations and registrations.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use poll_core::{
    Backend, BoxedBackend, Interest, Mode, Op, OpKind, RawSource, Token, delegate_backend,
};
use uv_core::{Handle, Listener, RunMode, Stream};

use crate::support::loops::run;
use crate::support::sources::send;
use crate::support::streams::{bound, connected, fill_up, finish, outcome, run_until};
use crate::support::trace::Log;
use crate::{Lab, Loop, Verdict};

/// A backend that has no memory for operations and registrations from some moment on.
struct Refusing {
    inner: BoxedBackend,
    refuses: Arc<AtomicBool>,
}

impl Refusing {
    fn check(&self) -> io::Result<()> {
        match self.refuses.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::OutOfMemory.into()),
            false => Ok(()),
        }
    }
}

// SAFETY: what is not refused is done by `inner`, which keeps the promises.
unsafe impl Backend for Refusing {
    delegate_backend! {
        self => self.inner, Waker = <BoxedBackend as Backend>::Waker, except {
            register, submit
        }
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

    unsafe fn submit(&mut self, token: Token, op: Op) -> io::Result<()> {
        self.check()?;
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.submit(token, op) }
    }
}

/// An operation is refused, and then the registration that would replace it: the requests that
/// wait for it get the error, once, and the loop ends.
pub fn a_refused_registration_is_reported(lab: &Lab) -> Verdict {
    let refuses = Arc::new(AtomicBool::new(false));
    let backend = Refusing { inner: lab.backend()?, refuses: Arc::clone(&refuses) };
    let mut lp = Loop::new(BoxedBackend::new(backend));
    let expected = |kind| if lp.backend().supports(kind) { "failed" } else { "done" };
    let [accepts, receives] = [OpKind::Accept, OpKind::Recv].map(expected);
    let log = Log::default();

    let ((server, address), (reader, far)) = (bound(&mut lp), connected(&mut lp));
    let (writer, _full) = connected(&mut lp);
    server.listen_without_callback(&mut lp, 16).unwrap();
    for name in ["first accept", "second accept"] {
        let log = log.clone();
        let request = server.accept_with(&mut lp, move |lp, _, accepted| {
            log.push((name, outcome(&accepted)));
            accepted.into_iter().for_each(|accepted| accepted.close(lp).unwrap());
        });
        request.unwrap();
    }
    for name in ["first read", "second read"] {
        reader.read(&mut lp, vec![0; 1], log.pulled(name)).unwrap();
    }
    let filled = fill_up(&mut lp, writer);
    run(&mut lp, RunMode::NoWait);
    refuses.store(true, Ordering::Relaxed);

    // The second of each needs an operation of its own, where operations are used.
    let _peers = [(); 2].map(|()| TcpStream::connect(address).unwrap());
    send(&far, b"ab");
    let written = log.clone();
    lp.defer(move |lp| {
        writer.write(lp, vec![7; filled], written.written("write")).unwrap();
    });
    run_until(&mut lp, "the callbacks", |_| log.len() >= 5);
    let mut callbacks = log.take();
    callbacks.sort_unstable();
    let expected = [
        ("first accept", "done"),
        ("first read", "done"),
        ("second accept", accepts),
        ("second read", receives),
        ("write", "failed"),
    ];
    assert_eq!(callbacks, expected);
    [server, reader, writer].into_iter().for_each(|handle| handle.close(&mut lp).unwrap());
    finish(lp);
    Ok(())
}
