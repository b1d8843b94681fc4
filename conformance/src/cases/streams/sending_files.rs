//! Files in the queue of writes.

use std::io::{self, ErrorKind, Read};
use std::net::TcpStream;
use std::thread::{self, JoinHandle};

use uv_core::fs::{self, OpenOptions};
use uv_core::{Handle, Pipe, RunMode, Stream, Tcp, is_cancelled};

use crate::support::files::Directory;
use crate::support::loops::{new_loop, panic_on_purpose, run, run_to_the_end, unwinds};
use crate::support::pipes::piping_loop;
use crate::support::sources::{listener, reset};
use crate::support::streams::{
    OVER_STREAM_BUFFERS, connected, fill_up, finish, outcome, refusal, run_until,
};
use crate::support::trace::Log;
use crate::{Lab, Loop, Verdict};

/// More than one chunk, whatever its size, and no multiple of one.
const LARGE: usize = 3 * 1024 * 1024 + 7;

/// The reports of callbacks: the name of the request, its outcome, the count of bytes.
type Sent = Log<(&'static str, &'static str, u64)>;

/// A callback that logs `name`, the outcome, and the count.
fn logged<S: Stream>(
    log: &Sent,
    name: &'static str,
) -> impl FnOnce(&mut Loop, S, io::Result<()>, u64) + 'static {
    let log = log.clone();
    move |_, _, result, sent| log.push((name, outcome(&result), sent))
}

/// A write callback that logs the same.
fn written<S: Stream>(
    log: &Sent,
    name: &'static str,
) -> impl FnOnce(&mut Loop, S, io::Result<()>, &'static str) + 'static {
    let log = log.clone();
    move |_, _, result, text| log.push((name, outcome(&result), text.len() as u64))
}

/// Bytes that differ from place to place.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index ^ (index >> 8) ^ (index >> 16)) as u8).collect()
}

/// A file with this content, open for reading.
fn file_with(dir: &Directory, content: &[u8]) -> fs::File {
    let path = dir.path("sent");
    std::fs::write(&path, content).expect("a temporary file");
    fs::open(&path, OpenOptions::new().read(true)).perform().expect("the file")
}

/// Reads a stream of this loop to its end, then closes it.
fn gather<S: Stream>(lp: &mut Loop, stream: S) -> Log<u8> {
    let got = Log::default();
    let log = got.clone();
    let reading = stream.read_start(lp, move |lp, stream, bytes| match bytes.unwrap() {
        [] => stream.close(lp).unwrap(),
        bytes => log.extend(bytes.iter().copied()),
    });
    reading.unwrap();
    got
}

/// A thread that reads all bytes of a peer.
fn all_of(mut peer: TcpStream) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut all = Vec::new();
        peer.read_to_end(&mut all).expect("an orderly end");
        all
    })
}

/// Queues a write, two files and a write, then the shutdown; checks what arrives at `other`.
fn check_order<S: Stream>(mut lp: Loop, one: S, other: S) {
    let dir = Directory::new();
    let content = pattern(LARGE);
    let file = file_with(&dir, &content);
    let sent = Sent::default();
    let log = sent.clone();
    let queue = move |lp: &mut Loop| {
        one.write(lp, "head", written(&log, "head")).unwrap();
        one.send_file(lp, &file, 0..LARGE as u64, logged(&log, "file")).unwrap();
        one.send_file(lp, &file, 5..105, logged(&log, "part")).unwrap();
        one.write(lp, "tail", written(&log, "tail")).unwrap();
        let ended = log.clone();
        one.shutdown(lp, move |lp, one, result| {
            ended.push(("shutdown", outcome(&result), one.write_queue_size(lp) as u64));
            one.close(lp).unwrap();
        })
        .unwrap();
        assert_eq!(log.len(), 0, "no callback runs inline");
    };
    // In a callback, where a backend that performs sends has the write when the file is queued.
    lp.defer(queue);
    let got = gather(&mut lp, other);
    finish(lp);
    let expected = [
        ("head", "done", 4),
        ("file", "done", LARGE as u64),
        ("part", "done", 100),
        ("tail", "done", 4),
        ("shutdown", "done", 0),
    ];
    assert_eq!(sent.take(), expected);
    let expected = [b"head", &content[..], &content[5..105], b"tail"].concat();
    assert!(got.take() == expected, "all bytes arrive, in order");
}

