//! tokio with its current-thread runtime: a task per connection.

use std::io;
use std::net::TcpListener;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{READ_SIZE, Service};

pub(super) fn serve(listener: TcpListener, service: Service) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        loop {
            let (stream, _) = listener.accept().await?;
            // An error of one connection does not affect the others.
            tokio::spawn(async move { drop(connection(stream, service).await) });
        }
    })
}

async fn connection(mut stream: TcpStream, service: Service) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(READ_SIZE);
    loop {
        buffer.clear();
        if stream.read_buf(&mut buffer).await? == 0 {
            return Ok(());
        }
        if service == Service::Echo {
            stream.write_all(&buffer).await?;
        }
    }
}
