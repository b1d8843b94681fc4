//! What the events of FSEvents mean. No calls: this is the part that runs anywhere.

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

/// Something was not told, or is not where it was.
const LOST: u32 =
    MUST_SCAN_SUB_DIRS | USER_DROPPED | KERNEL_DROPPED | EVENT_IDS_WRAPPED | ROOT_CHANGED;
/// Says nothing about an entry.
const ASIDE: u32 = HISTORY_DONE | MOUNT | UNMOUNT;
const RENAMED: u32 = ITEM_CREATED | ITEM_REMOVED | ITEM_RENAMED;
const CHANGED: u32 =
    ITEM_INODE_META_MOD | ITEM_MODIFIED | ITEM_FINDER_INFO_MOD | ITEM_CHANGE_OWNER | ITEM_XATTR_MOD;

/// Which events concern a handle.
#[derive(Debug)]
pub(super) struct Filter {
    /// The directory as the system calls it: absolute, without symbolic links.
    pub(super) root: Vec<u8>,
    pub(super) recursive: bool,
    /// The last event before the handle was started.
    pub(super) since: u64,
}

/// An event of the system's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event<'a> {
    pub(super) path: &'a [u8],
    pub(super) flags: u32,
    pub(super) id: u64,
}

impl Filter {
    /// What is to be told, and of which path below the root; an empty one is the root's own.
    pub(super) fn news<'a>(&self, event: Event<'a>) -> Option<(What, &'a OsStr)> {
        let Event { path, flags, id } = event;
        // Those of a root that has changed have no number.
        if flags & LOST != 0 {
            return Some((What::Lost, OsStr::new("")));
        }
        if flags & ASIDE != 0 || id <= self.since {
            return None;
        }
        let below = self.below(path)?;
        if below.is_empty() {
            // Of the directory itself only that it is gone, or elsewhere.
            let is_gone = flags & (ITEM_REMOVED | ITEM_RENAMED) != 0;
            return is_gone.then_some((What::Renamed, OsStr::new("")));
        }
        if !self.recursive && below.contains(&b'/') {
            return None;
        }
        Some((what(flags), OsStr::from_bytes(below)))
    }

    /// The path below the root; `None` if it is elsewhere.
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

/// Flags of several events are told together, and the news is what matters most. A directory
/// of which no more is known has other entries.
fn what(flags: u32) -> What {
    let is_renamed = flags & RENAMED != 0;
    let is_changed = flags & CHANGED != 0 || flags & ITEM_IS_DIR == 0;
    if !is_renamed && is_changed { What::Changed } else { What::Renamed }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(filter: &Filter, path: &str, flags: u32) -> Option<(char, String)> {
        let (what, below) = filter.news(Event { path: path.as_bytes(), flags, id: 8 })?;
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
    fn entries_are_told_by_their_paths_below_the_root() {
        let (flat, deep) = (watching("/private/var/x", false), watching("/private/var/x", true));
        for filter in [&flat, &deep] {
            assert_eq!(told(filter, "/private/var/x/a", ITEM_CREATED), some('r', "a"));
            let made = ITEM_CREATED | ITEM_IS_DIR;
            assert_eq!(told(filter, "/private/var/x/dir/", made), some('r', "dir"));
            assert_eq!(told(filter, "/private/var/xy", ITEM_CREATED), None, "another's");
            assert_eq!(told(filter, "/private/var", ITEM_CREATED), None, "above");
            assert_eq!(told(filter, "/var/x/a", ITEM_CREATED), None, "not the system's name");
        }
        assert_eq!(told(&flat, "/private/var/x/dir/a", ITEM_MODIFIED), None);
        assert_eq!(told(&deep, "/private/var/x/dir/a", ITEM_MODIFIED), some('c', "dir/a"));
    }

    #[test]
    fn everything_is_below_the_root_of_all() {
        assert_eq!(told(&watching("/", false), "/a", ITEM_REMOVED), some('r', "a"));
        assert_eq!(told(&watching("/", true), "/a/b", ITEM_REMOVED), some('r', "a/b"));
    }

    #[test]
    fn what_comes_and_goes_is_renamed_and_else_it_is_changed() {
        let filter = watching("/x", false);
        for flag in [ITEM_CREATED, ITEM_REMOVED, ITEM_RENAMED] {
            assert_eq!(told(&filter, "/x/a", flag | ITEM_MODIFIED), some('r', "a"));
        }
        for bit in 0..16 {
            let flag = 1 << bit & CHANGED;
            assert_eq!(told(&filter, "/x/a", flag), some('c', "a"), "{flag:#x}");
        }
        assert_eq!(told(&filter, "/x/d", ITEM_IS_DIR), some('r', "d"), "its entries");
        assert_eq!(told(&filter, "/x/d", ITEM_IS_DIR | ITEM_XATTR_MOD), some('c', "d"));
    }

    #[test]
    fn of_the_root_itself_its_end_is_told() {
        let filter = watching("/x", true);
        assert_eq!(told(&filter, "/x", ITEM_REMOVED | ITEM_IS_DIR), some('r', ""));
        assert_eq!(told(&filter, "/x/", ITEM_RENAMED | ITEM_IS_DIR), some('r', ""));
        assert_eq!(told(&filter, "/x", ITEM_CREATED | ITEM_IS_DIR), None);
        assert_eq!(told(&filter, "/x", ITEM_INODE_META_MOD | ITEM_IS_DIR), None);
    }

    #[test]
    fn what_is_lost_is_said_to_be_wherever_it_was() {
        let filter = watching("/x", false);
        for flag in [MUST_SCAN_SUB_DIRS, USER_DROPPED | 1, KERNEL_DROPPED | 1, ROOT_CHANGED] {
            assert_eq!(told(&filter, "/x/deep/down", flag), some('l', ""));
        }
        let event = Event { path: b"/x", flags: ROOT_CHANGED, id: 0 };
        assert!(matches!(filter.news(event), Some((What::Lost, _))), "it has no number");
    }

    #[test]
    fn the_past_and_what_is_no_change_are_left_out() {
        let filter = watching("/x", true);
        let event = Event { path: b"/x/a", flags: ITEM_CREATED, id: 7 };
        assert!(filter.news(event).is_none(), "it was before the start");
        for flag in [HISTORY_DONE, MOUNT, UNMOUNT] {
            assert_eq!(told(&filter, "/x/a", flag), None);
        }
    }
}
