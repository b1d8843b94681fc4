//! A loop that tokio drives by its descriptor.

#![cfg(unix)]

mod common;

use std::cell::Cell;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use tokio::io::unix::AsyncFd;
use tokio::io::{Interest, Ready};
use uv_async::{Rt, TcpStream, drive};
use uv_core::{Loop, Timer};

/// A duplicate of the loop's descriptor, which tokio watches.
#[allow(unsafe_code)]
#[allow(
    deprecated,
    reason = "its successor is unsafe, and newer than the oldest tokio that is allowed"
)]
fn watched<B: uv_core::poll_core::Backend>(lp: &Loop<B>) -> io::Result<Option<AsyncFd<OwnedFd>>> {
    let Some(source) = lp.raw_source() else { return Ok(None) };
    // SAFETY: the loop keeps its descriptor open during this call.
    let fd = unsafe { BorrowedFd::borrow_raw(source.fd()) };
    AsyncFd::with_interest(fd.try_clone_to_owned()?, Interest::READABLE).map(Some)
}

#[test]
fn tasks_and_callbacks_run_inside_tokio() {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    common::every(|lp| {
        tokio.block_on(async {
            let Some(watched) = watched(lp).unwrap() else {
                eprintln!("skip: no descriptor");
                assert!(drive(lp, async |_, _| Ok(())).await.is_err());
                return;
            };
            let (rt, fired) = (Rt::attach(lp), Rc::new(Cell::new(false)));
            let (task, set) = (rt.clone(), Rc::clone(&fired));
            let echoed = rt.spawn_local(async move {
                let (one, other) = TcpStream::pair(&task)?;
                let (sender, receiver) = tokio::sync::oneshot::channel();
                // A timer of tokio wakes a task of the loop.
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    sender.send("hello").unwrap();
                });
                one.write_all(receiver.await.unwrap()).await.0?;
                task.sleep(Duration::from_millis(2)).await;
                let lent = other.lend().await?;
                io::Result::Ok(lent.to_vec())
            });
            Timer::after(lp, Duration::from_millis(3), move |_, _| set.set(true));
            let wait = async |_, timeout: Option<Duration>| {
                let readable = async {
                    let mut guard = watched.readable().await?;
                    guard.clear_ready_matching(Ready::READABLE);
                    io::Result::Ok(())
                };
                match timeout {
                    Some(timeout) => {
                        tokio::time::timeout(timeout, readable).await.unwrap_or(Ok(()))
                    }
                    None => readable.await,
                }
            };
            drive(lp, wait).await.unwrap();
            assert!(fired.get());
            assert_eq!(echoed.await.unwrap().unwrap(), b"hello");
        });
    });
}
