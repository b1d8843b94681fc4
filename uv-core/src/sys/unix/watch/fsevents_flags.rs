//! Interpretation of FSEvents flags and paths: pure functions without system calls.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::handles::What;

/// `kFSEventStreamEventFlag…`, from `FSEvents.h`.
const MUST_SCAN_SUB_DIRS: u32 = 0x1;
const USER_DROPPED: u32 = 0x2;
const KERNEL_DROPPED: u32 = 0x4;
const EVENT_IDS_WRAPPED: u32 = 0x8;
const HISTORY_DONE: u32 = 0x10;
const ROOT_CHANGED: u32 = 0x20;
const MOUNT: u32 = 0x40;
const UNMOUNT: u32 = 0x80;
const ITEM_CREATED: u32 = 0x100;
const ITEM_REMOVED: u32 = 0x200;
const ITEM_INODE_META_MOD: u32 = 0x400;
const ITEM_RENAMED: u32 = 0x800;
const ITEM_MODIFIED: u32 = 0x1000;
const ITEM_FINDER_INFO_MOD: u32 = 0x2000;
const ITEM_CHANGE_OWNER: u32 = 0x4000;
const ITEM_XATTR_MOD: u32 = 0x8000;
const ITEM_IS_DIR: u32 = 0x2_0000;

/// Events were lost, or the root was moved.
const OVERFLOW: u32 =
    MUST_SCAN_SUB_DIRS | USER_DROPPED | KERNEL_DROPPED | EVENT_IDS_WRAPPED | ROOT_CHANGED;
/// Events that concern no entry.
const IGNORED: u32 = HISTORY_DONE | MOUNT | UNMOUNT;
const RENAMED: u32 = ITEM_CREATED | ITEM_REMOVED | ITEM_RENAMED;
const CHANGED: u32 =
    ITEM_INODE_META_MOD | ITEM_MODIFIED | ITEM_FINDER_INFO_MOD | ITEM_CHANGE_OWNER | ITEM_XATTR_MOD;

/// Selects the events that concern a handle.
#[derive(Debug)]
pub(super) struct Filter {
    /// The directory as FSEvents names it: absolute, without symbolic links.
    pub(super) root: Vec<u8>,
    pub(super) recursive: bool,
    /// The number of the last event before the handle was started.
    pub(super) since: u64,
}

/// An event of FSEvents.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event<'a> {
    pub(super) path: &'a [u8],
    pub(super) flags: u32,
    pub(super) id: u64,
}

impl Filter {
    /// The notice for an event, and the path below the root that it is about; empty for the root
    /// itself.
    pub(super) fn notice<'a>(&self, event: Event<'a>) -> Option<(What, &'a OsStr)> {
        let Event { path, flags, id } = event;
        // `ROOT_CHANGED` events have the number 0, so this is checked before `since`.
        if flags & OVERFLOW != 0 {
            return Some((What::Lost, OsStr::new("")));
        }
        if flags & IGNORED != 0 || id <= self.since {
            return None;
        }
        let below = self.below(path)?;
        if below.is_empty() {
            // The directory itself gets a notice only when it is removed or renamed.
            let is_gone = flags & (ITEM_REMOVED | ITEM_RENAMED) != 0;
            return is_gone.then_some((What::Renamed, OsStr::new("")));
        }
        if !self.recursive && below.contains(&b'/') {
            return None;
        }
        Some((what(flags), OsStr::from_bytes(below)))
    }

    /// The path relative to the root; `None` if it is not below it.
    fn below<'a>(&self, path: &'a [u8]) -> Option<&'a [u8]> {
        // The path of a directory may end with a slash.
        let path = path.strip_suffix(b"/").unwrap_or(path);
        let root = self.root.strip_suffix(b"/").unwrap_or(&self.root);
        match path.strip_prefix(root)? {
            [] => Some(&[]),
            [b'/', below @ ..] => Some(below),
            _ => None,
        }
    }
}

