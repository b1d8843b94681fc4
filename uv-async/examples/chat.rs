//! A chat: each line of a client goes to all others.
//!
//! ```sh
//! cargo run -p uv-async --example chat   # and then: nc 127.0.0.1 7000
//! ```

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::rc::Rc;

use uv_async::{LoopExt, Rt, TcpListener, TcpStream};
use uv_core::Loop;
use uv_core::poll_core::Backend;

/// The clients by their number.
type Room<B> = Rc<RefCell<HashMap<usize, Rc<TcpStream<B>>>>>;

pub(crate) async fn serve<B: Backend>(rt: &Rt<B>, listener: TcpListener<B>) -> io::Result<()> {
    let room: Room<B> = Rc::default();
    for number in 0.. {
        let client = Rc::new(listener.accept().await?);
        room.borrow_mut().insert(number, Rc::clone(&client));
        let room = Rc::clone(&room);
        rt.spawn_local(async move {
            // An error of one client is the end of that client.
            let _ = forward(number, &client, &room).await;
            room.borrow_mut().remove(&number);
        });
    }
    Ok(())
}

/// Sends the lines of a client to the others.
async fn forward<B: Backend>(
    number: usize,
    client: &TcpStream<B>,
    room: &Room<B>,
) -> io::Result<()> {
    let mut line = format!("{number}: ").into_bytes();
    let prefix = line.len();
    loop {
        let lent = client.lend().await?;
        if lent.is_empty() {
            return Ok(());
        }
        let end = lent.iter().position(|byte| *byte == b'\n');
        let count = end.map_or(lent.len(), |end| end + 1);
        line.extend(&lent[..count]);
        lent.keep_from(count);
        if end.is_none() {
            continue;
        }
        let others: Vec<_> = room.borrow().iter().map(|(key, to)| (*key, Rc::clone(to))).collect();
        for (_, other) in others.iter().filter(|(key, _)| *key != number) {
            // A client that is gone ends its own task.
            let _ = other.write_all(line.clone()).await;
        }
        line.truncate(prefix);
    }
}

fn main() -> io::Result<()> {
    let mut lp = Loop::with_default_backend()?;
    lp.block_on(async |rt| {
        let listener = TcpListener::bind(&rt, "127.0.0.1:7000".parse().unwrap())?;
        println!("listening at {}", listener.local_addr()?);
        serve(&rt, listener).await
    })?
}
