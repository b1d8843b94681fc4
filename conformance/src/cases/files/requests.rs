//! Operations as requests: callbacks, cancellation, and dropped loops.

use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use poll_core::Backend;
use uv_core::fs;
use uv_core::{IoBufMut, Pool, RunMode, WorkKind};

use super::{CREATE, READ, ask, open};
use crate::support::files::{Directory, file_of};
use crate::support::gate::Gate;
use crate::support::loops::{new_loop, run, run_to_the_end};
use crate::support::observe::SOON;
use crate::support::trace::{Count, Log};
use crate::{Lab, Loop, Verdict};

/// Whether an error is a cancellation.
pub(super) fn is_cancelled<R>(result: io::Result<R>) -> bool {
    let code = result.err().and_then(|error| error.raw_os_error());
    // WSAECANCELLED and ECANCELED.
    #[cfg(windows)]
    return code == Some(10103);
    #[cfg(unix)]
    return code == Some(libc::ECANCELED);
}

/// A pool of one thread, which waits at a gate.
pub(super) fn busy_pool(lp: &mut Loop) -> (Pool, Gate) {
    let (pool, gate) = (Pool::new(1).expect("a pool"), Gate::default());
    let at = gate.clone();
    lp.queue_work_on(&pool, WorkKind::Cpu, move || at.pass(), |_, _| {}).expect("queued work");
    gate.await_waiting(1);
    (pool, gate)
}

/// No function calls back inline. A request keeps the loop alive, and calls back once.
pub fn callbacks_run_once_and_never_inline(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let count = Count::default();
    let counted = count.clone();
    fs::stat(".").start(&mut lp, move |_, _| counted.count()).expect("it starts");
    assert!(lp.is_alive() && count.get() == 0, "in flight");
    run_to_the_end(&mut lp);
    assert_eq!(count.get(), 1);
    Ok(())
}

/// A callback starts the next operation.
pub fn operations_can_be_chained(lab: &Lab) -> Verdict {
    fn next(lp: &mut Loop, left: u32, count: Count) {
        let stat = fs::stat(".").start(lp, move |lp, stat| {
            assert!(stat.expect("a directory").is_dir());
            count.count();
            if left > 1 {
                next(lp, left - 1, count);
            }
        });
        stat.expect("it starts");
    }
    let (mut lp, count) = (new_loop(lab)?, Count::default());
    next(&mut lp, 100, count.clone());
    run_to_the_end(&mut lp);
    assert_eq!(count.get(), 100);
    Ok(())
}

/// `perform` and `start` give the same results and the same errors.
pub fn perform_and_start_agree(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let path = dir.file("file", "text");
    let file = open(&mut lp, &path, READ);
    let (one, other) = (fs::read_at(&file, vec![0; 9], 1), fs::read_at(&file, vec![0; 9], 1));
    let ((one, bytes), (other, same)) = (ask(&mut lp, one), other.perform());
    assert_eq!((one.expect("a read"), bytes), (other.expect("a read"), same));
    assert_eq!(ask(&mut lp, fs::lstat(&path)).ok(), fs::lstat(&path).perform().ok());
    assert_eq!(
        ask(&mut lp, fs::scandir(dir.path(""))).ok(),
        fs::scandir(dir.path("")).perform().ok()
    );
    let codes = [
        (
            ask(&mut lp, fs::open(path.join("x"), CREATE)).map(drop),
            fs::open(path.join("x"), CREATE).perform().map(drop),
        ),
        (ask(&mut lp, fs::rmdir(&path)), fs::rmdir(&path).perform()),
        (ask(&mut lp, fs::mkdir(&path, 0)), fs::mkdir(&path, 0).perform()),
        (ask(&mut lp, fs::unlink(dir.path("a"))), fs::unlink(dir.path("a")).perform()),
        (ask(&mut lp, fs::rename("a", &path)), fs::rename("a", &path).perform()),
        (ask(&mut lp, fs::link("a", &path)), fs::link("a", &path).perform()),
    ];
    for (one, other) in codes {
        let (one, other) = (one.expect_err("a failure"), other.expect_err("a failure"));
        assert_eq!(one.raw_os_error(), other.raw_os_error(), "{one} and {other}");
    }
    Ok(())
}

