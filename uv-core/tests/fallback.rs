//! The loop works the same if the kernel lacks operations, or if io_uring is forbidden.
#![cfg(target_os = "linux")]

use std::cell::{Cell, RefCell};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::rc::Rc;

use uv_core::backends::{Auto, Uring};
use uv_core::poll_core::{Backend, MaskOps, OpKind};
use uv_core::{
    Datagram, Handle, Listener, Loop, RunMode, Stream, Tcp, TcpBindFlags, Udp, UdpBindFlags,
    UdpError, fs,
};

/// Set in a child process: how the filter refuses io_uring's system calls.
const CHILD: &str = "UV_CORE_TEST_FORBIDDEN";

/// The bytes that a client sends, more than one buffer holds.
const SIZE: usize = 300_000;

/// Echoes bytes: the server reads with `read_start`, the client with `read`.
fn echo_on<B: Backend>(mut lp: Loop<B>) {
    let server = Tcp::new(&mut lp);
    let anywhere: SocketAddr = "127.0.0.1:0".parse().unwrap();
    server.bind(&mut lp, anywhere, TcpBindFlags::empty()).unwrap();
    let serve = |lp: &mut Loop<B>, server: Tcp, result: std::io::Result<()>| {
        result.unwrap();
        let peer = server.accept(lp).unwrap();
        server.close(lp).unwrap();
        let echo = |lp: &mut Loop<B>, peer: Tcp, bytes: std::io::Result<&[u8]>| match bytes.unwrap()
        {
            [] => peer.shutdown(lp, |lp, peer, _| peer.close(lp).unwrap()).unwrap(),
            bytes => {
                let copies = [bytes[..1].to_vec(), bytes[1..].to_vec()];
                let _ = peer.write(lp, copies, |_, _, result, _| result.unwrap()).unwrap();
            }
        };
        peer.read_start(lp, echo).unwrap();
    };
    server.listen(&mut lp, 8, serve).unwrap();
    let address = server.local_addr(&lp).unwrap();
    let (client, count) = (Tcp::new(&mut lp), Rc::new(Cell::new(0)));
    let counted = Rc::clone(&count);
    let connected = move |lp: &mut Loop<B>, client: Tcp, result: std::io::Result<()>| {
        result.unwrap();
        // An empty write completes too, while the loop has no other event.
        lp.defer(move |lp| {
            let nothing = client.write(lp, "", move |lp, client, result, _| {
                result.unwrap();
                client.write(lp, vec![7; SIZE], |_, _, result, _| result.unwrap()).unwrap();
                client.shutdown(lp, |_, _, result| result.unwrap()).unwrap();
            });
            nothing.unwrap();
        });
        pull(lp, client, vec![0; 10_000], counted);
    };
    client.connect(&mut lp, address, connected).unwrap();
    assert!(!lp.run(RunMode::Default).unwrap());
    assert_eq!(count.get(), SIZE, "all bytes were echoed");
    assert!(lp.close().is_ok());
}

fn pull<B: Backend>(lp: &mut Loop<B>, client: Tcp, buffer: Vec<u8>, count: Rc<Cell<usize>>) {
    let read = client.read(lp, buffer, move |lp, client, result, buffer| match result.unwrap() {
        0 => client.close(lp).unwrap(),
        read => {
            assert!(buffer[..read].iter().all(|byte| *byte == 7));
            count.set(count.get() + read);
            pull(lp, client, buffer, count);
        }
    });
    read.unwrap();
}

/// Connects to a listener, to a closed port, and to a listener by a handle that is closed
/// meanwhile.
fn connect_on<B: Backend>(mut lp: Loop<B>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let refused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let reported = Rc::new(RefCell::new(Vec::new()));
    for (name, to) in [
        ("listening", listener.local_addr().unwrap()),
        ("refused", refused),
        ("closed", listener.local_addr().unwrap()),
    ] {
        let (client, reported) = (Tcp::new(&mut lp), Rc::clone(&reported));
        let connected = move |lp: &mut Loop<B>, client: Tcp, result: std::io::Result<()>| {
            reported.borrow_mut().push((name, result.map_err(|error| error.raw_os_error()).err()));
            if !client.is_closing(lp) {
                client.close(lp).unwrap();
            }
        };
        client.connect(&mut lp, to, connected).unwrap();
        if name == "closed" {
            client.close(&mut lp).unwrap();
        }
    }
    assert!(!lp.run(RunMode::Default).unwrap());
    let mut reported = reported.take();
    reported.sort_unstable();
    let expected = [
        ("closed", Some(Some(libc::ECANCELED))),
        ("listening", None),
        ("refused", Some(Some(libc::ECONNREFUSED))),
    ];
    assert_eq!(reported, expected);
    assert!(lp.close().is_ok());
}

