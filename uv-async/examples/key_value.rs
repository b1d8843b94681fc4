//! A server with a part of Redis's protocol: `PING`, `SET`, `GET`, `DEL` and `INCR`.
//!
//! ```sh
//! cargo run -p uv-async --example key_value   # and then: redis-cli -p 6380 set name value
//! ```

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::rc::Rc;

use uv_async::{LoopExt, Rt, TcpListener, TcpStream};
use uv_core::Loop;
use uv_core::poll_core::Backend;

type Store = Rc<RefCell<HashMap<Vec<u8>, Vec<u8>>>>;

/// The largest request, so that a client cannot take all memory.
const MAX_REQUEST: usize = 1 << 20;

pub(crate) async fn serve<B: Backend>(rt: &Rt<B>, listener: TcpListener<B>) -> io::Result<()> {
    let store = Store::default();
    loop {
        let (client, store) = (listener.accept().await?, Rc::clone(&store));
        // An error of one client is the end of that client.
        rt.spawn_local(async move { drop(answer(&client, &store).await) });
    }
}

/// Answers the requests of one client. Requests that arrive together are answered together.
async fn answer<B: Backend>(client: &TcpStream<B>, store: &Store) -> io::Result<()> {
    let (mut input, mut output) = (Vec::new(), Vec::new());
    loop {
        let lent = client.lend().await?;
        if lent.is_empty() {
            return Ok(());
        }
        input.extend_from_slice(&lent);
        drop(lent);
        let mut done = 0;
        while let Some((words, length)) = parse(&input[done..])? {
            execute(&words, store, &mut output);
            done += length;
        }
        input.drain(..done);
        if input.len() > MAX_REQUEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let (result, back) = client.write_all(std::mem::take(&mut output)).await;
        result?;
        output = back;
        output.clear();
    }
}

/// The words of a request, and its length.
type Parsed<'a> = (Vec<&'a [u8]>, usize);

/// The next request; `None` if it is not complete.
fn parse(input: &[u8]) -> io::Result<Option<Parsed<'_>>> {
    let Some((count, mut at)) = number(input, 0, b'*')? else { return Ok(None) };
    let mut words = Vec::new();
    for _ in 0..count {
        let Some((length, begin)) = number(input, at, b'$')? else { return Ok(None) };
        let Some(word) = input.get(begin..begin + length) else { return Ok(None) };
        if input.len() < begin + length + 2 {
            return Ok(None);
        }
        words.push(word);
        at = begin + length + 2;
    }
    Ok(Some((words, at)))
}

/// A number after a mark at `at`, and where its line ends.
fn number(input: &[u8], at: usize, mark: u8) -> io::Result<Option<(usize, usize)>> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let Some(first) = input.get(at) else { return Ok(None) };
    if *first != mark {
        return Err(invalid());
    }
    let Some(length) = input[at..].windows(2).position(|pair| pair == b"\r\n") else {
        return Ok(None);
    };
    let digits = std::str::from_utf8(&input[at + 1..at + length]).map_err(|_| invalid())?;
    let value = digits.parse().ok().filter(|value| *value <= MAX_REQUEST).ok_or_else(invalid)?;
    Ok(Some((value, at + length + 2)))
}

fn execute(words: &[&[u8]], store: &Store, output: &mut Vec<u8>) {
    let mut store = store.borrow_mut();
    let name = words.first().map_or(Vec::new(), |word| word.to_ascii_uppercase());
    match (name.as_slice(), &words[1.min(words.len())..]) {
        (b"PING", []) => output.extend(b"+PONG\r\n"),
        (b"SET", [key, value]) => {
            store.insert(key.to_vec(), value.to_vec());
            output.extend(b"+OK\r\n");
        }
        (b"GET", [key]) => match store.get(*key) {
            Some(value) => {
                output.extend(format!("${}\r\n", value.len()).bytes());
                output.extend(value);
                output.extend(b"\r\n");
            }
            None => output.extend(b"$-1\r\n"),
        },
        (b"DEL", keys) => {
            let removed = keys.iter().filter(|key| store.remove(**key).is_some()).count();
            output.extend(format!(":{removed}\r\n").bytes());
        }
        (b"INCR", [key]) => {
            let value = store.get(*key).map_or(Some(0), |value| {
                std::str::from_utf8(value).ok().and_then(|value| value.parse::<i64>().ok())
            });
            match value.and_then(|value| value.checked_add(1)) {
                Some(value) => {
                    store.insert(key.to_vec(), value.to_string().into_bytes());
                    output.extend(format!(":{value}\r\n").bytes());
                }
                None => output.extend(b"-ERR value is not an integer\r\n"),
            }
        }
        _ => output.extend(b"-ERR unknown command\r\n"),
    }
}

fn main() -> io::Result<()> {
    let mut lp = Loop::with_default_backend()?;
    lp.block_on(async |rt| {
        let listener = TcpListener::bind(&rt, "127.0.0.1:6380".parse().unwrap())?;
        println!("listening at {}", listener.local_addr()?);
        serve(&rt, listener).await
    })?
}
