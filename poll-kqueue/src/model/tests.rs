//! The rules of kqueue, one test for each.

use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Seek, SeekFrom, Write, pipe};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread;

use super::knotes::{EV_DISABLE, EV_DISPATCH, EV_ENABLE};
use super::*;
use crate::sys::{
    EV_CLEAR, EV_EOF, EV_ONESHOT, EVFILT_EXCEPT, EVFILT_READ, EVFILT_WRITE, NOTE_LOWAT, NOTE_OOB,
    RawFilter, RawFlags,
};
use crate::tests::{high_descriptor, pseudo_terminal, reset_peer_of};

const NOW: Option<Duration> = Some(Duration::ZERO);

const ALL: [Rules; 3] = [Rules::FreeBsd, Rules::NetBsd, Rules::Apple];

fn queue() -> Queue {
    with(Rules::FreeBsd)
}

fn with(rules: Rules) -> Queue {
    Queue::new(rules).unwrap()
}

fn of(source: &impl AsRawFd, filter: RawFilter, flags: RawFlags) -> Kevent {
    Kevent::new(source.as_raw_fd() as usize, filter, flags, 7)
}

/// Makes changes that must not fail.
fn change(queue: &Queue, changes: &[Kevent]) {
    assert_eq!(kevent(queue, changes, &mut [], NOW).unwrap(), 0);
}

/// The events after these changes.
fn events_after(queue: &Queue, changes: &[Kevent]) -> Vec<Kevent> {
    let mut events = [Kevent::empty(); 8];
    let count = kevent(queue, changes, &mut events, NOW).unwrap();
    events[..count].to_vec()
}

/// The filters that fire after these changes.
fn filters_after(queue: &Queue, changes: &[Kevent]) -> Vec<RawFilter> {
    events_after(queue, changes).iter().map(Kevent::filter).collect()
}

/// The results of these changes, which have receipts or fail.
fn errors_after(queue: &Queue, changes: &[Kevent]) -> Vec<i32> {
    events_after(queue, changes).iter().map(|event| event.receipt().unwrap()).collect()
}

/// Two sockets; the first is readable.
fn readable_pair() -> (UnixStream, UnixStream) {
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
    let (queue, (mut a, _b)) = (queue(), readable_pair());
    change(&queue, &[of(&a, EVFILT_READ, EV_ADD)]);
    for _ in 0..3 {
        let events = events_after(&queue, &[]);
        assert_eq!((events.len(), events[0].udata(), events[0].0.data), (1, 7, 4));
    }
    a.read_exact(&mut [0; 4]).unwrap();
    assert!(filters_after(&queue, &[]).is_empty());
}

#[test]
fn filters_are_independent() {
    let (queue, (a, _b)) = (queue(), readable_pair());
    let read = of(&a, EVFILT_READ, EV_ADD | EV_CLEAR);
    assert_eq!(filters_after(&queue, &[read]), [EVFILT_READ]);
    let write = of(&a, EVFILT_WRITE, EV_ADD | EV_CLEAR);
    assert_eq!(
        filters_after(&queue, &[write]),
        [EVFILT_WRITE],
        "the condition of the read filter has not changed"
    );
    change(&queue, &[of(&a, EVFILT_WRITE, EV_DELETE)]);
    assert_eq!(filters_after(&queue, &[read]), [EVFILT_READ]);
}

#[test]
fn clear_knotes_fire_once_for_each_change() {
    let (queue, (a, mut b)) = (queue(), readable_pair());
    assert_eq!(filters_after(&queue, &[of(&a, EVFILT_READ, EV_ADD | EV_CLEAR)]), [EVFILT_READ]);
    assert!(filters_after(&queue, &[]).is_empty());
    b.write_all(b"more").unwrap();
    assert_eq!(filters_after(&queue, &[]), [EVFILT_READ]);
    assert!(filters_after(&queue, &[]).is_empty());
}

#[test]
fn ev_add_of_an_existing_knote_evaluates_it() {
    let (queue, (a, _b)) = (queue(), readable_pair());
    let add = of(&a, EVFILT_READ, EV_ADD | EV_CLEAR);
    for _ in 0..3 {
        assert_eq!(filters_after(&queue, &[add]), [EVFILT_READ]);
    }
}

