//! Every call is counted and forwarded.

use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;

use counting_backend::{Calls, Counting};
use poll_core::{
    Backend, BoxedBackend, BufferLease, Event, Interest, Mode, Op, OpKind, RawBuf, RawSource,
    Readiness, Token, Wake,
};
use poll_poll::Poll;

/// All counters, in the trait's order.
fn counts(calls: &Calls) -> [u64; 15] {
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
        &calls.withdraw,
        &calls.now,
        &calls.raw_source,
        &calls.has_unflushed_changes,
        &calls.after_fork,
    ]
    .map(|count| count.get())
}

/// Calls each method of the trait once, supported or not.
fn call_each_method_once(backend: &mut impl Backend) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (token, source) = (Token::new(0, 0), RawSource::of(&socket));
    let mut memory = [0; 1];
    let buf = RawBuf::filling(&mut memory);

    backend.after_fork().unwrap();
    // SAFETY: `socket` outlives the registration.
    unsafe { backend.register(token, source, Interest::NONE, Mode::Level) }.unwrap();
    backend.modify(token, Interest::WRITE, Mode::Level).unwrap();
    let mut events = Vec::new();
    backend.wait(None, &mut events).unwrap();
    assert_eq!(events, [Event::Ready { token, ready: Readiness::WRITE }]);
    backend.deregister(token).unwrap();
    backend.waker().wake().unwrap();

    assert!(!backend.supports(OpKind::Recv));
    // SAFETY: the operation is refused, so no memory is lent.
    unsafe { backend.submit(token, Op::Recv { source, buf }) }.unwrap_err();
    backend.cancel(token).unwrap_err();
    // SAFETY: the group is refused, so no memory is lent.
    unsafe { backend.register_buffers(0, buf.ptr, buf.len, 1) }.unwrap_err();
    backend.release_buffer(BufferLease { group: 0, buffer: 0, offset: 0 });
    backend.unregister_buffers(0).unwrap_err();
    assert!(backend.now() < Duration::MAX);
    assert_eq!(backend.raw_source(), None, "poll has no descriptor");
    assert!(!backend.has_unflushed_changes(), "poll has no kernel state to update");
}

/// A counting backend inside another: a call that the outer one does not forward is missing in the
/// inner one.
#[test]
fn every_method_is_counted_and_forwarded() {
    let inner = Counting::new(Poll::new().unwrap());
    let inner_calls = Arc::clone(inner.calls());
    let mut outer = Counting::new(inner);

    call_each_method_once(&mut outer);
    assert_eq!(counts(outer.calls()), [1; 15]);
    assert_eq!(counts(&inner_calls), [1; 15]);
}

#[test]
fn a_boxed_backend_forwards_every_method() {
    let inner = Counting::new(Poll::new().unwrap());
    let calls = Arc::clone(inner.calls());
    let mut boxed = BoxedBackend::new(inner);

    call_each_method_once(&mut boxed);
    assert_eq!(counts(&calls), [1; 15]);
    assert!(boxed.downcast_ref::<Poll>().is_none(), "the outer type is the type");
    assert!(boxed.downcast_mut::<Counting<Poll>>().is_some());
    let boxed = boxed.downcast::<Poll>().expect_err("returned unchanged");
    let inner: Counting<Poll> = boxed.downcast().unwrap();
    assert!(Arc::ptr_eq(inner.calls(), &calls));
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
