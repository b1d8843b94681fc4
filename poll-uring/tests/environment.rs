//! Processes in which io_uring is forbidden, and forked children.
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

use std::io::{self, ErrorKind};
use std::time::Duration;

use common::*;
use poll_core::{Backend, Mode, RawSource, Wake};
use poll_uring::Uring;

/// Makes `io_uring_setup` fail with `errno` on this thread, from now on.
fn forbid(errno: i32) {
    let number = libc::SYS_io_uring_setup as u32;
    let result = libc::SECCOMP_RET_ERRNO | errno as u32;
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut filter = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, number),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, result),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the call takes no pointer.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    let mode = libc::SECCOMP_MODE_FILTER;
    // SAFETY: `program` and its filter outlive the call, which copies them.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &program) }, 0);
}

#[test]
fn forbidden_ring_is_an_error_that_names_cause_and_alternative() {
    for (errno, name) in [(libc::EPERM, "EPERM"), (libc::ENOSYS, "ENOSYS")] {
        let error = std::thread::spawn(move || {
            forbid(errno);
            Uring::new().expect_err("forbidden")
        })
        .join()
        .expect("join");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let text = error.to_string();
        assert!(text.contains(name) && text.contains("epoll"), "{text}");
        let source = error.get_ref().and_then(|error| error.source());
        let source = source.and_then(|source| source.downcast_ref::<io::Error>());
        assert_eq!(source.and_then(io::Error::raw_os_error), Some(errno));
    }
}

#[test]
fn forked_child_without_after_fork_gets_an_error() {
    let Some(mut uring) = uring(8) else { return };
    let (near, _far) = tcp_pair();
    watch(&mut uring, TOKEN, RawSource::of(&near), Mode::Level);
    assert_eq!(wait(&mut uring, SHORT), []);
    // SAFETY: the child calls only this crate, which takes no lock of another thread, and `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let wait_fails = uring.wait(Some(Duration::ZERO), &mut Vec::new()).is_err();
        let deregistered = uring.deregister(TOKEN).is_ok();
        drop(uring);
        // SAFETY: the call takes no pointer and ends the child.
        unsafe { libc::_exit(i32::from(!(wait_fails && deregistered))) };
    }
    let mut status = -1;
    // SAFETY: `status` outlives the call.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "in the child the wait must fail, deregister and drop must not");
    uring.waker().wake().expect("wake");
    assert_eq!(wait(&mut uring, SOON), []);
    assert_eq!(wait(&mut uring, SHORT), []);
    uring.deregister(TOKEN).expect("deregister in the parent");
}
