//! Asking about files.

#![allow(clippy::unnecessary_cast, reason = "fields have other types on other systems")]

use crate::fs::{File, Stat, Timestamp};

/// Whom to ask about.
#[derive(Debug)]
enum Subject {
    Path(super::Name),
    /// The link itself, if it is one.
    Link(super::Name),
    File(File),
}

cfg_if::cfg_if! {
    if #[cfg(all(target_os = "linux", any(target_env = "gnu", target_env = "musl")))] {
        pub(crate) use by_statx::*;
    } else {
        pub(crate) use by_stat::*;
    }
}

/// By `statx(2)`, which knows when a file was made.
#[cfg(all(target_os = "linux", any(target_env = "gnu", target_env = "musl")))]
mod by_statx {
    use std::io;
    use std::mem::MaybeUninit;
    use std::ptr::NonNull;
    use std::sync::atomic::{AtomicBool, Ordering};

    use libc::{c_char, c_int};
    use poll_core::{At, Op, RawPath};

    use super::super::{Name, Way, fd, retried};
    use super::*;

    const MASK: u32 = libc::STATX_BASIC_STATS | libc::STATX_BTIME;

    /// What asking about a file takes, and room for the answer.
    #[derive(Debug)]
    pub struct Asking {
        subject: Subject,
        answer: MaybeUninit<libc::statx>,
    }

    impl Asking {
        fn new(subject: Subject) -> Asking {
            Asking { subject, answer: MaybeUninit::zeroed() }
        }

        pub(crate) fn about(name: Name) -> Asking {
            Asking::new(Subject::Path(name))
        }

        pub(crate) fn about_link(name: Name) -> Asking {
            Asking::new(Subject::Link(name))
        }

        pub(crate) fn about_file(file: File) -> Asking {
            Asking::new(Subject::File(file))
        }

        /// From where, by which path, with which flags.
        fn how(&self) -> (c_int, *const c_char, c_int) {
            match &self.subject {
                Subject::Path(name) => (libc::AT_FDCWD, name.as_ptr(), 0),
                Subject::Link(name) => (libc::AT_FDCWD, name.as_ptr(), libc::AT_SYMLINK_NOFOLLOW),
                Subject::File(file) => (fd(file), c"".as_ptr(), libc::AT_EMPTY_PATH),
            }
        }

        fn answer(&self) -> Stat {
            // SAFETY: it is numbers, zero before the kernel wrote to it.
            stat(unsafe { self.answer.assume_init_ref() })
        }
    }

    /// The kernel, or who filters its calls, has none.
    static MISSING: AtomicBool = AtomicBool::new(false);

    pub(crate) const STAT: Way<Asking, Stat> = Way {
        perform: |asking| {
            if MISSING.load(Ordering::Relaxed) {
                return old::ask(&asking.subject);
            }
            let (dir, path, flags) = asking.how();
            let out = asking.answer.as_mut_ptr();
            // SAFETY: the path ends with a NUL, and the answer goes where there is room.
            let asked = retried(|| unsafe { libc::statx(dir, path, flags, MASK, out) });
            match asked {
                Ok(_) => Ok(asking.answer()),
                Err(error) if is_missing(&error) => {
                    MISSING.store(true, Ordering::Relaxed);
                    old::ask(&asking.subject)
                }
                Err(error) => Err(error),
            }
        },
        op: Some(|asking| {
            let out = NonNull::from(&mut asking.answer).cast();
            let (at, flags) = match &asking.subject {
                Subject::Path(name) => (name.at(), 0),
                Subject::Link(name) => (name.at(), libc::AT_SYMLINK_NOFOLLOW),
                Subject::File(file) => {
                    let at = At { dir: Some(file.source()), path: RawPath::of(c"") };
                    (at, libc::AT_EMPTY_PATH)
                }
            };
            Op::Statx { at, flags, mask: MASK, out }
        }),
        value: |asking, _| Ok(asking.answer()),
    };