#[test]
fn ev_add_of_an_existing_knote_changes_udata_but_not_its_flags() {
    let (queue, (a, _b)) = (queue(), readable_pair());
    change(&queue, &[of(&a, EVFILT_READ, EV_ADD | EV_CLEAR)]);
    let level = Kevent::new(a.as_raw_fd() as usize, EVFILT_READ, EV_ADD, 8);
    assert_eq!(events_after(&queue, &[level])[0].udata(), 8);
    assert!(filters_after(&queue, &[]).is_empty(), "the knote still has EV_CLEAR");
}

#[test]
fn oneshot_knotes_are_removed_when_they_fire() {
    let (queue, (a, _b)) = (queue(), readable_pair());
    assert_eq!(filters_after(&queue, &[of(&a, EVFILT_READ, EV_ADD | EV_ONESHOT)]), [EVFILT_READ]);
    assert!(filters_after(&queue, &[]).is_empty());
    assert_eq!(errors_after(&queue, &[of(&a, EVFILT_READ, EV_DELETE)]), [libc::ENOENT]);
}

#[test]
fn ev_dispatch_disables_a_knote_and_ev_enable_evaluates_it() {
    let (queue, (a, _b)) = (queue(), readable_pair());
    assert_eq!(filters_after(&queue, &[of(&a, EVFILT_READ, EV_ADD | EV_DISPATCH)]), [EVFILT_READ]);
    assert!(filters_after(&queue, &[]).is_empty());
    assert_eq!(filters_after(&queue, &[of(&a, EVFILT_READ, EV_ENABLE)]), [EVFILT_READ]);
}

#[test]
fn netbsd_evaluates_on_ev_add_but_not_on_ev_enable() {
    let (queue, (a, mut b)) = (with(Rules::NetBsd), readable_pair());
    assert_eq!(filters_after(&queue, &[of(&a, EVFILT_READ, EV_ADD | EV_DISPATCH)]), [EVFILT_READ]);
    assert!(filters_after(&queue, &[of(&a, EVFILT_READ, EV_ENABLE)]).is_empty());
    b.write_all(b"more").unwrap();
    assert_eq!(filters_after(&queue, &[]), [EVFILT_READ]);
    assert_eq!(filters_after(&queue, &[of(&a, EVFILT_READ, EV_ADD)]), [EVFILT_READ]);
}

#[test]
fn disabled_knotes_record_activity() {
    for rules in ALL {
        let (queue, (a, mut b)) = (with(rules), UnixStream::pair().unwrap());
        change(&queue, &[of(&a, EVFILT_READ, EV_ADD | EV_DISABLE)]);
        b.write_all(b"data").unwrap();
        assert!(filters_after(&queue, &[]).is_empty());
        assert_eq!(filters_after(&queue, &[of(&a, EVFILT_READ, EV_ENABLE)]), [EVFILT_READ]);
    }
}

#[test]
fn receipts_are_returned_for_every_change_without_events() {
    let (queue, (a, _b)) = (queue(), readable_pair());
    let add = |filter| of(&a, filter, EV_ADD | EV_RECEIPT);
    assert_eq!(errors_after(&queue, &[add(EVFILT_READ), add(EVFILT_WRITE)]), [0, 0]);
    assert_eq!(filters_after(&queue, &[]), [EVFILT_READ, EVFILT_WRITE]);
}

#[test]
fn a_failed_change_is_reported_and_the_others_are_made() {
    let (queue, (a, _b)) = (queue(), readable_pair());
    let missing = of(&a, EVFILT_WRITE, EV_DELETE);
    let events = events_after(&queue, &[missing, of(&a, EVFILT_READ, EV_ADD)]);
    assert_eq!(events.len(), 1, "failures are returned without events");
    assert_eq!(events[0].receipt(), Some(libc::ENOENT));
    assert_eq!((events[0].udata(), events[0].filter()), (7, EVFILT_WRITE));
    assert_eq!(filters_after(&queue, &[]), [EVFILT_READ]);
}

#[test]
fn a_failed_change_without_an_entry_drops_the_changes_behind_it() {
    let (queue, (a, _b)) = (queue(), readable_pair());
    let missing = of(&a, EVFILT_WRITE, EV_DELETE);
    let error = kevent(&queue, &[missing, of(&a, EVFILT_READ, EV_ADD)], &mut [], NOW).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
    assert!(filters_after(&queue, &[]).is_empty());
}

#[test]
fn unknown_filters_are_einval_and_closed_descriptors_ebadf() {
    let (queue, (a, b)) = (queue(), readable_pair());
    assert_eq!(errors_after(&queue, &[of(&a, -99, EV_ADD)]), [libc::EINVAL]);
    let b = high_descriptor(20, b);
    let closed = of(&b, EVFILT_READ, EV_ADD);
    change(&queue, &[closed]);
    let delete = of(&b, EVFILT_READ, EV_DELETE);
    drop(b);
    assert_eq!(errors_after(&queue, &[closed, delete]), [libc::EBADF, libc::EBADF]);
}

