//! Unix datagram sockets in UDP handles.

use crate::{Lab, Verdict};

/// A handle with a Unix datagram socket sends to names and receives from them.
#[cfg(not(unix))]
pub fn unix_datagrams_are_exchanged(_lab: &Lab) -> Verdict {
    Err(crate::Skip::because("this system has no Unix datagram sockets"))
}

/// A handle with a Unix datagram socket sends to names and receives from them.
#[cfg(unix)]
pub fn unix_datagrams_are_exchanged(lab: &Lab) -> Verdict {
    use std::io::ErrorKind;
    use std::os::unix::net::UnixDatagram;

    use uv_core::{Destination, Handle, Udp};

    use crate::support::datagrams::{finish, run_out, sent};
    use crate::support::files::Directory;
    use crate::support::loops::new_loop;
    use crate::support::trace::Log;

    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let (here, there) = (dir.path("here"), dir.path("there"));
    let outside = UnixDatagram::bind(&there).expect("a path to bind");
    let udp = Udp::new(&mut lp);
    let to = Destination::unix(&there).expect("a name");
    let early = udp.try_send(&mut lp, b"x", to.clone()).expect_err("no socket");
    assert_eq!(early.kind(), ErrorKind::InvalidInput);
    udp.open(&mut lp, UnixDatagram::bind(&here).expect("a path to bind")).expect("an open handle");
    assert!(udp.local_addr(&lp).is_err(), "it has no Internet address");

    udp.send(&mut lp, "queued", to.clone(), sent).expect("a send");
    assert_eq!(udp.try_send(&mut lp, b"direct", to).expect("sent"), 6);
    outside.send_to(b"reply", &here).expect("a datagram");
    UnixDatagram::unbound().expect("a socket").send_to(b"unnamed", &here).expect("a datagram");
    let (log, mut memory) = (Log::default(), [0; 16]);
    let sink = log.clone();
    udp.recv(&mut lp, vec![0; 16], move |lp, udp, result, memory| {
        let received = result.expect("a datagram");
        assert_eq!(&memory[received.range()], b"reply");
        sink.push(received.from_path);
        udp.recv_start(lp, move |lp, udp, datagram| {
            let datagram = datagram.expect("a datagram");
            assert_eq!(datagram.data, b"unnamed");
            sink.push(datagram.from_path.map(Into::into));
            udp.close(lp).unwrap();
        })
        .expect("a handle that receives");
    })
    .expect("a receive");
    run_out(&mut lp);
    assert_eq!(log.take(), [Some(there), None]);
    for expected in [&b"queued"[..], b"direct"] {
        let (count, from) = outside.recv_from(&mut memory).expect("a datagram");
        assert_eq!(&memory[..count], expected);
        assert_eq!(from.as_pathname(), Some(&*here));
    }
    finish(lp);
    Ok(())
}
