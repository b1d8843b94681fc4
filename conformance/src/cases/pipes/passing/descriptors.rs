//! Descriptors that a peer passes which is no handle of a loop.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use poll_core::Backend;
use uv_core::{Handle, Loop, PendingKind, Pipe, RunMode, Stream};

use crate::support::files::Directory;
use crate::support::limits::{open_descriptors, settled_descriptors, without_descriptors};
use crate::support::loops::{new_loop, run};
use crate::support::observe::SOON;
use crate::support::rights::send_descriptors;
use crate::support::streams::{any_port, finish, refusal, run_until};
use crate::support::trace::Log;
use crate::{Lab, Verdict};

/// A pipe that passes handles, and its peer, which blocks.
fn passing_to_peer<T: Backend>(lp: &mut Loop<T>) -> (Pipe, UnixStream) {
    let (near, far) = UnixStream::pair().expect("a pair");
    far.set_read_timeout(Some(SOON)).expect("SO_RCVTIMEO");
    let pipe = Pipe::new(lp);
    pipe.enable_passing(lp).expect("a new handle");
    pipe.open(lp, near).expect("a socket");
    (pipe, far)
}

/// What there is no handle for can be taken as it is, and does not hide those behind it.
pub fn other_descriptors_can_be_taken<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (pipe, far) = passing_to_peer(&mut lp);
    let (directory, come) = (Directory::new(), Log::default());
    let file = File::open(directory.file("file", "content")).unwrap();
    let socket = UdpSocket::bind(any_port()).unwrap();
    send_descriptors(&far, b"x", &[file.as_raw_fd(), socket.as_raw_fd()]);
    drop((file, socket));
    let note = come.clone();
    pipe.read_start(&mut lp, move |lp, pipe, _| {
        assert_eq!(pipe.pending_kind(lp), Some(PendingKind::Other));
        assert_eq!(refusal(pipe.accept_pending(lp)), ErrorKind::Unsupported);
        let fd = pipe.take_pending(lp).expect("it is still there");
        // SAFETY: asking about an open descriptor is harmless.
        let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) };
        assert_ne!(flags & libc::FD_CLOEXEC, 0, "closed by exec");
        let mut text = String::new();
        File::from(fd).read_to_string(&mut text).unwrap();
        note.push(text);
        assert_eq!(pipe.pending_kind(lp), Some(PendingKind::Udp));
        pipe.close(lp).unwrap();
    })
    .unwrap();
    finish(lp);
    assert_eq!(come.take(), ["content"]);
    Ok(())
}

/// Without descriptors left the bytes come all the same, and that handles are lost is told;
/// none of those that did come is leaked, and later ones come again.
pub fn out_of_descriptors_is_told_of_handles<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (pipe, far) = passing_to_peer(&mut lp);
    let (socket, come) = (UdpSocket::bind(any_port()).unwrap(), Log::default());
    let note = come.clone();
    pipe.read_start(&mut lp, move |lp, pipe, bytes| {
        note.push((bytes.unwrap().to_vec(), pipe.pending_count(lp)));
    })
    .unwrap();
    run(&mut lp, RunMode::NoWait);
    let before = settled_descriptors()?;
    send_descriptors(&far, b"lost", &[socket.as_raw_fd(); 3]);
    without_descriptors(|| run_until(&mut lp, "the bytes", |_| come.len() > 0))?;
    let (bytes, count) = come.take().pop().unwrap();
    assert!(bytes == b"lost" && count < 3, "{count} of three have come");
    assert!(pipe.has_lost_handles(&mut lp).unwrap(), "it is told");
    assert!(!pipe.has_lost_handles(&mut lp).unwrap(), "once");
    assert_eq!(open_descriptors()?, before + count, "nothing but what waits");
    send_descriptors(&far, b"there", &[socket.as_raw_fd(); 3]);
    run_until(&mut lp, "more", |_| come.len() > 0);
    assert_eq!(come.take(), [(b"there".to_vec(), count + 3)]);
    assert!(!pipe.has_lost_handles(&mut lp).unwrap(), "all have come");
    pipe.close(&mut lp).unwrap();
    assert_eq!(open_descriptors()?, before - 1, "they go with the pipe");
    finish(lp);
    Ok(())
}
