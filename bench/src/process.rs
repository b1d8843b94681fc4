//! Servers in separate processes, so that their CPU time, memory and system calls are measured
//! in isolation.

use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::servers::Service;
use crate::suite::ContestantId;
use crate::{allocations, cores, servers};

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Sets the path of the benchmark program, for tests, which are other executables.
pub fn use_program(path: impl Into<PathBuf>) {
    PROGRAM.get_or_init(|| path.into());
}

pub(crate) fn program() -> io::Result<PathBuf> {
    match PROGRAM.get() {
        Some(path) => Ok(path.clone()),
        None => std::env::current_exe(),
    }
}

/// The counters that a server reports.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Counters {
    /// The number of allocations since the last query, if they are counted.
    pub allocations: u64,
}

/// A server in another process, killed on drop.
#[derive(Debug)]
pub struct ServerProcess {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    address: SocketAddr,
}

/// A server to be started.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The implementation.
    pub id: ContestantId,
    /// Its task.
    pub service: Service,
    /// The core that its first thread is pinned to.
    pub core: Option<usize>,
    /// The number of threads, each with a loop and a listener of its own.
    pub threads: usize,
    /// The file for the profile of callgrind, which counts its instructions. Such a server exits
    /// when its first connection ends.
    pub callgrind: Option<PathBuf>,
}

impl Launch {
    /// One thread, without a profile.
    pub fn new(id: ContestantId, service: Service, core: Option<usize>) -> Launch {
        Launch { id, service, core, threads: 1, callgrind: None }
    }

    fn command(&self) -> io::Result<Command> {
        let program = program()?;
        let mut command = match &self.callgrind {
            None => Command::new(program),
            Some(file) => {
                let mut valgrind = Command::new("valgrind");
                valgrind.args(["--quiet", "--tool=callgrind", "--read-inline-info=no"]);
                valgrind.arg(format!("--callgrind-out-file={}", file.display()));
                valgrind.arg(program);
                valgrind
            }
        };
        let (service, id) = (self.service.to_string(), self.id.to_string());
        command.args(["serve", &service, "--supervised", "--contestant", &id]);
        command.args(["--threads", &self.threads.to_string()]);
        if let Some(core) = self.core {
            command.args(["--core", &core.to_string()]);
        }
        if self.callgrind.is_some() {
            command.arg("--once");
        }
        Ok(command)
    }
}

impl ServerProcess {
    /// Starts the server with one thread, pinned to `core` if given.
    ///
    /// # Errors
    ///
    /// As [`launch`](ServerProcess::launch).
    pub fn start(
        id: ContestantId,
        service: Service,
        core: Option<usize>,
    ) -> io::Result<ServerProcess> {
        ServerProcess::launch(&Launch::new(id, service, core))
    }

    /// Starts the server.
    ///
    /// # Errors
    ///
    /// If the server exits before it listens.
    pub fn launch(launch: &Launch) -> io::Result<ServerProcess> {
        let mut command = launch.command()?;
        crate::network::enter_server_side(&mut command);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let pipes = (child.stdin.take(), child.stdout.take());
        let (Some(input), Some(output)) = pipes else {
            return Err(io::Error::other("the child has no pipes for its standard streams"));
        };
        let mut output = BufReader::new(output);
        let mut line = String::new();
        output.read_line(&mut line)?;
        let Ok(address) = line.trim().parse() else {
            let _ = child.kill();
            let status = child.wait()?;
            return Err(io::Error::other(format!(
                "the server exited before it listened ({status})"
            )));
        };
        Ok(ServerProcess { child, input, output, address })
    }