    fn is_missing(error: &io::Error) -> bool {
        // Filters of calls that they do not know say `EPERM`; `statx` itself never does.
        matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM))
    }

    fn stat(of: &libc::statx) -> Stat {
        let time = |time: libc::statx_timestamp| Timestamp { sec: time.tv_sec, nsec: time.tv_nsec };
        Stat {
            dev: libc::makedev(of.stx_dev_major, of.stx_dev_minor) as u64,
            mode: of.stx_mode.into(),
            nlink: of.stx_nlink.into(),
            uid: of.stx_uid,
            gid: of.stx_gid,
            rdev: libc::makedev(of.stx_rdev_major, of.stx_rdev_minor) as u64,
            ino: of.stx_ino,
            size: of.stx_size,
            blksize: of.stx_blksize.into(),
            blocks: of.stx_blocks,
            flags: 0,
            generation: 0,
            accessed: time(of.stx_atime),
            modified: time(of.stx_mtime),
            changed: time(of.stx_ctime),
            // Zero where the file system does not know.
            born: time(of.stx_btime),
        }
    }

    /// For kernels before 4.11.
    mod old {
        use std::io;
        use std::os::unix::fs::MetadataExt;

        use super::*;

        pub(super) fn ask(subject: &Subject) -> io::Result<Stat> {
            let of = match subject {
                Subject::Path(name) => std::fs::metadata(name.as_path()),
                Subject::Link(name) => std::fs::symlink_metadata(name.as_path()),
                Subject::File(file) => file.0.metadata(),
            }?;
            let time = |sec, nsec: i64| Timestamp { sec, nsec: nsec as u32 };
            let changed = time(of.ctime(), of.ctime_nsec());
            Ok(Stat {
                dev: of.dev(),
                mode: of.mode(),
                nlink: of.nlink(),
                uid: of.uid(),
                gid: of.gid(),
                rdev: of.rdev(),
                ino: of.ino(),
                size: of.size(),
                blksize: of.blksize(),
                blocks: of.blocks(),
                flags: 0,
                generation: 0,
                accessed: time(of.atime(), of.atime_nsec()),
                modified: time(of.mtime(), of.mtime_nsec()),
                changed,
                born: changed,
            })
        }

        #[cfg(test)]
        #[test]
        fn both_ways_agree() {
            let name = Name::new(std::path::Path::new("Cargo.toml")).unwrap();
            let new = (STAT.perform)(&mut Asking::about(name.clone())).unwrap();
            let old = ask(&Subject::Path(name)).unwrap();
            assert_eq!(new, Stat { born: new.born, ..old });
        }
    }
}

/// By `stat(2)`.
#[cfg(not(all(target_os = "linux", any(target_env = "gnu", target_env = "musl"))))]
mod by_stat {
    use std::mem::MaybeUninit;

    use super::super::{Name, Way, fd, retried};
    use super::*;

    /// What asking about a file takes.
    #[derive(Debug)]
    pub struct Asking(Subject);

    impl Asking {
        pub(crate) fn about(name: Name) -> Asking {
            Asking(Subject::Path(name))
        }

        pub(crate) fn about_link(name: Name) -> Asking {
            Asking(Subject::Link(name))
        }

        pub(crate) fn about_file(file: File) -> Asking {
            Asking(Subject::File(file))
        }
    }

    pub(crate) const STAT: Way<Asking, Stat> = Way::blocking(|Asking(subject)| {
        let mut answer = MaybeUninit::<libc::stat>::zeroed();
        let out = answer.as_mut_ptr();
        retried(|| match subject {
            // SAFETY: the path ends with a NUL, and the answer goes where there is room.
            Subject::Path(name) => unsafe { libc::stat(name.as_ptr(), out) },
            // SAFETY: the path ends with a NUL, and the answer goes where there is room.
            Subject::Link(name) => unsafe { libc::lstat(name.as_ptr(), out) },
            // SAFETY: the answer goes where there is room.
            Subject::File(file) => unsafe { libc::fstat(fd(file), out) },
        })?;
        // SAFETY: it is numbers, zero before the kernel wrote to it.
        Ok(stat(unsafe { answer.assume_init_ref() }))
    });

    cfg_if::cfg_if! {
        if #[cfg(any(target_vendor = "apple", target_os = "freebsd", target_os = "netbsd"))] {
            fn rest(of: &libc::stat) -> (Timestamp, u32, u32) {
                cfg_if::cfg_if! {
                    if #[cfg(target_os = "netbsd")] {
                        let nsec = of.st_birthtimensec;
                    } else {
                        let nsec = of.st_birthtime_nsec;
                    }
                }
                let born = Timestamp { sec: of.st_birthtime as _, nsec: nsec as _ };
                (born, of.st_flags as u32, of.st_gen as u32)
            }
        } else {
            /// Who made it when is not known: the last change is the best guess.
            fn rest(of: &libc::stat) -> (Timestamp, u32, u32) {
                (Timestamp { sec: of.st_ctime as _, nsec: of.st_ctime_nsec as _ }, 0, 0)
            }
        }
    }

    cfg_if::cfg_if! {
        if #[cfg(target_os = "netbsd")] {
            fn nanoseconds(of: &libc::stat) -> [u32; 3] {
                [of.st_atimensec as u32, of.st_mtimensec as u32, of.st_ctimensec as u32]
            }
        } else {
            fn nanoseconds(of: &libc::stat) -> [u32; 3] {
                [of.st_atime_nsec as u32, of.st_mtime_nsec as u32, of.st_ctime_nsec as u32]
            }
        }
    }

    fn stat(of: &libc::stat) -> Stat {
        let (born, flags, generation) = rest(of);
        let [atime, mtime, ctime] = nanoseconds(of);
        Stat {
            dev: of.st_dev as u64,
            mode: of.st_mode as u32,
            nlink: of.st_nlink as u64,
            uid: of.st_uid,
            gid: of.st_gid,
            rdev: of.st_rdev as u64,
            ino: of.st_ino as u64,
            size: of.st_size as u64,
            blksize: of.st_blksize as u64,
            blocks: of.st_blocks as u64,
            flags,
            generation,
            accessed: Timestamp { sec: of.st_atime as _, nsec: atime },
            modified: Timestamp { sec: of.st_mtime as _, nsec: mtime },
            changed: Timestamp { sec: of.st_ctime as _, nsec: ctime },
            born,
        }
    }
}
