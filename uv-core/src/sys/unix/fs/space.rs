//! Asking about file systems.

#![allow(clippy::unnecessary_cast, reason = "fields have other types on other systems")]

use std::mem::MaybeUninit;

use super::{Name, Way, retried};
use crate::fs::StatFs;

cfg_if::cfg_if! {
    if #[cfg(target_os = "netbsd")] {
        pub(crate) const STATFS: Way<Name, StatFs> = Way::blocking(|name| {
            let mut answer = MaybeUninit::<libc::statvfs>::zeroed();
            // SAFETY: the path ends with a NUL, and the answer goes where there is room.
            retried(|| unsafe { libc::statvfs(name.as_ptr(), answer.as_mut_ptr()) })?;
            // SAFETY: it is numbers, zero before the kernel wrote to it.
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
            // SAFETY: the path ends with a NUL, and the answer goes where there is room.
            retried(|| unsafe { libc::statfs(name.as_ptr(), answer.as_mut_ptr()) })?;
            // SAFETY: it is numbers, zero before the kernel wrote to it.
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
