//! File metadata: `statx(2)` on Linux, `stat(2)` elsewhere.

#![allow(clippy::unnecessary_cast, reason = "fields have other types on other systems")]

use crate::fs::{File, Stat, Timestamp};

/// The file that a request is about.
#[derive(Debug)]
enum Subject {
    Path(super::Name),
    /// A symbolic link is not followed.
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

/// By `statx(2)` (Linux 4.11), which returns the creation time.
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

    /// The arguments of a request, and the memory for the result.
    #[derive(Debug)]
    pub struct StatRequest {
        subject: Subject,
        answer: MaybeUninit<libc::statx>,
    }

    impl StatRequest {
        fn new(subject: Subject) -> StatRequest {
            StatRequest { subject, answer: MaybeUninit::zeroed() }
        }

        pub(crate) fn of_path(name: Name) -> StatRequest {
            StatRequest::new(Subject::Path(name))
        }

        pub(crate) fn of_link(name: Name) -> StatRequest {
            StatRequest::new(Subject::Link(name))
        }

        pub(crate) fn of_file(file: File) -> StatRequest {
            StatRequest::new(Subject::File(file))
        }

        /// The directory, the path and the flags of `statx`.
        fn how(&self) -> (c_int, *const c_char, c_int) {
            match &self.subject {
                Subject::Path(name) => (libc::AT_FDCWD, name.as_ptr(), 0),
                Subject::Link(name) => (libc::AT_FDCWD, name.as_ptr(), libc::AT_SYMLINK_NOFOLLOW),
                Subject::File(file) => (fd(file), c"".as_ptr(), libc::AT_EMPTY_PATH),
            }
        }

        fn answer(&self) -> Stat {
            // SAFETY: `new` zeroes the structure, and zero is valid for its integers; the kernel
            // writes integers only.
            stat(unsafe { self.answer.assume_init_ref() })
        }
    }

    /// Set if the kernel has no `statx` or a seccomp filter refuses it.
    static MISSING: AtomicBool = AtomicBool::new(false);

    pub(crate) const STAT: Way<StatRequest, Stat> = Way {
        perform: |request| {
            if MISSING.load(Ordering::Relaxed) {
                return old::query(&request.subject);
            }
            let (dir, path, flags) = request.how();
            let out = request.answer.as_mut_ptr();
            // SAFETY: reads a NUL-terminated path, which the request owns, and writes one `statx`
            // to the request's own memory.
            let result = retried(|| unsafe { libc::statx(dir, path, flags, MASK, out) });
            match result {
                Ok(_) => Ok(request.answer()),
                Err(error) if is_missing(&error) => {
                    MISSING.store(true, Ordering::Relaxed);
                    old::query(&request.subject)
                }
                Err(error) => Err(error),
            }
        },
        op: Some(|request| {
            let out = NonNull::from(&mut request.answer).cast();
            let (at, flags) = match &request.subject {
                Subject::Path(name) => (name.at(), 0),
                Subject::Link(name) => (name.at(), libc::AT_SYMLINK_NOFOLLOW),
                Subject::File(file) => {
                    let at = At { dir: Some(file.source()), path: RawPath::of(c"") };
                    (at, libc::AT_EMPTY_PATH)
                }
            };
            Op::Statx { at, flags, mask: MASK, out }
        }),
        value: |request, _| Ok(request.answer()),
    };

    fn is_missing(error: &io::Error) -> bool {
        // seccomp filters return `EPERM` for unknown calls; `statx` itself never does.
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
            // Zero if the file system does not record it.
            created: time(of.stx_btime),
        }
    }

    /// For kernels without `statx`.
    mod old {
        use std::io;
        use std::os::unix::fs::MetadataExt;

        use super::*;

        pub(super) fn query(subject: &Subject) -> io::Result<Stat> {
            let of = match subject {
                Subject::Path(name) => std::fs::metadata(name.as_path()),
                Subject::Link(name) => std::fs::symlink_metadata(name.as_path()),
                Subject::File(file) => file.std().metadata(),
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
                created: changed,
            })
        }

        #[cfg(test)]
        #[test]
        fn statx_and_stat_agree() {
            let name = Name::new(std::path::Path::new("Cargo.toml")).unwrap();
            let new = (STAT.perform)(&mut StatRequest::of_path(name.clone())).unwrap();
            let old = query(&Subject::Path(name)).unwrap();
            assert_eq!(new, Stat { created: new.created, ..old });
        }
    }
}

/// By `stat(2)`.
#[cfg(not(all(target_os = "linux", any(target_env = "gnu", target_env = "musl"))))]
mod by_stat {
    use std::mem::MaybeUninit;

    use super::super::{Name, Way, fd, retried};
    use super::*;

    /// The arguments of a request.
    #[derive(Debug)]
    pub struct StatRequest(Subject);

    impl StatRequest {
        pub(crate) fn of_path(name: Name) -> StatRequest {
            StatRequest(Subject::Path(name))
        }

        pub(crate) fn of_link(name: Name) -> StatRequest {
            StatRequest(Subject::Link(name))
        }

        pub(crate) fn of_file(file: File) -> StatRequest {
            StatRequest(Subject::File(file))
        }
    }

    pub(crate) const STAT: Way<StatRequest, Stat> = Way::blocking(|StatRequest(subject)| {
        let mut answer = MaybeUninit::<libc::stat>::zeroed();
        let out = answer.as_mut_ptr();
        retried(|| match subject {
            // SAFETY: reads a NUL-terminated path, which `name` owns, and writes one `stat`, to a
            // local.
            Subject::Path(name) => unsafe { libc::stat(name.as_ptr(), out) },
            // SAFETY: reads a NUL-terminated path, which `name` owns, and writes one `stat`, to a
            // local.
            Subject::Link(name) => unsafe { libc::lstat(name.as_ptr(), out) },
            // SAFETY: writes one `stat`, to a local.
            Subject::File(file) => unsafe { libc::fstat(fd(file), out) },
        })?;
        // SAFETY: zeroed, and zero is valid for its integers; the kernel has written the rest.
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
                let created = Timestamp { sec: of.st_birthtime as _, nsec: nsec as _ };
                (created, of.st_flags as u32, of.st_gen as u32)
            }
        } else {
            /// The creation time is not available: the time of the last change stands in for it.
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
        let (created, flags, generation) = rest(of);
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
            created,
        }
    }
}
