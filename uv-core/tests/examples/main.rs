//! The examples run and succeed.

// Each example is a separate program with its own copy of the shared module.
#![allow(clippy::duplicate_mod)]

#[path = "../../examples/custom_backend.rs"]
#[allow(dead_code)]
mod custom_backend;
#[path = "../../examples/echo.rs"]
#[allow(dead_code)]
mod echo;
#[path = "../../examples/first.rs"]
mod first;
#[path = "../../examples/proxy.rs"]
#[allow(dead_code)]
mod proxy;
#[path = "../../examples/simulated_time.rs"]
#[allow(dead_code)]
mod simulated_time;
#[path = "../../examples/udp_responder.rs"]
#[allow(dead_code)]
mod udp_responder;

#[path = "../../examples/chat.rs"]
#[allow(dead_code)]
mod chat;
#[path = "../../examples/compare.rs"]
#[allow(dead_code)]
mod compare;
#[path = "../../examples/copy.rs"]
#[allow(dead_code)]
mod copy;
#[path = "../../examples/cpu_work.rs"]
#[allow(dead_code)]
mod cpu_work;
#[cfg(unix)]
#[path = "../../examples/embedded.rs"]
#[allow(dead_code)]
mod embedded;
#[cfg(unix)]
#[path = "../../examples/embedded_calloop.rs"]
#[allow(dead_code)]
mod embedded_calloop;
#[cfg(unix)]
#[path = "../../examples/embedded_tokio.rs"]
#[allow(dead_code)]
mod embedded_tokio;
#[path = "../../examples/http.rs"]
#[allow(dead_code)]
mod http;
#[cfg(unix)]
#[path = "../../examples/per_core.rs"]
#[allow(dead_code)]
mod per_core;
#[cfg(unix)]
#[path = "../../examples/supervisor.rs"]
#[allow(dead_code)]
mod supervisor;
#[path = "../../examples/tail.rs"]
#[allow(dead_code)]
mod tail;
#[path = "../../examples/udp_client.rs"]
#[allow(dead_code)]
mod udp_client;
#[path = "../../examples/watch.rs"]
#[allow(dead_code)]
mod watch;
#[cfg(unix)]
#[path = "../../examples/workers.rs"]
#[allow(dead_code)]
mod workers;

mod datagrams;
#[cfg(unix)]
mod signals;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use uv_core::Sender;
use uv_core::backends::Auto;

#[test]
fn first_program_ends() {
    first::main().unwrap();
}

#[test]
fn custom_backend_serves_its_client() {
    custom_backend::main().unwrap();
}

#[test]
fn simulated_time_needs_no_wait() {
    simulated_time::main().unwrap();
}

#[test]
fn echo_server_works_on_every_backend() {
    for name in uv_core::backends::Auto::NAMES {
        let (sender, receiver) = std::sync::mpsc::channel();
        let server = std::thread::spawn(move || {
            echo::serve(name, 0, 2, |address| sender.send(address).unwrap())
        });
        let Ok(address) = receiver.recv() else {
            let error = server.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{name}: {error}");
            eprintln!("skip {name}: {error}");
            continue;
        };
        for _ in 0..2 {
            // More than the kernel's buffers hold, so that the server has to wait.
            let (mut peer, size) = (TcpStream::connect(address).unwrap(), 16 << 20);
            let mut writer = peer.try_clone().unwrap();
            let sending = std::thread::spawn(move || {
                writer.write_all(&vec![5; size]).unwrap();
                writer.shutdown(Shutdown::Write).unwrap();
            });
            let mut all = Vec::new();
            std::thread::sleep(Duration::from_millis(20));
            peer.read_to_end(&mut all).unwrap();
            assert!(all.len() == size && all.iter().all(|byte| *byte == 5), "{name}");
            sending.join().unwrap();
        }
        server.join().unwrap().unwrap();
    }
}

