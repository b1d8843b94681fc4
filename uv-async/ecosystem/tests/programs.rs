//! The programs of this package, on every backend.

#![cfg(all(target_os = "linux", target_env = "gnu"))]

#[path = "../../tests/common/mod.rs"]
mod common;

use std::io;

use async_tungstenite::tungstenite::Message;
use common::{Backend, Runtime, every};
use ecosystem::http::{self, Client, Protocol};
use ecosystem::https::{self, Identity, TLS12, TLS13};
use ecosystem::{inside_smol, inside_tokio, web_framework, websocket};
use futures_util::StreamExt;
use hyper::{StatusCode, Version};
use uv_async::{LoopExt, TcpListener};

fn each(case: impl AsyncFn(&Runtime, TcpListener<Backend>) -> io::Result<()>) {
    every(|lp| {
        lp.block_on(async |rt| {
            let listener = TcpListener::bind(&rt, ([127, 0, 0, 1], 0).into())?;
            case(&rt, listener).await
        })
        .unwrap()
        .unwrap();
    });
}

/// Bodies of many sizes, a path that does not exist, and requests after it.
async fn exercise(client: &mut Client, expected: Version) -> io::Result<()> {
    for size in [0, 10, 5_000, 400_000] {
        let body = vec![b'x'; size];
        let (status, version, answer) = client.post("/echo", body.clone()).await?;
        assert_eq!((status, version), (StatusCode::OK, expected));
        assert!(answer == body, "{} of {size} bytes", answer.len());
    }
    let (status, ..) = client.post("/missing", "body").await?;
    assert_eq!(status, StatusCode::NOT_FOUND);
    Ok(())
}

#[test]
fn hyper_serves_and_requests_http_1() {
    each(async |rt, listener| {
        let (address, inside) = (listener.local_addr()?, rt.clone());
        rt.spawn_local(async move { http::serve(&inside, listener, Protocol::Http1).await });
        for _ in 0..2 {
            let mut client = Client::connect(rt, address, Protocol::Http1).await?;
            exercise(&mut client, Version::HTTP_11).await?;
            assert!(client.try_clone().is_none());
        }
        Ok(())
    });
}

/// Streams of one HTTP/2 connection at the same time, each a task.
#[test]
fn hyper_serves_and_requests_http_2() {
    each(async |rt, listener| {
        let (address, inside) = (listener.local_addr()?, rt.clone());
        rt.spawn_local(async move { http::serve(&inside, listener, Protocol::Http2).await });
        let mut client = Client::connect(rt, address, Protocol::Http2).await?;
        exercise(&mut client, Version::HTTP_2).await?;
        let requests: Vec<_> = (0..20_u8)
            .map(|number| {
                let mut client = client.try_clone().unwrap();
                rt.spawn_local(async move { client.post("/echo", vec![number; 20_000]).await })
            })
            .collect();
        for (number, request) in (0..).zip(requests) {
            let (status, _, body) = request.await.unwrap()?;
            assert_eq!(status, StatusCode::OK);
            assert!(body == vec![number; 20_000], "of request {number}");
        }
        Ok(())
    });
}

#[test]
fn rustls_carries_both_versions() {
    let identity = Identity::generate().unwrap();
    each(async |rt, listener| {
        let (port, inside) = (listener.local_addr()?.port(), rt.clone());
        let config = identity.server.clone();
        rt.spawn_local(async move { https::serve(&inside, listener, config).await });
        let versions = [(Protocol::Http1, Version::HTTP_11), (Protocol::Http2, Version::HTTP_2)];
        for (protocol, version) in versions {
            for tls in [&TLS12, &TLS13] {
                let config = identity.client(tls, protocol)?;
                let mut client = https::connect(rt, port, config).await?;
                exercise(&mut client, version).await?;
            }
        }
        // A client that trusts another certificate is refused, and the server goes on.
        let stranger = Identity::generate()?.client(&TLS13, Protocol::Http1)?;
        let refused = https::connect(rt, port, stranger).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData, "{refused}");
        let config = identity.client(&TLS13, Protocol::Http1)?;
        https::connect(rt, port, config).await?.post("/echo", "again").await?;
        Ok(())
    });
}

#[test]
fn tungstenite_echoes() {
    each(async |rt, listener| {
        let (address, inside) = (listener.local_addr()?, rt.clone());
        rt.spawn_local(async move { websocket::serve(&inside, listener).await });
        let mut socket = websocket::connect(rt, address).await?;
        let messages = [
            Message::text("hello"),
            Message::binary(Vec::new()),
            Message::binary(vec![7; 300_000]),
        ];
        for message in messages {
            socket.send(message.clone()).await.unwrap();
            assert!(socket.next().await.unwrap().unwrap() == message);
        }
        socket.send(Message::Ping(vec![1, 2].into())).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), Message::Pong(vec![1, 2].into()));
        socket.close(None).await.unwrap();
        assert!(socket.next().await.unwrap().unwrap().is_close(), "the server answers the close");
        assert!(socket.next().await.is_none());
        Ok(())
    });
}

#[test]
fn axum_routes() {
    each(async |rt, listener| {
        let (address, inside) = (listener.local_addr()?, rt.clone());
        rt.spawn_local(async move {
            let router = web_framework::router(&inside);
            web_framework::serve(&inside, listener, router).await
        });
        let mut client = Client::connect(rt, address, Protocol::Http1).await?;
        let size = std::fs::metadata("Cargo.toml")?.len().to_string();
        let requests = [
            ("/hello/world", "", StatusCode::OK, "hello, world"),
            ("/echo", "again", StatusCode::OK, "again"),
            ("/size", "Cargo.toml", StatusCode::OK, size.as_str()),
            ("/missing", "", StatusCode::NOT_FOUND, ""),
        ];
        for (path, body, status, expected) in requests {
            let answer = client.post(path, body).await?;
            assert_eq!((answer.0, &answer.2[..]), (status, expected.as_bytes()), "{path}");
        }
        let (status, ..) = client.post("/size", "no such file").await?;
        assert_eq!(status, StatusCode::NOT_FOUND);
        Ok(())
    });
}

#[test]
fn the_demonstrations_run() {
    each(async |rt, _| {
        http::demo(rt).await?;
        https::demo(rt).await?;
        websocket::demo(rt).await?;
        web_framework::demo(rt).await
    });
}

/// `select` and `poll` have no descriptor that another runtime could watch.
fn check_inside(has_descriptor: bool, ran: io::Result<(Vec<u8>, bool)>) {
    match ran {
        Ok((read, fired)) => assert!(has_descriptor && read == b"hello" && fired),
        Err(error) => {
            assert!(!has_descriptor && error.kind() == io::ErrorKind::Unsupported, "{error}");
        }
    }
}

#[test]
fn tasks_and_callbacks_run_inside_tokio() {
    every(|lp| check_inside(lp.raw_source().is_some(), inside_tokio::run(lp)));
}

#[test]
fn tasks_and_callbacks_run_inside_smol() {
    every(|lp| check_inside(lp.raw_source().is_some(), inside_smol::run(lp)));
}
