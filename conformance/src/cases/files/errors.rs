//! Full disks, missing permissions, and exhausted descriptors.

use std::io::ErrorKind;

use uv_core::fs::{self, CopyFlags};

use super::{CREATE, READ, WRITE, ask, open, refusal};
use crate::support::disks::{on_a_small_disk, without_privileges};
use crate::support::files::Directory;
use crate::support::limits::{open_descriptors, settled_descriptors, without_descriptors};
use crate::support::loops::{new_loop, run_to_the_end};
use crate::support::wine;
use crate::{Lab, Skip, Verdict};

/// A write to a full device is an error that returns the buffer.
pub fn a_full_device_is_reported(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    if !std::path::Path::new("/dev/full").exists() {
        return Err(Skip::because("no /dev/full here"));
    }
    let full = open(&mut lp, "/dev/full".as_ref(), WRITE);
    let (result, buffer) = ask(&mut lp, fs::write(&full, vec![7; 10]));
    assert_eq!(result.expect_err("a full disk").kind(), ErrorKind::StorageFull);
    assert_eq!(buffer, [7; 10]);
    let (result, _) = ask(&mut lp, fs::write_at(&full, ["a", "b"], 100));
    assert_eq!(result.expect_err("a full disk").kind(), ErrorKind::StorageFull);
    Ok(())
}

/// A disk that fills up during a write accepts the first part, and returns its length. The next
/// write is an error. A copy that does not fit leaves nothing behind.
pub fn a_full_disk_accepts_a_partial_write(lab: &Lab) -> Verdict {
    on_a_small_disk(64 << 10, |disk| {
        let mut lp = new_loop(lab)?;
        let path = disk.join("file");
        let file = open(&mut lp, &path, CREATE);
        let list = vec![vec![7; 1000]; 200];
        let (count, list) = ask(&mut lp, fs::write(&file, list));
        let count = count.expect("the part that fits");
        assert!(count > 0 && count < 200_000, "{count}");
        assert_eq!(list.len(), 200, "the buffer is returned");
        assert_eq!(ask(&mut lp, fs::fstat(&file)).expect("a file").size, count as u64);
        let (result, _) = ask(&mut lp, fs::write(&file, vec![7; 8192]));
        assert_eq!(result.expect_err("a full disk").kind(), ErrorKind::StorageFull);
        let space = ask(&mut lp, fs::statfs(disk)).expect("a file system");
        assert_eq!(space.bavail, 0, "{space:?}");

        let copy = disk.join("copy");
        let kind = refusal(&mut lp, fs::copyfile(&path, &copy, CopyFlags::empty()));
        assert_eq!((kind, copy.exists()), (ErrorKind::StorageFull, false));
        ask(&mut lp, fs::ftruncate(&file, 0)).expect("space is freed");
        let (count, _) = ask(&mut lp, fs::write_at(&file, vec![7; 8192], 0));
        assert_eq!(count.expect("free space"), 8192);
        Ok(())
    })
}

/// Operations without permission are refused, on the backend and on the pool.
pub fn permission_errors_are_reported(lab: &Lab) -> Verdict {
    let dir = Directory::new();
    let (file, inner) = (dir.file("file", "secret"), dir.path("inner"));
    std::fs::create_dir(&inner).expect("a directory");
    for (path, mode) in [(&file, 0o000), (&inner, 0o555)] {
        fs::chmod(path, mode).perform().expect("a file");
    }
    if cfg!(windows) {
        let mut lp = new_loop(lab)?;
        let opened = ask(&mut lp, fs::open(&file, WRITE));
        fs::chmod(&file, 0o666).perform().expect("a file");
        return match opened {
            Ok(_) if wine::lets_root_write() => Err(Skip::because("under Wine, root may write")),
            opened => {
                let error = opened.expect_err("a file that is read-only");
                assert_eq!(error.kind(), ErrorKind::PermissionDenied);
                Ok(())
            }
        };
    }
    let verdict = without_privileges(|| {
        let mut lp = new_loop(lab)?;
        let lp = &mut lp;
        for kind in [
            refusal(lp, fs::open(&file, READ)),
            refusal(lp, fs::open(&file, WRITE)),
            refusal(lp, fs::access(&file, fs::Access::READ)),
            refusal(lp, fs::open(inner.join("new"), CREATE)),
            refusal(lp, fs::mkdir(inner.join("new"), 0o700)),
            refusal(lp, fs::symlink("x", inner.join("new"), fs::SymlinkKind::File)),
            refusal(lp, fs::mkstemp(inner.join("XXXXXX"))),
            refusal(lp, fs::rename(&file, inner.join("new"))),
            refusal(lp, fs::copyfile(&file, inner.join("new"), CopyFlags::empty())),
        ] {
            assert_eq!(kind, ErrorKind::PermissionDenied);
        }
        // Permitted operations succeed: not every operation fails.
        ask(lp, fs::access(&file, fs::Access::empty())).expect("it exists");
        assert_eq!(ask(lp, fs::stat(&file)).expect("to be asked about").size, 6);
        assert_eq!(ask(lp, fs::scandir(&inner)).expect("to be listed"), []);
        Ok(())
    });
    fs::chmod(&inner, 0o755).perform().expect("a file");
    verdict
}

