//! Point 37: the state of a loop, the common path of errors, and short forms of streams.

mod errors;

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::Arc;

#[cfg(unix)]
use uv_core::Listener;
use uv_core::{AnyHandle, AnyStream, Channel, Handle, Pipe, RunMode, Stream, Tcp, Timer};

use crate::support::loops::{
    AN_HOUR, ZERO, new_loop, panic_on_purpose, run, run_to_the_end, unwinds,
};
use crate::support::observe::SOON;
use crate::support::sources::{listener, refused_address, reset};
use crate::support::streams::{any_port, connected, finish, outcome, run_a_moment, run_until};
use crate::support::trace::{Count, Log, Trace};
use crate::support::wine;
use crate::{Lab, Loop, Verdict};

pub use errors::*;

/// The errors that the handler gets, with the kinds of their handles.
fn errors_of(lp: &mut Loop) -> Log<(&'static str, ErrorKind)> {
    let errors = Log::default();
    let log = errors.clone();
    lp.on_error(move |lp, handle, error| {
        assert!(handle.is_closing(lp), "the handle is closed");
        log.push((handle.kind(), error.kind()));
    });
    errors
}

/// The loop keeps one value of each type from the first use on, and drops them with itself.
pub fn state_is_one_value_of_each_type(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    *lp.state::<u32>() += 1;
    lp.state::<String>().push_str("text");
    lp.defer(|lp| {
        *lp.state::<u32>() += 1;
        assert_eq!(lp.state::<String>(), "text");
    });
    run_to_the_end(&mut lp);
    assert_eq!(*lp.state::<u32>(), 2);
    let shared = Rc::new(());
    *lp.state() = Some(Rc::clone(&shared));
    drop(lp);
    assert_eq!(Rc::strong_count(&shared), 1, "the loop has dropped its state");
    Ok(())
}

/// `with_state` lends the state and the loop together, and a panic loses neither.
pub fn the_state_and_the_loop_are_lent_together(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    for _ in 0..3 {
        let timer = Timer::new(&mut lp);
        lp.state::<Vec<Timer>>().push(timer);
    }
    let closed = lp.with_state(|lp, timers: &mut Vec<Timer>| {
        assert!(lp.state::<Vec<Timer>>().is_empty(), "it is lent");
        timers.iter().for_each(|timer| timer.close(lp).unwrap());
        timers.len()
    });
    assert_eq!((closed, lp.state::<Vec<Timer>>().len()), (3, 3));
    lp.defer(|lp| lp.with_state(|_, _: &mut Vec<Timer>| panic_on_purpose()));
    unwinds(&mut lp, RunMode::Default);
    assert_eq!(lp.state::<Vec<Timer>>().len(), 3, "the state is back");
    run_to_the_end(&mut lp);
    finish(lp);
    Ok(())
}

/// The handler of errors gets the peer of a connection that has failed, whose socket is closed.
pub fn the_error_handler_gets_the_peer(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (near, far) = connected(&mut lp);
    let peer = far.local_addr().expect("a connected socket");
    let seen = Log::default();
    let log = seen.clone();
    lp.on_error(move |lp, handle, _| {
        let addresses = match handle {
            AnyHandle::Tcp(tcp) => tcp.peer_addr(lp).ok(),
            _ => near.peer_addr(lp).ok(),
        };
        log.push(addresses);
    });
    near.fail(&mut lp, ErrorKind::TimedOut.into());
    assert!(near.peer_addr(&lp).is_err(), "it is closing");
    Timer::new(&mut lp).fail(&mut lp, ErrorKind::TimedOut.into());
    Tcp::new(&mut lp).fail(&mut lp, ErrorKind::TimedOut.into());
    run_to_the_end(&mut lp);
    assert_eq!(seen.take(), [Some(peer), None, None], "the address of that connection only");
    Ok(())
}

