//! Descriptors passed by a peer that is not a handle of a loop.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use uv_core::{Handle, PendingKind, Pipe, RunMode, Stream};

use crate::support::files::Directory;
use crate::support::limits::{open_descriptors, settled_descriptors, without_descriptors};
use crate::support::loops::{new_loop, run};
use crate::support::observe::SOON;
use crate::support::rights::send_descriptors;
use crate::support::streams::{any_port, finish, refusal, run_until};
use crate::support::trace::Log;
use crate::{Lab, Loop, Verdict};

/// A pipe that passes handles, and its blocking peer.
fn passing_to_peer(lp: &mut Loop) -> (Pipe, UnixStream) {
    let (near, far) = UnixStream::pair().expect("a pair");
    far.set_read_timeout(Some(SOON)).expect("SO_RCVTIMEO");
    let pipe = Pipe::new(lp);
    pipe.enable_passing(lp).expect("a new handle");
    pipe.open(lp, near).expect("a socket");
    (pipe, far)
}

/// A descriptor without a handle type can be accepted as it is, and does not hide later ones.
pub fn other_descriptors_can_be_accepted(lab: &Lab) -> Verdict {
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
        // SAFETY: the call passes no memory, and the descriptor is open.
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

/// A peer whose handles are not accepted can pass a limited number of descriptors into this
/// process. Then reading fails.
pub fn unaccepted_handles_are_limited(lab: &Lab) -> Verdict {
    for limit in [None, Some(3)] {
        let mut lp = new_loop(lab)?;
        let (pipe, far) = passing_to_peer(&mut lp);
        if let Some(limit) = limit {
            assert_eq!(refusal(pipe.set_pending_limit(&mut lp, 0)), ErrorKind::InvalidInput);
            pipe.set_pending_limit(&mut lp, limit).expect("a pipe that passes handles");
        }
        let (socket, ends) = (UdpSocket::bind(any_port()).unwrap(), Log::default());
        let note = ends.clone();
        pipe.read_start(&mut lp, move |lp, pipe, bytes| {
            if let Err(error) = bytes {
                note.push((error.kind(), pipe.pending_count(lp)));
            }
        })
        .unwrap();
        let most = limit.unwrap_or(256);
        for _ in 0..=most {
            send_descriptors(&far, b"x", &[socket.as_raw_fd()]);
            run(&mut lp, RunMode::NoWait);
        }
        run_until(&mut lp, "an error", |_| ends.len() > 0);
        assert_eq!(ends.take(), [(ErrorKind::QuotaExceeded, most)]);
        assert!(!pipe.is_active(&lp), "reading has ended");
        assert!(pipe.take_pending(&mut lp).is_ok(), "received handles can be accepted");
        pipe.close(&mut lp).unwrap();
        finish(lp);
    }
    Ok(())
}

/// Without free descriptors the bytes still arrive, and the loss of handles is reported. No
/// received handle leaks, and later handles arrive again.
pub fn handles_lost_for_want_of_descriptors_are_reported(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    if !cfg!(target_os = "linux") {
        let why = "recvmsg fails (EMSGSIZE) on this system if a passed descriptor finds no number";
        return Err(crate::Skip::because(why));
    }
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
    assert!(pipe.has_lost_handles(&mut lp).unwrap(), "the loss is reported");
    assert!(!pipe.has_lost_handles(&mut lp).unwrap(), "once");
    assert_eq!(open_descriptors()?, before + count, "only the pending handles are open");
    send_descriptors(&far, b"there", &[socket.as_raw_fd(); 3]);
    run_until(&mut lp, "more", |_| come.len() > 0);
    assert_eq!(come.take(), [(b"there".to_vec(), count + 3)]);
    assert!(!pipe.has_lost_handles(&mut lp).unwrap(), "all have arrived");
    pipe.close(&mut lp).unwrap();
    assert_eq!(open_descriptors()?, before - 1, "they go with the pipe");
    finish(lp);
    Ok(())
}
