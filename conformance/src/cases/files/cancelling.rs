//! Cancellation of operations: of every kind while queued, and in flight where the backend performs
//! them.

use std::io::{self, Read, Write};

use poll_core::{Backend, OpKind};
use uv_core::fs::{self, Action, Operation};
use uv_core::{Pool, RunMode};

use super::requests::{busy_pool, is_cancelled};
use super::{CREATE, READ, ask, open};
use crate::support::files::{Directory, file_of};
use crate::support::loops::{new_loop, run, run_to_the_end};
use crate::support::trace::{Count, Log};
use crate::{Lab, Loop, Skip, Verdict};

/// Starts an operation on a busy pool, cancels it, and counts its cancellation.
#[track_caller]
fn start_and_cancel<A, R>(lp: &mut Loop, pool: &Pool, count: &Count, operation: Operation<A>)
where
    A: Action<Output = R>,
    R: Cancelled + 'static,
{
    let counted = count.clone();
    let started = operation.start_on(lp, pool, move |_, output| {
        assert!(output.was_cancelled(), "the output says that it was cancelled");
        counted.count();
    });
    started.expect("it starts").cancel(lp).expect("it is queued");
}

/// The output of an operation: a result, with or without a buffer.
trait Cancelled {
    fn was_cancelled(self) -> bool;
}

impl<T> Cancelled for io::Result<T> {
    fn was_cancelled(self) -> bool {
        is_cancelled(self)
    }
}

impl<T: AsRef<[u8]>> Cancelled for (io::Result<usize>, T) {
    fn was_cancelled(self) -> bool {
        self.1.as_ref() == [7; 4] && is_cancelled(self.0)
    }
}

/// An operation of every kind can be cancelled while it is queued. Nothing is done, buffers come
/// back unchanged, and files are not in use afterwards.
pub fn every_kind_of_operation_can_be_cancelled(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let (path, new) = (dir.file("file", "text"), dir.path("new"));
    let file = open(&mut lp, &path, CREATE);
    let list = ask(&mut lp, fs::opendir(dir.path(""))).expect("a directory");
    let before = fs::fstat(&file).perform().expect("a file");
    let (pool, gate) = busy_pool(&mut lp);
    let (count, mut started) = (Count::default(), 0);
    macro_rules! cancel {
        ($( $operation:expr ),* $(,)?) => { $(
            start_and_cancel(&mut lp, &pool, &count, $operation);
            started += 1;
        )* };
    }
    let now = fs::SetTime::Now;
    cancel!(
        fs::open(&new, CREATE),
        fs::read(&file, vec![7; 4]),
        fs::read_at(&file, vec![7; 4], 0),
        fs::write(&file, vec![7; 4]),
        fs::write_at(&file, vec![7; 4], 0),
        fs::sendfile(&file, &file, 0, 2),
        fs::fsync(&file),
        fs::fdatasync(&file),
        fs::ftruncate(&file, 1),
        fs::stat(&path),
        fs::lstat(&path),
        fs::fstat(&file),
        fs::statfs(&path),
        fs::access(&path, fs::Access::empty()),
        fs::chmod(&path, 0o400),
        fs::fchmod(&file, 0o400),
        fs::utime(&path, now, now),
        fs::futime(&file, now, now),
        fs::lutime(&path, now, now),
        fs::chown(&path, None, None),
        fs::fchown(&file, None, None),
        fs::lchown(&path, None, None),
        fs::unlink(&path),
        fs::rename(&path, &new),
        fs::link(&path, &new),
        fs::symlink(&path, &new, fs::SymlinkKind::File),
        fs::readlink(&path),
        fs::realpath(&path),
        fs::mkdir(&new, 0o700),
        fs::rmdir(dir.path("")),
        fs::opendir(dir.path("")),
        fs::readdir(&list, 4),
        fs::scandir(dir.path("")),
        fs::copyfile(&path, &new, fs::CopyFlags::empty()),
        fs::mkdtemp(dir.path("XXXXXX")),
        fs::mkstemp(dir.path("XXXXXX")),
    );
    // The operations that have used it give it up with their callbacks.
    gate.open();
    run_to_the_end(&mut lp);
    assert_eq!(count.get(), started, "each has called back");
    let (pool, gate) = busy_pool(&mut lp);
    start_and_cancel(&mut lp, &pool, &count, fs::close(file));
    start_and_cancel(&mut lp, &pool, &count, fs::closedir(list));
    started += 2;
    gate.open();
    run_to_the_end(&mut lp);
    assert_eq!(count.get(), started);
    let names = std::fs::read_dir(dir.path("")).expect("the directory").count();
    assert_eq!((names, std::fs::read(&path).expect("the file")), (1, b"text".to_vec()));
    let after = fs::stat(&path).perform().expect("a file");
    assert_eq!((before.mode, before.modified), (after.mode, after.modified), "nothing was done");
    Ok(())
}