/// Hundreds of operations are in flight, each with its own buffer.
pub fn hundreds_run_concurrently(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let content: Vec<u8> = (0..2000_u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(dir.path("file"), &content).expect("a file");
    let file = open(&mut lp, &dir.path("file"), CREATE);
    let done = Count::default();
    for number in 0..500_u32 {
        let counted = done.clone();
        let read = fs::read_at(&file, vec![0; 4], u64::from(number) * 4);
        let started = read.start(&mut lp, move |_, (count, bytes)| {
            assert_eq!(count.expect("a read"), 4);
            assert_eq!(bytes, number.to_le_bytes(), "its own");
            counted.count();
        });
        started.expect("it starts");
        let counted = done.clone();
        let write =
            fs::write_at(&file, number.to_be_bytes().to_vec(), u64::from(number) * 4 + 4000);
        let started = write.start(&mut lp, move |_, (count, _)| {
            assert_eq!(count.expect("a write"), 4);
            counted.count();
        });
        started.expect("it starts");
    }
    run_to_the_end(&mut lp);
    assert_eq!(done.get(), 1000);
    let written = std::fs::read(dir.path("file")).expect("the file");
    for (number, bytes) in written[4000..6000].chunks(4).enumerate() {
        assert_eq!(bytes, (number as u32).to_be_bytes(), "each in its place");
    }
    Ok(())
}

/// A queued operation can be cancelled: it is not performed, and its callback gets the cancellation
/// and the buffer.
pub fn queued_operations_can_be_cancelled(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let file = open(&mut lp, &dir.path("file"), CREATE);
    let (pool, gate) = busy_pool(&mut lp);
    let log = Log::default();
    let (written, made) = (log.clone(), log.clone());
    let write = fs::write(&file, vec![7; 10]).start_on(&mut lp, &pool, move |_, (result, buf)| {
        written.push(is_cancelled(result) && buf == [7; 10]);
    });
    let mkdir = fs::mkdir(dir.path("dir"), 0o700)
        .start_on(&mut lp, &pool, move |_, result| made.push(is_cancelled(result)));
    let (write, mkdir) = (write.expect("it starts"), mkdir.expect("it starts"));
    write.cancel(&mut lp).expect("it has not begun");
    mkdir.cancel(&mut lp).expect("it has not begun");
    let again = write.cancel(&mut lp).expect_err("cancelled already");
    assert_eq!((again.kind(), log.len()), (ErrorKind::ResourceBusy, 0), "reported by the callback");
    gate.open();
    run_to_the_end(&mut lp);
    assert_eq!(log.take(), [true, true]);
    assert_eq!(write.cancel(&mut lp).expect_err("over").kind(), ErrorKind::NotFound);
    assert_eq!(ask(&mut lp, fs::fstat(&file)).expect("a file").size, 0, "nothing was written");
    assert!(!dir.path("dir").exists(), "nothing was made");
    ask(&mut lp, fs::close(file)).expect("the file is not in use");
    Ok(())
}

/// A cancel right after the start prevents the operation, or fails, and then the operation
/// completes.
pub fn a_cancel_prevents_the_operation_or_fails(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    for number in 0..50 {
        let path = dir.path(&format!("dir {number}"));
        let log = Log::default();
        let sink = log.clone();
        let mkdir = fs::mkdir(&path, 0o700);
        let request = mkdir.start(&mut lp, move |_, result| sink.push(result)).expect("it starts");
        let cancelled = request.cancel(&mut lp);
        run_to_the_end(&mut lp);
        let result = log.take().remove(0);
        match cancelled {
            Ok(()) => assert!(is_cancelled(result) && !path.exists(), "prevented"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::ResourceBusy);
                result.expect("the operation was performed");
                assert!(path.is_dir());
            }
        }
    }
    Ok(())
}

