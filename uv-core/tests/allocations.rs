//! In a steady state, streams, datagrams and watches allocate nothing.

#[path = "support/counting.rs"]
mod counting;

use std::cell::RefCell;
use std::io::{ErrorKind, Read};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};

use counting::allocations;
use uv_core::backends::Auto;
use uv_core::{Handle, Listener, Loop, RunMode, Stream, Tcp, TcpBindFlags, Udp, UdpBindFlags};

/// Serializes the tests: tables indexed by descriptors grow with the descriptors of other tests.
static SERIAL: Mutex<()> = Mutex::new(());

fn every(case: impl Fn(&mut Loop<Auto>)) {
    let _serial = SERIAL.lock().unwrap_or_else(PoisonError::into_inner);
    for name in Auto::NAMES {
        match Auto::named(name) {
            Ok(backend) => {
                eprintln!("on {name}");
                case(&mut Loop::new(backend));
            }
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                eprintln!("skip {name}: {error}");
            }
            Err(error) => panic!("{name}: {error}"),
        }
    }
}

/// Rounds before counting, in which buffers grow to their final size, and counted rounds.
const WARM_UP: usize = 200;
const COUNTED: usize = 1000;

/// Counts the allocations of the rounds after the warm-up.
struct Meter {
    rounds: usize,
    before: usize,
}

impl Meter {
    fn new() -> Meter {
        Meter { rounds: 0, before: 0 }
    }

    /// Ends a round. True after the last one.
    fn round(&mut self) -> bool {
        self.rounds += 1;
        let now = allocations();
        if self.rounds == WARM_UP {
            self.before = now;
        }
        if self.rounds == WARM_UP + COUNTED {
            assert_eq!(now - self.before, 0, "allocations in {COUNTED} rounds");
        }
        self.rounds == WARM_UP + COUNTED
    }
}

/// Echoes 512 bytes between two streams: borrowed reads and owned writes.
fn echo<S: Stream>(lp: &mut Loop<Auto>, one: S, other: S) {
    other
        .read_start(lp, |lp, other, bytes| {
            assert_eq!(bytes.unwrap().len(), 512);
            other.write(lp, &[7; 512], |_, _, result, _| result.unwrap()).unwrap();
        })
        .unwrap();
    let (buffer, mut meter) = (Rc::new(RefCell::new(vec![1; 512])), Meter::new());
    let ping = move |lp: &mut Loop<Auto>| {
        let kept = Rc::clone(&buffer);
        let bytes = buffer.take();
        one.write(lp, bytes, move |_, _, _, bytes| drop(kept.replace(bytes))).unwrap();
    };
    ping(lp);
    one.read_start(lp, move |lp, one, bytes| {
        assert_eq!(bytes.unwrap().len(), 512);
        if meter.round() {
            one.close(lp).unwrap();
            other.close(lp).unwrap();
        } else {
            ping(lp);
        }
    })
    .unwrap();
    lp.run(RunMode::Default).unwrap();
}

#[test]
fn borrowed_reads_and_owned_writes_allocate_nothing() {
    every(|lp| {
        let (one, other) = Tcp::pair(lp).unwrap();
        echo(lp, one, other);
    });
}

/// Not on Windows, whose pipes copy the bytes that they write.
#[cfg(unix)]
#[test]
fn pipes_allocate_nothing() {
    use uv_core::Pipe;

    every(|lp| {
        let (one, other) = match Pipe::pair(lp) {
            Ok(pair) => pair,
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                return eprintln!("skip: {error}");
            }
            Err(error) => panic!("{error}"),
        };
        echo(lp, one, other);
        // The same for pipes that can pass handles.
        let (one, other) = Pipe::pair(lp).unwrap();
        match one.enable_passing(lp).and(other.enable_passing(lp)) {
            Ok(()) => echo(lp, one, other),
            Err(error) => eprintln!("skip: {error}"),
        }
    });
}

/// Several pairs, because a single one is not batched.
#[test]
fn batches_allocate_nothing() {
    fn answer(lp: &mut Loop<Auto>, tcp: Tcp, bytes: &[u8]) {
        assert_eq!(bytes.len(), 64);
        assert_eq!(tcp.write_coalesced(lp, bytes).unwrap(), 64);
    }
    every(|lp| {
        let pairs: Rc<[_]> = (0..4).map(|_| Tcp::pair(lp).unwrap()).collect();
        let meter = Rc::new(RefCell::new(Meter::new()));
        for (one, other) in pairs.iter() {
            other.read_start(lp, |lp, other, bytes| answer(lp, other, bytes.unwrap())).unwrap();
            let (pairs, meter) = (Rc::clone(&pairs), Rc::clone(&meter));
            let reading = one.read_start(lp, move |lp, one, bytes| {
                answer(lp, one, bytes.unwrap());
                if meter.borrow_mut().round() {
                    for (one, other) in pairs.iter() {
                        one.close(lp).unwrap();
                        other.close(lp).unwrap();
                    }
                }
            });
            reading.unwrap();
            assert_eq!(one.try_write(lp, &[7; 64]).unwrap(), 64);
        }
        lp.run(RunMode::Default).unwrap();
    });
}

