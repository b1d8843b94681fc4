//! Attributes of files, and the ones that can be set.

use std::io::ErrorKind;
use std::time::SystemTime;

use uv_core::fs::{self, EntryKind, SetTime, Stat, SymlinkKind, Timestamp};

use super::names::link_to;
use super::{CREATE, ask, open};
use crate::support::files::Directory;
use crate::support::loops::new_loop;
use crate::support::wine;
use crate::{Lab, Skip, Verdict};

/// `stat`, `fstat` and `lstat` agree, on every path to them, and with `std`.
pub fn all_stat_variants_agree(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let path = dir.file("file", "some text");
    let file = open(&mut lp, &path, CREATE);
    let stat = ask(&mut lp, fs::stat(&path)).expect("a file");
    assert_eq!(stat, ask(&mut lp, fs::lstat(&path)).expect("a file"));
    assert_eq!(stat, ask(&mut lp, fs::fstat(&file)).expect("a file"));
    assert_eq!(stat, fs::stat(&path).perform().expect("by this thread"));
    assert_eq!(stat, fs::fstat(&file).perform().expect("by this thread"));

    let std = std::fs::metadata(&path).expect("the attributes by std");
    assert_eq!((stat.size, stat.kind()), (std.len(), EntryKind::File));
    assert_eq!(stat.modified.to_system_time(), Some(std.modified().expect("a time")));
    assert_eq!(stat.accessed.to_system_time(), Some(std.accessed().expect("a time")));
    if let Ok(created) = std.created() {
        assert_eq!(stat.created.to_system_time(), Some(created));
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        assert_eq!((stat.dev, stat.ino), (std.dev(), std.ino()));
        assert_eq!((stat.mode, stat.nlink), (std.mode(), std.nlink()));
        assert_eq!((stat.uid, stat.gid, stat.rdev), (std.uid(), std.gid(), std.rdev()));
        assert_eq!((stat.blksize, stat.blocks), (std.blksize(), std.blocks()));
    }
    assert!(ask(&mut lp, fs::stat(dir.path(""))).expect("a directory").is_dir());
    Ok(())
}

/// Devices and pipes report their kinds.
pub fn special_files_have_kinds(lab: &Lab) -> Verdict {
    if cfg!(windows) {
        return Err(Skip::because("Windows has no special files in directories"));
    }
    let mut lp = new_loop(lab)?;
    let null = ask(&mut lp, fs::stat("/dev/null")).expect("a device");
    assert_eq!((null.kind(), null.rdev != 0), (EntryKind::Char, true));
    let entries = ask(&mut lp, fs::scandir("/dev")).expect("a directory of devices");
    let null = entries.iter().find(|entry| entry.name == "null").expect("the same device");
    assert_eq!(null.kind, EntryKind::Char);
    let (reader, _writer) = std::io::pipe().expect("a pipe");
    let pipe = crate::support::files::file_of(reader);
    assert_eq!(ask(&mut lp, fs::fstat(&pipe)).expect("a pipe").kind(), EntryKind::Fifo);
    Ok(())
}

/// Times are set to a given time, to the current time, or kept.
pub fn times_can_be_set_or_kept(lab: &Lab) -> Verdict {
    let accessed = |stat: &Stat, expected| {
        if wine::ignores_access_times() { expected } else { stat.accessed }
    };
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let path = dir.file("file", "");
    let file = open(&mut lp, &path, CREATE);
    let (one, other) =
        (Timestamp { sec: 1_000_000_001, nsec: 123_456_700 }, Timestamp { sec: 5, nsec: 0 });
    ask(&mut lp, fs::utime(&path, one, other)).expect("a file");
    let stat = ask(&mut lp, fs::stat(&path)).expect("a file");
    assert_eq!((accessed(&stat, one), stat.modified), (one, other));

    ask(&mut lp, fs::futime(&file, SetTime::Omit, one)).expect("a file");
    let stat = ask(&mut lp, fs::stat(&path)).expect("a file");
    assert_eq!((accessed(&stat, one), stat.modified), (one, one), "one left, one set");

    let before = SystemTime::now();
    ask(&mut lp, fs::utime(&path, other, SetTime::Now)).expect("a file");
    let stat = ask(&mut lp, fs::stat(&path)).expect("a file");
    assert_eq!(accessed(&stat, other), other);
    let modified = stat.modified.to_system_time().expect("a time of std's");
    // The clock of file systems has a coarser resolution.
    assert!(modified + std::time::Duration::from_secs(1) >= before, "{modified:?}: now");

    let before_1970 = Timestamp { sec: -100, nsec: 500_000_000 };
    ask(&mut lp, fs::utime(&path, before_1970, before_1970)).expect("a file");
    assert_eq!(ask(&mut lp, fs::stat(&path)).expect("a file").modified, before_1970);
    Ok(())
}