#[test]
fn closing_a_descriptor_removes_its_knotes_even_if_its_file_stays_open() {
    let (queue, (a, mut b)) = (queue(), readable_pair());
    let watched = high_descriptor(30, a.try_clone().unwrap());
    let number = watched.as_raw_fd();
    assert_eq!(filters_after(&queue, &[of(&watched, EVFILT_READ, EV_ADD)]), [EVFILT_READ]);
    drop(watched);
    assert!(filters_after(&queue, &[]).is_empty());
    b.write_all(b"more").unwrap();
    assert!(filters_after(&queue, &[]).is_empty());
    // The number is reused for another file, which has no knote.
    let other = high_descriptor(30, readable_pair().0);
    assert_eq!(other.as_raw_fd(), number);
    assert!(filters_after(&queue, &[]).is_empty());
    assert_eq!(errors_after(&queue, &[of(&other, EVFILT_READ, EV_DELETE)]), [libc::ENOENT]);
}

#[test]
fn the_end_of_file_is_reported_with_the_unread_data() {
    let (queue, (a, b)) = (queue(), readable_pair());
    b.shutdown(std::net::Shutdown::Write).unwrap();
    let events = events_after(&queue, &[of(&a, EVFILT_READ, EV_ADD)]);
    assert!(events[0].has(EV_EOF));
    assert_eq!((events[0].0.data, events[0].fflags()), (4, 0));
    let events = events_after(&queue, &[of(&a, EVFILT_WRITE, EV_ADD)]);
    assert!(events.iter().all(|event| event.has(EV_EOF) == (event.filter() == EVFILT_READ)));
}

#[test]
fn a_reset_ends_both_filters_with_its_error() {
    let (queue, (a, b)) = (queue(), tcp_pair());
    reset_peer_of(&a, b);
    let changes = [of(&a, EVFILT_READ, EV_ADD), of(&a, EVFILT_WRITE, EV_ADD)];
    let events = events_after(&queue, &changes);
    assert_eq!(events.len(), 2);
    assert!(events.iter().all(|event| event.has(EV_EOF) && event.fflags() != 0));
}

#[test]
fn filters_of_an_unconnected_stream_socket_do_not_fire() {
    let queue = queue();
    // SAFETY: no memory is passed.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0) };
    // SAFETY: the kernel has just made the descriptor, and nothing else owns it.
    let socket = unsafe { TcpStream::from_raw_fd(fd) };
    let changes = [of(&socket, EVFILT_READ, EV_ADD), of(&socket, EVFILT_WRITE, EV_ADD)];
    assert!(events_after(&queue, &changes).is_empty());
}

#[test]
fn a_low_water_mark_delays_data_but_not_the_end_of_file() {
    let (queue, (a, b)) = (queue(), readable_pair());
    let mark = of(&a, EVFILT_READ, EV_ADD).with(NOTE_LOWAT, 5);
    assert!(events_after(&queue, &[mark]).is_empty());
    (&b).write_all(b"5").unwrap();
    assert_eq!(filters_after(&queue, &[]), [EVFILT_READ]);
    assert!(events_after(&queue, &[mark.with(NOTE_LOWAT, i32::MAX)]).is_empty());
    drop(b);
    assert!(events_after(&queue, &[])[0].has(EV_EOF));
}

fn broken_pipe() -> PipeWriter {
    let (_, writer): (PipeReader, PipeWriter) = pipe().unwrap();
    writer
}

#[test]
fn the_write_end_of_a_pipe_ends_when_its_reader_closes() {
    for rules in ALL {
        let ((reader, writer), queue) = (pipe().unwrap(), with(rules));
        assert!(!events_after(&queue, &[of(&writer, EVFILT_WRITE, EV_ADD)])[0].has(EV_EOF));
        drop(reader);
        assert!(events_after(&queue, &[])[0].has(EV_EOF));
    }
}

#[test]
fn a_write_knote_of_a_broken_pipe_is_refused_except_by_apple() {
    let broken = broken_pipe();
    let add = of(&broken, EVFILT_WRITE, EV_ADD);
    assert_eq!(errors_after(&with(Rules::FreeBsd), &[add]), [libc::EPIPE]);
    assert_eq!(errors_after(&with(Rules::NetBsd), &[add]), [libc::EBADF]);
    let events = events_after(&with(Rules::Apple), &[add]);
    assert_eq!(events[0].receipt(), None);
    assert!(events[0].has(EV_EOF));
}