/// A started operation cannot be cancelled.
pub fn started_operations_cannot_be_cancelled(lab: &Lab) -> Verdict {
    let (mut lp, log) = (new_loop(lab)?, Log::default());
    let (reader, writer) = io::pipe().expect("a pipe");
    let (reader, pool) = (file_of(reader), Pool::new(1).expect("a pool"));
    let started = Instant::now();
    let busy = loop {
        assert!(started.elapsed() < SOON, "a thread reads");
        let (read, sink) = (fs::read(&reader, vec![0; 10]), log.clone());
        let request = read.start_on(&mut lp, &pool, move |_, (count, _)| sink.push(count));
        while pool.active() == 0 {
            assert!(started.elapsed() < SOON, "no thread takes the operation");
            std::thread::yield_now();
        }
        // The thread that has taken it may not have started yet.
        match request.expect("it starts").cancel(&mut lp) {
            Err(busy) => break busy,
            Ok(()) => {
                run_to_the_end(&mut lp);
                assert!(is_cancelled(log.take().remove(0)), "it was not started");
            }
        }
    };
    assert_eq!(busy.kind(), ErrorKind::ResourceBusy);
    io::Write::write_all(&mut &writer, b"abc").expect("a pipe");
    run_to_the_end(&mut lp);
    assert_eq!(log.take().remove(0).expect("what was written"), 3);
    Ok(())
}

/// True if this kernel and this file system read cached data without blocking.
#[cfg(target_os = "linux")]
fn reads_at_once(path: &std::path::Path) -> bool {
    use std::os::fd::AsRawFd;

    let (file, mut memory) = (std::fs::File::open(path).expect("a file"), [0_u8; 4]);
    let list = libc::iovec { iov_base: memory.as_mut_ptr().cast(), iov_len: memory.len() };
    let (call, flags) = (libc::SYS_preadv2, libc::c_long::from(libc::RWF_NOWAIT));
    let (number, zero): (_, libc::c_long) = (libc::c_long::from(file.as_raw_fd()), 0);
    // SAFETY: the list names one buffer, which outlives the call.
    let count = unsafe { libc::syscall(call, number, &list, zero + 1, zero, zero, flags) };
    count == 4
}

/// Data in the page cache is read although all threads are busy, and calls back later. Other reads,
/// such as those beyond the end, wait for a thread.
#[cfg(target_os = "linux")]
pub fn cached_data_is_read_without_a_thread(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let path = dir.file("file", "text");
    if !reads_at_once(&path) {
        return Err(crate::Skip::because("this file system does not support `RWF_NOWAIT`"));
    }
    let by_backend = lp.backend().supports(poll_core::OpKind::Read);
    let file = file_of(std::fs::File::open(&path).expect("a file"));
    let (pool, gate) = busy_pool(&mut lp);
    lp.set_pool(pool);
    let log = Log::default();
    for (bytes, offset) in [(8, 0), (4, 0), (2, 1), (1, 4)] {
        let sink = log.clone();
        let read = fs::read_at(&file, vec![0; bytes], offset);
        let started = read.start(&mut lp, move |_, (count, buf)| {
            let count = count.expect("a read");
            sink.push((offset, buf[..count].to_vec()));
        });
        started.expect("it starts");
    }
    assert_eq!(log.len(), 0, "never inline");
    let whole = (0, b"text".to_vec());
    let at_once = if by_backend { 4 } else { 2 };
    while log.len() < at_once {
        run(&mut lp, RunMode::Once);
    }
    run(&mut lp, RunMode::NoWait);
    assert_eq!(log.len(), at_once, "the thread is busy");
    gate.open();
    run_to_the_end(&mut lp);
    let mut all = log.take();
    all.sort();
    assert_eq!(all, [whole.clone(), whole, (1, b"ex".to_vec()), (4, Vec::new())]);
    Ok(())
}

/// Data in the page cache is read although all threads are busy, and calls back later. Other reads,
/// such as those beyond the end, wait for a thread.
#[cfg(not(target_os = "linux"))]
pub fn cached_data_is_read_without_a_thread(_lab: &Lab) -> Verdict {
    Err(crate::Skip::because("only Linux has `RWF_NOWAIT`"))
}

