//! File operations are awaited on executors that know nothing of this crate, without a loop.

use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use uv_core::fs::{self, OpenOptions};

/// Unparks a thread that runs [`block_on`].
struct Unpark(Thread, AtomicBool);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.1.store(true, Ordering::SeqCst);
        self.0.unpark();
    }
}

/// The smallest executor: polls when it was woken, and not before.
fn block_on<F: Future>(future: F) -> F::Output {
    let unpark = Arc::new(Unpark(thread::current(), AtomicBool::new(true)));
    let waker = Waker::from(Arc::clone(&unpark));
    let mut future = pin!(future);
    loop {
        while !unpark.1.swap(false, Ordering::SeqCst) {
            thread::park();
        }
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
    }
}

/// All outputs, in order.
async fn join_all<F: Future<Output: Unpin> + Unpin>(futures: Vec<F>) -> Vec<F::Output> {
    let mut outputs: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    let mut futures = futures;
    poll_fn(|cx| {
        let mut ready = true;
        for (future, output) in futures.iter_mut().zip(&mut outputs) {
            if output.is_none() {
                match Pin::new(future).poll(cx) {
                    Poll::Ready(value) => *output = Some(value),
                    Poll::Pending => ready = false,
                }
            }
        }
        if ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    outputs.into_iter().flatten().collect()
}

/// A folder that is removed with its files.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new() -> Folder {
        Folder(fs::mkdtemp(std::env::temp_dir().join("awaiting-XXXXXX")).perform().unwrap())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn write_and_read(path: std::path::PathBuf) -> io::Result<()> {
    let file = fs::open(&path, OpenOptions::new().read(true).write(true).create(true)).await?;
    let (written, bytes) = fs::write_at(&file, vec![7; 100_000], 0).await;
    assert_eq!((written?, bytes.len()), (100_000, 100_000));
    // In the page cache, and too many for a read that is tried in this thread.
    for size in [100, 100_000] {
        let (count, bytes) = fs::read_at(&file, vec![0; size], 0).await;
        assert_eq!(count?, size);
        assert!(bytes.iter().all(|byte| *byte == 7));
    }
    let (count, _) = fs::read_at(&file, vec![0; 8], 100_000).await;
    assert_eq!(count?, 0, "the end");
    fs::fsync(&file).await?;
    assert_eq!(fs::fstat(&file).await?.size, 100_000);
    fs::close(file).await?;
    fs::unlink(&path).await?;
    assert_eq!(fs::stat(&path).await.unwrap_err().kind(), ErrorKind::NotFound);
    Ok(())
}

#[test]
fn operations_are_awaited_without_a_loop() {
    let folder = Folder::new();
    block_on(write_and_read(folder.0.join("file"))).unwrap();
}

#[test]
fn results_are_those_of_perform() {
    let folder = Folder::new();
    let (here, nowhere) = (folder.0.clone(), folder.0.join("no such file"));
    block_on(async {
        assert_eq!(fs::stat(&here).await.unwrap(), fs::stat(&here).perform().unwrap());
        let kinds = |one: io::Error, other: io::Error| {
            assert_eq!(
                (one.kind(), one.raw_os_error(), one.to_string()),
                (other.kind(), other.raw_os_error(), other.to_string())
            );
        };
        kinds(fs::stat(&nowhere).await.unwrap_err(), fs::stat(&nowhere).perform().unwrap_err());
        // Refused before anything is tried.
        kinds(fs::stat("a\0b").await.unwrap_err(), fs::stat("a\0b").perform().unwrap_err());
        let file = fs::open(&nowhere, OpenOptions::new().write(true).create(true)).await.unwrap();
        // Not open for reading. The buffer comes back.
        let (awaited, buffer) = fs::read_at(&file, vec![1; 16], 0).await;
        assert_eq!(buffer, [1; 16]);
        kinds(awaited.unwrap_err(), fs::read_at(&file, vec![1; 16], 0).perform().0.unwrap_err());
        let (awaited, buffer) = fs::read_at(&file, vec![1; 16], u64::MAX).await;
        assert_eq!(buffer, [1; 16]);
        assert_eq!(awaited.unwrap_err().kind(), ErrorKind::InvalidInput);
        let other = file.clone();
        assert_eq!(fs::close(file).await.unwrap_err().kind(), ErrorKind::ResourceBusy);
        drop(other);
    });
}

#[test]
fn a_thousand_operations_run_side_by_side() {
    let folder = Folder::new();
    let path = |index| folder.0.join(format!("{index}"));
    block_on(async {
        let options = || OpenOptions::new().read(true).write(true).create(true);
        let opens = (0..100).map(|index| fs::open(path(index), options()).into_future());
        let files: Vec<_> = join_all(opens.collect()).await;
        let files: Vec<_> = files.into_iter().map(Result::unwrap).collect();
        let writes = (0..1000_u64).map(|index| {
            let file = &files[index as usize % files.len()];
            fs::write_at(file, index.to_be_bytes().to_vec(), index / 100 * 8).into_future()
        });
        for (written, _) in join_all(writes.collect()).await {
            assert_eq!(written.unwrap(), 8);
        }
        let reads = (0..1000_u64).map(|index| {
            let file = &files[index as usize % files.len()];
            fs::read_at(file, vec![0; 8], index / 100 * 8).into_future()
        });
        for (index, (count, bytes)) in join_all(reads.collect()).await.into_iter().enumerate() {
            assert_eq!((count.unwrap(), &*bytes), (8, &(index as u64).to_be_bytes()[..]));
        }
        let unlinks = (0..100).map(|index| fs::unlink(path(index)).into_future());
        join_all(unlinks.collect()).await.into_iter().for_each(Result::unwrap);
    });
}

/// A task that reads a cached file in a loop does not keep its executor for itself.
#[test]
fn a_read_lets_other_tasks_run() {
    let folder = Folder::new();
    let path = folder.0.join("file");
    std::fs::write(&path, [1; 64]).unwrap();
    let file = fs::open(&path, OpenOptions::new().read(true)).perform().unwrap();
    let mut read = fs::read_at(&file, vec![0; 64], 0).into_future();
    let first = Pin::new(&mut read).poll(&mut Context::from_waker(Waker::noop()));
    assert!(first.is_pending());
    let (count, bytes) = block_on(read);
    assert_eq!((count.unwrap(), bytes), (64, vec![1; 64]));
}

#[test]
#[should_panic(expected = "polled after it was ready")]
fn a_future_is_not_polled_after_it_was_ready() {
    let mut stat = fs::stat(".").into_future();
    block_on(&mut stat).unwrap();
    block_on(stat).unwrap();
}

#[cfg(unix)]
#[test]
fn operations_are_awaited_on_tokio() {
    let folder = Folder::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        // A task must be `Send`, in whatever runtime.
        tokio::spawn(write_and_read(folder.0.join("file"))).await.unwrap().unwrap();
        let (here, temporary) =
            tokio::join!(fs::stat(&folder.0).into_future(), async { fs::stat(".").await });
        assert!(here.unwrap().is_dir() && temporary.unwrap().is_dir());
        // Nothing is written to the pipe: the other branch wins, and the read is left behind.
        let (reader, writer) = io::pipe().unwrap();
        let reader = fs::File::from(std::fs::File::from(std::os::fd::OwnedFd::from(reader)));
        tokio::select! {
            (count, _) = fs::read(&reader, vec![0; 8]).into_future() => panic!("{count:?}"),
            stat = fs::stat(&folder.0).into_future() => assert!(stat.unwrap().is_dir()),
        }
        drop(writer); // Ends the thread's read.
    });
}