#[test]
fn proxy_works_on_every_backend() {
    // A server that reads to the end and then echoes all bytes.
    let behind = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = behind.local_addr().unwrap();
    std::thread::spawn(move || {
        for peer in behind.incoming() {
            let (mut peer, mut all) = (peer.unwrap(), Vec::new());
            // Slow at first, so that the proxy has to wait.
            std::thread::sleep(Duration::from_millis(20));
            if peer.read_to_end(&mut all).is_ok() {
                let _ = peer.write_all(&all);
            }
        }
    });
    let refused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for name in uv_core::backends::Auto::NAMES {
        for (to, answers) in [(to, true), (refused, false)] {
            if !answers && cfg!(windows) {
                // Under Wine, a blocking send to a proxy that has closed never returns.
                continue;
            }
            let (sender, receiver) = std::sync::mpsc::channel();
            let server = std::thread::spawn(move || {
                proxy::serve(name, 0, 2, to, |address| sender.send(address).unwrap())
            });
            let Ok(address) = receiver.recv() else {
                let error = server.join().unwrap().unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{name}: {error}");
                eprintln!("skip {name}: {error}");
                continue;
            };
            for size in [16 << 20, 5] {
                let mut peer = TcpStream::connect(address).unwrap();
                let sent: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
                let mut all = Vec::new();
                let written = peer.write_all(&sent);
                let ended = written.and_then(|()| peer.shutdown(Shutdown::Write));
                let read = ended.and_then(|()| peer.read_to_end(&mut all));
                if answers {
                    read.unwrap();
                    assert!(all == sent, "{name}: {} of {size} bytes came back", all.len());
                } else {
                    assert!(all.is_empty(), "{name}: no server could answer");
                }
            }
            server.join().unwrap().unwrap();
        }
    }
}

/// Gets the address of a server, and what ends it.
type Ready = Box<dyn FnOnce(SocketAddr, Sender<()>)>;