/// A read that the backend performs can be cancelled while it is in flight. The callback gets
/// `ECANCELED` and the buffer, and the next reader gets the bytes.
pub fn a_read_in_flight_can_be_cancelled(lab: &Lab) -> Verdict {
    let (mut lp, log) = (new_loop(lab)?, Log::default());
    if cfg!(windows) {
        return Err(Skip::because("files use threads on Windows"));
    }
    if !lp.backend().supports(OpKind::Read) {
        return Err(Skip::because("the backend performs no reads"));
    }
    let (mut reader, mut writer) = io::pipe().expect("a pipe");
    let file = file_of(reader.try_clone().expect("a descriptor"));
    let sink = log.clone();
    let request = fs::read(&file, vec![7; 10])
        .start(&mut lp, move |_, (result, buf)| sink.push(is_cancelled(result) && buf == [7; 10]))
        .expect("it starts");
    run(&mut lp, RunMode::NoWait);
    request.cancel(&mut lp).expect("it is in flight");
    request.cancel(&mut lp).expect("a second cancel changes nothing");
    assert_eq!(log.len(), 0, "never inline");
    run_to_the_end(&mut lp);
    assert_eq!(log.take(), [true]);
    assert_eq!(request.cancel(&mut lp).expect_err("over").kind(), io::ErrorKind::NotFound);
    writer.write_all(b"abc").expect("a pipe");
    drop(writer);
    let mut text = String::new();
    reader.read_to_string(&mut text).expect("a pipe");
    assert_eq!(text, "abc", "nothing was read");
    ask(&mut lp, fs::close(file)).expect("the file is not in use");
    Ok(())
}

/// A cancel that races with the data loses no byte: a read is cancelled, or has read.
pub fn a_racing_cancel_loses_no_byte(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (reader, mut writer) = io::pipe().expect("a pipe");
    let (file, mut pending) = (file_of(reader), 0);
    for round in 0..200 {
        let log = Log::default();
        let sink = log.clone();
        let read = fs::read(&file, vec![0; 100]);
        let request = read.start(&mut lp, move |_, (result, _)| sink.push(result));
        if round % 2 == 0 {
            run(&mut lp, RunMode::NoWait);
        }
        writer.write_all(b"x").expect("a pipe");
        pending += 1;
        if round % 3 != 0 {
            run(&mut lp, RunMode::NoWait);
        }
        if let Err(error) = request.expect("it starts").cancel(&mut lp) {
            use io::ErrorKind::{NotFound, ResourceBusy};
            assert!(matches!(error.kind(), NotFound | ResourceBusy), "{error}");
        }
        run_to_the_end(&mut lp);
        match log.take().remove(0) {
            // A read may have completed before the last byte was written.
            Ok(count) => {
                assert!((1..=pending).contains(&count), "{count} of {pending} bytes");
                pending -= count;
            }
            Err(error) => assert!(is_cancelled::<()>(Err(error)), "nothing was read"),
        }
    }
    drop(writer);
    let (left, _) = fs::read(&file, vec![0; 1000]).perform();
    assert_eq!(left.expect("a pipe"), pending, "what the reads have left");
    Ok(())
}

/// A borrowed descriptor serves all operations, and stays open after them. Closing it is left to
/// its owner.
pub fn borrowed_descriptors_stay_open(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let owner = open(&mut lp, &dir.file("file", "text"), CREATE);
    // SAFETY: `owner` is dropped at the end of this function.
    let file = unsafe { fs::File::borrow_raw(owner.source()) }.expect("an open descriptor");
    let clone = file.clone();
    assert_eq!(file.source(), owner.source());
    let (count, bytes) = ask(&mut lp, fs::read_at(&clone, vec![0; 9], 1));
    assert_eq!(&bytes[..count.expect("a read")], b"ext");
    let (count, _) = ask(&mut lp, fs::write_at(&file, "TEXT", 4));
    assert_eq!(count.expect("a write"), 4);
    assert_eq!(ask(&mut lp, fs::fstat(&file)).expect("a file").size, 8);
    drop(clone);
    let refused = fs::close(file).start(&mut lp, |_, _| ()).expect_err("it is not its owner");
    assert_eq!(refused.kind(), io::ErrorKind::ResourceBusy);
    assert_eq!(ask(&mut lp, fs::fstat(&owner)).expect("it is open").size, 8);
    ask(&mut lp, fs::close(owner)).expect("the file is not in use");
    assert!(ask(&mut lp, fs::open(dir.path("file"), READ)).is_ok());
    Ok(())
}
