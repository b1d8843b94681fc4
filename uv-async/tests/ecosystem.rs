//! The traits of other crates, and programs on them, on every backend.

mod common;

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use common::{Runtime, every};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::rt::Timer;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use uv_async::{HyperTimer, LoopExt, TcpListener, TcpStream, UdpSocket};

fn each(case: impl AsyncFn(Runtime) -> io::Result<()>) {
    every(|lp| lp.block_on(async |rt| case(rt).await).unwrap().unwrap());
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let mut response = match body.collect().await {
        Ok(body) => Response::new(Full::new(body.to_bytes())),
        Err(_) => Response::new(Full::new(Bytes::from_static(b"broken body"))),
    };
    if parts.uri.path() != "/echo" {
        *response.status_mut() = StatusCode::NOT_FOUND;
    }
    Ok(response)
}

async fn serve(rt: Runtime, listener: TcpListener<common::Backend>) -> io::Result<()> {
    loop {
        let stream = listener.accept().await?;
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(HyperTimer::new(&rt))
            .header_read_timeout(Duration::from_secs(30))
            .serve_connection(stream, service_fn(answer));
        drop(rt.spawn_local(connection));
    }
}

/// hyper's HTTP/1.1 server and client on this runtime, with keep-alive and bodies of many sizes.
#[test]
fn hyper_serves_and_requests() {
    each(async |rt| {
        let listener = TcpListener::bind(&rt, "127.0.0.1:0".parse().unwrap())?;
        let address = listener.local_addr()?;
        drop(rt.spawn_local(serve(rt.clone(), listener)));
        for _ in 0..2 {
            let stream = TcpStream::connect(&rt, address).await?;
            let (mut sender, connection) =
                hyper::client::conn::http1::handshake(stream).await.map_err(io::Error::other)?;
            let connection = rt.spawn_local(connection);
            for size in [0, 10, 5_000, 400_000] {
                let request = Request::post("/echo")
                    .header("host", "localhost")
                    .body(Full::new(Bytes::from(vec![b'x'; size])))
                    .unwrap();
                let response = sender.send_request(request).await.map_err(io::Error::other)?;
                assert_eq!(response.status(), StatusCode::OK);
                let body = response.into_body().collect().await.map_err(io::Error::other)?;
                assert_eq!(body.to_bytes(), vec![b'x'; size]);
            }
            let request = Request::get("/missing").header("host", "localhost");
            let request = request.body(Full::new(Bytes::new())).unwrap();
            let response = sender.send_request(request).await.map_err(io::Error::other)?;
            assert_eq!(response.status(), StatusCode::NOT_FOUND);
            drop((sender, response));
            connection.await.unwrap().map_err(io::Error::other)?;
        }
        Ok(())
    });
}

#[test]
fn hypers_timer_sleeps_and_ends_with_its_future() {
    each(async |rt| {
        let timer = HyperTimer::new(&rt);
        let begun = rt.now();
        timer.sleep(Duration::from_millis(2)).await;
        assert!(rt.now() >= begun + Duration::from_millis(2));
        let long = timer.sleep(Duration::from_secs(3600));
        rt.sleep(Duration::from_millis(1)).await;
        assert_eq!(rt.task_count(), 2);
        drop(long);
        rt.sleep(Duration::from_millis(1)).await;
        assert_eq!(rt.task_count(), 1, "its task is gone");
        Ok(())
    });
}

#[test]
fn futures_io_traits() {
    use futures_io::{AsyncBufRead, AsyncRead, AsyncWrite};
    each(async |rt| {
        let (mut one, mut other) = TcpStream::pair(&rt)?;
        // More than the kernel takes at once: the reader runs meanwhile.
        let reader = rt.spawn_local(async move {
            let (mut total, mut memory) = (0, [0; 1000]);
            loop {
                let line = poll_fn(|cx| {
                    Pin::new(&mut other).poll_fill_buf(cx).map_ok(|bytes| bytes.len().min(7))
                })
                .await?;
                Pin::new(&mut other).consume(line);
                let read = poll_fn(|cx| Pin::new(&mut other).poll_read(cx, &mut memory)).await?;
                total += line + read;
                if read == 0 {
                    return io::Result::Ok(total);
                }
            }
        });
        let (bytes, mut at) = (vec![1; 2_000_000], 0);
        while at < bytes.len() {
            at += poll_fn(|cx| Pin::new(&mut one).poll_write(cx, &bytes[at..])).await?;
        }
        poll_fn(|cx| Pin::new(&mut one).poll_flush(cx)).await?;
        poll_fn(|cx| Pin::new(&mut one).poll_close(cx)).await?;
        assert_eq!(reader.await.unwrap()?, 2_000_000);
        Ok(())
    });
}

#[test]
fn tokio_io_traits() {
    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
    each(async |rt| {
        let (mut one, mut other) = TcpStream::pair(&rt)?;
        let mut at = 0;
        while at < 5 {
            at += poll_fn(|cx| Pin::new(&mut one).poll_write(cx, &b"hello"[at..])).await?;
        }
        poll_fn(|cx| Pin::new(&mut one).poll_shutdown(cx)).await?;
        let mut memory = [0; 16];
        let mut buffer = ReadBuf::new(&mut memory);
        loop {
            let before = buffer.filled().len();
            poll_fn(|cx| Pin::new(&mut other).poll_read(cx, &mut buffer)).await?;
            if buffer.filled().len() == before {
                break;
            }
        }
        assert_eq!(buffer.filled(), b"hello");
        Ok(())
    });
}

#[test]
fn streams_of_connections_and_ticks() {
    use futures_core::Stream;
    each(async |rt| {
        let listener = TcpListener::bind(&rt, "127.0.0.1:0".parse().unwrap())?;
        let _client = TcpStream::connect(&rt, listener.local_addr()?).await?;
        let mut incoming = listener.incoming();
        let next = poll_fn(|cx| Pin::new(&mut incoming).poll_next(cx)).await;
        assert!(next.is_some_and(|stream| stream.is_ok()));
        let mut ticks = rt.interval(Duration::from_millis(1));
        for _ in 0..3 {
            assert!(poll_fn(|cx| Pin::new(&mut ticks).poll_next(cx)).await.is_some());
        }
        Ok(())
    });
}

#[test]
fn dropped_receives_lose_no_datagram() {
    each(async |rt| {
        let one = UdpSocket::bind(&rt, "127.0.0.1:0".parse().unwrap())?;
        let other = UdpSocket::bind(&rt, "127.0.0.1:0".parse().unwrap())?;
        one.connect(other.local_addr()?)?;
        for number in 0..200_u8 {
            // A receive that is dropped before the datagram, and one that is dropped after it.
            let early = other.recv_from(vec![0; 16]);
            assert!(rt.timeout(Duration::ZERO, early).await.is_err());
            one.send(vec![number; 3]).await.0?;
            if number % 2 == 0 {
                let mut late = std::pin::pin!(other.recv_from(vec![0; 16]));
                let pending = poll_fn(|cx| {
                    std::task::Poll::Ready(
                        std::future::Future::poll(late.as_mut(), cx).is_pending(),
                    )
                });
                assert!(pending.await || number == 0);
                rt.sleep(Duration::from_micros(200)).await;
            }
            let (received, memory) = other.recv_from(vec![0; 16]).await;
            let received = received?;
            assert_eq!(&memory[received.range()], [number; 3]);
            assert_eq!(received.from, one.local_addr()?);
        }
        Ok(())
    });
}