/// A file is sent after the writes queued before it and before those queued behind it. The callbacks
/// run in this order, and a shutdown waits for them.
pub fn files_are_sent_in_order_with_writes(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (one, other) = Tcp::pair(&mut lp).unwrap();
    check_order(lp, one, other);
    Ok(())
}

/// Pipes send files as TCP does, also those that pass handles.
pub fn pipes_send_files(lab: &Lab) -> Verdict {
    let mut lp = piping_loop(lab)?;
    let (one, other) = Pipe::pair(&mut lp).unwrap();
    check_order(lp, one, other);
    let mut lp = piping_loop(lab)?;
    let (one, other) = Pipe::pair(&mut lp).unwrap();
    one.enable_passing(&mut lp).unwrap();
    other.enable_passing(&mut lp).unwrap();
    check_order(lp, one, other);
    Ok(())
}

/// A file is sent behind a write that is in flight or queued, and counts as queued until it is
/// sent, byte by byte.
pub fn a_file_counts_as_queued(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    let dir = Directory::new();
    let content = pattern(LARGE);
    let file = file_with(&dir, &content);
    let filled = fill_up(&mut lp, tcp);
    let sent = Sent::default();
    let log = sent.clone();
    let before = vec![1; OVER_STREAM_BUFFERS];
    tcp.write(&mut lp, before, move |_, _, result, buf| {
        log.push(("write", outcome(&result), buf.len() as u64));
    })
    .unwrap();
    run(&mut lp, RunMode::NoWait); // The write may be in flight now.
    let queued = tcp.write_queue_size(&lp);
    tcp.send_file(&mut lp, &file, 0..LARGE as u64, logged(&sent, "file")).unwrap();
    // The kernel may have made room for some of what was queued before.
    let range = LARGE + 1..=queued + LARGE;
    assert!(range.contains(&tcp.write_queue_size(&lp)), "{}", tcp.write_queue_size(&lp));
    assert_eq!(
        refusal(tcp.try_write(&mut lp, b"x")),
        ErrorKind::WouldBlock,
        "nothing overtakes it"
    );
    let log = sent.clone();
    tcp.send_file(&mut lp, &file, 0..1, move |lp, tcp, result, count| {
        log.push(("last", outcome(&result), count));
        assert_eq!(tcp.write_queue_size(lp), 0);
        tcp.close(lp).unwrap();
    })
    .unwrap();
    drop(file); // The requests keep it open.
    let all = all_of(peer);
    finish(lp);
    let expected = [
        ("write", "done", OVER_STREAM_BUFFERS as u64),
        ("file", "done", LARGE as u64),
        ("last", "done", 1),
    ];
    assert_eq!(sent.take(), expected);
    let all = all.join().expect("a peer that reads");
    assert_eq!(all.len(), filled + OVER_STREAM_BUFFERS + LARGE + 1);
    assert!(all[filled + OVER_STREAM_BUFFERS..all.len() - 1] == content, "the file arrives");
    Ok(())
}

/// A file that is shorter than the range is sent as far as it goes, and later writes follow. An
/// empty range and a range beyond the end send nothing.
pub fn a_short_file_is_sent_to_its_end(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    let dir = Directory::new();
    let content = pattern(LARGE);
    let file = file_with(&dir, &content);
    let sent = Sent::default();
    let end = LARGE as u64;
    for (name, range) in [
        ("long", 0..end + (1 << 20)),
        ("short", end - 3..end + 9),
        ("beyond", end + 1..end + 1000),
        ("empty", 2..2),
        ("empty beyond", end + 2..end + 2),
    ] {
        tcp.send_file(&mut lp, &file, range, logged(&sent, name)).unwrap();
    }
    #[allow(clippy::reversed_empty_ranges, reason = "that is refused")]
    let reversed = tcp.send_file(&mut lp, &file, 5..4, |_, _, _, _| panic!("it is refused"));
    assert_eq!(refusal(reversed), ErrorKind::InvalidInput);
    tcp.write(&mut lp, "tail", written(&sent, "tail")).unwrap();
    let all = all_of(peer);
    run_to_the_end(&mut lp);
    assert_eq!(tcp.write_queue_size(&lp), 0, "bytes that do not exist are not queued");
    tcp.close(&mut lp).unwrap();
    finish(lp);
    let expected = [
        ("long", "done", end),
        ("short", "done", 3),
        ("beyond", "done", 0),
        ("empty", "done", 0),
        ("empty beyond", "done", 0),
        ("tail", "done", 4),
    ];
    assert_eq!(sent.take(), expected);
    let expected = [&content[..], &content[LARGE - 3..], b"tail"].concat();
    assert!(all.join().expect("a peer that reads") == expected);
    Ok(())
}

