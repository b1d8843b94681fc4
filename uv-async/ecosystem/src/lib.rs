//! Programs with libraries of the async ecosystem, on uv-core's loop. The libraries need no
//! other runtime: they use the traits that `uv-async` implements.
//!
//! | module | library | by |
//! |---|---|---|
//! | [`http`] | hyper 1: HTTP/1.1 and HTTP/2, server and client | `hyper::rt` |
//! | [`https`] | rustls below hyper, with ALPN | tokio's `io` traits |
//! | [`web_framework`] | axum on hyper | `hyper::rt`, tower's `Service` |
//! | [`websocket`] | tungstenite: an echo server and its client | `futures-io` |
//! | [`inside_tokio`], [`inside_smol`] | these runtimes, with the loop in a task of theirs | the loop's descriptor |
//!
//! `cargo run -p ecosystem -- https` runs one of them, and a test all, on every backend of Linux.
//! They are built for Linux with glibc alone.

#![cfg(all(target_os = "linux", target_env = "gnu"))]

pub mod http;
pub mod https;
pub mod inside_smol;
pub mod inside_tokio;
pub mod web_framework;
pub mod websocket;

use std::io;

/// An error of a library as one of I/O, which all these programs return.
pub(crate) fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::other(error)
}
