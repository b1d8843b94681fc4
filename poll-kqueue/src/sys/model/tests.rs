//! The rules of kqueue, one test each.

use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Seek, SeekFrom, Write, pipe};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::thread;

use super::state::{EV_DISABLE, EV_DISPATCH, EV_ENABLE};
use super::*;
use crate::sys::{
    EV_CLEAR, EV_EOF, EV_ONESHOT, EVFILT_EXCEPT, EVFILT_READ, EVFILT_WRITE, NOTE_LOWAT, NOTE_OOB,
    RawFilter, RawFlags,
};
use crate::tests::high;

const NOW: Option<Duration> = Some(Duration::ZERO);

fn lenient() -> Queue {
    Queue::new(Rules::Lenient).unwrap()
}

fn of(source: &impl AsRawFd, filter: RawFilter, flags: RawFlags) -> Kevent {
    Kevent::new(source.as_raw_fd() as usize, filter, flags, 7)
}

/// Makes changes that must not fail.
fn change(queue: &Queue, changes: &[Kevent]) {
    assert_eq!(kevent(queue, changes, &mut [], NOW).unwrap(), 0);
}

/// What is told after these changes.
fn told(queue: &Queue, changes: &[Kevent]) -> Vec<Kevent> {
    let mut events = [Kevent::empty(); 8];
    let count = kevent(queue, changes, &mut events, NOW).unwrap();
    events[..count].to_vec()
}

/// The filters that are told after these changes.
fn filters(queue: &Queue, changes: &[Kevent]) -> Vec<RawFilter> {
    told(queue, changes).iter().map(Kevent::filter).collect()
}

fn errors(queue: &Queue, changes: &[Kevent]) -> Vec<i32> {
    told(queue, changes).iter().map(|event| event.receipt().unwrap()).collect()
}

fn full_pair() -> (UnixStream, UnixStream) {
    let (a, mut b) = UnixStream::pair().unwrap();
    b.write_all(b"data").unwrap();
    (a, b)
}

fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (a, listener.accept().unwrap().0)
}

#[test]
fn level_knotes_fire_while_their_condition_holds() {
    let (queue, (mut a, _b)) = (lenient(), full_pair());
    change(&queue, &[of(&a, EVFILT_READ, EV_ADD)]);
    for _ in 0..3 {
        let events = told(&queue, &[]);
        assert_eq!((events.len(), events[0].udata(), events[0].0.data), (1, 7, 4));
    }
    a.read_exact(&mut [0; 4]).unwrap();
    assert!(filters(&queue, &[]).is_empty());
}

#[test]
fn filters_are_independent() {
    let (queue, (a, _b)) = (lenient(), full_pair());
    let read = of(&a, EVFILT_READ, EV_ADD | EV_CLEAR);
    assert_eq!(filters(&queue, &[read]), [EVFILT_READ]);
    let write = of(&a, EVFILT_WRITE, EV_ADD | EV_CLEAR);
    assert_eq!(filters(&queue, &[write]), [EVFILT_WRITE], "reading is no news");
    change(&queue, &[of(&a, EVFILT_WRITE, EV_DELETE)]);
    assert_eq!(filters(&queue, &[read]), [EVFILT_READ]);
}

#[test]
fn clear_knotes_fire_for_news_only() {
    let (queue, (a, mut b)) = (lenient(), full_pair());
    assert_eq!(filters(&queue, &[of(&a, EVFILT_READ, EV_ADD | EV_CLEAR)]), [EVFILT_READ]);
    assert!(filters(&queue, &[]).is_empty());
    b.write_all(b"more").unwrap();
    assert_eq!(filters(&queue, &[]), [EVFILT_READ]);
    assert!(filters(&queue, &[]).is_empty());
}

#[test]
fn adding_again_evaluates_again() {
    let (queue, (a, _b)) = (lenient(), full_pair());
    let add = of(&a, EVFILT_READ, EV_ADD | EV_CLEAR);
    for _ in 0..3 {
        assert_eq!(filters(&queue, &[add]), [EVFILT_READ]);
    }
}

#[test]
fn adding_again_changes_udata_but_not_the_kind() {
    let (queue, (a, _b)) = (lenient(), full_pair());
    change(&queue, &[of(&a, EVFILT_READ, EV_ADD | EV_CLEAR)]);
    let level = Kevent::new(a.as_raw_fd() as usize, EVFILT_READ, EV_ADD, 8);
    assert_eq!(told(&queue, &[level])[0].udata(), 8);
    assert!(filters(&queue, &[]).is_empty(), "still clears");
}