/// An error of `attempt` closes the handle. The handler gets it later, before the close callback,
/// and may be replaced. A handle that is closing or closed reports all the same.
pub fn an_error_closes_the_handle_and_is_reported(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (errors, timer) = (errors_of(&mut lp), Timer::new(&mut lp));
    timer.start(&mut lp, AN_HOUR, ZERO, |_, _| {}).unwrap();
    timer.attempt(&mut lp, |_| Ok(()));
    assert!(timer.is_active(&lp), "success changes nothing");
    timer.attempt(&mut lp, |_| Err(ErrorKind::InvalidData.into()));
    assert!(timer.is_closing(&lp) && errors.len() == 0, "closed now, reported later");
    timer.fail(&mut lp, ErrorKind::TimedOut.into());
    timer.close_if_open(&mut lp);
    run_to_the_end(&mut lp);
    let expected = [("timer", ErrorKind::InvalidData), ("timer", ErrorKind::TimedOut)];
    assert_eq!(errors.take(), expected);
    timer.close_if_open(&mut lp);
    lp.on_error(|_, _, _| panic_on_purpose());
    timer.fail(&mut lp, ErrorKind::NotFound.into());
    unwinds(&mut lp, RunMode::Default);
    finish(lp);
    Ok(())
}

/// The errors of `send` and `on_read` close the stream. Several sends report one error. A send to
/// a closed stream does nothing.
pub fn stream_errors_close_the_stream(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let errors = errors_of(&mut lp);
    Tcp::new(&mut lp).send(&mut lp, "not connected");
    run_to_the_end(&mut lp);
    assert_eq!(errors.take(), [("tcp", ErrorKind::NotConnected)]);

    let (tcp, peer) = connected(&mut lp);
    tcp.on_read(&mut lp, |_, _, bytes| match bytes {
        [] if wine::collects_errors() => Err(ErrorKind::ConnectionReset.into()),
        bytes => panic!("{} bytes", bytes.len()),
    })
    .unwrap();
    reset(peer);
    run_to_the_end(&mut lp);
    assert_eq!(errors.take().len(), 1, "the reset has closed it");
    tcp.send(&mut lp, "too late");
    assert!(!lp.is_alive());

    let (tcp, mut peer) = connected(&mut lp);
    tcp.on_read(&mut lp, |_, _, _| Err(ErrorKind::InvalidData.into())).unwrap();
    peer.write_all(b"data").unwrap();
    run_to_the_end(&mut lp);
    assert_eq!(errors.take(), [("tcp", ErrorKind::InvalidData)]);
    assert_eq!(peer.read(&mut [0]).unwrap_or(0), 0, "the peer sees the close");

    let (tcp, peer) = connected(&mut lp);
    (0..3).for_each(|_| tcp.send(&mut lp, vec![0; 32 << 20]));
    run(&mut lp, RunMode::NoWait);
    reset(peer);
    run_to_the_end(&mut lp);
    assert_eq!(errors.take().len(), 1, "one error for three sends");
    finish(lp);
    Ok(())
}

/// Sends that a close cancels report nothing.
pub fn a_close_cancels_sends_silently(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (errors, (tcp, _peer)) = (errors_of(&mut lp), connected(&mut lp));
    tcp.send(&mut lp, vec![0; 64 << 20]);
    run(&mut lp, RunMode::NoWait);
    assert!(tcp.write_queue_size(&lp) > 0);
    tcp.close(&mut lp).unwrap();
    run_to_the_end(&mut lp);
    assert_eq!(errors.len(), 0);
    finish(lp);
    Ok(())
}

