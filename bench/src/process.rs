//! Servers in processes of their own, so that their CPU time, memory and system calls are
//! theirs alone.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::servers::Service;
use crate::suite::Who;
use crate::{allocations, cores, servers};

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Names the executable of this crate, for those that are another: its tests.
pub fn use_program(path: impl Into<PathBuf>) {
    PROGRAM.get_or_init(|| path.into());
}

fn program() -> io::Result<PathBuf> {
    match PROGRAM.get() {
        Some(path) => Ok(path.clone()),
        None => std::env::current_exe(),
    }
}

/// What a server tells about itself.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Counters {
    /// How often it has asked for memory since it was asked last, if it counts that.
    pub allocations: u64,
}

/// A server that runs in another process until this is dropped.
#[derive(Debug)]
pub struct ServerProcess {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl ServerProcess {
    /// Starts it, on that core if one is given.
    ///
    /// # Errors
    ///
    /// If it does not get as far as to listen.
    pub fn start(who: Who, service: Service, core: Option<usize>) -> io::Result<ServerProcess> {
        let mut command = Command::new(program()?);
        command.args(["serve", service.name(), "--supervised", "--who", &who.to_string()]);
        if let Some(core) = core {
            command.args(["--core", &core.to_string()]);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let pipes = (child.stdin.take(), child.stdout.take());
        let (Some(input), Some(output)) = pipes else {
            return Err(io::Error::other("a child without the pipes that were asked for"));
        };
        let mut output = BufReader::new(output);
        let mut line = String::new();
        output.read_line(&mut line)?;
        let Ok(address) = line.trim().parse() else {
            let _ = child.kill();
            let status = child.wait()?;
            return Err(io::Error::other(format!("the server has ended ({status})")));
        };
        Ok(ServerProcess { child, input, output, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The number of its process, and of the thread that serves.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has counted since it was asked last.
    ///
    /// # Errors
    ///
    /// If it is gone.
    pub fn counters(&mut self) -> io::Result<Counters> {
        self.input.write_all(b"\n")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }

    /// Ends it.
    pub fn end(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
    }

    /// The CPU time that it has used.
    ///
    /// # Errors
    ///
    /// The system's, if it is gone.
    #[cfg(target_os = "linux")]
    pub fn cpu_time(&self) -> io::Result<std::time::Duration> {
        let mut clock = 0;
        // SAFETY: `clock` is valid for writes.
        let failed = unsafe { libc::clock_getcpuclockid(self.child.id() as i32, &mut clock) };
        if failed != 0 {
            return Err(io::Error::from_raw_os_error(failed));
        }
        crate::clock::read(clock).ok_or_else(io::Error::last_os_error)
    }

    /// Stops it until [`go_on`](ServerProcess::go_on); returns when it has stopped.
    ///
    /// # Errors
    ///
    /// The system's, if it is gone.
    #[cfg(target_os = "linux")]
    pub fn pause(&self) -> io::Result<()> {
        self.signal(libc::SIGSTOP)?;
        let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::uninit();
        // SAFETY: `info` is valid for writes.
        let failed =
            unsafe { libc::waitid(libc::P_PID, self.id(), info.as_mut_ptr(), libc::WSTOPPED) };
        if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Ends a [`pause`](ServerProcess::pause).
    ///
    /// # Errors
    ///
    /// The system's, if it is gone.
    #[cfg(target_os = "linux")]
    pub fn go_on(&self) -> io::Result<()> {
        self.signal(libc::SIGCONT)
    }

    #[cfg(target_os = "linux")]
    fn signal(&self, signal: std::ffi::c_int) -> io::Result<()> {
        // SAFETY: takes no memory; the process is a child that was not waited for.
        let failed = unsafe { libc::kill(self.id() as libc::pid_t, signal) };
        if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// How many bytes of memory of its own it uses: whole pages, without those of its program.
    ///
    /// # Errors
    ///
    /// If it is gone.
    #[cfg(target_os = "linux")]
    pub fn memory(&self) -> io::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", self.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("Anonymous:"));
        let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
        let bytes = kilobytes.map(|kilobytes: u64| kilobytes * 1024);
        bytes.ok_or_else(|| io::Error::other("the kernel does not tell what is anonymous"))
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.end();
        // Whoever traced it may have taken its status already.
        let _ = self.child.wait();
    }
}

/// The other side: serves, and answers on the standard streams, until its parent is gone.
///
/// # Errors
///
/// Whatever ends the server.
pub(crate) fn serve_supervised(who: &str, service: Service, core: Option<usize>) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    crate::limits::descriptors();
    std::thread::Builder::new().name("supervised".into()).spawn(answer)?;
    // After that thread has started, which shall not be in the way of the server.
    let _pinned = core.map(cores::Pinned::to).transpose()?;
    allocations::count(true);
    let mut stdout = io::stdout();
    writeln!(stdout, "{address}")?;
    stdout.flush()?;
    servers::serve(who, service, listener)
}

/// Answers each line with the counters; the end of all lines is the end of this process.
fn answer() {
    for line in io::stdin().lines() {
        if line.is_err() {
            break;
        }
        let counters = Counters { allocations: allocations::take() };
        let told = serde_json::to_string(&counters).map_err(io::Error::from);
        if told.and_then(|told| writeln!(io::stdout(), "{told}")).is_err() {
            break;
        }
        // What the answer took is not the server's.
        allocations::take();
    }
    std::process::exit(0);
}
