//! Pipes of a loop, their names, and what goes over them.

use std::path::{Path, PathBuf};

use poll_core::Backend;
use uv_core::{Handle, Loop, Pipe, Stream};

#[cfg(unix)]
use super::files::Directory;
use super::loops::new_loop;
use super::streams::{outcome, run_until};
use super::trace::Log;
use crate::{Lab, Skip};

/// A loop whose backend has pipes.
pub(crate) fn piping_loop<T: Backend>(lab: &Lab<T>) -> Result<Loop<T>, Skip> {
    let (mut lp, mut probe) = (new_loop(lab)?, new_loop(lab)?);
    match Pipe::pair(&mut probe) {
        Ok((one, other)) => {
            one.close(&mut probe).and(other.close(&mut probe)).expect("open handles");
            let _ = probe.run(uv_core::RunMode::Default);
            lp.update_time();
            Ok(lp)
        }
        Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {
            Err(Skip::because(error.to_string()))
        }
        Err(error) => panic!("a pair of pipes: {error}"),
    }
}

/// A pipe that goes both ways can end one of them. Those of Windows cannot: they end when they
/// are closed.
pub(crate) const ENDS_ONE_WAY: bool = cfg!(unix);

/// More than any kernel keeps for one pipe.
pub(crate) const A_LOT: usize = 4 << 20;

/// A name that nobody else has, for one pipe.
#[derive(Debug)]
pub(crate) struct Name {
    path: PathBuf,
    /// Where its file is, removed with this.
    #[cfg(unix)]
    _directory: Directory,
}

impl Name {
    #[cfg(unix)]
    pub(crate) fn new() -> Name {
        let directory = Directory::new();
        Name { path: directory.path("pipe"), _directory: directory }
    }

    #[cfg(windows)]
    pub(crate) fn new() -> Name {
        use std::sync::atomic::{AtomicU32, Ordering};
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!(r"\\.\pipe\conformance-{}-{count}", std::process::id());
        Name { path: name.into() }
    }
}

impl AsRef<Path> for Name {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

/// A handle that is bound.
pub(crate) fn bound_to<T: Backend>(lp: &mut Loop<T>, name: &Name) -> Pipe {
    let server = Pipe::new(lp);
    server.bind(lp, name).expect("a name to bind to");
    server
}

/// Listens, and echoes what is read until its peer ends. Notes each connection that ends,
/// and how.
pub(crate) fn echo<T: Backend>(lp: &mut Loop<T>, server: Pipe, ends: &Log<&'static str>) {
    let ends = ends.clone();
    let listening = server.listen(lp, 128, move |lp, server, result| {
        result.expect("a connection");
        let (peer, ends) = (server.accept(lp).expect("the connection"), ends.clone());
        let echoing = peer.read_start(lp, move |lp, peer, bytes| match bytes {
            Ok([]) | Err(_) => {
                ends.push(outcome(&bytes));
                peer.close(lp).expect("an open handle");
            }
            // What becomes of it shows on the other side.
            Ok(bytes) => drop(peer.write(lp, bytes.to_vec(), |_, _, _, _| {})),
        });
        echoing.expect("a connection is read");
    });
    listening.expect("a bound pipe listens");
}

/// Asks who listens at `name` for one echo of `message`.
pub(crate) fn one_echo<T: Backend>(lp: &mut Loop<T>, name: &Path, message: &'static str) {
    let (client, told) = (Pipe::new(lp), Log::default());
    let tell = told.clone();
    let begun = client.connect(lp, name, move |lp, client, result| {
        result.expect("a connection");
        client.write(lp, message, |_, _, result, _| result.expect("a write")).expect("a write");
        let mut got = Vec::new();
        let reading = client.read_start(lp, move |lp, client, bytes| {
            got.extend_from_slice(bytes.expect("the echo"));
            if got.len() >= message.len() {
                tell.push(std::mem::take(&mut got));
                client.close(lp).expect("an open handle");
            }
        });
        reading.expect("a connection is read");
    });
    begun.expect("a connect begins");
    run_until(lp, "an echo", |_| told.len() > 0);
    assert_eq!(told.take(), [message.as_bytes()]);
}

/// Reads until the end, and notes all that came once it is there; then closes the pipe.
pub(crate) fn read_all<T: Backend>(lp: &mut Loop<T>, pipe: Pipe, all: &Log<Vec<u8>>) {
    let (all, mut got) = (all.clone(), Vec::new());
    let reading = pipe.read_start(lp, move |lp, pipe, bytes| match bytes.expect("no error") {
        [] => {
            all.push(std::mem::take(&mut got));
            pipe.close(lp).expect("an open handle");
        }
        bytes => got.extend_from_slice(bytes),
    });
    reading.expect("a connection is read");
}