/// A file that cannot be read fails its request and the writes behind it, which would follow a part
/// of the file. The writes before it are sent.
pub fn an_unreadable_file_fails_the_writes_behind_it(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    let dir = Directory::new();
    let path = dir.file("sent", "content");
    let file = fs::open(&path, OpenOptions::new().write(true)).perform().expect("the file");
    let sent = Sent::default();
    tcp.write(&mut lp, "head", written(&sent, "head")).unwrap();
    tcp.send_file(&mut lp, &file, 0..1 << 20, logged(&sent, "file")).unwrap();
    tcp.send_file(&mut lp, &file, 0..7, logged(&sent, "small")).unwrap();
    tcp.write(&mut lp, "tail", written(&sent, "tail")).unwrap();
    let all = all_of(peer);
    run_to_the_end(&mut lp);
    let expected =
        [("head", "done", 4), ("file", "failed", 0), ("small", "failed", 0), ("tail", "failed", 4)];
    assert_eq!(sent.take(), expected);
    assert_eq!(tcp.write_queue_size(&lp), 0);
    tcp.close(&mut lp).unwrap();
    finish(lp);
    assert_eq!(all.join().expect("a peer that reads"), b"head");
    Ok(())
}

/// A close cancels the files in the queue before its own callback. The count is the number of bytes
/// that the peer receives.
pub fn a_close_cancels_files(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    let dir = Directory::new();
    let file = file_with(&dir, &[]);
    // Sparse: a file that is too large for all buffers needs no disk.
    fs::ftruncate(&open_to_write(&dir), OVER_STREAM_BUFFERS as u64).perform().expect("a hole");
    let sent = Sent::default();
    for name in ["started", "queued"] {
        let range = 0..OVER_STREAM_BUFFERS as u64;
        tcp.send_file(&mut lp, &file, range, logged(&sent, name)).unwrap();
    }
    let mut before = usize::MAX;
    while tcp.write_queue_size(&lp) < before {
        before = tcp.write_queue_size(&lp);
        crate::support::streams::run_a_moment(&mut lp);
    }
    let log = sent.clone();
    tcp.close_with(&mut lp, move |_, _| log.push(("close", "done", 0))).unwrap();
    assert_eq!(sent.len(), 0, "no callback runs inline");
    let all = all_of(peer);
    finish(lp);
    let sent = sent.take();
    assert_eq!(
        [("started", "cancelled"), ("queued", "cancelled"), ("close", "done")],
        [0, 1, 2].map(|index| (sent[index].0, sent[index].1))
    );
    assert!(sent[0].2 > 0 && sent[1].2 == 0, "{sent:?}");
    assert_eq!(
        all.join().expect("a peer that reads").len() as u64,
        sent[0].2,
        "the count is exact"
    );
    Ok(())
}

fn open_to_write(dir: &Directory) -> fs::File {
    let options = OpenOptions::new().write(true);
    fs::open(dir.path("sent"), options).perform().expect("the file")
}