/// FSEvents coalesces the flags of several events: a rename takes precedence over a change. A
/// directory event without further flags means that its entries have changed.
fn what(flags: u32) -> What {
    let is_renamed = flags & RENAMED != 0;
    let is_changed = flags & CHANGED != 0 || flags & ITEM_IS_DIR == 0;
    if !is_renamed && is_changed { What::Changed } else { What::Renamed }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noticed(filter: &Filter, path: &str, flags: u32) -> Option<(char, String)> {
        let (what, below) = filter.notice(Event { path: path.as_bytes(), flags, id: 8 })?;
        let what = match what {
            What::Renamed => 'r',
            What::Changed => 'c',
            What::Lost => 'l',
            What::Failed(_) => 'f',
        };
        Some((what, below.to_str().unwrap().into()))
    }

    fn watching(root: &str, recursive: bool) -> Filter {
        Filter { root: root.into(), recursive, since: 7 }
    }

    fn some(what: char, below: &str) -> Option<(char, String)> {
        Some((what, below.into()))
    }

    #[test]
    fn entries_are_named_by_their_path_below_the_root() {
        let (flat, deep) = (watching("/private/var/x", false), watching("/private/var/x", true));
        for filter in [&flat, &deep] {
            assert_eq!(noticed(filter, "/private/var/x/a", ITEM_CREATED), some('r', "a"));
            let made = ITEM_CREATED | ITEM_IS_DIR;
            assert_eq!(noticed(filter, "/private/var/x/dir/", made), some('r', "dir"));
            assert_eq!(
                noticed(filter, "/private/var/xy", ITEM_CREATED),
                None,
                "a sibling with the same prefix"
            );
            assert_eq!(noticed(filter, "/private/var", ITEM_CREATED), None, "above");
            assert_eq!(noticed(filter, "/var/x/a", ITEM_CREATED), None, "not the canonical path");
        }
        assert_eq!(noticed(&flat, "/private/var/x/dir/a", ITEM_MODIFIED), None);
        assert_eq!(noticed(&deep, "/private/var/x/dir/a", ITEM_MODIFIED), some('c', "dir/a"));
    }

    #[test]
    fn every_path_is_below_the_root_directory() {
        assert_eq!(noticed(&watching("/", false), "/a", ITEM_REMOVED), some('r', "a"));
        assert_eq!(noticed(&watching("/", true), "/a/b", ITEM_REMOVED), some('r', "a/b"));
    }

    #[test]
    fn created_removed_and_moved_entries_are_renames_and_others_are_changes() {
        let filter = watching("/x", false);
        for flag in [ITEM_CREATED, ITEM_REMOVED, ITEM_RENAMED] {
            assert_eq!(noticed(&filter, "/x/a", flag | ITEM_MODIFIED), some('r', "a"));
        }
        for bit in 0..16 {
            let flag = 1 << bit & CHANGED;
            assert_eq!(noticed(&filter, "/x/a", flag), some('c', "a"), "{flag:#x}");
        }
        assert_eq!(noticed(&filter, "/x/d", ITEM_IS_DIR), some('r', "d"), "its entries");
        assert_eq!(noticed(&filter, "/x/d", ITEM_IS_DIR | ITEM_XATTR_MOD), some('c', "d"));
    }

    #[test]
    fn root_gets_a_notice_only_when_removed_or_renamed() {
        let filter = watching("/x", true);
        assert_eq!(noticed(&filter, "/x", ITEM_REMOVED | ITEM_IS_DIR), some('r', ""));
        assert_eq!(noticed(&filter, "/x/", ITEM_RENAMED | ITEM_IS_DIR), some('r', ""));
        assert_eq!(noticed(&filter, "/x", ITEM_CREATED | ITEM_IS_DIR), None);
        assert_eq!(noticed(&filter, "/x", ITEM_INODE_META_MOD | ITEM_IS_DIR), None);
    }

    #[test]
    fn overflow_is_reported_for_any_path() {
        let filter = watching("/x", false);
        for flag in [MUST_SCAN_SUB_DIRS, USER_DROPPED | 1, KERNEL_DROPPED | 1, ROOT_CHANGED] {
            assert_eq!(noticed(&filter, "/x/deep/down", flag), some('l', ""));
        }
        let event = Event { path: b"/x", flags: ROOT_CHANGED, id: 0 };
        assert!(matches!(filter.notice(event), Some((What::Lost, _))), "its number is 0");
    }

    #[test]
    fn events_before_the_start_and_mount_events_are_ignored() {
        let filter = watching("/x", true);
        let event = Event { path: b"/x/a", flags: ITEM_CREATED, id: 7 };
        assert!(filter.notice(event).is_none(), "from before the start");
        for flag in [HISTORY_DONE, MOUNT, UNMOUNT] {
            assert_eq!(noticed(&filter, "/x/a", flag), None);
        }
    }
}