/// Several pairs exchange datagrams: of one piece, of several, with and without an address.
fn datagrams_on<B: Backend>(mut lp: Loop<B>) {
    const PAIRS: usize = 3;
    const ROUNDS: usize = 20;
    let count = Rc::new(Cell::new(0));
    for _ in 0..PAIRS {
        let [server, client] = [(); 2].map(|()| {
            let udp = Udp::new(&mut lp);
            udp.bind(&mut lp, "127.0.0.1:0".parse().unwrap(), UdpBindFlags::empty()).unwrap();
            udp
        });
        let answer = |lp: &mut Loop<B>, server: Udp, got: Result<Datagram<'_>, UdpError>| {
            let got = got.unwrap();
            let halves = got.data.split_at(got.data.len() / 2);
            let halves = [halves.0.to_vec(), halves.1.to_vec()];
            server.send(lp, halves, got.from, |_, _, result, _| result.unwrap()).unwrap();
            if got.data == b"last" {
                server.close(lp).unwrap();
            }
        };
        server.recv_start(&mut lp, answer).unwrap();
        let address = server.local_addr(&lp).unwrap();
        client.connect(&mut lp, address).unwrap();
        let (count, mut left) = (Rc::clone(&count), ROUNDS);
        let on_answer =
            move |lp: &mut Loop<B>, client: Udp, got: Result<Datagram<'_>, UdpError>| {
                count.set(count.get() + 1);
                left -= 1;
                match (got.unwrap().data, left) {
                    (b"last", 0) => client.close(lp).unwrap(),
                    (b"ping", _) => {
                        let next: &str = if left == 1 { "last" } else { "ping" };
                        client.send(lp, next, None, |_, _, result, _| result.unwrap()).unwrap();
                    }
                    other => panic!("{other:?}"),
                }
            };
        client.recv_start(&mut lp, on_answer).unwrap();
        client.send(&mut lp, "ping", None, |_, _, result, _| result.unwrap()).unwrap();
    }
    assert!(!lp.run(RunMode::Default).unwrap());
    assert_eq!(count.get(), PAIRS * ROUNDS);
    assert!(lp.close().is_ok());
}

/// Writes, reads, truncates, renames, inspects and removes a file.
fn files_on<B: Backend>(mut lp: Loop<B>) {
    let dir = fs::mkdtemp(std::env::temp_dir().join("fallback-XXXXXX")).perform().unwrap();
    let (from, to) = (dir.join("from"), dir.join("to"));
    let options = fs::OpenOptions::new().read(true).write(true).create(true);
    let done = Rc::new(Cell::new(false));
    let (is_done, inside) = (Rc::clone(&done), dir.join("inside"));
    let opened = move |lp: &mut Loop<B>, file: std::io::Result<fs::File>| {
        let file = file.unwrap();
        let lists = vec![vec![7; SIZE], vec![8; SIZE]];
        let write = fs::write_at(&file, lists, 0).start(lp, move |lp, (written, _)| {
            assert_eq!(written.unwrap(), 2 * SIZE);
            let read = fs::read_at(&file, vec![0; 2 * SIZE], 0);
            let read = read.start(lp, move |lp, (count, bytes)| {
                assert_eq!(count.unwrap(), 2 * SIZE);
                assert!(bytes[..SIZE].iter().all(|byte| *byte == 7));
                fs::mkdir(&inside, 0o700).start(lp, |_, result| result.unwrap()).unwrap();
                // Operations complete in any order: the file is in use until this one completes.
                let shorten = fs::ftruncate(&file, 5).start(lp, move |lp, result| {
                    result.unwrap();
                    rename_and_remove(lp, file, from, to, is_done);
                });
                shorten.unwrap();
            });
            read.unwrap();
        });
        write.unwrap();
    };
    fs::open(dir.join("from"), options).start(&mut lp, opened).unwrap();
    assert!(!lp.run(RunMode::Default).unwrap());
    assert!(done.get(), "all operations completed");
    fs::rmdir(dir.join("inside")).perform().unwrap();
    fs::rmdir(dir).perform().expect("the directory is empty");
    assert!(lp.close().is_ok());
}

/// Renames and removes `file`, which has five bytes now.
fn rename_and_remove<B: Backend>(
    lp: &mut Loop<B>,
    file: fs::File,
    from: PathBuf,
    to: PathBuf,
    is_done: Rc<Cell<bool>>,
) {
    let rename = fs::rename(from, &to).start(lp, move |lp, result| {
        result.unwrap();
        let stat = fs::stat(&to).start(lp, move |lp, stat| {
            let stat = stat.unwrap();
            assert!(stat.is_file());
            assert_eq!(stat.size, 5);
            fs::close(file).start(lp, |_, result| result.unwrap()).unwrap();
            let unlinked = move |_: &mut Loop<B>, result: std::io::Result<()>| {
                result.unwrap();
                is_done.set(true);
            };
            fs::unlink(&to).start(lp, unlinked).unwrap();
        });
        stat.unwrap();
    });
    rename.unwrap();
}

