//! smol: its reactor (`async-io`) and its executor for one thread (`async-executor`), a task per
//! connection.
//!
//! Its best: `read_with` and `write_with`, which call the socket directly, with one buffer for all
//! connections. Compared with `AsyncReadExt::read` and `AsyncWriteExt::write_all` on a buffer of each
//! task: the same system calls, and two more layers of polling.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;

use async_executor::LocalExecutor;
use async_io::{Async, Timer};

use super::service::DELAY;
use super::{Handler, READ_SIZE, Service, connection_ended};

pub(super) fn serve(listener: TcpListener, service: Service) -> io::Result<()> {
    let executor = Rc::new(LocalExecutor::new());
    let shared = Rc::new(RefCell::new(vec![0; READ_SIZE]));
    let spawner = Rc::clone(&executor);
    async_io::block_on(executor.run(async move {
        let listener = Async::new(listener)?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.get_ref().set_nodelay(true)?;
            let connection = connection(stream, service, Rc::clone(&shared));
            // An error of one connection does not affect the others.
            let task = spawner.spawn(async move {
                drop(connection.await);
                connection_ended();
            });
            task.detach();
        }
    }))
}

async fn connection(
    stream: Async<TcpStream>,
    service: Service,
    shared: Rc<RefCell<Vec<u8>>>,
) -> io::Result<()> {
    let mut handler = Handler::new(service);
    loop {
        // The buffer is borrowed while the socket is called, and not across an await.
        let read = stream.read_with(|mut socket| {
            let mut buffer = shared.borrow_mut();
            let read = socket.read(&mut buffer)?;
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
        });
        let Some(rest) = read.await? else { return Ok(()) };
        if service == Service::Delay {
            Timer::after(DELAY).await;
        }
        let mut rest = &rest[..];
        while !rest.is_empty() {
            let written = stream.write_with(|mut socket| socket.write(rest)).await?;
            rest = &rest[written..];
        }
    }
}