/// A file can be cancelled, also one of which a part is sent: later writes follow.
pub fn a_file_can_be_cancelled(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    let dir = Directory::new();
    let file = file_with(&dir, &[]);
    fs::ftruncate(&open_to_write(&dir), OVER_STREAM_BUFFERS as u64).perform().expect("a hole");
    let sent = Sent::default();
    let range = 0..OVER_STREAM_BUFFERS as u64;
    let first = tcp.send_file(&mut lp, &file, range.clone(), logged(&sent, "first")).unwrap();
    let second = tcp.send_file(&mut lp, &file, range, logged(&sent, "second")).unwrap();
    tcp.write(&mut lp, "tail", written(&sent, "tail")).unwrap();
    run_until(&mut lp, "a part of the file", |lp| first.bytes_written(lp).is_ok_and(|it| it > 0));
    assert_eq!(second.cancel(&mut lp).unwrap(), 0);
    let count = first.cancel(&mut lp).unwrap() as u64;
    assert_eq!(refusal(first.cancel(&mut lp)), ErrorKind::NotFound, "once");
    let all = all_of(peer);
    run_to_the_end(&mut lp);
    let mut sent = sent.take();
    sent.sort_unstable();
    let expected = [("first", "cancelled", count), ("second", "cancelled", 0), ("tail", "done", 4)];
    assert_eq!(sent, expected);
    assert_eq!(tcp.write_queue_size(&lp), 0);
    tcp.close(&mut lp).unwrap();
    finish(lp);
    assert_eq!(all.join().expect("a peer that reads").len() as u64, count + 4);
    Ok(())
}

