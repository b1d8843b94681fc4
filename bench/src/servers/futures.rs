//! `uv-async`, on any backend: a task per connection, which owns its buffer.
//!
//! Its best: `read` into memory of the task and `write_all` from the same memory, without a copy and
//! without an allocation. Compared with `lend`, whose bytes must be copied to be written: the same
//! system calls, and a copy more. The memory goes from a connection that has ended to the next, so that
//! it is zeroed once.

use std::cell::RefCell;
use std::io;
use std::net::TcpListener as StdListener;
use std::rc::Rc;

use poll_core::Backend;
use uv_async::{LoopExt, Rt, TcpListener, TcpStream};
use uv_core::{IoBuf, IoBufMut, Listener as _, Loop, Tcp};

use super::service::DELAY;
use super::{BACKLOG, Handler, READ_SIZE, Service, connection_ended};

/// Memory and the number of bytes in it that are to be written.
struct Page {
    memory: Box<[u8]>,
    filled: usize,
}

/// The memory of connections that have ended.
type Unused = Rc<RefCell<Vec<Box<[u8]>>>>;

// SAFETY: the memory of a box does not move with it, and `filled` changes only between operations.
unsafe impl IoBuf for Page {
    const ONE_PIECE: bool = true;

    fn piece(&self, index: usize) -> &[u8] {
        if index == 0 { &self.memory[..self.filled] } else { &[] }
    }
}

// SAFETY: as above.
unsafe impl IoBufMut for Page {
    const ONE_PIECE: bool = true;

    fn memory(&mut self) -> &mut [u8] {
        &mut self.memory
    }
}

pub(super) fn serve<B: Backend>(
    backend: B,
    listener: StdListener,
    service: Service,
) -> io::Result<()> {
    let mut lp = Loop::new(backend);
    lp.block_on(async move |rt: Rt<B>| {
        let key = rt.with(Tcp::new);
        rt.with(|lp| {
            key.open(lp, listener)?;
            key.listen_without_callback(lp, BACKLOG)
        })?;
        let listener: TcpListener<B> = TcpListener::from_key(&rt, key);
        let mut incoming = listener.incoming();
        let unused = Unused::default();
        loop {
            // A failed accept does not affect other connections.
            let Ok(stream) = incoming.next().await else { continue };
            let (inside, unused) = (rt.clone(), Rc::clone(&unused));
            rt.spawn_local(async move {
                let kept = unused.borrow_mut().pop();
                let memory = kept.unwrap_or_else(|| vec![0; READ_SIZE].into());
                let mut page = Some(Page { memory, filled: 0 });
                // An error of one connection does not affect the others.
                drop(connection(inside, stream, service, &mut page).await);
                unused.borrow_mut().extend(page.map(|page| page.memory));
                connection_ended();
            });
        }
    })?
}

async fn connection<B: Backend>(
    rt: Rt<B>,
    stream: TcpStream<B>,
    service: Service,
    unused: &mut Option<Page>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut handler = Handler::new(service);
    let mut copy = Vec::new();
    let Some(mut page) = unused.take() else { return Ok(()) };
    loop {
        let (read, filled) = stream.read(page).await;
        page = filled;
        page.filled = *read.as_ref().unwrap_or(&0);
        if page.filled == 0 {
            *unused = Some(page);
            return read.map(drop);
        }
        match service {
            Service::Sink => {}
            Service::Http => {
                copy.clear();
                copy.extend_from_slice(handler.answer(page.piece(0))?);
                let (written, sent) = stream.write_all(copy).await;
                copy = sent;
                written?;
            }
            Service::Echo | Service::Compute(_) | Service::Delay => {
                handler.answer(page.piece(0))?;
                if service == Service::Delay {
                    rt.sleep(DELAY).await;
                }
                let (written, sent) = stream.write_all(page).await;
                page = sent;
                written?;
            }
        }
    }
}
