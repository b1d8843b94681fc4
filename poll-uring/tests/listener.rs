//! Listening sockets: their ports are free when their process has ended, however it ended.
#![cfg(all(
    target_os = "linux",
    any(
        target_arch = "x86_64",
        target_arch = "aarch64",
        target_arch = "riscv64",
        target_arch = "loongarch64",
        target_arch = "powerpc64"
    )
))]

mod common;

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::*;
use poll_core::{Backend, Mode, RawSource};

/// The child's address is that of no other program.
const ADDRESS: &str = "127.83.71.9:0";
const CHILD: &str = "POLL_URING_LISTENER_CHILD";

/// In the child: listens, prints its address, and waits until it is killed.
fn listen_until_killed() -> ! {
    let mut uring = uring(8).expect("a ring");
    let listener = TcpListener::bind(ADDRESS).expect("bind");
    watch(&mut uring, TOKEN, RawSource::of(&listener), Mode::Level);
    wait(&mut uring, Some(Duration::ZERO));
    println!("listening on {}", listener.local_addr().expect("local address"));
    loop {
        wait(&mut uring, None);
    }
}

#[test]
fn port_of_a_killed_process_is_free() {
    if std::env::var_os(CHILD).is_some() {
        listen_until_killed();
    }
    if uring(8).is_none() {
        return;
    }
    for _ in 0..20 {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "port_of_a_killed_process_is_free", "--nocapture"])
            .env(CHILD, "1")
            .stdout(Stdio::piped())
            .spawn()
            .expect("spawn");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let address: SocketAddr = output
            .lines()
            .map_while(Result::ok)
            .find_map(|line| line.split_once("listening on ")?.1.parse().ok())
            .expect("an address");
        child.kill().expect("kill");
        child.wait().expect("wait");
        TcpListener::bind(address).expect("its port is free");
    }
}

#[test]
fn listener_is_reported_while_connections_wait() {
    let Some(mut uring) = uring(8) else { return };
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("local address");
    watch(&mut uring, TOKEN, RawSource::of(&listener), Mode::Level);
    assert_eq!(wait(&mut uring, Some(Duration::ZERO)), []);
    let _clients = [(); 2].map(|()| TcpStream::connect(address).expect("connect"));
    for _ in 0..2 {
        assert_eq!(wait(&mut uring, SOON), [readable(TOKEN)]);
        listener.accept().expect("a connection waits");
    }
    assert_eq!(wait(&mut uring, SHORT), [], "no connection is left");
    uring.deregister(TOKEN).expect("deregister");
}
