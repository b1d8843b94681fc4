//! Passing handles to another process.

use std::io::Read;

use uv_core::{AnyHandle, Handle, Pipe, Stream};

use crate::support::observe::SOON;
use crate::support::pipes::{piping_loop, read_all};
use crate::support::sources::tcp_pair;
use crate::support::streams::{finish, opened, run_until};
use crate::support::trace::Log;
use crate::{Lab, Loop, Verdict};

/// Handles reach another process, which uses them, and responds over the same pipe.
pub fn handles_reach_another_process(lab: &Lab) -> Verdict {
    let mut lp = piping_loop(lab)?;
    let (pipe, other) = Other::start(lab, &mut lp);
    let (mut ours, theirs) = tcp_pair();
    let tcp = opened(&mut lp, theirs);
    pipe.write_with_handles(&mut lp, "for you", &[tcp.into()], move |lp, _, result, _| {
        result.unwrap();
        tcp.close(lp).unwrap();
    })
    .unwrap();
    let received = Log::default();
    let log = received.clone();
    pipe.read_start(&mut lp, move |lp, pipe, bytes| {
        assert_eq!((bytes.unwrap(), pipe.pending_count(lp)), (&b"back"[..], 1));
        let Ok(AnyHandle::Pipe(made)) = pipe.accept_pending(lp) else { panic!("no pipe") };
        pipe.close(lp).unwrap();
        read_all(lp, made, &log);
    })
    .unwrap();
    run_until(&mut lp, "the response of the other process", |_| received.len() == 1);
    assert_eq!(received.take(), [b"made there"]);
    let mut text = String::new();
    ours.set_nonblocking(false).unwrap();
    ours.set_read_timeout(Some(SOON)).unwrap();
    ours.read_to_string(&mut text).unwrap();
    assert_eq!(text, "from the other");
    other.join(lp)
}

/// A forked child, with one end of a pair.
#[cfg(unix)]
struct Other(crate::support::child::Child);

#[cfg(unix)]
impl Other {
    fn start(lab: &Lab, lp: &mut Loop) -> (Pipe, Other) {
        use crate::support::loops::new_loop;
        use crate::support::pipes::answer_with_a_handle;
        use std::cell::Cell;
        use std::os::unix::net::UnixStream;

        let (near, far) = UnixStream::pair().expect("a pair");
        let (near, far) = (Cell::new(Some(near)), Cell::new(Some(far)));
        let child = crate::support::child::Child::fork(|| {
            drop(near.take());
            let mut lp = new_loop(lab)?;
            let pipe = Pipe::new(&mut lp);
            pipe.enable_passing(&mut lp).expect("a new handle");
            pipe.open(&mut lp, far.take().expect("the child's end")).expect("a socket");
            answer_with_a_handle(&mut lp, pipe);
            finish(lp);
            Ok(())
        });
        drop(far.take());
        let pipe = Pipe::new(lp);
        pipe.enable_passing(lp).expect("a new handle");
        pipe.open(lp, near.take().expect("our end")).expect("a socket");
        (pipe, Other(child))
    }

    fn join(self, lp: Loop) -> Verdict {
        finish(lp);
        self.0.join(SOON)
    }
}

/// A program with a pipe as its fourth descriptor.
#[cfg(windows)]
struct Other(Log<uv_core::Exit>);

#[cfg(windows)]
impl Other {
    fn start(_lab: &Lab, lp: &mut Loop) -> (Pipe, Other) {
        use crate::support::children::spawn;
        use crate::support::program::child;
        use uv_core::{PipeFlags, Stdio};

        let (pipe, ends) = (Pipe::new(lp), Log::default());
        pipe.enable_passing(lp).expect("a new handle");
        let mut stdio = vec![Stdio::Ignore; 3];
        stdio.push(Stdio::Pipe(pipe, PipeFlags::all()));
        spawn(lp, &child(&["answer with a handle"]).stdio(stdio), &ends);
        (pipe, Other(ends))
    }

    fn join(self, lp: Loop) -> Verdict {
        finish(lp);
        assert_eq!(self.0.take(), [crate::support::children::code(0)]);
        Ok(())
    }
}
