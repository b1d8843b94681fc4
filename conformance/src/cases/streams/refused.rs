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

/// A stream whose write is in flight can be registered no more, because the backend has refused
/// another operation. The write is reported once, after its bytes have left its buffer.
#[cfg(unix)]
pub fn a_refused_registration_keeps_a_write_in_flight(lab: &Lab) -> Verdict {
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use uv_core::Pipe;

    use crate::support::observe::SOON;

    // Unlike those of TCP, the buffers of a local socket stay as full as they are.
    fn local(lp: &mut Loop) -> (Pipe, UnixStream) {
        let (near, far) = UnixStream::pair().expect("a pair of local sockets");
        let pipe = Pipe::new(lp);
        pipe.open(lp, OwnedFd::from(near)).expect("a free handle");
        (pipe, far)
    }

    let refuses = Arc::new(AtomicBool::new(false));
    let backend = Refusing { inner: lab.backend()?, refuses: Arc::clone(&refuses) };
    let mut lp = Loop::new(BoxedBackend::new(backend));
    let sends = lp.backend().supports(OpKind::Send);
    let ((writer, mut far), (other, _peer)) = (local(&mut lp), local(&mut lp));
    let (log, mut filled) = (Log::default(), 0);
    for chunk in [[7; 1000].as_slice(), &[7]] {
        while let Ok(count) = writer.try_write(&mut lp, chunk) {
            filled += count;
        }
    }
    let written = log.clone();
    lp.defer(move |lp| {
        writer.write(lp, "8 bytes.", written.written("in flight")).unwrap();
    });
    run(&mut lp, RunMode::NoWait);
    refuses.store(true, Ordering::Relaxed);

    // Without memory for this operation, the loop waits for readiness instead.
    let written = log.clone();
    lp.defer(move |lp| {
        other.write(lp, "refused", written.written("refused")).unwrap();
    });
    run_until(&mut lp, "the refusal", |_| log.len() > 0);
    assert_eq!(log.take(), [("refused", if sends { "failed" } else { "done" })]);
    // Both directions of the writer wait for readiness, where its write is no operation.
    let _ = writer.read_start(&mut lp, |_, _, _| {});
    writer.read_stop(&mut lp).unwrap();

    let reads = std::thread::spawn(move || {
        far.set_read_timeout(Some(SOON)).expect("SO_RCVTIMEO");
        let mut bytes = vec![0; filled + 8];
        far.read_exact(&mut bytes).map(|()| (bytes, far))
    });
    run_until(&mut lp, "the write", |_| log.len() > 0);
    assert_eq!(log.take(), [("in flight", "done")]);
    let (bytes, _far) = reads.join().unwrap().expect("all bytes");
    assert!(bytes.ends_with(b"8 bytes."));
    [writer, other].into_iter().for_each(|handle| handle.close(&mut lp).unwrap());
    finish(lp);
    Ok(())
}

/// See the case for Unix.
#[cfg(not(unix))]
pub fn a_refused_registration_keeps_a_write_in_flight(_lab: &Lab) -> Verdict {
    Err(crate::Skip::because("the buffers of a connection grow here while they are filled"))
}
