//! An echo server, the fastest way: received bytes are lent, and written from where they are.
//!
//! ```sh
//! cargo run --release -p uv-async --features uring --example echo -- uring 7000
//! ```

use std::io;

use uv_async::{IoStream, LoopExt, Rt, TcpListener};
use uv_core::backends::Auto;
use uv_core::poll_core::Backend;
use uv_core::{Loop, Stream};

pub(crate) async fn serve<B: Backend>(rt: &Rt<B>, listener: TcpListener<B>) -> io::Result<()> {
    loop {
        let client = listener.accept().await?;
        client.set_nodelay(true)?;
        // An error of one client is the end of that client.
        rt.spawn_local(async move { drop(echo(&client).await) });
    }
}

/// Echoes until the client ends. No allocation and no request for each message: the loop goes on
/// reading, and small answers of all clients leave with the wait.
async fn echo<S: Stream, B: Backend>(client: &IoStream<S, B>) -> io::Result<()> {
    loop {
        let bytes = client.lend().await?;
        if bytes.is_empty() {
            return client.shutdown().await;
        }
        client.write_slice(&bytes).await?;
    }
}

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let backend = match arguments.next() {
        Some(name) => Auto::named(&name)?,
        None => Auto::new()?,
    };
    let port = arguments.next().and_then(|port| port.parse().ok()).unwrap_or(7000);
    let mut lp = Loop::new(backend);
    lp.block_on(async |rt| {
        let listener = TcpListener::bind(&rt, ([127, 0, 0, 1], port).into())?;
        println!("listening at {}", listener.local_addr()?);
        serve(&rt, listener).await
    })?
}