/// Many small reads on one thread, which may take several at a time, return their data in start
/// order, also with reads at the end of the file and other work among them. Cancelled reads return
/// their memory.
pub fn many_reads_on_one_thread_keep_their_order(lab: &Lab) -> Verdict {
    const READS: usize = 300;
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let content: String = (0..READS).map(|at| char::from(b' ' + (at % 90) as u8)).collect();
    let file = file_of(std::fs::File::open(dir.file("file", &content)).expect("a file"));
    let (pool, gate) = busy_pool(&mut lp);
    let (log, count) = (Log::default(), Count::default());
    let mut ends = Vec::new();
    for number in 0..READS {
        // Every seventh read is at the end of the file, and is short.
        let at = if number % 7 == 0 { READS - 1 } else { number };
        let (sink, counted) = (log.clone(), count.clone());
        let read = fs::read_at(&file, vec![0; 2], at as u64);
        let started = read.start_on(&mut lp, &pool, move |_, (count, buf)| {
            assert_eq!(buf.len(), 2, "the memory is returned");
            match count {
                Ok(count) => sink.push((number, buf[..count].to_vec())),
                Err(error) => assert!(is_cancelled::<()>(Err(error)) && number % 11 == 5),
            }
            counted.count();
        });
        let request = started.expect("it starts");
        if number % 11 == 5 {
            request.cancel(&mut lp).expect("it has not begun");
        } else {
            ends.push((number, content.as_bytes()[at..READS.min(at + 2)].to_vec()));
        }
        if number % 31 == 3 {
            let (sink, entry) = (log.clone(), (READS + number, Vec::new()));
            ends.push(entry.clone());
            let work = lp.queue_work_on(&pool, WorkKind::Cpu, || (), move |_, _| sink.push(entry));
            work.expect("queued work");
        }
    }
    gate.open();
    run_to_the_end(&mut lp);
    assert_eq!(count.get(), READS as u64);
    let results = log.take();
    let order = results.iter().zip(&ends).position(|(result, end)| result != end);
    assert_eq!((results.len(), order), (ends.len(), None), "the first read out of order");
    Ok(())
}

/// Small reads of two loops on one thread complete in their own loops.
pub fn reads_of_two_loops_share_one_thread(lab: &Lab) -> Verdict {
    let (mut lp, mut other, dir) = (new_loop(lab)?, new_loop(lab)?, Directory::new());
    let file = file_of(std::fs::File::open(dir.file("file", "text")).expect("a file"));
    let (pool, gate) = busy_pool(&mut lp);
    let (log, others, third) = (Log::default(), Log::default(), Log::default());
    let mut gone = new_loop(lab)?;
    for number in 0..120 {
        let (at, sink) = match number % 5 {
            0 | 3 => (&mut lp, log.clone()),
            4 => (&mut gone, third.clone()),
            _ => (&mut other, others.clone()),
        };
        let read = fs::read_at(&file, vec![0; 4], 0);
        let started = read.start_on(at, &pool, move |_, (count, buf)| {
            sink.push((number, count.expect("a read"), buf));
        });
        started.expect("it starts");
    }
    drop(gone);
    gate.open();
    run_to_the_end(&mut other);
    run_to_the_end(&mut lp);
    let read = |numbers: &[usize]| -> Vec<_> {
        let of = |number: &usize| numbers.contains(&(number % 5));
        (0..120).filter(of).map(|number| (number, 4, b"text".to_vec())).collect()
    };
    assert_eq!(log.take(), read(&[0, 3]));
    assert_eq!(others.take(), read(&[1, 2]));
    assert_eq!(third.len(), 0, "a dropped loop runs no callback");
    Ok(())
}