/// `finish` sends what is queued, ignores what is sent later, reads to the end of the peer, and
/// closes. It waits for a shutdown that was begun. Without a connection it closes immediately.
pub fn finish_sends_everything_and_closes(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (errors, size) = (errors_of(&mut lp), 16 << 20);
    let (tcp, mut peer) = connected(&mut lp);
    tcp.on_read(&mut lp, |_, _, _| panic!("nothing is read")).unwrap();
    peer.write_all(b"ignored").unwrap();
    tcp.send(&mut lp, vec![7; size]);
    (0..2).for_each(|_| tcp.finish(&mut lp));
    tcp.send(&mut lp, "too late");
    assert!(!tcp.is_closing(&lp) && lp.is_alive(), "it is not sent yet");
    let reading = std::thread::spawn(move || {
        let mut all = Vec::new();
        // Bytes that the stream leaves unread must not reset the connection.
        peer.write_all(&vec![5; size / 8]).unwrap();
        peer.read_to_end(&mut all).unwrap();
        all.len() == size && all.iter().all(|byte| *byte == 7)
    });
    run_to_the_end(&mut lp);
    assert!(reading.join().unwrap() && tcp.is_closing(&lp), "everything arrives");

    let (tcp, mut peer) = connected(&mut lp);
    let ended = Log::default();
    tcp.send(&mut lp, "all");
    tcp.shutdown(&mut lp, ended.ended("shutdown")).unwrap();
    tcp.finish(&mut lp);
    run_until(&mut lp, "the shutdown", |_| ended.len() == 1);
    run_a_moment(&mut lp);
    assert!(!tcp.is_closing(&lp), "the peer has not ended");
    let mut all = String::new();
    peer.read_to_string(&mut all).unwrap();
    assert!(all == "all" && ended.take() == [("shutdown", "done")]);
    drop(peer);
    run_to_the_end(&mut lp);
    assert!(tcp.is_closing(&lp));

    let unconnected = Tcp::new(&mut lp);
    unconnected.finish(&mut lp);
    assert!(unconnected.is_closing(&lp), "closed immediately");
    run_to_the_end(&mut lp);
    assert_eq!(errors.len(), 0);
    finish(lp);
    Ok(())
}

/// `finish` waits for a connection, and reports at most one error if there is none.
pub fn finish_waits_for_the_connection(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (errors, listener) = (errors_of(&mut lp), listener());
    let to = listener.local_addr().unwrap();
    listener.set_nonblocking(false).unwrap();
    let client = Tcp::connect_to(&mut lp, to, |_, _, result| result.unwrap());
    client.send(&mut lp, "early");
    client.finish(&mut lp);
    let reading = std::thread::spawn(move || {
        let (mut text, (mut peer, _)) = (String::new(), listener.accept().unwrap());
        peer.read_to_string(&mut text).map(|_| text)
    });
    run_to_the_end(&mut lp);
    assert_eq!(reading.join().unwrap().unwrap(), "early");
    assert!(client.is_closing(&lp) && errors.len() == 0);

    let client = Tcp::connect_to(&mut lp, refused_address(), |_, _, result| {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    });
    client.finish(&mut lp);
    run_to_the_end(&mut lp);
    assert!(client.is_closing(&lp) && errors.len() <= 1, "{:?}", errors.take());
    finish(lp);
    Ok(())
}

/// The callback of `write_with` gets every error, never inline, and the buffer.
pub fn write_with_reports_every_error(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (results, tcp) = (Log::default(), Tcp::new(&mut lp));
    for before in 0..2 {
        let log = results.clone();
        let buffer = Arc::new(vec![7_u8; 3]);
        tcp.write_with(&mut lp, buffer, move |_, _, result, buffer| {
            log.push((result.unwrap_err().kind(), buffer.len()));
        });
        assert_eq!(results.len(), before, "never inline");
        run_to_the_end(&mut lp);
        tcp.close_if_open(&mut lp);
        run_to_the_end(&mut lp);
    }
    let expected = [(ErrorKind::NotConnected, 3), (ErrorKind::NotFound, 3)];
    assert_eq!(results.take(), expected);

    let (tcp, mut peer) = connected(&mut lp);
    tcp.write_with(&mut lp, Box::new(*b"fine"), move |lp, tcp, result, _| {
        result.unwrap();
        tcp.close(lp).unwrap();
    });
    run_to_the_end(&mut lp);
    let mut all = String::new();
    peer.read_to_string(&mut all).unwrap();
    assert_eq!(all, "fine");
    finish(lp);
    Ok(())
}

