//! Every call is counted, and every call arrives.

use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;

use counting_backend::{Calls, Counting};
use poll_core::{Backend, Event, Lent, Mode, Op, OpKind, RawBuf, RawSource, Ready, Token, Wake};
use poll_poll::Poll;

/// All the counts, in the trait's order.
fn counts(calls: &Calls) -> [u64; 14] {
    [
        &calls.waker,
        &calls.register,
        &calls.modify,
        &calls.deregister,
        &calls.wait,
        &calls.supports,
        &calls.submit,
        &calls.cancel,
        &calls.provide,
        &calls.recycle,
        &calls.now,
        &calls.raw_fd,
        &calls.has_changes,
        &calls.after_fork,
    ]
    .map(|count| count.get())
}

/// Calls each method of the trait once, whether the backend has it or not.
fn call_each_method_once(backend: &mut impl Backend) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (token, source) = (Token::new(0, 0), RawSource::of(&socket));
    let mut memory = [0; 1];
    let buf = RawBuf::filling(&mut memory);

    backend.after_fork().unwrap();
    // SAFETY: `socket` outlives the registration.
    unsafe { backend.register(token, source, Ready::NONE, Mode::Level) }.unwrap();
    backend.modify(token, Ready::WRITE, Mode::Level).unwrap();
    let mut events = Vec::new();
    backend.wait(None, &mut events).unwrap();
    assert_eq!(events, [Event::Ready { token, ready: Ready::WRITE }]);
    backend.deregister(token).unwrap();
    backend.waker().wake().unwrap();

    assert!(!backend.supports(OpKind::Recv));
    // SAFETY: it is refused, so nothing is lent.
    unsafe { backend.submit(token, Op::Recv { source, buf }) }.unwrap_err();
    backend.cancel(token).unwrap_err();
    // SAFETY: it is refused, so nothing is lent.
    unsafe { backend.provide(0, buf.ptr, buf.len, 1) }.unwrap_err();
    backend.recycle(Lent { group: 0, buffer: 0, offset: 0 });
    assert!(backend.now() < Duration::MAX);
    assert_eq!(backend.raw_fd(), None, "poll has no descriptor");
    assert!(!backend.has_changes(), "and nobody to tell of changes");
}

/// A count of a count: what the outer one does not forward, the inner one misses.
#[test]
fn every_method_is_counted_and_forwarded() {
    let inner = Counting::new(Poll::new().unwrap());
    let inner_calls = Arc::clone(inner.calls());
    let mut outer = Counting::new(inner);

    call_each_method_once(&mut outer);
    assert_eq!(counts(outer.calls()), [1; 14]);
    assert_eq!(counts(&inner_calls), [1; 14]);
}

#[test]
fn counts_can_be_read_while_another_thread_has_the_backend() {
    let mut backend = Counting::new(Poll::new().unwrap());
    let (calls, waker) = (Arc::clone(backend.calls()), backend.waker());
    let thread = std::thread::spawn(move || backend.wait(None, &mut Vec::new()));
    while calls.wait.get() == 0 {
        std::thread::yield_now();
    }
    waker.wake().unwrap();
    thread.join().unwrap().unwrap();
    assert_eq!(calls.wait.get(), 1);
}

#[test]
fn failed_calls_count() {
    let mut backend = Counting::new(Poll::new().unwrap());
    backend.deregister(Token::new(0, 0)).unwrap_err();
    backend.deregister(Token::new(0, 0)).unwrap_err();
    assert_eq!(backend.calls().deregister.get(), 2);
}