/// A file in use is not closed.
pub fn a_file_in_use_stays_open(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let file = open(&mut lp, &dir.file("file", "text"), READ);
    let log = Log::default();
    let sink = log.clone();
    let read = fs::read(&file, vec![0; 10]);
    read.start(&mut lp, move |_, (count, _)| sink.push(count)).expect("it starts");
    let close = fs::close(file).start(&mut lp, |_, _| panic!("it never began"));
    assert_eq!(close.expect_err("the read uses it").kind(), ErrorKind::ResourceBusy);
    run_to_the_end(&mut lp);
    assert_eq!(log.take().remove(0).expect("the file is open"), 4);
    Ok(())
}

/// A callback may close the file that it has read: the operation has released it.
pub fn a_callback_may_close_its_file(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let file = open(&mut lp, &dir.file("file", "text"), READ);
    let log = Log::default();
    let sink = log.clone();
    let read = fs::read(&file, vec![0; 10]);
    let started = read.start(&mut lp, move |lp, _| {
        fs::close(file)
            .start(lp, move |_, closed| sink.push(closed))
            .expect("the file is not in use");
    });
    started.expect("it starts");
    run_to_the_end(&mut lp);
    log.take().remove(0).expect("a file to close");
    Ok(())
}

/// Memory whose drop can be observed.
struct Watched(Box<[u8]>, #[allow(dead_code, reason = "its end is the point")] Arc<()>);

// SAFETY: the bytes are on the heap, where moving the box does not move them.
unsafe impl IoBufMut for Watched {
    fn memory(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

/// Waits until the case has the only reference.
fn await_end(watched: &Arc<()>) {
    let started = Instant::now();
    while Arc::strong_count(watched) > 1 {
        assert!(started.elapsed() < SOON, "{} have it", Arc::strong_count(watched) - 1);
        std::thread::yield_now();
    }
}

/// A loop may be dropped while operations are queued or in flight: no callback runs, nothing leaks,
/// and the memory stays allocated while the kernel uses it.
pub fn a_loop_may_be_dropped_before_its_operations(lab: &Lab) -> Verdict {
    let dir = Directory::new();
    dir.file("file", "text");
    let watched = Arc::new(());
    let buffer = || Watched(vec![0; 4096].into(), Arc::clone(&watched));
    for iterations in 0..3 {
        let mut lp = new_loop(lab)?;
        let file = open(&mut lp, &dir.path("file"), READ);
        let (reader, writer) = io::pipe().expect("a pipe");
        let (reader, captured) = (file_of(reader), Arc::clone(&watched));
        let callback = move || drop(captured);
        // On its own pool, as it may block a thread for as long as the pipe is open.
        let pool = Pool::new(1).expect("a pool");
        let blocked = fs::read(&reader, buffer());
        blocked.start_on(&mut lp, &pool, move |_, _| callback()).expect("it starts");
        if iterations == 2 && lp.backend().supports(poll_core::OpKind::Read) {
            let blocked = fs::read(&reader, buffer());
            blocked.start(&mut lp, |_, _| panic!("nothing is written")).expect("it starts");
        }
        for _ in 0..50 {
            let (one, other) = (fs::read_at(&file, buffer(), 0), fs::stat(dir.path("file")));
            one.start(&mut lp, |_, _| {}).expect("it starts");
            other.start(&mut lp, |_, _| {}).expect("it starts");
        }
        for _ in 0..iterations {
            run(&mut lp, RunMode::NoWait);
        }
        drop(lp);
        drop(writer);
        await_end(&watched);
    }
    Ok(())
}

/// A panic in a callback propagates out of the run. The other operations still call back.
pub fn a_panic_affects_one_callback_only(lab: &Lab) -> Verdict {
    let (mut lp, count) = (new_loop(lab)?, Count::default());
    for number in 0..20 {
        let counted = count.clone();
        let stat = fs::stat(".").start(&mut lp, move |_, stat| {
            counted.count();
            assert!(stat.expect("a directory").is_dir());
            if number % 5 == 0 {
                std::panic::panic_any("on purpose");
            }
        });
        stat.expect("it starts");
    }
    let mut panics = 0;
    while let Err(panic) = catch_unwind(AssertUnwindSafe(|| run_to_the_end(&mut lp))) {
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose"));
        panics += 1;
    }
    assert_eq!((panics, count.get()), (4, 20));
    Ok(())
}