/// `listen_on` accepts every connection; an error of its callback closes that connection only.
pub fn listen_on_accepts_connections(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (errors, count) = (errors_of(&mut lp), Count::default());
    let counted = count.clone();
    let server = Tcp::listen_on(&mut lp, any_port(), move |lp, peer| {
        if counted.add() == 1 {
            return Err(ErrorKind::PermissionDenied.into());
        }
        peer.send(lp, "welcome");
        peer.shutdown(lp, |lp, peer, _| peer.close_if_open(lp))
    });
    let server = server.unwrap();
    let address = server.local_addr(&lp).unwrap();
    let in_use = Tcp::listen_on(&mut lp, address, |_, _| Ok(()));
    assert_eq!(in_use.unwrap_err().kind(), ErrorKind::AddrInUse);
    let unnamed = Tcp::listen_on(&mut lp, "no port", |_, _| Ok(()));
    assert_eq!(unnamed.unwrap_err().kind(), ErrorKind::InvalidInput);

    let mut peers = [(); 2].map(|()| TcpStream::connect(address).unwrap());
    let what = "the end of both connections, with the listener and the timer left";
    run_until(&mut lp, what, |lp| count.get() == 2 && lp.walk().len() == 2);
    assert_eq!(errors.take(), [("tcp", ErrorKind::PermissionDenied)]);
    server.close(&mut lp).unwrap();
    run_to_the_end(&mut lp);
    let texts = peers.each_mut().map(|peer| {
        peer.set_read_timeout(Some(SOON)).unwrap();
        let mut text = String::new();
        let _ = peer.read_to_string(&mut text);
        text
    });
    assert_eq!(texts, ["", "welcome"]);
    finish(lp);
    Ok(())
}

/// `connect_to` tries its addresses in order. What was written meanwhile arrives, options are
/// kept, and no attempt is left over.
pub fn connect_to_tries_addresses_in_order(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (listener, results) = (listener(), Log::default());
    let addresses = vec![refused_address(), refused_address(), listener.local_addr().unwrap()];
    let log = results.clone();
    let client = Tcp::connect_to(&mut lp, addresses, move |lp, client, result| {
        log.push(outcome(&result));
        assert_eq!(client.peer_addr(lp).unwrap().port(), listener.local_addr().unwrap().port());
        let (mut peer, _) = listener.accept().unwrap();
        let shut = client.shutdown(lp, move |lp, client, _| {
            let mut text = String::new();
            peer.read_to_string(&mut text).unwrap();
            assert_eq!(text, "early");
            client.close(lp).unwrap();
        });
        shut.unwrap();
    });
    client.set_nodelay(&mut lp, true).unwrap();
    client.send(&mut lp, "early");
    assert_eq!(results.len(), 0, "never inline");
    run_to_the_end(&mut lp);
    assert_eq!(results.take(), ["done"]);
    finish(lp);
    Ok(())
}

/// The addresses of a name are looked up in the loop.
pub fn connect_to_looks_names_up(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (listener, results) = (listener(), Log::default());
    let port = listener.local_addr().unwrap().port();
    for text in [format!("localhost:{port}"), format!("127.0.0.1:{port}")] {
        let log = results.clone();
        Tcp::connect_to(&mut lp, text, move |lp, client, result| {
            log.push(outcome(&result));
            client.close(lp).unwrap();
        });
    }
    run_to_the_end(&mut lp);
    assert_eq!(results.take(), ["done", "done"]);
    finish(lp);
    Ok(())
}

/// The callback of `connect_to` gets all errors, and writes are cancelled then.
pub fn connect_to_reports_all_errors(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let results = Log::default();
    let connect = |lp: &mut Loop, to: uv_core::Addresses| {
        let log = results.clone();
        let client = Tcp::connect_to(lp, to, move |lp, client, result| {
            log.push(result.map_err(|error| error.kind()));
            client.close(lp).unwrap();
        });
        let log = results.clone();
        client.write_with(lp, "nowhere", move |_, _, result, _| {
            assert!(result.is_err());
            log.push(Ok(()));
        });
        run_to_the_end(lp);
        results.take()
    };
    let refused = [Err(ErrorKind::ConnectionRefused), Ok(())];
    assert_eq!(connect(&mut lp, vec![refused_address(); 2].into()), refused);
    let invalid = [Err(ErrorKind::InvalidInput), Ok(())];
    assert_eq!(connect(&mut lp, Vec::new().into()), invalid);
    assert_eq!(connect(&mut lp, "no port".into()), invalid);
    assert!(connect(&mut lp, "no-such-host.invalid:80".into())[0].is_err());
    finish(lp);
    Ok(())
}