/// In a forked child, what no thread had started is cancelled, and new operations have new threads.
#[cfg(target_os = "linux")]
#[test]
#[allow(unsafe_code, reason = "a fork")]
fn futures_in_a_forked_child_do_not_wait_for_threads_of_the_parent() {
    const SHARED: &str = "AWAITING_IN_A_CHILD";
    // In a process of its own, with one thread: no other test holds a lock when it forks.
    if std::env::var_os(SHARED).is_none() {
        let name = "futures_in_a_forked_child_do_not_wait_for_threads_of_the_parent";
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(SHARED, "1")
            .env("UV_THREADPOOL_SIZE", "1")
            .status();
        assert!(status.unwrap().success());
        return;
    }
    let (reader, writer) = io::pipe().unwrap();
    let reader = fs::File::from(std::fs::File::from(std::os::fd::OwnedFd::from(reader)));
    let mut busy = fs::read(&reader, vec![0; 8]).into_future();
    let mut queued = fs::write(&reader, vec![1; 8]).into_future();
    let cx = &mut Context::from_waker(Waker::noop());
    assert!(Pin::new(&mut busy).poll(cx).is_pending());
    let pool = uv_core::Pool::global().unwrap();
    while pool.active() == 0 {
        thread::yield_now();
    }
    assert!(Pin::new(&mut queued).poll(cx).is_pending());
    // SAFETY: the child uses no lock that another thread may have had: the only one blocks in a read.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let Poll::Ready((result, buffer)) = Pin::new(&mut queued).poll(cx) else { exit(1) };
        if !result.is_err_and(|error| uv_core::is_cancelled(&error)) || buffer != [1; 8] {
            exit(2);
        }
        if Pin::new(&mut busy).poll(cx).is_ready() {
            exit(3);
        }
        drop(busy);
        exit(if block_on(async { fs::stat(".").await }).is_ok() { 0 } else { 4 });
    }
    let mut status = 0;
    // SAFETY: waits for the child above, and writes its status to a local.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(libc::WIFEXITED(status));
    assert_eq!(libc::WEXITSTATUS(status), 0);
    drop(writer);
    let (count, _) = block_on(busy);
    assert_eq!(count.unwrap(), 0, "the parent goes on");
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "no destructors of the parent's state")]
fn exit(code: i32) -> ! {
    // SAFETY: ends the child without handlers of the test harness.
    unsafe { libc::_exit(code) }
}
