//! The short forms of pipes and UDP sockets, on every backend. Those of TCP are cases of the suite.

use std::io::ErrorKind;

use uv_core::backends::Auto;
use uv_core::{Handle, Loop, RunMode, Udp};

fn loops() -> impl Iterator<Item = (&'static str, Loop<Auto>)> {
    Auto::NAMES.iter().filter_map(|&name| {
        let mut lp = Loop::new(Auto::named(name).ok()?); // Otherwise this machine lacks it.
        lp.on_error(move |_, handle, error| panic!("{name}: {handle}: {error}"));
        Some((name, lp))
    })
}

#[cfg(unix)]
mod pipes {
    use uv_core::{Pipe, Stream, is_cancelled};

    use super::*;

    #[test]
    fn a_server_answers_what_was_sent_before_the_connection() {
        for (name, mut lp) in loops() {
            let path = std::env::temp_dir().join(format!("short-{name}-{}", std::process::id()));
            let server = Pipe::listen_on(&mut lp, &path, |lp, peer| {
                peer.on_read(lp, |lp, peer, bytes| {
                    match bytes {
                        [] => peer.finish(lp),
                        bytes => peer.send(lp, bytes.to_ascii_uppercase()),
                    }
                    Ok(())
                })
            })
            .unwrap();
            let again = Pipe::listen_on(&mut lp, &path, |_, _| Ok(()));
            assert_eq!(again.unwrap_err().kind(), ErrorKind::AddrInUse, "{name}");

            let client = Pipe::connect_to(&mut lp, &path, |lp, client, result| {
                result.unwrap();
                client.shutdown(lp, |_, _, result| result.unwrap()).unwrap();
            });
            client.send(&mut lp, "hello");
            let read = client.on_read(&mut lp, move |lp, client, bytes| {
                lp.state::<Vec<u8>>().extend_from_slice(bytes);
                if bytes.is_empty() {
                    server.close_if_open(lp); // Not before: it would reset what it has not accepted.
                    client.close_if_open(lp);
                }
                Ok(())
            });
            read.unwrap();
            lp.run(RunMode::Default).unwrap();
            assert_eq!(lp.state::<Vec<u8>>(), b"HELLO", "{name}");
            assert!(lp.walk().is_empty(), "{name}: {}", lp.debug_handles());
            assert!(!path.exists(), "{name}: a server that is closed removes its name");
        }
    }

    #[test]
    fn an_error_of_a_callback_closes_its_connection() {
        for (name, mut lp) in loops() {
            let path = std::env::temp_dir().join(format!("fails-{name}-{}", std::process::id()));
            lp.on_error(|lp, handle, error| {
                assert_eq!(handle.kind(), "pipe");
                lp.state::<Vec<ErrorKind>>().push(error.kind());
            });
            let server =
                Pipe::listen_on(&mut lp, &path, |_, _| Err(ErrorKind::ConnectionRefused.into()));
            let server = server.unwrap();
            let client = Pipe::connect_to(&mut lp, &path, |_, _, result| result.unwrap());
            let read = client.on_read(&mut lp, move |lp, client, bytes| {
                assert!(bytes.is_empty());
                server.close_if_open(lp);
                client.close(lp)
            });
            read.unwrap();
            lp.run(RunMode::Default).unwrap();
            assert_eq!(lp.state::<Vec<ErrorKind>>()[..], [ErrorKind::ConnectionRefused], "{name}");
            assert!(lp.walk().is_empty(), "{name}: {}", lp.debug_handles());
        }
    }

    #[test]
    fn all_errors_of_a_connect_reach_its_callback() {
        for (name, mut lp) in loops() {
            let long = "x".repeat(1000);
            for (to, kind) in
                [("/no/such/server", ErrorKind::NotFound), (&*long, ErrorKind::InvalidInput)]
            {
                Pipe::connect_to(&mut lp, to, move |lp, client, result| {
                    assert_eq!(result.unwrap_err().kind(), kind, "{name}");
                    *lp.state::<u32>() += 1;
                    client.close_if_open(lp);
                });
                let closed = Pipe::connect_to(&mut lp, to, move |lp, _, result| {
                    assert!(is_cancelled(&result.unwrap_err()), "{name}");
                    *lp.state::<u32>() += 1;
                });
                closed.close(&mut lp).unwrap();
                assert_eq!(*lp.state::<u32>(), 0, "{name}: no call runs a callback");
                lp.run(RunMode::Default).unwrap();
                assert_eq!(std::mem::take(lp.state::<u32>()), 2, "{name}");
            }
            assert!(lp.walk().is_empty(), "{name}: {}", lp.debug_handles());
        }
    }
}

#[test]
fn a_udp_socket_is_bound_to_the_first_address_that_can_be() {
    for (name, mut lp) in loops() {
        let one = Udp::bind_to(&mut lp, "127.0.0.1:0").unwrap();
        let taken = one.local_addr(&lp).unwrap();
        let refused = Udp::bind_to(&mut lp, taken);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::AddrInUse, "{name}");
        let other = Udp::bind_to(&mut lp, vec![taken, ([127, 0, 0, 1], 0).into()]).unwrap();
        assert_ne!(other.local_addr(&lp).unwrap(), taken, "{name}");
        for wrong in ["127.0.0.1", "127.0.0.1:65536", ""] {
            let refused = Udp::bind_to(&mut lp, wrong);
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidInput, "{name}");
        }
        assert!(Udp::bind_to(&mut lp, Vec::<std::net::SocketAddr>::new()).is_err(), "{name}");
        one.close(&mut lp).unwrap();
        other.close(&mut lp).unwrap();
        lp.run(RunMode::Default).unwrap();
        assert!(lp.walk().is_empty(), "{name}: what failed is closed: {}", lp.debug_handles());
    }
}