#[test]
fn oneshot_knotes_are_gone_after_they_fire() {
    let (queue, (a, _b)) = (lenient(), full_pair());
    assert_eq!(filters(&queue, &[of(&a, EVFILT_READ, EV_ADD | EV_ONESHOT)]), [EVFILT_READ]);
    assert!(filters(&queue, &[]).is_empty());
    assert_eq!(errors(&queue, &[of(&a, EVFILT_READ, EV_DELETE)]), [libc::ENOENT]);
}

#[test]
fn dispatch_disables_and_enabling_evaluates() {
    let (queue, (a, _b)) = (lenient(), full_pair());
    assert_eq!(filters(&queue, &[of(&a, EVFILT_READ, EV_ADD | EV_DISPATCH)]), [EVFILT_READ]);
    assert!(filters(&queue, &[]).is_empty());
    assert_eq!(filters(&queue, &[of(&a, EVFILT_READ, EV_ENABLE)]), [EVFILT_READ]);
}

#[test]
fn strictly_enabling_does_not_evaluate_but_adding_does() {
    let (queue, (a, mut b)) = (Queue::new(Rules::Strict).unwrap(), full_pair());
    assert_eq!(filters(&queue, &[of(&a, EVFILT_READ, EV_ADD | EV_DISPATCH)]), [EVFILT_READ]);
    assert!(filters(&queue, &[of(&a, EVFILT_READ, EV_ENABLE)]).is_empty());
    b.write_all(b"more").unwrap();
    assert_eq!(filters(&queue, &[]), [EVFILT_READ]);
    assert_eq!(filters(&queue, &[of(&a, EVFILT_READ, EV_ADD)]), [EVFILT_READ]);
}

#[test]
fn disabled_knotes_keep_what_happens() {
    for rules in [Rules::Lenient, Rules::Strict] {
        let (queue, (a, mut b)) = (Queue::new(rules).unwrap(), UnixStream::pair().unwrap());
        change(&queue, &[of(&a, EVFILT_READ, EV_ADD | EV_DISABLE)]);
        b.write_all(b"data").unwrap();
        assert!(filters(&queue, &[]).is_empty());
        assert_eq!(filters(&queue, &[of(&a, EVFILT_READ, EV_ENABLE)]), [EVFILT_READ]);
    }
}

#[test]
fn receipts_come_for_every_change_and_alone() {
    let (queue, (a, _b)) = (lenient(), full_pair());
    let add = |filter| of(&a, filter, EV_ADD | EV_RECEIPT);
    assert_eq!(errors(&queue, &[add(EVFILT_READ), add(EVFILT_WRITE)]), [0, 0]);
    assert_eq!(filters(&queue, &[]), [EVFILT_READ, EVFILT_WRITE]);
}

#[test]
fn a_failing_change_is_told_and_the_rest_is_made() {
    let (queue, (a, _b)) = (lenient(), full_pair());
    let missing = of(&a, EVFILT_WRITE, EV_DELETE);
    let events = told(&queue, &[missing, of(&a, EVFILT_READ, EV_ADD)]);
    assert_eq!(events.len(), 1, "failures come alone");
    assert_eq!(events[0].receipt(), Some(libc::ENOENT));
    assert_eq!((events[0].udata(), events[0].filter()), (7, EVFILT_WRITE));
    assert_eq!(filters(&queue, &[]), [EVFILT_READ]);
}

#[test]
fn without_room_a_failing_change_drops_those_behind_it() {
    let (queue, (a, _b)) = (lenient(), full_pair());
    let missing = of(&a, EVFILT_WRITE, EV_DELETE);
    let error = kevent(&queue, &[missing, of(&a, EVFILT_READ, EV_ADD)], &mut [], NOW).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
    assert!(filters(&queue, &[]).is_empty());
}

#[test]
fn unknown_filters_are_invalid_and_closed_descriptors_bad() {
    let (queue, (a, b)) = (lenient(), full_pair());
    assert_eq!(errors(&queue, &[of(&a, -99, EV_ADD)]), [libc::EINVAL]);
    let b = high(20, b);
    let closed = of(&b, EVFILT_READ, EV_ADD);
    change(&queue, &[closed]);
    let delete = of(&b, EVFILT_READ, EV_DELETE);
    drop(b);
    assert_eq!(errors(&queue, &[closed, delete]), [libc::EBADF, libc::EBADF]);
}