/// The times of a link are separate from its target's.
pub fn link_times_are_separate(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let (path, link) = (dir.file("file", ""), dir.path("link"));
    link_to(&mut lp, &path, &link)?;
    let time = Timestamp { sec: 77, nsec: 0 };
    let before = ask(&mut lp, fs::stat(&path)).expect("a file").modified;
    match ask(&mut lp, fs::lutime(&link, time, time)) {
        Err(error) if cfg!(windows) => {
            return Err(Skip::because(format!("links have no times here: {error}")));
        }
        result => result.expect("a link"),
    }
    assert_eq!(ask(&mut lp, fs::lstat(&link)).expect("a link").modified, time);
    assert_eq!(ask(&mut lp, fs::stat(&path)).expect("a file").modified, before, "left");
    Ok(())
}

/// Permissions are set by path and by file.
pub fn permissions_can_be_set(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let path = dir.file("file", "");
    let file = open(&mut lp, &path, CREATE);
    ask(&mut lp, fs::chmod(&path, 0o444)).expect("a file");
    assert_eq!(ask(&mut lp, fs::stat(&path)).expect("a file").mode & 0o777, 0o444);
    ask(&mut lp, fs::fchmod(&file, 0o666)).expect("a file");
    assert_eq!(ask(&mut lp, fs::stat(&path)).expect("a file").mode & 0o777, 0o666);
    if cfg!(unix) {
        ask(&mut lp, fs::chmod(&path, 0o4711)).expect("a file");
        assert_eq!(ask(&mut lp, fs::stat(&path)).expect("a file").mode & 0o7777, 0o4711);
    }
    Ok(())
}

/// A new file has the requested permissions, less the umask.
pub fn new_files_get_the_requested_mode(lab: &Lab) -> Verdict {
    if cfg!(windows) {
        return Err(Skip::because("Windows has no such permissions"));
    }
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let (path, inner) = (dir.path("file"), dir.path("inner"));
    drop(open(&mut lp, &path, CREATE.mode(0o640)));
    ask(&mut lp, fs::mkdir(&inner, 0o750)).expect("a directory");
    let mode = |stat: fs::Stat| stat.mode & 0o777;
    // In practice the umask does not affect the owner's permissions.
    assert_eq!(mode(ask(&mut lp, fs::stat(&path)).expect("a file")) & 0o707, 0o600);
    assert_eq!(mode(ask(&mut lp, fs::stat(&inner)).expect("a file")) & 0o707, 0o700);
    Ok(())
}

/// Only root can change the owner of a file.
pub fn only_root_can_set_owners(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let (path, link) = (dir.file("file", ""), dir.path("link"));
    let file = open(&mut lp, &path, CREATE);
    ask(&mut lp, fs::chown(&path, None, None)).expect("nothing to do");
    if cfg!(windows) {
        return Err(Skip::because("Windows has no such owners"));
    }
    let of = ask(&mut lp, fs::stat(&path)).expect("a file");
    match ask(&mut lp, fs::chown(&path, Some(4321), None)) {
        Err(error) if of.uid != 0 => {
            assert_eq!(error.kind(), ErrorKind::PermissionDenied);
            return Err(Skip::because("only root can give files away"));
        }
        result => result.expect("root may"),
    }
    ask(&mut lp, fs::fchown(&file, None, Some(1234))).expect("root may");
    let now = ask(&mut lp, fs::stat(&path)).expect("a file");
    assert_eq!((now.uid, now.gid), (4321, 1234));
    ask(&mut lp, fs::symlink(&path, &link, SymlinkKind::File)).expect("a link");
    ask(&mut lp, fs::lchown(&link, Some(7), Some(8))).expect("root may");
    let itself = ask(&mut lp, fs::lstat(&link)).expect("a link");
    assert_eq!((itself.uid, itself.gid), (7, 8));
    assert_eq!(ask(&mut lp, fs::stat(&path)).expect("a file").uid, 4321, "left");
    Ok(())
}

/// `statfs` reports the sizes of a file system.
pub fn statfs_reports_sizes(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let space = ask(&mut lp, fs::statfs(dir.file("file", ""))).expect("a file system");
    assert!(space.bsize > 0 && space.frsize > 0, "{space:?}");
    assert!(space.bavail <= space.bfree && space.bfree <= space.blocks, "{space:?}");
    assert!(space.ffree <= space.files, "{space:?}");
    Ok(())
}
