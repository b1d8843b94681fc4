//! File operations and other requests are awaited in tasks, with and without the loop, on every
//! backend.

mod common;

use std::future::{Future, poll_fn};
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::mpsc;
use std::task::Poll;
use std::thread;

use common::{every, serial};
use uv_async::{LoopExt, OperationExt, yield_now};
use uv_core::Pool;
use uv_core::dns::Hints;
use uv_core::fs::{self, Action, Operation};
#[cfg(unix)]
use uv_core::{Handle, Prepare};

/// A folder that is removed with its files.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        Folder(fs::mkdtemp(std::env::temp_dir().join("files-XXXXXX")).perform().unwrap())
    }

    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn options() -> fs::OpenOptions {
    fs::OpenOptions::new().read(true).write(true).create(true)
}

/// Waits until the process's pool does nothing.
fn settle() {
    let pool = Pool::global().unwrap();
    while pool.queued() + pool.active() > 0 {
        thread::yield_now();
    }
}

/// Polls a future a number of times, and drops it then: `None`.
async fn limited<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let (mut future, mut left) = (pin!(future), polls);
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        cx.waker().wake_by_ref();
        future.as_mut().poll(cx).map(Some)
    })
    .await
}

/// Awaits all futures at a time, each by its own wakes only.
async fn all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut futures: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    poll_fn(|cx| {
        let mut left = 0;
        for (future, output) in &mut futures {
            if output.is_none() {
                match future.as_mut().poll(cx) {
                    Poll::Ready(value) => *output = Some(value),
                    Poll::Pending => left += 1,
                }
            }
        }
        if left == 0 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    futures.into_iter().filter_map(|(_, output)| output).collect()
}

#[test]
fn operations_are_awaited_as_they_are_and_on_the_loop() {
    let _serial = serial();
    every(|lp| {
        let folder = Folder::new();
        lp.block_on(async |rt| {
            let file = fs::open(folder.path("a"), options()).await?;
            fs::write_at(&file, "hello", 0).await.0?;
            fs::write_at(&file, " world", 5).on(&rt).await.0?;
            let (here, there) = (fs::read_at(&file, vec![0; 16], 0), fs::fstat(&file));
            let ((count, bytes), stat) = tokio::join!(here.into_future(), there.on(&rt));
            assert_eq!((&bytes[..count?], stat?.size), (&b"hello world"[..], 11));
            let (one, other) = (fs::stat(&folder.0).await?, fs::stat(&folder.0).on(&rt).await?);
            assert_eq!(one, other);
            io::Result::Ok(())
        })
        .unwrap()
        .unwrap();
    });
}

/// Nothing but the worker's wake ends the wait of the loop.
#[cfg(unix)]
#[test]
fn a_worker_wakes_a_task_while_the_loop_waits() {
    let _serial = serial();
    every(|lp| {
        let (reader, mut writer) = io::pipe().unwrap();
        let reader = fs::File::from(std::fs::File::from(std::os::fd::OwnedFd::from(reader)));
        let (about_to_wait, waiting) = mpsc::channel();
        let prepare = Prepare::new(lp);
        prepare
            .start(lp, move |_, _| {
                let _ = about_to_wait.send(()); // Once is enough.
            })
            .unwrap();
        let other = thread::spawn(move || {
            waiting.recv().unwrap();
            io::Write::write_all(&mut writer, b"late").unwrap();
        });
        let (count, bytes) = lp.block_on(async |_| fs::read(&reader, vec![0; 8]).await).unwrap();
        assert_eq!(&bytes[..count.unwrap()], b"late");
        other.join().unwrap();
        prepare.close(lp).unwrap();
    });
}

#[test]
fn a_thousand_operations_run_side_by_side() {
    let _serial = serial();
    every(|lp| {
        let folder = Folder::new();
        lp.block_on(async |rt| {
            let file = fs::open(folder.path("a"), options()).await.unwrap();
            let written = all((0..1000_u64).map(|index| {
                fs::write_at(&file, index.to_be_bytes().to_vec(), index * 8).into_future()
            }));
            assert!(written.await.into_iter().all(|(count, _)| count.unwrap() == 8));
            // Each in a task of its own, which the worker wakes.
            let tasks: Vec<_> = (0..1000_u64)
                .map(|index| {
                    let file = file.clone();
                    rt.spawn_local(async move { fs::read_at(&file, vec![0; 8], index * 8).await })
                })
                .collect();
            for (index, task) in tasks.into_iter().enumerate() {
                let (count, bytes) = task.await.unwrap();
                assert_eq!((count.unwrap(), &*bytes), (8, &(index as u64).to_be_bytes()[..]));
            }
        })
        .unwrap();
    });
}

/// Dropped after any number of polls, an operation leaves neither a descriptor nor its buffer, and
/// the runtime works.
#[test]
fn futures_are_dropped_at_each_point() {
    let _serial = serial();
    every(|lp| {
        let folder = Folder::new();
        let file = fs::open(folder.path("a"), options()).perform().unwrap();
        fs::write_at(&file, vec![1; 1 << 20], 0).perform().0.unwrap();
        settle();
        #[cfg(target_os = "linux")]
        let before = common::descriptors();
        lp.block_on(async |_| {
            for polls in 0..40 {
                if let Some(opened) =
                    limited(awaited(fs::open(folder.path("b"), options())), polls).await
                {
                    drop(opened.unwrap());
                }
                let read = fs::read_at(&file, vec![0; 1 << 20], 0);
                if let Some((count, bytes)) = limited(awaited(read), polls).await {
                    assert_eq!((count.unwrap(), bytes[(1 << 20) - 1]), (1 << 20, 1));
                }
                let read = fs::read_at(&file, vec![0; 64], 0);
                if let Some((count, bytes)) = limited(awaited(read), polls % 4).await {
                    assert_eq!((count.unwrap(), bytes), (64, vec![1; 64]));
                }
                yield_now().await;
            }
            assert!(fs::stat(&folder.0).await.unwrap().is_dir());
        })
        .unwrap();
        settle();
        #[cfg(target_os = "linux")]
        assert!(common::descriptors() <= before + 3, "a file was left open");
    });
}

/// An operation as the future that `await` makes of it.
async fn awaited<A: Action>(operation: Operation<A>) -> A::Output {
    operation.await
}

#[test]
fn requests_of_the_loop_are_futures() {
    let _serial = serial();
    every(|lp| {
        lp.block_on(async |rt| {
            let (product, found, random) = tokio::join!(
                rt.queue_work(|| 6 * 7),
                rt.getaddrinfo(Some("127.0.0.1"), Some("80"), Hints::default()),
                rt.random(vec![0; 32]),
            );
            assert_eq!(product.unwrap(), 42);
            assert_eq!(found?[0].address, "127.0.0.1:80".parse().unwrap());
            assert_ne!(random?, [0; 32]);
            // What loses is cancelled or runs to its end.
            let (go, wait) = mpsc::channel::<()>();
            tokio::select! {
                _ = rt.queue_work(move || wait.recv()) => panic!("nothing was sent"),
                stat = fs::stat(".").into_future() => assert!(stat?.is_dir()),
            }
            drop(go);
            tokio::select! {
                found = rt.getaddrinfo(Some("127.0.0.1"), None, Hints::default()) => drop(found?),
                bytes = rt.random(vec![0; 8]) => drop(bytes?),
                work = rt.queue_work(|| ()) => work.unwrap(),
            }
            io::Result::Ok(())
        })
        .unwrap()
        .unwrap();
    });
}