#[test]
fn a_write_knote_of_a_read_end_fires_on_freebsd() {
    for rules in ALL {
        let ((reader, writer), queue) = (pipe().unwrap(), with(rules));
        let add = of(&reader, EVFILT_WRITE, EV_ADD | EV_CLEAR);
        assert_eq!(!filters_after(&queue, &[add]).is_empty(), rules == Rules::FreeBsd);
        drop(writer);
        if rules == Rules::FreeBsd {
            assert!(events_after(&queue, &[])[0].has(EV_EOF));
            change(&queue, &[of(&reader, EVFILT_WRITE, EV_DELETE)]);
            assert_eq!(errors_after(&queue, &[add]), [libc::EPIPE]);
        }
    }
}

#[test]
fn the_read_end_of_a_pipe_ends_when_its_writer_closes() {
    let (reader, writer) = pipe().unwrap();
    let queue = queue();
    assert!(events_after(&queue, &[of(&reader, EVFILT_READ, EV_ADD)]).is_empty());
    drop(writer);
    assert!(events_after(&queue, &[])[0].has(EV_EOF));
}

#[test]
fn files_are_readable_up_to_their_end() {
    let (queue, mut file) = (queue(), temporary_file());
    file.write_all(b"text").unwrap();
    file.seek(SeekFrom::Start(1)).unwrap();
    assert_eq!(events_after(&queue, &[of(&file, EVFILT_READ, EV_ADD)])[0].0.data, 3);
    let write = of(&file, EVFILT_WRITE, EV_ADD);
    assert_eq!(filters_after(&queue, &[write]), [EVFILT_READ, EVFILT_WRITE]);
    file.seek(SeekFrom::End(0)).unwrap();
    assert_eq!(filters_after(&queue, &[]), [EVFILT_WRITE]);
}

#[test]
fn a_file_knote_is_evaluated_after_a_write_but_not_after_a_seek() {
    for rules in ALL {
        let (queue, mut file) = (with(rules), temporary_file());
        file.write_all(b"text").unwrap();
        let add = of(&file, EVFILT_READ, EV_ADD);
        assert!(events_after(&queue, &[add]).is_empty(), "the offset is the end");
        file.seek(SeekFrom::Start(1)).unwrap();
        assert!(events_after(&queue, &[]).is_empty(), "to seek is no event");
        file.write_all(b"longer than before").unwrap();
        file.seek(SeekFrom::Start(1)).unwrap();
        assert_eq!(events_after(&queue, &[])[0].0.data, 18);
    }
}

