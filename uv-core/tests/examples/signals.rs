//! Programs that a signal ends gracefully.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};

use crate::{connect, folder, http, supervisor};

/// Makes this test executable a program of the tests of signals, which are for a whole process.
#[test]
fn is_a_program() {
    match std::env::var("UV_EXAMPLE_PROGRAM").as_deref() {
        Ok("http") => {
            let root = std::env::var_os("UV_EXAMPLE_ROOT").unwrap().into();
            http::serve("auto", 0, root, |at, _| eprintln!("{at}")).unwrap();
        }
        Ok("supervisor") => {
            let programs = ["sleep 600", "sleep 601"].map(str::to_owned);
            supervisor::supervise("auto", &programs, 2, |line| eprintln!("{line}")).unwrap();
        }
        _ => {}
    }
}

/// This test executable as one of the programs above, and the lines that it writes.
fn program(name: &str, root: &std::path::Path) -> (Child, impl Iterator<Item = String> + use<>) {
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["signals::is_a_program", "--exact", "--nocapture"]);
    program.env("UV_EXAMPLE_PROGRAM", name).env("UV_EXAMPLE_ROOT", root);
    let mut child = program.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    (child, lines.map(Result::unwrap))
}

#[test]
fn http_server_ends_by_a_signal_after_its_responses() {
    let root = folder("signalled");
    std::fs::write(root.join("large.bin"), vec![5; 20_000_000]).unwrap();
    let (mut server, mut lines) = program("http", &root);
    let mut busy = connect(lines.next().unwrap().parse().unwrap());
    busy.write_all(b"GET /large.bin HTTP/1.1\r\n\r\n").unwrap();
    busy.read_exact(&mut [0; 9]).unwrap();
    uv_core::kill(server.id(), uv_core::signum::SIGTERM).unwrap();
    assert!(busy.read_to_end(&mut Vec::new()).unwrap() > 20_000_000, "the response is complete");
    drop(busy);
    assert!(server.wait().unwrap().success());
    std::fs::remove_dir_all(root).unwrap();
}

#[test]
fn supervisor_ends_its_programs_by_a_signal() {
    let (mut supervisor, mut lines) = program("supervisor", std::path::Path::new("."));
    for _ in 0..2 {
        let started = lines.next().unwrap();
        assert!(started.contains("is process"), "{started}");
    }
    uv_core::kill(supervisor.id(), uv_core::signum::SIGTERM).unwrap();
    let rest: Vec<_> = lines.collect();
    assert!(rest.len() == 2 && rest.iter().all(|line| line.contains("ended")), "{rest:?}");
    assert!(supervisor.wait().unwrap().success());
}
