//! An echo server with a loop for each core: the kernel distributes the connections.
//!
//! ```sh
//! cargo run --release -p uv-core --example per_core -- --port 7003 --threads 4
//! ```
//!
//! `--hand-over yes` lets one loop accept and hand the connections to all loops in turn. Unix only.

#[cfg(unix)]
mod common;

#[cfg(unix)]
pub(crate) mod server {
    use std::io;
    use std::net::{Ipv4Addr, SocketAddr};

    use super::common::{self, Arguments};
    use uv_core::backends::Auto;
    use uv_core::{Distribution, LoopGroup, Stream};

    pub(crate) fn run() -> io::Result<()> {
        let arguments = Arguments::read(&["--backend", "--port", "--threads", "--hand-over"])?;
        let backend: String = arguments.get("--backend", "auto".into())?;
        let cores = std::thread::available_parallelism()?.get();
        let threads = arguments.get("--threads", cores)?;
        let way = match arguments.get("--hand-over", String::from("no"))?.as_str() {
            "yes" => Distribution::HandOver,
            _ => Distribution::Kernel,
        };
        let (group, address) = serve(backend, arguments.get("--port", 7003)?, threads, way)?;
        println!("{} loops on {address}", group.len());
        group.join()
    }

    /// Starts the loops. They serve until `stop_listening`.
    pub(crate) fn serve(
        backend: String,
        port: u16,
        threads: usize,
        way: Distribution,
    ) -> io::Result<(LoopGroup<Auto>, SocketAddr)> {
        let group = LoopGroup::new(threads, move || common::backend(&backend))?;
        let address = group.listen_by(way, (Ipv4Addr::LOCALHOST, port), |lp, peer| {
            peer.on_read(lp, |lp, peer, bytes| {
                match bytes {
                    [] => peer.finish(lp),
                    bytes => peer.send(lp, bytes.to_vec()),
                }
                Ok(())
            })
        })?;
        Ok((group, address))
    }
}

#[cfg(unix)]
pub(crate) fn main() -> std::io::Result<()> {
    server::run()
}

#[cfg(not(unix))]
fn main() {
    println!("a socket of Windows stays with its completion port: run a loop per process there");
}