/// One pair has one datagram in flight; forty pairs have more than there are buffers.
#[test]
fn datagrams_allocate_nothing() {
    fn bound(lp: &mut Loop<Auto>) -> (Udp, SocketAddr) {
        let udp = Udp::new(lp);
        udp.bind(lp, "127.0.0.1:0".parse().unwrap(), UdpBindFlags::empty()).unwrap();
        (udp, udp.local_addr(lp).unwrap())
    }
    fn answer(lp: &mut Loop<Auto>, udp: Udp, to: Option<SocketAddr>) {
        udp.send(lp, &[7_u8; 64][..], to, |_, _, result, _| result.unwrap()).unwrap();
    }
    for count in [1, 40] {
        every(|lp| {
            let meter = Rc::new(RefCell::new(Meter::new()));
            let mut pairs = Vec::new();
            for _ in 0..count {
                let ((one, _), (other, to)) = (bound(lp), bound(lp));
                one.connect(lp, to).unwrap();
                pairs.push((one, other));
            }
            let pairs: Rc<[_]> = pairs.into();
            for (one, other) in pairs.iter() {
                let answering = other.recv_start(lp, |lp, other, datagram| {
                    answer(lp, other, Some(datagram.unwrap().from));
                });
                answering.unwrap();
                let (pairs, meter) = (Rc::clone(&pairs), Rc::clone(&meter));
                let pinging = one.recv_start(lp, move |lp, one, datagram| {
                    assert_eq!(datagram.unwrap().data, [7; 64]);
                    answer(lp, one, None);
                    if meter.borrow_mut().round() {
                        for (one, other) in pairs.iter() {
                            one.close(lp).unwrap();
                            other.close(lp).unwrap();
                        }
                    }
                });
                pinging.unwrap();
                answer(lp, *one, None);
            }
            lp.run(RunMode::Default).unwrap();
        });
    }
}

#[test]
fn owned_reads_and_vectored_writes_allocate_nothing() {
    fn next(lp: &mut Loop<Auto>, one: Tcp, other: Tcp, buffer: Vec<u8>, meter: Rc<RefCell<Meter>>) {
        one.write(lp, ["abc", "def"], |_, _, result, _| result.unwrap()).unwrap();
        let read = other.read(lp, buffer, move |lp, other, count, buffer| {
            assert_eq!(count.unwrap(), 6);
            if meter.borrow_mut().round() {
                one.close(lp).unwrap();
                other.close(lp).unwrap();
            } else {
                next(lp, one, other, buffer, meter);
            }
        });
        read.unwrap();
    }
    every(|lp| {
        let (one, other) = Tcp::pair(lp).unwrap();
        next(lp, one, other, vec![0; 100], Rc::new(RefCell::new(Meter::new())));
        lp.run(RunMode::Default).unwrap();
    });
}

#[test]
fn accepting_and_closing_allocate_nothing() {
    every(|lp| {
        // Several handles may be open at a time, because a peer may close before its handle does.
        for (one, other) in [(); 16].map(|()| Tcp::pair(lp).unwrap()) {
            for end in [one, other] {
                end.read_start(lp, |_, _, _| {}).unwrap();
                end.close(lp).unwrap();
            }
        }
        lp.run(RunMode::Default).unwrap();
        let server = Tcp::new(lp);
        let address: SocketAddr = "127.0.0.1:0".parse().unwrap();
        server.bind(lp, address, TcpBindFlags::empty()).unwrap();
        let mut meter = Meter::new();
        server
            .listen(lp, 4096, move |lp, server, _| {
                let peer = server.accept(lp).unwrap();
                let read = peer.read_start(lp, |lp, peer, bytes| {
                    assert_eq!(bytes.unwrap(), b"");
                    peer.close(lp).unwrap();
                });
                read.unwrap();
                if meter.round() {
                    server.close(lp).unwrap();
                }
            })
            .unwrap();
        let address = server.local_addr(lp).unwrap();
        let clients = std::thread::spawn(move || {
            for _ in 0..WARM_UP + COUNTED {
                // One client at a time: concurrency would make tables grow.
                let mut client = TcpStream::connect(address).unwrap();
                client.shutdown(Shutdown::Write).unwrap();
                assert_eq!(client.read(&mut [0]).unwrap(), 0);
            }
        });
        lp.run(RunMode::Default).unwrap();
        clients.join().unwrap();
    });
}

#[test]
#[cfg(target_os = "linux")]
fn watching_allocates_nothing() {
    use std::io::Write as _;
    use uv_core::{FsEvent, FsEventFlags};

    let directory = std::env::temp_dir().join(format!("watching-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let file = std::fs::File::create(directory.join("file")).unwrap();
    let path = directory.clone();
    every(move |lp| {
        let (watch, mut meter) = (FsEvent::new(lp), Meter::new());
        let mut writer = file.try_clone().unwrap();
        watch
            .start(lp, &path, FsEventFlags::RECURSIVE, move |lp, watch, news| {
                news.unwrap();
                if meter.round() {
                    watch.close(lp).unwrap();
                } else {
                    writer.write_all(b"x").unwrap();
                }
            })
            .unwrap();
        (&file).write_all(b"x").unwrap();
        lp.run(RunMode::Default).unwrap();
    });
    std::fs::remove_dir_all(directory).unwrap();
}
