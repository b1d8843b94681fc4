//! axum: its router is a service of tower, which hyper's connections take by an adapter.
//!
//! axum requires that handlers are `Send`. What needs the loop goes through a [`Spawner`], which is
//! `Send` itself: the future that it makes needs not be.

use std::io;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use hyper::server::conn::http1;
use hyper_util::service::TowerToHyperService;
use uv_async::{HyperTimer, Rt, Spawner, TcpListener};
use uv_core::fs;
use uv_core::poll_core::Backend;

use crate::http::{Client, Protocol};
use crate::other;

/// The routes.
pub fn router<B: Backend>(rt: &Rt<B>) -> Router {
    Router::new()
        .route("/hello/{name}", post(hello))
        .route("/echo", post(|body: String| async move { body }))
        .route("/size", post(size::<B>))
        .route("/", get(|| async { "an HTTP server on uv-core's loop" }))
        .with_state(rt.spawner())
}

async fn hello(Path(name): Path<String>) -> String {
    format!("hello, {name}")
}

/// The size of the file whose path is the request's body: a file operation of the loop.
async fn size<B: Backend>(
    State(spawner): State<Spawner<B>>,
    path: String,
) -> Result<String, (StatusCode, String)> {
    let found = spawner.spawn(move |rt| async move { rt.fs(fs::stat(path)).await }).await;
    match found {
        Ok(Ok(stat)) => Ok(stat.size.to_string()),
        Ok(Err(error)) => Err((StatusCode::NOT_FOUND, error.to_string())),
        Err(error) => Err((StatusCode::INTERNAL_SERVER_ERROR, error.to_string())),
    }
}

/// Serves connections until an accept fails.
///
/// # Errors
///
/// Those of accepting.
pub async fn serve<B: Backend>(
    rt: &Rt<B>,
    listener: TcpListener<B>,
    router: Router,
) -> io::Result<()> {
    loop {
        let stream = listener.accept().await?;
        let connection = http1::Builder::new()
            .timer(HyperTimer::new(rt))
            .header_read_timeout(Duration::from_secs(30))
            .serve_connection(stream, TowerToHyperService::new(router.clone()));
        rt.spawn_local(connection);
    }
}

/// Runs the server and some requests on one loop.
///
/// # Errors
///
/// Those of the network.
pub async fn demo<B: Backend>(rt: &Rt<B>) -> io::Result<()> {
    let listener = TcpListener::bind(rt, ([127, 0, 0, 1], 0).into())?;
    let (address, inside) = (listener.local_addr()?, rt.clone());
    let server = rt.spawn_local(async move {
        let router = router(&inside);
        serve(&inside, listener, router).await
    });
    let mut client = Client::connect(rt, address, Protocol::Http1).await?;
    for (path, body) in [("/hello/world", ""), ("/echo", "again"), ("/size", "/etc/hosts")] {
        let (status, _, answer) = client.post(path, body).await?;
        let answer = String::from_utf8(answer.into()).map_err(other)?;
        println!("{path} {status}: {answer}");
    }
    server.abort();
    Ok(())
}
