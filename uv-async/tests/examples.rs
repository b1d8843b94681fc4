//! The examples, on every backend.

mod common;

#[path = "../examples/chat.rs"]
#[allow(dead_code)]
mod chat;
#[path = "../examples/echo.rs"]
#[allow(dead_code)]
mod echo;
#[path = "../examples/executor_paths.rs"]
#[allow(dead_code)]
mod executor_paths;
#[path = "../examples/key_value.rs"]
#[allow(dead_code)]
mod key_value;

use std::io;
use std::time::Duration;

use common::{Runtime, every};
use uv_async::{LoopExt, TcpListener, TcpStream};

fn each(case: impl AsyncFn(Runtime, TcpListener<common::Backend>) -> io::Result<()>) {
    every(|lp| {
        lp.block_on(async |rt| {
            let listener = TcpListener::bind(&rt, "127.0.0.1:0".parse().unwrap())?;
            case(rt, listener).await
        })
        .unwrap()
        .unwrap();
    });
}

async fn expect(stream: &TcpStream<common::Backend>, expected: &str) -> io::Result<()> {
    let (result, bytes) = stream.read_exact(vec![0; expected.len()]).await;
    result?;
    assert_eq!(String::from_utf8_lossy(&bytes), expected);
    Ok(())
}

#[test]
fn lines_of_a_chat_go_to_all_others() {
    each(async |rt, listener| {
        let (address, inside) = (listener.local_addr()?, rt.clone());
        let server = rt.spawn_local(async move { chat::serve(&inside, listener).await });
        let mut clients = Vec::new();
        for _ in 0..3 {
            clients.push(TcpStream::connect(&rt, address).await?);
        }
        // Iterations, not time: each of them accepts what is there before timers fire.
        for _ in 0..20 {
            rt.sleep(Duration::from_millis(1)).await;
        }
        clients[0].write_all("hel").await.0?;
        rt.sleep(Duration::from_millis(1)).await;
        clients[0].write_all("lo\nworld\n").await.0?;
        for other in &clients[1..] {
            expect(other, "0: hello\n0: world\n").await?;
        }
        drop(clients.remove(1));
        clients[1].write_all("bye\n").await.0?;
        expect(&clients[0], "2: bye\n").await?;
        server.abort();
        assert!(server.await.unwrap_err().is_cancelled());
        Ok(())
    });
}

#[test]
fn a_store_answers_pipelined_requests() {
    each(async |rt, listener| {
        let (address, inside) = (listener.local_addr()?, rt.clone());
        let server = rt.spawn_local(async move { key_value::serve(&inside, listener).await });
        let client = TcpStream::connect(&rt, address).await?;
        let requests = "*1\r\n$4\r\nping\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nvalue\r\n\
                        *2\r\n$3\r\nGET\r\n$1\r\nk\r\n*2\r\n$3\r\nGET\r\n$1\r\nx\r\n\
                        *2\r\n$4\r\nINCR\r\n$1\r\nn\r\n*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n\
                        *3\r\n$3\r\nDEL\r\n$1\r\nk\r\n$1\r\nx\r\n*1\r\n$2\r\nno\r\n";
        for piece in requests.as_bytes().chunks(7) {
            client.write_all(piece.to_vec()).await.0?;
            rt.sleep(Duration::from_micros(100)).await;
        }
        let answers =
            "+PONG\r\n+OK\r\n$5\r\nvalue\r\n$-1\r\n:1\r\n:2\r\n:1\r\n-ERR unknown command\r\n";
        expect(&client, answers).await?;
        client.write_all(requests).await.0?; // All at once.
        expect(&client, &answers.replace(":1\r\n:2\r\n", ":3\r\n:4\r\n")).await?;
        let words = |line: &str| {
            let words: Vec<_> = line.split(' ').collect();
            let each = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
            format!("*{}\r\n{}", words.len(), each.collect::<String>())
        };
        let exchanges = [
            ("SET session open", "+OK\r\n"),
            ("TTL session", ":-1\r\n"),
            ("EXPIRE session 3600", ":1\r\n"),
            ("TTL session", ":3600\r\n"),
            ("GET session", "$4\r\nopen\r\n"),
            ("EXPIRE session 0", ":1\r\n"),
            ("GET session", "$-1\r\n"),
            ("TTL session", ":-2\r\n"),
            ("EXPIRE session 1", ":0\r\n"),
            ("EXPIRE session soon", "-ERR value is not an integer\r\n"),
            ("DEL session", ":0\r\n"),
        ];
        // In one write, so that they are executed at one time of the loop.
        let pipeline: String = exchanges.iter().map(|(request, _)| words(request)).collect();
        client.write_all(pipeline).await.0?;
        expect(&client, &exchanges.map(|(_, answer)| answer).concat()).await?;
        let broken = TcpStream::connect(&rt, address).await?;
        broken.write_all("nonsense\r\n").await.0?;
        assert!(broken.lend().await.map_or(true, |lent| lent.is_empty()), "it is closed");
        server.abort();
        Ok(())
    });
}

#[test]
fn bytes_are_echoed() {
    each(async |rt, listener| {
        let (address, inside) = (listener.local_addr()?, rt.clone());
        let server = rt.spawn_local(async move { echo::serve(&inside, listener).await });
        let client = TcpStream::connect(&rt, address).await?;
        for size in [1, 64, 5000] {
            let text = "x".repeat(size);
            client.write_slice(text.as_bytes()).await?;
            expect(&client, &text).await?;
        }
        client.shutdown().await?;
        assert!(client.lend().await?.is_empty(), "the end is echoed, too");
        server.abort();
        Ok(())
    });
}

#[test]
fn the_paths_of_the_executor_run() {
    let table = executor_paths::run(200).unwrap();
    assert_eq!(table.lines().count(), 4, "{table}");
}
