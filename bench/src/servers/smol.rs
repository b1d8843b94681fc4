//! smol: its reactor (`async-io`) and its executor for one thread (`async-executor`), a task per
//! connection.
//!
//! Its best: `read_with` and `write_with`, which call the socket directly, with one buffer for all
//! connections. Compared with a wait before each read (`smol-readable`): that saves a read which
//! would block, so that 64 busy connections take 3.3 system calls for each request instead of 4.0
//! and about 1.1 times the small requests are answered in each second of CPU time; but it registers
//! the socket anew for each request, so that a single connection takes 10 system calls instead of 2,
//! and 0.7 times the requests of 16 KiB are answered, sixteen in flight. In the mean of all cells
//! both are equal.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;

use async_executor::LocalExecutor;
use async_io::{Async, Timer};

use super::service::DELAY;
use super::{Handler, READ_SIZE, Service, connection_ended};

/// The buffer of all connections.
type Shared = Rc<RefCell<Vec<u8>>>;

pub(super) fn serve(listener: TcpListener, service: Service) -> io::Result<()> {
    run(listener, move |stream, shared| connection(stream, service, shared))
}

pub(super) fn serve_readable(listener: TcpListener, service: Service) -> io::Result<()> {
    run(listener, move |stream, shared| readable(stream, service, shared))
}

fn run<F: Future<Output = io::Result<()>> + 'static>(
    listener: TcpListener,
    connection: impl Fn(Async<TcpStream>, Shared) -> F + 'static,
) -> io::Result<()> {
    let executor = Rc::new(LocalExecutor::new());
    let shared = Rc::new(RefCell::new(vec![0; READ_SIZE]));
    let spawner = Rc::clone(&executor);
    async_io::block_on(executor.run(async move {
        let listener = Async::new(listener)?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.get_ref().set_nodelay(true)?;
            let connection = connection(stream, Rc::clone(&shared));
            // An error of one connection does not affect the others.
            let task = spawner.spawn(async move {
                drop(connection.await);
                connection_ended();
            });
            task.detach();
        }
    }))
}

async fn connection(stream: Async<TcpStream>, service: Service, shared: Shared) -> io::Result<()> {
    let mut handler = Handler::new(service);
    loop {
        // The buffer is borrowed while the socket is called, and not across an await.
        let read = stream
            .read_with(|socket| answer(socket, &mut handler, service, &mut shared.borrow_mut()));
        let Some(rest) = read.await? else { return Ok(()) };
        if service == Service::Delay {
            Timer::after(DELAY).await;
        }
        write(&stream, &rest).await?;
    }
}

/// Waits before each read, instead of after one that would block.
async fn readable(stream: Async<TcpStream>, service: Service, shared: Shared) -> io::Result<()> {
    let mut handler = Handler::new(service);
    loop {
        stream.readable().await?;
        let answered = answer(stream.get_ref(), &mut handler, service, &mut shared.borrow_mut());
        match answered {
            Ok(None) => return Ok(()),
            Ok(Some(rest)) => write(&stream, &rest).await?,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// Reads once and answers; returns the part of the answer that is still to be written, or `None` at
/// the end.
fn answer(
    mut socket: &TcpStream,
    handler: &mut Handler,
    service: Service,
    buffer: &mut [u8],
) -> io::Result<Option<Vec<u8>>> {
    let read = socket.read(buffer)?;
    if read == 0 {
        return Ok(None);
    }
    let answer = handler.answer(&buffer[..read])?;
    if service == Service::Delay || answer.is_empty() {
        return Ok(Some(answer.to_vec()));
    }
    let written = match socket.write(answer) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
        written => written?,
    };
    Ok(Some(answer[written..].to_vec()))
}

async fn write(stream: &Async<TcpStream>, mut rest: &[u8]) -> io::Result<()> {
    while !rest.is_empty() {
        let written = stream.write_with(|mut socket| socket.write(rest)).await?;
        rest = &rest[written..];
    }
    Ok(())
}
