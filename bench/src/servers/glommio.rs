//! glommio, on io_uring: a task per connection.
//!
//! Its best: the unbuffered stream with one buffer of each task. Compared with its buffered stream,
//! which copies from a buffer of its own: the same operations, and a copy more.

use std::io;
use std::net::TcpListener;
use std::os::fd::{FromRawFd, IntoRawFd};

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use glommio::net::TcpStream;
use glommio::{LocalExecutorBuilder, Placement};

use super::service::DELAY;
use super::{Handler, READ_SIZE, Service, connection_ended};

pub(super) fn serve(listener: TcpListener, service: Service) -> io::Result<()> {
    let executor = LocalExecutorBuilder::new(Placement::Unbound).make().map_err(failed)?;
    executor.run(async move {
        // SAFETY: the descriptor is a listening socket, and nothing else owns it from here on.
        let listener = unsafe { glommio::net::TcpListener::from_raw_fd(listener.into_raw_fd()) };
        loop {
            let stream = listener.accept().await.map_err(failed)?;
            // An error of one connection does not affect the others.
            let task = glommio::spawn_local(async move {
                drop(connection(stream, service).await);
                connection_ended();
            });
            task.detach();
        }
    })
}

fn failed(error: glommio::GlommioError<()>) -> io::Error {
    io::Error::other(error.to_string())
}

async fn connection(mut stream: TcpStream, service: Service) -> io::Result<()> {
    stream.set_nodelay(true).map_err(failed)?;
    let mut handler = Handler::new(service);
    let mut buffer = vec![0; READ_SIZE];
    loop {
        let read = stream.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        let answer = handler.answer(&buffer[..read])?;
        if service == Service::Delay {
            glommio::timer::sleep(DELAY).await;
        }
        stream.write_all(answer).await?;
    }
}