/// Whatever operation a kernel lacks, readiness, a system call or a thread replaces it.
#[test]
fn missing_operations_are_replaced_by_readiness() {
    let Ok(_) = Uring::new().inspect_err(|error| eprintln!("skip: {error}")) else { return };
    type Kernel = (&'static str, fn(OpKind) -> bool);
    let kernels: [Kernel; 11] = [
        ("all operations", |_| true),
        ("Linux 5.19", |kind| !matches!(kind, OpKind::RecvMulti | OpKind::RecvMsgMulti)),
        ("Linux 5.11", |kind| {
            !matches!(kind, OpKind::AcceptMulti | OpKind::RecvMulti | OpKind::RecvMsgMulti)
        }),
        ("only sends", |kind| kind == OpKind::Send),
        ("only vectored sends", |kind| kind == OpKind::SendMsg),
        ("only receives", |kind| {
            matches!(kind, OpKind::Recv | OpKind::RecvMulti | OpKind::RecvMsgMulti)
        }),
        ("only accepts", |kind| matches!(kind, OpKind::Accept)),
        ("only connects", |kind| kind == OpKind::Connect),
        ("all but connects and vectored sends", |kind| {
            !matches!(kind, OpKind::Connect | OpKind::SendMsg)
        }),
        ("only reads and writes of files", |kind| matches!(kind, OpKind::Read | OpKind::Write)),
        ("no operations", |_| false),
    ];
    for (name, performs) in kernels {
        eprintln!("{name}");
        let masked_loop = || Loop::new(MaskOps::new(Uring::new().unwrap(), performs));
        echo_on(masked_loop());
        connect_on(masked_loop());
        datagrams_on(masked_loop());
        files_on(masked_loop());
    }
}

/// A seccomp filter, as in a container, forbids io_uring or hides it. Then `Uring::new` reports it,
/// `Auto` uses another backend, and a program that requires io_uring gets an error.
#[test]
fn forbidden_io_uring_falls_back_to_another_backend() {
    match std::env::var(CHILD) {
        Ok(how) => return forbidden(&how),
        Err(_) if Uring::new().is_err() => {
            eprintln!("io_uring is unavailable on this machine already")
        }
        Err(_) => {}
    }
    for how in ["EPERM at setup", "ENOSYS at setup", "EPERM at register"] {
        let mut child = Command::new(std::env::current_exe().unwrap());
        let name = "forbidden_io_uring_falls_back_to_another_backend";
        child.args(["--exact", name, "--nocapture"]).env(CHILD, how).env_remove("UV_BACKEND");
        let output = child.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{how}: {text}{errors}");
        assert!(text.contains("echoed without io_uring"), "{how}: {text}{errors}");
    }
}

/// The test in a child process, under the filter.
fn forbidden(how: &str) {
    let code = if how.starts_with("EPERM") { libc::EPERM } else { libc::ENOSYS };
    let call = match how.ends_with("setup") {
        true => libc::SYS_io_uring_setup,
        false => libc::SYS_io_uring_register,
    };
    refuse(call as u32, code as u32);
    let error = Uring::new().expect_err("a ring under a filter that refuses it");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("use the epoll backend or `Auto`"), "{error}");

    let chosen = Auto::first_of(&["uring", "epoll"]).expect("epoll works");
    assert_eq!(chosen.name(), "epoll");
    echo_on(Loop::new(chosen));
    echo_on(Loop::new(Auto::new().expect("a backend works")));

    // SAFETY: no other thread of this process uses the environment.
    unsafe { std::env::set_var("UV_BACKEND", "uring") };
    let error = Auto::new().expect_err("a required backend must not be replaced");
    assert!(error.to_string().starts_with("UV_BACKEND=uring: "), "{error}");
    // SAFETY: as above.
    unsafe { std::env::set_var("UV_BACKEND", "uring, poll") };
    assert_eq!(Auto::new().expect("poll works").name(), "poll");
    println!("echoed without io_uring");
}

/// Makes the kernel refuse a system call of this thread and of its children.
fn refuse(call: u32, code: u32) {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let ret = libc::BPF_RET | libc::BPF_K;
    let mut filter = [
        statement(load, 0), // The system call number.
        libc::sock_filter { jf: 1, ..statement(equal, call) },
        statement(ret, libc::SECCOMP_RET_ERRNO | code),
        statement(ret, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the call takes no pointer.
    let locked = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(locked, 0, "{}", std::io::Error::last_os_error());
    let mode = libc::SECCOMP_MODE_FILTER;
    // SAFETY: the kernel copies the program, which outlives the call.
    let set = unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}
