//! The standard streams, redirected to files, pipes and the null device. This test runs itself as
//! a child that copies its input to its output.
#![cfg(unix)]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::process::{Command, Stdio};

use uv_core::backends::Auto;
use uv_core::{Handle, Loop, Pipe, RunMode, Stream};

const BACKEND: &str = "UV_TEST_COPY_BY";

/// In the child: copies standard input to standard output, with a note on standard error.
#[test]
fn copy() {
    let Ok(backend) = std::env::var(BACKEND) else { return };
    let Ok(backend) = Auto::named(&backend) else { std::process::exit(3) };
    let mut lp = Loop::new(backend);
    let input = Pipe::stdin(&mut lp).unwrap();
    let (output, notes) = (Pipe::stdout(&mut lp).unwrap(), Pipe::stderr(&mut lp).unwrap());
    input
        .on_read(&mut lp, move |lp, input, bytes| match bytes {
            [] => {
                notes.send(lp, "the end");
                input.close(lp)
            }
            bytes => {
                output.send(lp, bytes.to_vec());
                Ok(())
            }
        })
        .unwrap();
    lp.run(RunMode::Default).unwrap();
    std::process::exit(0);
}

fn child(backend: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "copy", "--nocapture", "--test-threads=1"]).env(BACKEND, backend);
    command
}

/// True if the output, after the lines of the test's own program, is `expected`.
fn is_copied(output: &[u8], expected: &[u8]) -> bool {
    output.ends_with(expected) && output.len() < expected.len() + 200
}

#[test]
fn files_are_read_and_written() {
    let folder = std::env::temp_dir().join(format!("uv-standard-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let content: Vec<u8> = (0..1_000_003_u32).map(|at| (at % 251) as u8).collect();
    for backend in Auto::NAMES {
        let paths = ["in", "out", "err"].map(|name| folder.join(name));
        fs::write(&paths[0], &content).unwrap();
        let status = child(backend)
            .stdin(File::open(&paths[0]).unwrap())
            .stdout(File::create(&paths[1]).unwrap())
            .stderr(File::create(&paths[2]).unwrap())
            .status()
            .unwrap();
        if status.code() == Some(3) {
            eprintln!("skip {backend}: not on this machine");
            continue;
        }
        assert!(status.success(), "{backend}: {status}");
        assert!(is_copied(&fs::read(&paths[1]).unwrap(), &content), "{backend}");
        assert_eq!(fs::read(&paths[2]).unwrap(), b"the end", "{backend}");
    }
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn pipes_are_read_and_written() {
    for backend in Auto::NAMES {
        let pipes = child(backend).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut running = pipes.unwrap();
        let (mut to, mut all) = (running.stdin.take().unwrap(), Vec::new());
        let writing = std::thread::spawn(move || to.write_all(&[7; 300_000]));
        running.stdout.take().unwrap().read_to_end(&mut all).unwrap();
        let status = running.wait().unwrap();
        let written = writing.join().unwrap();
        if status.code() == Some(3) {
            continue;
        }
        written.unwrap();
        assert!(status.success() && is_copied(&all, &[7; 300_000]), "{backend}: {status}");
    }
}

#[test]
fn the_null_device_is_empty() {
    for backend in Auto::NAMES {
        let status = child(backend).stdin(Stdio::null()).stdout(Stdio::null()).status().unwrap();
        assert!(status.success() || status.code() == Some(3), "{backend}: {status}");
    }
}
