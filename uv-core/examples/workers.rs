//! An echo server with worker processes: the main process accepts connections and passes each to
//! the next worker, over a pipe. A port of `multi-echo-server` of libuv's guide.
//!
//! ```sh
//! cargo run -p uv-core --example workers -- --port 7004 --workers 4 --backend auto
//! ```
//!
//! Then `nc 127.0.0.1 7004` several times: the greeting names the process that serves. A worker ends
//! when the main process is gone and its own connections are. Unix only.

#[cfg(unix)]
mod common;

#[cfg(unix)]
pub(crate) mod server {
    use super::common::{self, Arguments};
    use std::io;
    use std::net::{Ipv4Addr, SocketAddr};
    use uv_core::backends::Auto;
    use uv_core::{
        AnyHandle, Channel, Command, Handle, Loop, Pipe, PipeFlags, Process, RunMode, Sender,
        Stdio, Stream, Tcp,
    };

    /// The pipes to the workers that run.
    #[derive(Default)]
    struct Workers {
        pipes: Vec<Pipe>,
        passed: usize,
    }

    pub(crate) fn run() -> io::Result<()> {
        let arguments = Arguments::read(&["--backend", "--port", "--workers", "--is-worker"])?;
        let backend: String = arguments.get("--backend", "auto".into())?;
        if arguments.get("--is-worker", false)? {
            return work(&backend);
        }
        let (port, count) = (arguments.get("--port", 7004)?, arguments.get("--workers", 4)?);
        let program = std::env::current_exe()?;
        let worker = Command::new(program).args(["--is-worker", "true", "--backend", &backend]);
        serve(&backend, port, count, worker, |address, _| println!("listening on {address}"))
    }

    /// Serves by `count` processes that `worker` starts, until `()` is sent to the sender that
    /// `ready` gets.
    pub(crate) fn serve(
        backend: &str,
        port: u16,
        count: usize,
        worker: Command<'_>,
        ready: impl FnOnce(SocketAddr, Sender<()>),
    ) -> io::Result<()> {
        let mut lp = Loop::new(common::backend(backend)?);
        lp.on_error(|_, handle, error| eprintln!("{handle}: {error}"));
        for _ in 0..count {
            start(&mut lp, worker.clone())?;
        }
        let server = Tcp::listen_on(&mut lp, (Ipv4Addr::LOCALHOST, port), pass)?;
        let (_, sender) = Channel::new(&mut lp, |lp: &mut Loop<Auto>, _, ()| {
            lp.walk().into_iter().for_each(|handle| handle.close_if_open(lp));
        });
        ready(server.local_addr(&lp)?, sender);
        lp.run(RunMode::Default)?;
        Ok(())
    }

    /// Starts a worker, whose standard input is a pipe that passes handles.
    fn start(lp: &mut Loop<Auto>, worker: Command<'_>) -> io::Result<()> {
        let (pipe, both) = (Pipe::new(lp), PipeFlags::READABLE | PipeFlags::WRITABLE);
        pipe.enable_passing(lp)?;
        let stdio = [Stdio::Pipe(pipe, both), Stdio::Ignore, Stdio::Standard(2)];
        Process::spawn(lp, &worker.stdio(stdio), move |lp, process, exit| {
            eprintln!("a worker has ended: {exit:?}");
            process.close_if_open(lp);
            pipe.close_if_open(lp);
            lp.state::<Workers>().pipes.retain(|other| *other != pipe);
        })?;
        lp.state::<Workers>().pipes.push(pipe);
        Ok(())
    }

    /// Gives a connection to the next worker. Nothing has read from it here.
    fn pass(lp: &mut Loop<Auto>, peer: Tcp) -> io::Result<()> {
        let workers = lp.state::<Workers>();
        workers.passed += 1;
        let next = workers.passed.checked_rem(workers.pipes.len());
        let pipe = next.map(|next| workers.pipes[next]);
        let pipe = pipe.ok_or_else(|| io::Error::other("no worker is left"))?;
        pipe.send_with_handles(lp, "a connection", &[peer.into()]);
        Ok(())
    }

    /// A worker: echoes on the connections that it receives.
    pub(crate) fn work(backend: &str) -> io::Result<()> {
        let mut lp = Loop::new(common::backend(backend)?);
        lp.on_error(|_, handle, error| eprintln!("{handle}: {error}"));
        let main = Pipe::stdin(&mut lp)?;
        main.enable_passing(&mut lp)?;
        main.on_read(&mut lp, |lp, main, bytes| {
            while main.pending_count(lp) > 0 {
                if let AnyHandle::Tcp(peer) = main.accept_pending(lp)? {
                    peer.send(lp, format!("process {}\n", std::process::id()));
                    peer.attempt(lp, |lp| peer.on_read(lp, echo));
                }
            }
            if bytes.is_empty() { main.close(lp) } else { Ok(()) }
        })?;
        lp.run(RunMode::Default)?;
        Ok(())
    }

    fn echo(lp: &mut Loop<Auto>, peer: Tcp, bytes: &[u8]) -> io::Result<()> {
        match bytes {
            [] => peer.finish(lp),
            bytes => peer.send(lp, bytes.to_vec()),
        }
        Ok(())
    }
}

#[cfg(unix)]
pub(crate) fn main() -> std::io::Result<()> {
    server::run()
}

#[cfg(not(unix))]
fn main() {
    println!("standard input is no pipe that passes handles here");
}
