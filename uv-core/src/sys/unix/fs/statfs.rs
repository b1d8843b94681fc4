//! File system metadata: `statfs(2)`, or `statvfs(3)` on NetBSD.

#![allow(clippy::unnecessary_cast, reason = "fields have other types on other systems")]

use std::mem::MaybeUninit;

use super::{Name, Way, retried};
use crate::fs::StatFs;

cfg_if::cfg_if! {
    if #[cfg(target_os = "netbsd")] {
        pub(crate) const STATFS: Way<Name, StatFs> = Way::blocking(|name| {
            let mut answer = MaybeUninit::<libc::statvfs>::zeroed();
            // SAFETY: reads a NUL-terminated path, which `name` owns, and writes one `statvfs`, to
            // a local.
            retried(|| unsafe { libc::statvfs(name.as_ptr(), answer.as_mut_ptr()) })?;
            // SAFETY: zeroed, and zero is valid for its integers; the kernel has written the rest.
            let of = unsafe { answer.assume_init_ref() };
            Ok(StatFs {
                kind: 0,
                bsize: of.f_bsize as u64,
                frsize: of.f_frsize as u64,
                blocks: of.f_blocks as u64,
                bfree: of.f_bfree as u64,
                bavail: of.f_bavail as u64,
                files: of.f_files as u64,
                ffree: of.f_ffree as u64,
            })
        });
    } else {
        pub(crate) const STATFS: Way<Name, StatFs> = Way::blocking(|name| {
            let mut answer = MaybeUninit::<libc::statfs>::zeroed();
            // SAFETY: reads a NUL-terminated path, which `name` owns, and writes one `statfs`, to a
            // local.
            retried(|| unsafe { libc::statfs(name.as_ptr(), answer.as_mut_ptr()) })?;
            // SAFETY: zeroed, and zero is valid for its integers; the kernel has written the rest.
            let of = unsafe { answer.assume_init_ref() };
            cfg_if::cfg_if! {
                if #[cfg(any(target_os = "linux", target_os = "android"))] {
                    let frsize = of.f_frsize as u64;
                } else {
                    let frsize = of.f_bsize as u64;
                }
            }
            cfg_if::cfg_if! {
                if #[cfg(target_os = "openbsd")] {
                    let kind = 0;
                } else {
                    let kind = of.f_type as u64;
                }
            }
            Ok(StatFs {
                kind,
                bsize: of.f_bsize as u64,
                frsize,
                blocks: of.f_blocks as u64,
                bfree: of.f_bfree as u64,
                bavail: of.f_bavail as u64,
                files: of.f_files as u64,
                ffree: of.f_ffree as u64,
            })
        });
    }
}