    /// Waits until the process exits by itself, for at most a time.
    ///
    /// # Errors
    ///
    /// `TimedOut`, and an error if it fails.
    pub fn wait(&mut self, at_most: std::time::Duration) -> io::Result<()> {
        let begun = std::time::Instant::now();
        loop {
            match self.child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => {
                    return Err(io::Error::other(format!("the server failed ({status})")));
                }
                None if begun.elapsed() > at_most => return Err(io::ErrorKind::TimedOut.into()),
                None => std::thread::sleep(std::time::Duration::from_millis(2)),
            }
        }
    }

    /// The address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The id of the process and of its main thread, which serves.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The counters since the last query.
    ///
    /// # Errors
    ///
    /// If the process has exited.
    pub fn counters(&mut self) -> io::Result<Counters> {
        self.input.write_all(b"\n")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }

    /// Kills the process.
    pub fn end(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
    }

    /// The CPU time of the process.
    ///
    /// # Errors
    ///
    /// That of the system call, if the process has exited.
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

    /// Stops the process until [`resume`](ServerProcess::resume); returns when it has stopped.
    ///
    /// # Errors
    ///
    /// That of the system call, if the process has exited.
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
    /// That of the system call, if the process has exited.
    #[cfg(target_os = "linux")]
    pub fn resume(&self) -> io::Result<()> {
        self.signal(libc::SIGCONT)
    }

    #[cfg(target_os = "linux")]
    fn signal(&self, signal: std::ffi::c_int) -> io::Result<()> {
        // SAFETY: no memory is passed; the child was not waited for, so its id is valid.
        let failed = unsafe { libc::kill(self.id() as libc::pid_t, signal) };
        if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// The anonymous memory of the process in bytes: whole pages, without file mappings.
    ///
    /// # Errors
    ///
    /// If the process has exited.
    #[cfg(target_os = "linux")]
    pub fn memory(&self) -> io::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", self.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("Anonymous:"));
        let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
        let bytes = kilobytes.map(|kilobytes: u64| kilobytes * 1024);
        bytes.ok_or_else(|| {
            io::Error::other("smaps_rollup has no field Anonymous: Linux 4.14 or later is needed")
        })
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.end();
        // The tracer may have reaped it already.
        let _ = self.child.wait();
    }
}

/// The options of a supervised server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Supervised {
    pub(crate) core: Option<usize>,
    pub(crate) threads: usize,
    /// Exit when the first connection ends.
    pub(crate) once: bool,
}

/// The child's side: serves, and reports counters on the standard streams until its parent exits.
///
/// # Errors
///
/// The error that ends the server.
pub(crate) fn serve_supervised(id: &str, service: Service, options: Supervised) -> io::Result<()> {
    let listener = servers::listen((crate::network::server_address(), 0).into())?;
    let address = listener.local_addr()?;
    crate::limits::descriptors();
    if options.once {
        // Another thread would not run under valgrind while a ring waits.
        servers::exit_with_first_connection();
    } else {
        std::thread::Builder::new().name("supervised".into()).spawn(answer)?;
    }
    // After the start of the reporting thread, which must not share the server's core.
    let _pinned = match options.threads {
        1 => options.core.map(cores::Pinned::to).transpose()?,
        _ => None,
    };
    for _ in 1..options.threads {
        let (listener, id) = (servers::listen(address)?, id.to_string());
        let serve = move || {
            if let Err(error) = servers::serve(&id, service, listener) {
                // The parent notices the missing answers; the reason is here.
                let _ = writeln!(io::stderr(), "bench: {id}: {error}");
                std::process::exit(2);
            }
        };
        std::thread::Builder::new().spawn(serve)?;
    }
    allocations::count(true);
    let mut stdout = io::stdout();
    writeln!(stdout, "{address}")?;
    stdout.flush()?;
    servers::serve(id, service, listener)
}

/// Answers each input line with the counters; exits at the end of input.
fn answer() {
    for line in io::stdin().lines() {
        if line.is_err() {
            break;
        }
        let counters = Counters { allocations: allocations::take() };
        let line = serde_json::to_string(&counters).map_err(io::Error::from);
        if line.and_then(|line| writeln!(io::stdout(), "{line}")).is_err() {
            break;
        }
        // Exclude the allocations of the answer itself.
        allocations::take();
    }
    std::process::exit(0);
}
