//! compio, on io_uring: a task per connection, which owns its buffer.

use std::io;
use std::net::TcpListener;

use compio::BufResult;
use compio::io::{AsyncRead, AsyncWriteExt};
use compio::net::TcpStream;

use super::{READ_SIZE, Service};

pub(super) fn serve(listener: TcpListener, service: Service) -> io::Result<()> {
    let runtime = compio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let listener = compio::net::TcpListener::from_std(listener)?;
        loop {
            let (stream, _) = listener.accept().await?;
            // An error of one connection does not affect the others.
            compio::runtime::spawn(async move { drop(connection(stream, service).await) }).detach();
        }
    })
}

async fn connection(mut stream: TcpStream, service: Service) -> io::Result<()> {
    super::readiness::set_nodelay(std::os::fd::AsRawFd::as_raw_fd(&stream));
    let mut buffer = Vec::with_capacity(READ_SIZE);
    loop {
        buffer.clear();
        let BufResult(read, filled) = stream.read(buffer).await;
        buffer = filled;
        if read? == 0 {
            return Ok(());
        }
        if service == Service::Echo {
            let BufResult(written, sent) = stream.write_all(buffer).await;
            buffer = sent;
            written?;
        }
    }
}