/// A close cancels the lookup and the attempt, and the loop ends.
pub fn a_close_cancels_connect_to(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let results = Log::default();
    // Reserved for documentation: no machine answers.
    let nowhere = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 9));
    let names: [uv_core::Addresses; 2] = [nowhere.into(), "localhost:9".into()];
    for (to, moment) in names.into_iter().flat_map(|to| [(to.clone(), false), (to, true)]) {
        let client = Tcp::connect_to(&mut lp, to, results.ended("connect"));
        if moment {
            run_a_moment(&mut lp);
        }
        // A network may answer for the address, but not with a connection.
        let answered = !results.take().is_empty();
        client.close_with(&mut lp, results.closed("close")).unwrap();
        run_to_the_end(&mut lp);
        let expected = [("connect", "cancelled"), ("close", "closed")];
        assert_eq!(results.take(), expected[usize::from(answered)..]);
        assert!(lp.walk().is_empty(), "no attempt is left");
    }
    finish(lp);
    Ok(())
}

/// An `AnyStream` is the stream that it was made from: the same handle, with the same callbacks.
pub fn any_stream_is_its_stream(lab: &Lab) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    let (tcp, far) = Tcp::pair(&mut lp).unwrap();
    let mut streams = vec![(AnyStream::from(tcp), AnyStream::from(far))];
    // Pipes need a completion port on Windows.
    if let Ok((pipe, far)) = Pipe::pair(&mut lp) {
        streams.push((pipe.into(), far.into()));
    }
    for (near, far) in streams {
        let (note, read) = (trace.clone(), trace.clone());
        near.write(&mut lp, "data", move |lp, stream, result, _| {
            result.unwrap();
            assert_eq!(stream, near, "the callback gets the same handle");
            stream
                .close_with(lp, move |_, stream| {
                    assert_eq!(stream, near);
                    note.note("closed");
                })
                .unwrap();
        })
        .unwrap();
        far.on_read(&mut lp, move |lp, stream, bytes| match bytes {
            [] => stream.close(lp),
            _ => {
                read.note("read");
                Ok(())
            }
        })
        .unwrap();
        run_to_the_end(&mut lp);
        let mut notes = trace.take();
        notes.sort_unstable();
        assert_eq!(notes, ["closed", "read"]);
    }
    finish(lp);
    Ok(())
}

/// A channel is a handle: active, referenced, closed with a callback.
pub fn channels_are_handles(lab: &Lab) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    let note = trace.clone();
    let (channel, sender) = Channel::new(&mut lp, move |lp, channel, text: &'static str| {
        note.note(text);
        let note = note.clone();
        channel.close_with(lp, move |_, _| note.note("closed")).unwrap();
    });
    assert!(channel.is_active(&lp) && channel.is_referenced(&lp));
    channel.unreference(&mut lp).unwrap();
    assert!(!lp.is_alive());
    channel.reference(&mut lp).unwrap();
    sender.send("sent").unwrap();
    run_to_the_end(&mut lp);
    trace.expect(&["sent", "closed"], "one value, then the close");
    assert!(sender.send("late").is_err());
    finish(lp);
    Ok(())
}

