//! A thread that sleeps in an idle ring is not accounted as waiting for a disk.
#![cfg(all(
    target_os = "linux",
    any(
        target_arch = "x86_64",
        target_arch = "aarch64",
        target_arch = "riscv64",
        target_arch = "loongarch64",
        target_arch = "powerpc64"
    )
))]

mod common;

use std::thread;
use std::time::{Duration, Instant};

use common::*;
use poll_core::{Backend, Wake};

/// More sleeping threads than other processes have tasks in iowait.
const THREADS: usize = 48;

/// The number of tasks in iowait on this machine, of all processes.
fn tasks_in_iowait() -> Option<usize> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("procs_blocked "))?.trim().parse().ok()
}

/// The number of this process's tasks that sleep in `io_uring_enter`.
fn tasks_in_enter() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("the tasks").flatten();
    let calls = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("syscall")).ok());
    let enter = format!("{} ", libc::SYS_io_uring_enter);
    calls.filter(|call| call.starts_with(&enter)).count()
}

/// True if this kernel has `IORING_FEAT_NO_IOWAIT` (6.15).
fn has_no_iowait() -> bool {
    io_uring::IoUring::new(2).is_ok_and(|ring| ring.params().is_feature_no_iowait())
}

#[test]
fn idle_rings_do_not_count_as_iowait() {
    if !has_no_iowait() {
        return eprintln!("skipped: no IORING_ENTER_NO_IOWAIT (Linux 6.15)");
    }
    if tasks_in_iowait().is_none() || !std::fs::exists("/proc/self/syscall").unwrap_or(false) {
        return eprintln!("skipped: /proc lacks procs_blocked or the system call of a task");
    }
    let mut wakers = Vec::new();
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let mut uring = uring(2).expect("a ring");
            wakers.push(uring.waker());
            thread::spawn(move || assert_eq!(wait(&mut uring, None), []))
        })
        .collect();
    while tasks_in_enter() < THREADS {
        thread::yield_now();
    }
    // With iowait no sample would be lower than the number of threads.
    let begun = Instant::now();
    let mut lowest = usize::MAX;
    while lowest >= THREADS && begun.elapsed() < Duration::from_secs(10) {
        lowest = lowest.min(tasks_in_iowait().expect("a number"));
        thread::yield_now();
    }
    wakers.iter().for_each(|waker| waker.wake().expect("a wake"));
    threads.into_iter().for_each(|thread| thread.join().expect("a thread"));
    assert!(lowest < THREADS, "{lowest} tasks in iowait with {THREADS} threads in idle rings");
}