/// Without free descriptors opens fail, and everything else continues.
pub fn out_of_descriptors_is_an_error(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let path = dir.file("file", "text");
    let file = open(&mut lp, &path, READ);
    // The loop and its threads have their descriptors after this.
    ask(&mut lp, fs::scandir(dir.path(""))).expect("a directory");
    without_descriptors(|| {
        let errors = [
            ask(&mut lp, fs::open(&path, READ)).map(drop),
            ask(&mut lp, fs::open(dir.path("new"), CREATE)).map(drop),
            ask(&mut lp, fs::opendir(dir.path(""))).map(drop),
            ask(&mut lp, fs::mkstemp(dir.path("XXXXXX"))).map(drop),
            ask(&mut lp, fs::copyfile(&path, dir.path("new"), CopyFlags::empty())),
        ];
        for error in errors {
            let error = error.expect_err("no descriptor");
            #[cfg(unix)]
            assert_eq!(error.raw_os_error(), Some(libc::EMFILE), "{error}");
            drop(error);
        }
        let (count, _) = ask(&mut lp, fs::read(&file, vec![0; 8]));
        assert_eq!(count.expect("a file that is open"), 4);
        assert_eq!(ask(&mut lp, fs::stat(&path)).expect("a file").size, 4);
    })?;
    drop(open(&mut lp, &path, READ));
    Ok(())
}

/// Files that are closed, dropped, or whose callbacks never run leak no descriptor.
pub fn no_descriptor_leaks(lab: &Lab) -> Verdict {
    let dir = Directory::new();
    let path = dir.file("file", "text");
    // The process-wide pool, and all one-time resources, exist after this.
    ask(&mut new_loop(lab)?, fs::stat(&path)).expect("a file");
    let before = settled_descriptors()?;
    for _ in 0..10 {
        let mut lp = new_loop(lab)?;
        let file = open(&mut lp, &path, READ);
        ask(&mut lp, fs::close(file)).expect("a file to close");
        drop(open(&mut lp, &path, READ));
        drop(ask(&mut lp, fs::opendir(dir.path(""))).expect("a directory"));
        let file = open(&mut lp, &path, READ);
        fs::close(file).start(&mut lp, |_, _| {}).expect("it starts");
        fs::open(&path, READ).start(&mut lp, |_, _| {}).expect("it starts");
        run_to_the_end(&mut lp);
        // These are in flight, or queued, when the loop is dropped.
        let file = open(&mut lp, &path, READ);
        for _ in 0..10 {
            fs::open(&path, READ)
                .start(&mut lp, |_, _| panic!("a dropped loop has called back"))
                .expect("it");
            fs::read(&file, vec![0; 10])
                .start(&mut lp, |_, _| panic!("a dropped loop has called back"))
                .expect("it");
        }
        fs::close(file.clone()).perform().expect_err("in use");
    }
    let started = std::time::Instant::now();
    while open_descriptors()? > before {
        let soon = crate::support::observe::SOON;
        assert!(started.elapsed() < soon, "{before} before, {} now", open_descriptors()?);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    Ok(())
}