/// A released connection goes on in another loop, without a lost byte: bytes that the first loop
/// has received and not reported are an error, until they are read.
#[cfg(unix)]
pub fn a_released_connection_continues_in_another_loop(lab: &Lab) -> Verdict {
    let (mut first, mut second) = (new_loop(lab)?, new_loop(lab)?);
    let (tcp, mut peer) = connected(&mut first);
    let received = Log::default();
    let log = received.clone();
    tcp.on_read(&mut first, move |_, _, bytes| {
        log.extend(bytes.iter().copied());
        Ok(())
    })
    .unwrap();
    peer.write_all(b"one ").unwrap();
    run_until(&mut first, "the first bytes", |_| received.len() == 4);
    tcp.read_stop(&mut first).unwrap();
    peer.write_all(b"two ").unwrap();
    run_a_moment(&mut first);

    let released = tcp.release(&mut first).or_else(|error| {
        assert_eq!(error.kind(), ErrorKind::ResourceBusy);
        assert!(!tcp.is_closing(&first), "the handle stays");
        let log = received.clone();
        tcp.on_read(&mut first, move |_, _, bytes| {
            log.extend(bytes.iter().copied());
            Ok(())
        })?;
        run_until(&mut first, "the second bytes", |_| received.len() == 8);
        tcp.release(&mut first)
    });
    let socket = released.expect("nothing is left to read");
    assert!(tcp.is_closing(&first));
    run_to_the_end(&mut first);
    finish(first);

    let tcp = Tcp::new(&mut second);
    tcp.open(&mut second, socket).unwrap();
    tcp.send(&mut second, "answer");
    peer.write_all(b"three").unwrap();
    peer.shutdown(std::net::Shutdown::Write).unwrap();
    let log = received.clone();
    tcp.on_read(&mut second, move |lp, tcp, bytes| match bytes {
        [] => tcp.close(lp),
        bytes => {
            log.extend(bytes.iter().copied());
            Ok(())
        }
    })
    .unwrap();
    run_to_the_end(&mut second);
    assert_eq!(String::from_utf8(received.take()).unwrap(), "one two three");
    let mut answer = String::new();
    peer.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "answer", "the first loop's close has not ended the connection");
    finish(second);
    Ok(())
}

/// A stream with requests, a listener and a stale key are not released.
#[cfg(unix)]
pub fn a_busy_stream_is_not_released(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, _peer) = connected(&mut lp);
    tcp.read(&mut lp, vec![0; 8], |_, _, _, _| {}).unwrap();
    let server = Tcp::listen_on(&mut lp, any_port(), |_, _| Ok(())).unwrap();
    for busy in [tcp, server] {
        assert_eq!(busy.release(&mut lp).unwrap_err().kind(), ErrorKind::ResourceBusy);
        busy.close(&mut lp).unwrap();
    }
    run_to_the_end(&mut lp);
    assert_eq!(tcp.release(&mut lp).unwrap_err().kind(), ErrorKind::NotFound);
    finish(lp);
    Ok(())
}

/// A connection can be accepted as a socket, which no handle owns.
#[cfg(unix)]
pub fn connections_are_accepted_as_sockets(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (server, address) = crate::support::streams::bound(&mut lp);
    let sockets = Log::default();
    let log = sockets.clone();
    let accept = move |lp: &mut Loop, server: Tcp, result: std::io::Result<()>| {
        result.unwrap();
        log.push(server.accept_socket(lp).unwrap());
        assert_eq!(server.accept_socket(lp).unwrap_err().kind(), ErrorKind::WouldBlock);
    };
    server.listen(&mut lp, 8, accept).unwrap();
    let peers = [(); 3].map(|()| TcpStream::connect(address).unwrap());
    run_until(&mut lp, "three connections", |_| sockets.len() == 3);
    let handles = lp.walk().len();
    assert!(handles <= 2, "{handles} handles: the listener, and the timer of this case");
    for (socket, peer) in sockets.take().into_iter().zip(&peers) {
        let socket = TcpStream::from(socket);
        assert_eq!(socket.peer_addr().unwrap(), peer.local_addr().unwrap());
    }
    server.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

#[cfg(not(unix))]
macro_rules! unix_only {
    ($($case:ident)*) => {$(
        /// Sockets change between loops on Unix only.
        pub fn $case(_lab: &Lab) -> Verdict {
            Err(crate::Skip::because("a socket of Windows stays with its completion port"))
        }
    )*};
}

#[cfg(not(unix))]
unix_only! {
    a_released_connection_continues_in_another_loop
    a_busy_stream_is_not_released
    connections_are_accepted_as_sockets
}