#[test]
fn closing_drops_the_knotes_even_if_the_file_lives_on() {
    let (queue, (a, mut b)) = (lenient(), full_pair());
    let watched = high(30, a.try_clone().unwrap());
    let number = watched.as_raw_fd();
    assert_eq!(filters(&queue, &[of(&watched, EVFILT_READ, EV_ADD)]), [EVFILT_READ]);
    drop(watched);
    assert!(filters(&queue, &[]).is_empty());
    b.write_all(b"more").unwrap();
    assert!(filters(&queue, &[]).is_empty());
    // The number gets another file, which has no knote.
    let other = high(30, full_pair().0);
    assert_eq!(other.as_raw_fd(), number);
    assert!(filters(&queue, &[]).is_empty());
    assert_eq!(errors(&queue, &[of(&other, EVFILT_READ, EV_DELETE)]), [libc::ENOENT]);
}

#[test]
fn the_end_of_file_is_told_with_the_data_before_it() {
    let (queue, (a, b)) = (lenient(), full_pair());
    b.shutdown(std::net::Shutdown::Write).unwrap();
    let events = told(&queue, &[of(&a, EVFILT_READ, EV_ADD)]);
    assert!(events[0].has(EV_EOF));
    assert_eq!((events[0].0.data, events[0].fflags()), (4, 0));
    let events = told(&queue, &[of(&a, EVFILT_WRITE, EV_ADD)]);
    assert!(events.iter().all(|event| event.has(EV_EOF) == (event.filter() == EVFILT_READ)));
}

#[test]
fn a_reset_ends_both_filters_with_its_error() {
    let (queue, (a, b)) = (lenient(), tcp_pair());
    change(&queue, &[of(&a, EVFILT_READ, EV_ADD), of(&a, EVFILT_WRITE, EV_ADD | EV_CLEAR)]);
    told(&queue, &[]);
    // Closing with unread data resets.
    (&a).write_all(b"unread").unwrap();
    b.peek(&mut [0]).unwrap();
    drop(b);
    let mut events = [Kevent::empty(); 1];
    kevent(&queue, &[], &mut events, None).unwrap();
    let events = told(&queue, &[of(&a, EVFILT_WRITE, EV_ADD)]);
    assert_eq!(events.len(), 2);
    assert!(events.iter().all(|event| event.has(EV_EOF) && event.fflags() != 0));
}

#[test]
fn a_socket_that_was_never_connected_is_silent() {
    let queue = lenient();
    // SAFETY: it takes no pointer.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0) };
    // SAFETY: the descriptor is new and nobody else's.
    let socket: TcpStream = unsafe { std::os::fd::FromRawFd::from_raw_fd(fd) };
    let changes = [of(&socket, EVFILT_READ, EV_ADD), of(&socket, EVFILT_WRITE, EV_ADD)];
    assert!(told(&queue, &changes).is_empty());
}

#[test]
fn a_low_water_mark_holds_data_back_but_not_the_end() {
    let (queue, (a, b)) = (lenient(), full_pair());
    let mark = of(&a, EVFILT_READ, EV_ADD).with(NOTE_LOWAT, 5);
    assert!(told(&queue, &[mark]).is_empty());
    (&b).write_all(b"5").unwrap();
    assert_eq!(filters(&queue, &[]), [EVFILT_READ]);
    assert!(told(&queue, &[mark.with(NOTE_LOWAT, i32::MAX)]).is_empty());
    drop(b);
    assert!(told(&queue, &[])[0].has(EV_EOF));
}

fn broken_pipe() -> PipeWriter {
    let (_, writer): (PipeReader, PipeWriter) = pipe().unwrap();
    writer
}

#[test]
fn a_pipe_without_readers_ends_or_is_refused() {
    let (reader, writer) = pipe().unwrap();
    let queue = lenient();
    let add = of(&writer, EVFILT_WRITE, EV_ADD);
    assert!(!told(&queue, &[add])[0].has(EV_EOF));
    drop(reader);
    assert!(told(&queue, &[])[0].has(EV_EOF));

    let broken = broken_pipe();
    let add = of(&broken, EVFILT_WRITE, EV_ADD);
    assert_eq!(errors(&queue, &[add]), [libc::EPIPE]);
    assert_eq!(errors(&Queue::new(Rules::Strict).unwrap(), &[add]), [libc::EBADF]);
}

