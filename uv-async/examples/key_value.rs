//! A server with a part of Redis's protocol: `PING`, `SET`, `GET`, `DEL`, `INCR`, `EXPIRE` and `TTL`.
//!
//! ```sh
//! cargo run -p uv-async --example key_value   # and then: redis-cli -p 6380 set name value
//! ```

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use uv_async::{LoopExt, Rt, TcpListener, TcpStream};
use uv_core::Loop;
use uv_core::poll_core::Backend;

/// The values that all connections share: tasks of one loop need no lock.
type Shared = Rc<RefCell<Store>>;

#[derive(Default)]
struct Store {
    values: HashMap<Vec<u8>, Value>,
    /// The loop's time.
    now: Duration,
}

struct Value {
    bytes: Vec<u8>,
    /// The loop's time from which on it is gone.
    expires: Option<Duration>,
}

impl Store {
    /// A value that is not expired. An expired one is removed when it is asked for; a store that
    /// forgets keys would need a task that sweeps.
    fn get(&mut self, key: &[u8]) -> Option<&mut Value> {
        let now = self.now;
        if self.values.get(key)?.expires.is_some_and(|expires| expires <= now) {
            self.values.remove(key);
        }
        self.values.get_mut(key)
    }

    fn set(&mut self, key: &[u8], bytes: Vec<u8>) {
        self.values.insert(key.to_vec(), Value { bytes, expires: None });
    }
}

/// The largest request, so that a client cannot take all memory.
const MAX_REQUEST: usize = 1 << 20;

pub(crate) async fn serve<B: Backend>(rt: &Rt<B>, listener: TcpListener<B>) -> io::Result<()> {
    let store = Shared::default();
    loop {
        let (client, store) = (listener.accept().await?, Rc::clone(&store));
        // An error of one client is the end of that client.
        rt.spawn_local(async move { drop(answer(&client, &store).await) });
    }
}

/// Answers the requests of one client. Requests that arrive together are answered together.
async fn answer<B: Backend>(client: &TcpStream<B>, store: &Shared) -> io::Result<()> {
    let (mut input, mut output) = (Vec::new(), Vec::new());
    loop {
        let lent = client.lend().await?;
        if lent.is_empty() {
            return Ok(());
        }
        input.extend_from_slice(&lent);
        drop(lent);
        let mut done = 0;
        store.borrow_mut().now = client.rt().now();
        while let Some((words, length)) = parse(&input[done..])? {
            execute(&words, &mut store.borrow_mut(), &mut output);
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

fn execute(words: &[&[u8]], store: &mut Store, output: &mut Vec<u8>) {
    let name = words.first().map_or(Vec::new(), |word| word.to_ascii_uppercase());
    let integer = |output: &mut Vec<u8>, value: i64| output.extend(format!(":{value}\r\n").bytes());
    match (name.as_slice(), &words[1.min(words.len())..]) {
        (b"PING", []) => output.extend(b"+PONG\r\n"),
        (b"SET", [key, value]) => {
            store.set(key, value.to_vec());
            output.extend(b"+OK\r\n");
        }
        (b"GET", [key]) => match store.get(key) {
            Some(value) => {
                output.extend(format!("${}\r\n", value.bytes.len()).bytes());
                output.extend(&value.bytes);
                output.extend(b"\r\n");
            }
            None => output.extend(b"$-1\r\n"),
        },
        (b"DEL", keys) => {
            let exists =
                |key: &&&[u8]| store.get(key).is_some() && store.values.remove(**key).is_some();
            integer(output, keys.iter().filter(exists).count() as i64);
        }
        (b"INCR", [key]) => {
            let next = match store.get(key) {
                Some(value) => decimal(&value.bytes).and_then(|value| value.checked_add(1)),
                None => Some(1),
            };
            let Some(next) = next else {
                return output.extend(b"-ERR value is not an integer\r\n");
            };
            match store.get(key) {
                Some(value) => value.bytes = next.to_string().into_bytes(),
                None => store.set(key, next.to_string().into_bytes()),
            }
            integer(output, next);
        }
        (b"EXPIRE", [key, seconds]) => {
            let Some(seconds) = decimal(seconds) else {
                return output.extend(b"-ERR value is not an integer\r\n");
            };
            let expires = store.now + Duration::from_secs(seconds.try_into().unwrap_or(0));
            let value = store.get(key);
            integer(output, value.is_some().into());
            if let Some(value) = value {
                value.expires = Some(expires);
            }
        }
        (b"TTL", [key]) => {
            let now = store.now;
            integer(
                output,
                match store.get(key).map(|value| value.expires) {
                    None => -2,
                    Some(None) => -1,
                    // Rounded up, so that a value that is there has time left.
                    Some(Some(expires)) => (expires - now).as_secs_f64().ceil() as i64,
                },
            );
        }
        _ => output.extend(b"-ERR unknown command\r\n"),
    }
}

fn decimal(bytes: &[u8]) -> Option<i64> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

fn main() -> io::Result<()> {
    let mut lp = Loop::with_default_backend()?;
    lp.block_on(async |rt| {
        let listener = TcpListener::bind(&rt, "127.0.0.1:6380".parse().unwrap())?;
        println!("listening at {}", listener.local_addr()?);
        serve(&rt, listener).await
    })?
}
