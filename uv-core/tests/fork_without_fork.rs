//! `Loop::fork` in the process that owns the loop changes nothing: the threads of the pool and the
//! kernel still use the memory of requests.
#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::mpsc;

use uv_core::backends::{Epoll, Uring};
use uv_core::{Loop, Pool, RunMode, WorkKind, fs, poll_core::Backend};

/// A pool thread blocks in `read(2)`. The request's buffer stays with the thread, and the request
/// completes with the bytes that the thread reads.
fn a_read_under_way_keeps_its_buffer(mut lp: Loop<impl Backend>) {
    const SIZE: usize = 8192;
    let pool = Pool::new(1).unwrap();
    lp.set_pool(pool.clone());
    let (reader, mut writer) = std::io::pipe().unwrap();
    let file = fs::File::from(std::fs::File::from(OwnedFd::from(reader)));
    let result = Rc::new(RefCell::new(None));
    let stored = Rc::clone(&result);
    fs::read(&file, vec![0; SIZE])
        .start(&mut lp, move |_, (count, buffer)| *stored.borrow_mut() = Some((count, buffer)))
        .unwrap();
    lp.run(RunMode::NoWait).unwrap();

    lp.fork().unwrap();
    lp.fork().unwrap();
    // If the call cancelled the read, this iteration would report it.
    lp.run(RunMode::NoWait).unwrap();
    assert!(result.borrow().is_none(), "a read that has not ended was reported");

    let victim = vec![0; SIZE];
    writer.write_all(&[b'A'; SIZE]).unwrap();
    lp.run(RunMode::Default).unwrap();
    let (count, buffer) = result.take().expect("the read is reported");
    assert_eq!(count.unwrap(), SIZE);
    assert!(buffer.iter().all(|byte| *byte == b'A'));
    assert!(victim.iter().all(|byte| *byte == 0), "the thread wrote into freed memory");
}

#[test]
fn a_read_under_way_keeps_its_buffer_on_epoll() {
    a_read_under_way_keeps_its_buffer(Loop::new(Epoll::new().unwrap()));
}

#[test]
fn a_read_under_way_keeps_its_buffer_on_uring() {
    match Uring::new() {
        Ok(backend) => a_read_under_way_keeps_its_buffer(Loop::new(backend)),
        Err(error) => eprintln!("skipped: {error}"),
    }
}

/// Work that runs and work that is queued complete with their results.
#[test]
fn queued_work_is_not_cancelled() {
    let (mut lp, pool) = (Loop::with_default_backend().unwrap(), Pool::new(1).unwrap());
    let (go, wait) = mpsc::channel::<()>();
    let results = Rc::new(RefCell::new(Vec::new()));
    let stored = Rc::clone(&results);
    let done = move |_: &mut Loop, answer: Result<i32, _>| stored.borrow_mut().push(answer.ok());
    let first = move || wait.recv().map_or(0, |()| 1);
    lp.queue_work_on(&pool, WorkKind::Cpu, first, done.clone()).unwrap();
    lp.queue_work_on(&pool, WorkKind::Cpu, || 2, done).unwrap();
    lp.fork().unwrap();
    lp.run(RunMode::NoWait).unwrap();
    go.send(()).unwrap();
    lp.run(RunMode::Default).unwrap();
    assert_eq!(*results.borrow(), [Some(1), Some(2)]);
}