#[test]
fn a_pipe_without_writers_ends() {
    let (reader, writer) = pipe().unwrap();
    let queue = lenient();
    assert!(told(&queue, &[of(&reader, EVFILT_READ, EV_ADD)]).is_empty());
    drop(writer);
    assert!(told(&queue, &[])[0].has(EV_EOF));
}

#[test]
fn files_are_readable_up_to_their_end() {
    let queue = lenient();
    let path = std::env::temp_dir().join(format!("poll-kqueue-model-{}", std::process::id()));
    let mut file = File::create_new(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file.write_all(b"text").unwrap();
    assert!(told(&queue, &[of(&file, EVFILT_READ, EV_ADD)]).is_empty(), "at the end");
    file.seek(SeekFrom::Start(1)).unwrap();
    assert_eq!(told(&queue, &[])[0].0.data, 3);
    assert_eq!(filters(&queue, &[of(&file, EVFILT_WRITE, EV_ADD)]), [EVFILT_READ, EVFILT_WRITE]);
}

#[test]
fn out_of_band_data_has_a_filter_of_its_own() {
    let (queue, (a, b)) = (lenient(), tcp_pair());
    let except = of(&a, EVFILT_EXCEPT, EV_ADD).with(NOTE_OOB, 0);
    assert!(told(&queue, &[except, of(&a, EVFILT_READ, EV_ADD)]).is_empty());
    // SAFETY: one byte is read from the text.
    unsafe { libc::send(b.as_raw_fd(), b"!".as_ptr().cast(), 1, libc::MSG_OOB) };
    let mut events = [Kevent::empty(); 4];
    assert_eq!(kevent(&queue, &[], &mut events, None).unwrap(), 1);
    assert_eq!((events[0].filter(), events[0].fflags()), (EVFILT_EXCEPT, NOTE_OOB));
}

#[test]
fn user_events_coalesce_and_interrupt() {
    let queue = lenient();
    let user = |flags| Kevent::new(3, EVFILT_USER, flags, 7);
    let trigger = user(0).with(NOTE_TRIGGER, 0);
    let error = kevent(&queue, &[trigger], &mut [], NOW).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
    change(&queue, &[user(EV_ADD | EV_CLEAR)]);
    change(&queue, &[trigger]);
    change(&queue, &[trigger]);
    assert_eq!(told(&queue, &[])[0].udata(), 7);
    assert!(told(&queue, &[]).is_empty());
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| kevent(&queue, &[], &mut [Kevent::empty()], None).unwrap());
        change(&queue, &[trigger]);
        assert_eq!(sleeper.join().unwrap(), 1);
    });
    assert_eq!(errors(&Queue::new(Rules::Strict).unwrap(), &[user(EV_ADD)]), [libc::EINVAL]);
}

#[test]
fn level_knotes_take_turns() {
    let queue = lenient();
    let sockets: Vec<_> = (0..10).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    let adds: Vec<_> = sockets.iter().map(|it| of(it, EVFILT_WRITE, EV_ADD)).collect();
    change(&queue, &adds);
    let mut seen = std::collections::HashSet::new();
    for _ in 0..5 {
        let mut events = [Kevent::empty(); 2];
        assert_eq!(kevent(&queue, &[], &mut events, NOW).unwrap(), 2);
        seen.extend(events.iter().map(Kevent::ident));
    }
    assert_eq!(seen.len(), 10);
}

#[test]
fn the_queue_is_readable_in_another_queue() {
    let (inner, outer) = (lenient(), lenient());
    let (a, mut b) = UnixStream::pair().unwrap();
    change(&inner, &[of(&a, EVFILT_READ, EV_ADD)]);
    assert!(told(&inner, &[]).is_empty());
    change(&outer, &[Kevent::new(inner.epoll.as_raw_fd() as usize, EVFILT_READ, EV_ADD, 1)]);
    assert!(told(&outer, &[]).is_empty());
    b.write_all(b"data").unwrap();
    assert_eq!(told(&outer, &[]).len(), 1);
    assert_eq!(told(&inner, &[]).len(), 1);
    (&a).read_exact(&mut [0; 4]).unwrap();
    assert!(told(&inner, &[]).is_empty());
    assert!(told(&outer, &[]).is_empty());
}

#[test]
fn a_child_does_not_have_the_queue() {
    let queue = Queue { pid: std::process::id() + 1, ..lenient() };
    let error = kevent(&queue, &[], &mut [Kevent::empty()], NOW).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EBADF));
}
