//! monoio, on io_uring: a task per connection, which owns its buffer.

use std::io;
use std::net::TcpListener;

use monoio::io::{AsyncReadRent, AsyncWriteRentExt};
use monoio::net::TcpStream;

use super::{READ_SIZE, Service};

pub(super) fn serve(listener: TcpListener, service: Service) -> io::Result<()> {
    let mut runtime = monoio::RuntimeBuilder::<monoio::IoUringDriver>::new().build()?;
    runtime.block_on(async {
        let listener = monoio::net::TcpListener::from_std(listener)?;
        loop {
            let (stream, _) = listener.accept().await?;
            // An error of one connection does not affect the others.
            monoio::spawn(async move { drop(connection(stream, service).await) });
        }
    })
}

async fn connection(mut stream: TcpStream, service: Service) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(READ_SIZE);
    loop {
        buffer.clear();
        let (read, filled) = stream.read(buffer).await;
        buffer = filled;
        if read? == 0 {
            return Ok(());
        }
        if service == Service::Echo {
            let (written, sent) = stream.write_all(buffer).await;
            buffer = sent;
            written?;
        }
    }
}
