//! Listeners in a process without free descriptors. A separate program, because the limit applies
//! to the whole process.

#![cfg(unix)]
#![allow(unsafe_code)]

use std::cell::Cell;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::time::Duration;

use uv_core::backends::Auto;
use uv_core::{Handle, Listener, Loop, RunMode, Tcp, TcpBindFlags, Timer};

fn limit_descriptors(count: libc::rlim_t) {
    let limit = libc::rlimit { rlim_cur: count, rlim_max: count };
    // SAFETY: the kernel reads one structure.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
}

#[test]
fn connections_are_refused_without_busy_looping() {
    limit_descriptors(100);
    for name in Auto::NAMES {
        let mut lp = match Auto::named(name) {
            Ok(backend) => Loop::new(backend),
            Err(error) if error.kind() == ErrorKind::Unsupported => continue,
            Err(error) => panic!("{name}: {error}"),
        };
        eprintln!("on {name}");
        let (server, accepted) = (Tcp::new(&mut lp), Rc::new(Cell::new(0)));
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        server.bind(&mut lp, any, TcpBindFlags::empty()).unwrap();
        let count = Rc::clone(&accepted);
        server
            .listen(&mut lp, 16, move |lp, server, result| {
                result.unwrap();
                count.set(count.get() + 1);
                server.accept(lp).unwrap().close(lp).unwrap();
            })
            .unwrap();
        let address = server.local_addr(&lp).unwrap();
        lp.run(RunMode::NoWait).unwrap();
        // Uses all descriptors but one, which is for the client.
        let mut files: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
        files.pop();
        let mut client = TcpStream::connect(address).unwrap();

        let (timer, iterations) = (Timer::new(&mut lp), lp.metrics().loop_count());
        timer.start(&mut lp, Duration::from_millis(50), Duration::ZERO, |lp, _| lp.stop()).unwrap();
        lp.run(RunMode::Default).unwrap();
        assert_eq!(accepted.get(), 0, "{name}: no descriptor was free to accept it");
        assert!(lp.metrics().loop_count() - iterations < 10, "{name}: the loop spins");
        client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let end = client.read(&mut [0]);
        let refused = |kind| kind == ErrorKind::ConnectionReset;
        assert!(end.as_ref().map_or_else(|error| refused(error.kind()), |n| *n == 0), "{end:?}");

        // With free descriptors, connections are accepted again.
        drop((client, files));
        let client = TcpStream::connect(address).unwrap();
        while accepted.get() == 0 {
            lp.run(RunMode::Once).unwrap();
        }
        drop(client);
        server.close(&mut lp).unwrap();
        timer.close(&mut lp).unwrap();
        lp.run(RunMode::Default).unwrap();
    }
}