/// If the peer is gone, a file fails, and with it the writes behind it. The process gets no signal.
pub fn a_file_to_a_lost_peer_fails(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    let dir = Directory::new();
    let file = file_with(&dir, &pattern(LARGE));
    let sent = Sent::default();
    fill_up(&mut lp, tcp);
    tcp.send_file(&mut lp, &file, 0..LARGE as u64, logged(&sent, "file")).unwrap();
    tcp.write(&mut lp, "tail", written(&sent, "tail")).unwrap();
    reset(peer);
    run_to_the_end(&mut lp);
    let sent = sent.take();
    assert!(sent.len() == 2 && sent[0].2 < LARGE as u64, "{sent:?}");
    assert_eq!([sent[0].1, sent[1].1], ["failed"; 2]);
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A file that is sent on a connecting stream waits for the connection; if there is none, it is
/// cancelled.
pub fn a_file_waits_for_the_connection(lab: &Lab) -> Verdict {
    let dir = Directory::new();
    let content = pattern(LARGE);
    let file = file_with(&dir, &content);
    let mut lp = new_loop(lab)?;
    let sent = Sent::default();
    let listener = listener();
    let tcp = Tcp::new(&mut lp);
    tcp.connect(&mut lp, listener.local_addr().unwrap(), |_, _, result| result.unwrap()).unwrap();
    let log = sent.clone();
    tcp.send_file(&mut lp, &file, 0..LARGE as u64, move |lp, tcp, result, count| {
        log.push(("file", outcome(&result), count));
        tcp.close(lp).unwrap();
    })
    .unwrap();
    let all = thread::spawn(move || {
        listener.set_nonblocking(false).expect("a blocking listener");
        let (mut peer, mut all) = (listener.accept().expect("the connection").0, Vec::new());
        peer.set_nonblocking(false).expect("a blocking stream");
        peer.read_to_end(&mut all).expect("an orderly end");
        all
    });
    finish(lp);
    assert_eq!(sent.take(), [("file", "done", LARGE as u64)]);
    assert!(all.join().expect("a peer that reads") == content);

    let mut lp = new_loop(lab)?;
    let tcp = Tcp::new(&mut lp);
    let refused = crate::support::sources::refused_address();
    tcp.connect(&mut lp, refused, |_, _, result| assert!(result.is_err())).unwrap();
    tcp.send_file(&mut lp, &file, 0..LARGE as u64, |lp, tcp, result, count| {
        assert!(is_cancelled(&result.unwrap_err()) && count == 0);
        tcp.close(lp).unwrap();
    })
    .unwrap();
    finish(lp);
    Ok(())
}

/// A panic in the callback of a file keeps the other requests; and a blocking stream sends a file
/// at once.
pub fn a_panic_keeps_the_files_behind_it(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (one, other) = Tcp::pair(&mut lp).unwrap();
    let dir = Directory::new();
    let content = pattern(LARGE);
    let file = file_with(&dir, &content);
    let sent = Sent::default();
    let got = gather(&mut lp, other);
    one.send_file(&mut lp, &file, 0..LARGE as u64, |_, _, _, _| panic_on_purpose()).unwrap();
    one.send_file(&mut lp, &file, 0..10, logged(&sent, "behind")).unwrap();
    one.shutdown(&mut lp, |lp, one, _| one.close(lp).unwrap()).unwrap();
    unwinds(&mut lp, RunMode::Default);
    finish(lp);
    assert_eq!(sent.take(), [("behind", "done", 10)]);
    assert!(got.take() == [&content[..], &content[..10]].concat());

    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    tcp.set_blocking(&mut lp, true).unwrap();
    let all = all_of(peer);
    tcp.send_file(&mut lp, &file, 1..LARGE as u64, logged(&sent, "blocking")).unwrap();
    assert_eq!(tcp.write_queue_size(&lp), 0, "it was sent by the call");
    run_to_the_end(&mut lp);
    assert_eq!(sent.take(), [("blocking", "done", LARGE as u64 - 1)]);
    tcp.close(&mut lp).unwrap();
    finish(lp);
    assert!(all.join().expect("a peer that reads") == content[1..]);
    Ok(())
}

/// Files that the kernel neither caches nor sends itself are read and sent all the same; so are
/// files whose pages it has dropped.
#[cfg(target_os = "linux")]
pub fn a_file_that_is_not_cached_is_sent(lab: &Lab) -> Verdict {
    use std::os::fd::AsRawFd;

    let dir = Directory::new();
    let content = pattern(LARGE);
    let _ = file_with(&dir, &content);
    let dropped = std::fs::OpenOptions::new().read(true).write(true).open(dir.path("sent"));
    let dropped = dropped.expect("the file");
    dropped.sync_all().expect("it is on the disk");
    // SAFETY: takes no pointer.
    unsafe { libc::posix_fadvise(dropped.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    let version = std::fs::read("/proc/version").expect("a file that the kernel generates");
    let proc =
        fs::open("/proc/version", OpenOptions::new().read(true)).perform().expect("the same");

    let mut lp = new_loop(lab)?;
    let (one, other) = Tcp::pair(&mut lp).unwrap();
    let sent = Sent::default();
    let got = gather(&mut lp, other);
    one.send_file(&mut lp, &dropped.into(), 0..LARGE as u64, logged(&sent, "dropped")).unwrap();
    // Large enough for the kernel's way, which this file does not have.
    one.send_file(&mut lp, &proc, 0..1 << 20, logged(&sent, "generated")).unwrap();
    one.shutdown(&mut lp, |lp, one, _| one.close(lp).unwrap()).unwrap();
    finish(lp);
    let expected = [("dropped", "done", LARGE as u64), ("generated", "done", version.len() as u64)];
    assert_eq!(sent.take(), expected);
    assert!(got.take() == [content, version].concat());
    Ok(())
}

/// Other systems do not report what is cached.
#[cfg(not(target_os = "linux"))]
pub fn a_file_that_is_not_cached_is_sent(_: &Lab) -> Verdict {
    Err(crate::Skip::because("only Linux has files that differ in this"))
}

/// A terminal shows a file.
#[cfg(unix)]
pub fn a_terminal_shows_a_file(lab: &Lab) -> Verdict {
    use crate::support::ptys::Pty;

    let mut lp = new_loop(lab)?;
    let pty = Pty::new()?;
    let dir = Directory::new();
    let file = file_with(&dir, b"all that is shown");
    let sent = Sent::default();
    let tty = uv_core::Tty::new(&mut lp, &pty.slave).unwrap();
    tty.write(&mut lp, "> ", written(&sent, "prompt")).unwrap();
    tty.send_file(&mut lp, &file, 4..99, logged(&sent, "file")).unwrap();
    run_to_the_end(&mut lp);
    assert_eq!(sent.take(), [("prompt", "done", 2), ("file", "done", 13)]);
    pty.shows(b"> that is shown");
    tty.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// Windows has no pseudo-terminals that a case could read.
#[cfg(windows)]
pub fn a_terminal_shows_a_file(_: &Lab) -> Verdict {
    Err(crate::Skip::because("no console whose screen a case can read"))
}