/// Runs `server` in a thread on each backend, and `client` against it; then ends it.
fn on_every_backend(
    server: impl Fn(&'static str, Ready) -> std::io::Result<()> + Send + Sync + 'static,
    client: impl Fn(&'static str, SocketAddr),
) {
    let server = Arc::new(server);
    for name in Auto::NAMES {
        let (sender, receiver) = mpsc::channel();
        let server = Arc::clone(&server);
        let serving = std::thread::spawn(move || {
            server(name, Box::new(move |address, stop| sender.send((address, stop)).unwrap()))
        });
        let Ok((address, stop)) = receiver.recv() else {
            is_missing(name, serving.join().unwrap());
            continue;
        };
        client(name, address);
        stop.send(()).unwrap();
        serving.join().unwrap().unwrap();
    }
}

/// Asserts that a backend is not on this machine.
fn is_missing<T>(name: &str, result: std::io::Result<T>) {
    let error = result.err().unwrap_or_else(|| panic!("{name} has ended early"));
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{name}: {error}");
    eprintln!("skip {name}: {error}");
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("uv-example-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Asserts that the peer closes without another byte. A signal of another test may interrupt a read,
/// which `read_to_end` repeats.
fn assert_ended(stream: &mut TcpStream, why: &str) {
    assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 0, "{why}");
}

/// Reads until the text contains `what`.
fn read_until(stream: &mut TcpStream, what: &str) -> String {
    let (mut text, mut byte) = (String::new(), [0]);
    while !text.contains(what) {
        stream.read_exact(&mut byte).unwrap_or_else(|error| panic!("{text:?}: {error}"));
        text.push(byte[0].into());
    }
    text
}

/// Reads one response; returns its status line and its body.
fn response(stream: &mut TcpStream) -> (String, Vec<u8>) {
    let head = read_until(stream, "\r\n\r\n");
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    (head.lines().next().unwrap().to_owned(), body)
}

#[test]
fn http_server_keeps_connections_and_answers_in_order() {
    let root = folder("http");
    let large: Vec<u8> = (0..3_000_001_u32).map(|at| (at % 251) as u8).collect();
    std::fs::write(root.join("small.txt"), "small").unwrap();
    std::fs::write(root.join("large.bin"), &large).unwrap();
    let served = root.clone();
    on_every_backend(
        move |name, ready| http::serve(name, 0, served.clone(), ready),
        |name, address| {
            let mut peer = connect(address);
            // Pipelined: all requests before the first response.
            let paths = ["small.txt", "large.bin", "none", "small.txt?query", "../Cargo.toml", "."];
            for path in paths {
                write!(peer, "GET /{path} HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
            }
            peer.write_all(b"POST /small.txt HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody").unwrap();
            let answers = [(); 7].map(|()| response(&mut peer));
            let status = answers.each_ref().map(|(status, _)| &status[9..12]);
            assert_eq!(status, ["200", "200", "404", "200", "403", "403", "405"], "{name}");
            assert!(answers[0].1 == b"small" && answers[3].1 == b"small" && answers[1].1 == large);

            peer.write_all(b"HEAD /large.bin HTTP/1.1\r\nConnection: close\r\n\r\n").unwrap();
            let mut rest = String::new();
            peer.read_to_string(&mut rest).unwrap();
            assert!(rest.starts_with("HTTP/1.1 200") && rest.contains("Length: 3000001\r\n"));
            assert!(rest.ends_with("\r\n\r\n"), "{name}: the connection ends after the head");

            let mut peer = connect(address);
            peer.write_all(b"nonsense\r\n\r\n").unwrap();
            assert!(response(&mut peer).0.contains("400"), "{name}");
            // A client that goes away in the middle of a response.
            let mut peer = connect(address);
            peer.write_all(b"GET /large.bin HTTP/1.1\r\n\r\n").unwrap();
            peer.read_exact(&mut [0; 100]).unwrap();
        },
    );
    std::fs::remove_dir_all(root).unwrap();
}

#[test]
fn http_server_ends_after_its_responses() {
    let root = folder("graceful");
    std::fs::write(root.join("large.bin"), vec![5; 20_000_000]).unwrap();
    let (sender, receiver) = mpsc::channel();
    let served = root.clone();
    let serving = std::thread::spawn(move || {
        http::serve("auto", 0, served, |address, stop| sender.send((address, stop)).unwrap())
    });
    let (address, stop) = receiver.recv().unwrap();
    let (mut busy, mut idle) = (connect(address), connect(address));
    busy.write_all(b"GET /large.bin HTTP/1.1\r\n\r\n").unwrap();
    busy.read_exact(&mut [0; 9]).unwrap();
    stop.send(()).unwrap();
    assert_ended(&mut idle, "an idle connection is closed");
    let mut rest = Vec::new();
    let read = busy.read_to_end(&mut rest).unwrap();
    assert!(read > 20_000_000, "the response is complete");
    serving.join().unwrap().unwrap();
    std::fs::remove_dir_all(root).unwrap();
}

#[test]
fn chat_server_distributes_lines() {
    let idle = Duration::from_secs(60);
    on_every_backend(
        move |name, ready| chat::serve(name, 0, idle, ready),
        |name, address| {
            let mut ada = connect(address);
            ada.write_all(b"/name Ada\n").unwrap();
            let mut ben = connect(address);
            read_until(&mut ada, "has joined\n");
            ben.write_all(b"hel").unwrap();
            ben.write_all(b"lo\n/name Ben\nagain\n").unwrap();
            let text = read_until(&mut ada, "Ben: again\n");
            assert!(text.contains(": hello\n") && text.contains("is now Ben\n"), "{name}: {text}");
            ada.write_all(b"hello, Ben\n").unwrap();
            assert!(read_until(&mut ben, "Ada: hello, Ben\n").ends_with("Ada: hello, Ben\n"));
            drop(ben);
            read_until(&mut ada, "Ben has left");
            ada.write_all(&[b'x'; 10_000]).unwrap(); // A line that is too long.
            let mut rest = Vec::new();
            let _ = ada.read_to_end(&mut rest);
        },
    );
}

#[test]
fn chat_server_disconnects_idle_and_slow_clients() {
    on_every_backend(
        |name, ready| chat::serve(name, 0, Duration::from_millis(300), ready),
        |name, address| {
            let mut idle = connect(address);
            assert_ended(&mut idle, &format!("{name}: the idle client is gone"));
        },
    );
    on_every_backend(
        |name, ready| chat::serve(name, 0, Duration::from_secs(60), ready),
        |name, address| {
            let (slow, mut fast) = (connect(address), connect(address));
            let line = format!("{}\n", "x".repeat(4000));
            let mut reader = fast.try_clone().unwrap();
            let left = std::thread::spawn(move || read_until(&mut reader, "too slowly"));
            // More than the kernel's buffers and the limit hold, and then until it is noticed.
            while !left.is_finished() {
                fast.write_all(line.as_bytes()).unwrap();
            }
            assert!(left.join().is_ok(), "{name}");
            drop(slow);
        },
    );
}

#[cfg(unix)]
#[test]
fn supervisor_starts_programs_again() {
    for name in Auto::NAMES {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&lines);
        let programs = ["echo hello", "false", "no-such-program"].map(str::to_owned);
        let ended = supervisor::supervise(name, &programs, 2, move |line| {
            log.lock().unwrap().push(line.to_owned());
        });
        if ended.is_err() {
            is_missing(name, ended);
            continue;
        }
        let lines = lines.lock().unwrap();
        let count = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
        assert_eq!(count("echo hello: | hello"), 2, "{name}: {lines:?}");
        assert_eq!(count("echo hello: ended: code 0"), 2, "{name}: {lines:?}");
        assert_eq!(count("false: ended: code 1"), 2, "{name}: {lines:?}");
        assert_eq!(count("no-such-program: "), 2, "{name}: {lines:?}");
    }
}

#[test]
#[cfg_attr(windows, ignore = "Windows does not replace a file that is open")]
fn tail_follows_a_file_that_grows_and_is_replaced() {
    for name in Auto::NAMES {
        let path = folder("tail").join(format!("{name}.log"));
        std::fs::write(&path, "one ").unwrap();
        let (ready, printed) = (mpsc::channel(), mpsc::channel());
        let (to_follow, is_ready, print) = (path.clone(), ready.0, printed.0);
        let following = std::thread::spawn(move || {
            let ready = move || is_ready.send(()).unwrap();
            tail::follow(name, &to_follow, 18, ready, move |bytes| {
                print.send(String::from_utf8_lossy(bytes).into_owned()).unwrap();
            })
        });
        if ready.1.recv().is_err() {
            is_missing(name, following.join().unwrap());
            continue;
        }
        let mut text = String::new();
        let mut wait_for = |what: &str| {
            while text != what {
                text += &printed.1.recv_timeout(Duration::from_secs(20)).unwrap();
                assert!(what.starts_with(&*text), "{name}: {text}");
            }
        };
        wait_for("one ");
        let mut file = std::fs::File::options().append(true).open(&path).unwrap();
        file.write_all(b"two ").unwrap();
        wait_for("one two ");
        let new = path.with_extension("new");
        std::fs::write(&new, "three").unwrap();
        // The last bytes of the old file, just before it is replaced, are printed as well.
        file.write_all(b"late ").unwrap();
        std::fs::rename(&new, &path).unwrap();
        wait_for("one two late three");
        following.join().unwrap().unwrap();
    }
}

#[test]
fn watch_reports_changes_together() {
    for name in Auto::NAMES {
        let folder = folder(&format!("watch-{name}"));
        let (ready, reported) = (mpsc::channel(), mpsc::channel());
        let (watched, is_ready, report) = (folder.clone(), ready.0, reported.0);
        let watching = std::thread::spawn(move || {
            let ready = move || is_ready.send(()).unwrap();
            watch::watch(name, watched, 1, ready, move |names| report.send(names.clone()).unwrap())
        });
        if ready.1.recv().is_err() {
            is_missing(name, watching.join().unwrap());
            continue;
        }
        std::fs::write(folder.join("a"), "").unwrap();
        let names = reported.1.recv_timeout(Duration::from_secs(20)).unwrap();
        assert!(!names.is_empty(), "{name}");
        watching.join().unwrap().unwrap();
        std::fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn cpu_work_reports_progress_and_can_be_cancelled() {
    let progress = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&progress);
    let long = Duration::from_secs(600);
    let counted = cpu_work::count_primes("auto", 25_000, long, move |done| {
        log.lock().unwrap().push(done);
    });
    assert_eq!(counted.unwrap(), Some(2762));
    assert_eq!(*progress.lock().unwrap(), [10_000, 20_000, 25_000]);
    let cancelled = cpu_work::count_primes("auto", u64::MAX / 2, Duration::ZERO, |_| {});
    assert_eq!(cancelled.unwrap(), None);
}

#[test]
fn copy_works_on_every_backend() {
    let folder = folder("copy");
    let content: Vec<u8> = (0..3_000_001_u32).map(|at| (at % 251) as u8).collect();
    let (from, to) = (folder.join("from"), folder.join("to"));
    for name in Auto::NAMES {
        for size in [0, 1, content.len()] {
            std::fs::write(&from, &content[..size]).unwrap();
            let last = Arc::new(Mutex::new(0));
            let seen = Arc::clone(&last);
            match copy::copy(name, &from, &to, move |written, _| *seen.lock().unwrap() = written) {
                Ok(copied) => {
                    assert_eq!((copied, *last.lock().unwrap()), (size as u64, size as u64));
                    assert!(std::fs::read(&to).unwrap() == content[..size], "{name}");
                }
                missing => is_missing(name, missing),
            }
        }
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[cfg(unix)]
#[test]
fn per_core_server_echoes() {
    for way in [uv_core::Distribution::Kernel, uv_core::Distribution::HandOver] {
        let (group, address) = per_core::server::serve("auto".into(), 0, 2, way).unwrap();
        for _ in 0..4 {
            let (mut peer, mut echo) = (connect(address), [0; 4]);
            peer.write_all(b"echo").unwrap();
            peer.read_exact(&mut echo).unwrap();
            assert_eq!(&echo, b"echo");
        }
        group.stop_listening();
        group.join().unwrap();
    }
}

#[cfg(unix)]
#[test]
fn embedded_loop_is_driven_by_mio() {
    for name in Auto::NAMES {
        match embedded::run(name, 5) {
            Ok(counts) => assert_eq!(counts, (5, 5), "{name}"),
            missing => is_missing(name, missing), // `select` and `poll` have no descriptor.
        }
    }
}

#[cfg(unix)]
#[test]
fn embedded_loop_is_driven_by_tokio() {
    for name in Auto::NAMES {
        match embedded_tokio::run(name, 5) {
            Ok(counts) => assert_eq!(counts, (5, 5), "{name}"),
            missing => is_missing(name, missing), // `select` and `poll` have no descriptor.
        }
    }
}

#[cfg(unix)]
#[test]
fn embedded_loop_is_driven_by_calloop() {
    for name in Auto::NAMES {
        match embedded_calloop::run(name, 5) {
            Ok(counts) => assert_eq!(counts, (5, 5), "{name}"),
            missing => is_missing(name, missing), // `select` and `poll` have no descriptor.
        }
    }
}

/// Makes this test executable a worker of `workers_echo_on_connections_that_they_are_passed`.
#[cfg(unix)]
#[test]
fn is_a_worker() {
    if let Ok(backend) = std::env::var("UV_EXAMPLE_WORKER") {
        workers::server::work(&backend).unwrap();
    }
}

#[cfg(unix)]
#[test]
fn workers_echo_on_connections_that_they_are_passed() {
    on_every_backend(
        |name, ready| {
            let (this, backend) = (std::env::current_exe()?, format!("UV_EXAMPLE_WORKER={name}"));
            // `env` sets the variable for this child alone.
            let worker = uv_core::Command::new("env").arg(backend).arg(this);
            let worker = worker.args(["is_a_worker", "--exact", "--nocapture"]);
            workers::server::serve(name, 0, 2, worker, ready)
        },
        |name, address| {
            let mut processes = std::collections::HashSet::new();
            for _ in 0..4 {
                let (mut peer, mut rest) = (connect(address), String::new());
                let greeting = read_until(&mut peer, "\n");
                assert!(!greeting.contains(&format!(" {}\n", std::process::id())), "{name}");
                processes.insert(greeting);
                peer.write_all(b"echo").unwrap();
                peer.shutdown(Shutdown::Write).unwrap();
                peer.read_to_string(&mut rest).unwrap();
                assert_eq!(rest, "echo", "{name}");
            }
            assert_eq!(processes.len(), 2, "{name}: {processes:?}");
        },
    );
}

#[test]
fn comparison_counts_every_message() {
    for name in Auto::NAMES {
        match compare::measure(name, 500) {
            Ok((echoed, _)) => assert_eq!(echoed, 500, "{name}"),
            missing => is_missing(name, missing),
        }
    }
}

#[test]
fn the_list_of_examples_is_complete() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let Ok(list) = std::fs::read_to_string(folder.join("README.md")) else {
        return eprintln!("skip: the sources are not where these tests run");
    };
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let mut path = entry.unwrap().path();
        let (Some(name), extension) = (path.file_stem().map(ToOwned::to_owned), path.extension())
        else {
            continue;
        };
        if extension.is_none() {
            path.push("src/main.rs"); // A package of its own.
        }
        if path.extension().is_none_or(|it| it != "rs") || !path.exists() {
            continue;
        }
        let name = name.to_str().unwrap();
        let lines = std::fs::read_to_string(&path).unwrap().lines().count();
        let row = list.lines().find(|row| row.starts_with(&format!("| [`{name}`]")));
        let row = row.unwrap_or_else(|| panic!("{name} is missing in the list"));
        assert!(row.ends_with(&format!("| {lines} |")), "{name} has {lines} lines: {row}");
        count += 1;
    }
    let readme = std::fs::read_to_string(folder.join("../../README.md")).unwrap();
    assert!(readme.contains(&format!("[{count} examples]")), "there are {count} examples");
}
