//! tokio with its current-thread runtime: a task per connection.
//!
//! Its best: `poll_read` into one buffer for all connections, since no task keeps it across an await,
//! and `try_write`. Compared with `read_buf` and `write_all` on a buffer of each task
//! (`tokio-buffers`), which is what its documentation shows: the same system calls, but memory of
//! its own for each connection. Compared with `try_read`: a system call less for each request,
//! because `poll_read` notes that a short read has emptied the socket.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::TcpListener;
use std::pin::Pin;
use std::task::{Poll, ready};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;

use super::service::DELAY;
use super::{Handler, READ_SIZE, Service, connection_ended};

thread_local! {
    /// The buffer for the reads of all connections. Tasks that share it by a reference count would
    /// need a `LocalSet`, which is slower than the runtime's own queue.
    static SHARED: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_SIZE]);
}

pub(super) fn serve(listener: TcpListener, service: Service) -> io::Result<()> {
    run(listener, move |stream| sharing(stream, service))
}

pub(super) fn serve_buffers(listener: TcpListener, service: Service) -> io::Result<()> {
    run(listener, move |stream| owning(stream, service))
}

fn run<F: Future<Output = io::Result<()>> + Send + 'static>(
    listener: TcpListener,
    connection: impl Fn(TcpStream) -> F + 'static,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    runtime.block_on(async move {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let connection = connection(stream);
            // An error of one connection does not affect the others.
            tokio::spawn(async move {
                drop(connection.await);
                connection_ended();
            });
        }
    })
}

async fn sharing(mut stream: TcpStream, service: Service) -> io::Result<()> {
    let mut handler = Handler::new(service);
    loop {
        // The rest of an answer: the buffer is not kept across an await.
        let answered = poll_fn(|cx| {
            SHARED.with_borrow_mut(|buffer| {
                let mut read = ReadBuf::new(buffer);
                ready!(Pin::new(&mut stream).poll_read(cx, &mut read))?;
                Poll::Ready(answer(&stream, &mut handler, service, read.filled()))
            })
        });
        let Some(rest) = answered.await? else { return Ok(()) };
        if service == Service::Delay {
            tokio::time::sleep(DELAY).await;
        }
        if !rest.is_empty() {
            stream.write_all(&rest).await?;
        }
    }
}

/// Answers what was read; returns the part of the answer that is still to be written, or `None` at
/// the end.
fn answer(
    stream: &TcpStream,
    handler: &mut Handler,
    service: Service,
    read: &[u8],
) -> io::Result<Option<Vec<u8>>> {
    if read.is_empty() {
        return Ok(None);
    }
    let answer = handler.answer(read)?;
    if service == Service::Delay {
        return Ok(Some(answer.to_vec()));
    }
    if answer.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let written = match stream.try_write(answer) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
        written => written?,
    };
    Ok(Some(answer[written..].to_vec()))
}

async fn owning(mut stream: TcpStream, service: Service) -> io::Result<()> {
    let mut handler = Handler::new(service);
    let mut buffer = Vec::with_capacity(READ_SIZE);
    loop {
        buffer.clear();
        if stream.read_buf(&mut buffer).await? == 0 {
            return Ok(());
        }
        let answer = handler.answer(&buffer)?;
        if service == Service::Delay {
            tokio::time::sleep(DELAY).await;
        }
        stream.write_all(answer).await?;
    }
}