fn temporary_file() -> File {
    // SAFETY: the name ends with a NUL.
    let fd = unsafe { libc::memfd_create(c"poll-kqueue".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(fd >= 0, "{}", io::Error::last_os_error());
    // SAFETY: the kernel has just made the descriptor, and nothing else owns it.
    unsafe { File::from_raw_fd(fd) }
}

#[test]
fn freebsd_refuses_the_null_device() {
    let null = File::open("/dev/null").unwrap();
    let add = of(&null, EVFILT_READ, EV_ADD);
    assert_eq!(errors_after(&with(Rules::FreeBsd), &[add]), [libc::ENODEV]);
    for rules in [Rules::NetBsd, Rules::Apple] {
        change(&with(rules), &[add]);
    }
}

#[test]
fn freebsd_refuses_a_terminal_whose_master_is_closed() {
    for filter in [EVFILT_READ, EVFILT_WRITE] {
        let slave = hung_up_terminal();
        let add = of(&slave, filter, EV_ADD);
        assert_eq!(errors_after(&with(Rules::FreeBsd), &[add]), [libc::ENXIO]);
        for rules in [Rules::NetBsd, Rules::Apple] {
            assert!(events_after(&with(rules), &[add])[0].has(EV_EOF), "{rules:?}");
        }
    }
}

#[test]
fn a_terminal_ends_when_its_master_closes() {
    for rules in ALL {
        let ((master, slave), queue) = (pseudo_terminal(), with(rules));
        assert!(events_after(&queue, &[of(&slave, EVFILT_READ, EV_ADD)]).is_empty());
        drop(master);
        assert!(events_after(&queue, &[])[0].has(EV_EOF), "{rules:?}");
    }
}

fn hung_up_terminal() -> OwnedFd {
    pseudo_terminal().1
}

#[test]
fn a_oneshot_knote_fires_after_its_condition_has_passed_except_on_apple() {
    for rules in ALL {
        let (queue, (mut a, _b)) = (with(rules), readable_pair());
        change(&queue, &[of(&a, EVFILT_READ, EV_ADD | EV_ONESHOT)]);
        a.read_exact(&mut [0; 4]).unwrap();
        let fires = !filters_after(&queue, &[]).is_empty();
        assert_eq!(fires, rules != Rules::Apple, "{rules:?}");
        change(&queue, &[of(&a, EVFILT_READ, EV_ADD | EV_CLEAR)]);
        assert!(filters_after(&queue, &[]).is_empty(), "other knotes are evaluated at the scan");
    }
}

#[test]
fn out_of_band_data_fires_ev_except_only() {
    let (queue, (a, b)) = (queue(), tcp_pair());
    let except = of(&a, EVFILT_EXCEPT, EV_ADD).with(NOTE_OOB, 0);
    assert!(events_after(&queue, &[except, of(&a, EVFILT_READ, EV_ADD)]).is_empty());
    // SAFETY: the kernel reads one byte from the text.
    unsafe { libc::send(b.as_raw_fd(), b"!".as_ptr().cast(), 1, libc::MSG_OOB) };
    let mut events = [Kevent::empty(); 4];
    assert_eq!(kevent(&queue, &[], &mut events, None).unwrap(), 1);
    assert_eq!((events[0].filter(), events[0].fflags()), (EVFILT_EXCEPT, NOTE_OOB));
}

#[test]
fn apple_reports_the_end_of_file_in_evfilt_except() {
    for rules in ALL {
        let (queue, (a, b)) = (with(rules), tcp_pair());
        let except = of(&a, EVFILT_EXCEPT, EV_ADD | EV_CLEAR).with(NOTE_OOB, 0);
        change(&queue, &[except]);
        reset_peer_of(&a, b);
        let events = events_after(&queue, &[]);
        assert_eq!(!events.is_empty(), rules == Rules::Apple);
        // The number of ECONNRESET contains the bit of NOTE_OOB.
        assert!(events.iter().all(|it| it.has(EV_EOF) && it.fflags() & NOTE_OOB != 0));
    }
}

#[test]
fn user_events_coalesce_and_end_a_blocked_call() {
    let queue = queue();
    let user = |flags| Kevent::new(3, EVFILT_USER, flags, 7);
    let trigger = user(0).with(NOTE_TRIGGER, 0);
    let error = kevent(&queue, &[trigger], &mut [], NOW).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
    change(&queue, &[user(EV_ADD | EV_CLEAR)]);
    change(&queue, &[trigger]);
    change(&queue, &[trigger]);
    assert_eq!(events_after(&queue, &[])[0].udata(), 7);
    assert!(events_after(&queue, &[]).is_empty());
    thread::scope(|scope| {
        let blocked = scope.spawn(|| kevent(&queue, &[], &mut [Kevent::empty()], None).unwrap());
        change(&queue, &[trigger]);
        assert_eq!(blocked.join().unwrap(), 1);
    });
    assert_eq!(errors_after(&with(Rules::NetBsd), &[user(EV_ADD)]), [libc::EINVAL]);
}

#[test]
fn level_knotes_fire_in_rotation() {
    let queue = queue();
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
fn a_queue_is_readable_in_another_queue_while_a_knote_may_fire() {
    let (inner, outer) = (queue(), queue());
    let (a, mut b) = UnixStream::pair().unwrap();
    change(&inner, &[of(&a, EVFILT_READ, EV_ADD)]);
    assert!(events_after(&inner, &[]).is_empty());
    change(&outer, &[Kevent::new(inner.epoll.as_raw_fd() as usize, EVFILT_READ, EV_ADD, 1)]);
    assert!(events_after(&outer, &[]).is_empty());
    b.write_all(b"data").unwrap();
    assert_eq!(events_after(&outer, &[]).len(), 1);
    assert_eq!(events_after(&inner, &[]).len(), 1);
    (&a).read_exact(&mut [0; 4]).unwrap();
    assert!(events_after(&inner, &[]).is_empty());
    assert!(events_after(&outer, &[]).is_empty());
}

#[test]
fn a_forked_child_does_not_inherit_the_queue() {
    let queue = Queue { pid: std::process::id() + 1, ..queue() };
    let error = kevent(&queue, &[], &mut [Kevent::empty()], NOW).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EBADF));
}
