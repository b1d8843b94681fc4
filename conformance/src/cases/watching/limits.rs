//! Exhausted limits.

use crate::{Lab, Verdict};

#[cfg(target_os = "linux")]
pub use linux::*;

/// An overflow of the kernel's queue is reported as lost changes, and watching continues, also in
/// new directories.
#[cfg(not(target_os = "linux"))]
pub fn a_queue_overflow_is_reported(_lab: &Lab) -> Verdict {
    Err(crate::Skip::because("only Linux lets its queue be shortened"))
}

/// Without free watches a start fails, and succeeds when one is free again. A new directory that
/// cannot be watched is reported as an error.
#[cfg(not(target_os = "linux"))]
pub fn out_of_watches_is_an_error(_lab: &Lab) -> Verdict {
    Err(crate::Skip::because("only Linux limits watches"))
}

/// Without free descriptors, or at the kernel's limit of instances, a start fails, leaks nothing,
/// and succeeds when one is free again.
#[cfg(not(target_os = "linux"))]
pub fn out_of_descriptors_is_an_error(_lab: &Lab) -> Verdict {
    Err(crate::Skip::because("checked where watching takes one descriptor"))
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    use std::io::ErrorKind;

    use uv_core::{FsEvent, FsEventFlags, Handle};

    use super::*;
    use crate::support::child::Child;
    use crate::support::files::Directory;
    use crate::support::limits::{open_descriptors, settled_descriptors, without_descriptors};
    use crate::support::loops::new_loop;
    use crate::support::observe::SOON;
    use crate::support::streams::{finish, refusal};
    use crate::support::watching::{Watch, WatchEvent, renamed};
    use crate::{Loop, Skip};

    /// A kernel limit, changed until this is dropped. For cases that run alone.
    struct Limit {
        file: String,
        before: String,
    }

    impl Limit {
        fn set(file: &str, value: u32) -> Result<Limit, Skip> {
            let refused = |error| Skip::because(format!("{file} cannot be changed: {error}"));
            let before = fs::read_to_string(file).map_err(refused)?;
            fs::write(file, value.to_string()).map_err(refused)?;
            Ok(Limit { file: file.to_owned(), before })
        }
    }

    impl Drop for Limit {
        fn drop(&mut self) {
            let _ = fs::write(&self.file, &self.before);
        }
    }

    /// Runs `body` in a child in its own user namespace, which has its own limits.
    fn with_limits_of_its_own(body: impl FnOnce() -> Verdict) -> Verdict {
        // SAFETY: the call passes no memory.
        let user = unsafe { libc::geteuid() };
        let child = Child::fork(|| {
            // SAFETY: the call passes no memory; a forked child has one thread.
            if unsafe { libc::unshare(libc::CLONE_NEWUSER) } == -1 {
                let error = std::io::Error::last_os_error();
                return Err(Skip::because(format!("no user namespaces here: {error}")));
            }
            let mapped = fs::write("/proc/self/uid_map", format!("0 {user} 1"));
            mapped.map_err(|error| Skip::because(format!("the user cannot be mapped: {error}")))?;
            body()
        });
        child.join(SOON)
    }

    /// An overflow of the kernel's queue is reported as lost changes, and watching continues, also
    /// in new directories.
    pub fn a_queue_overflow_is_reported(lab: &Lab) -> Verdict {
        let (mut lp, directory) = (new_loop(lab)?, Directory::new());
        let short = Limit::set("/proc/sys/fs/inotify/max_queued_events", 8)?;
        let watch = Watch::new(&mut lp, directory.root());
        let tree = Watch::tree(&mut lp, directory.root());
        drop(short);
        for index in 0..100 {
            directory.folder(&format!("{index}"));
        }
        watch.expect(&mut lp, WatchEvent::Lost);
        tree.expect(&mut lp, WatchEvent::Lost);
        tree.drain(&mut lp);
        watch.clear();
        directory.file("99/file", "");
        tree.expect(&mut lp, renamed("99/file"));
        directory.file("file", "");
        watch.expect(&mut lp, renamed("file"));
        for watch in [watch, tree] {
            watch.handle.close(&mut lp).expect("an open handle");
        }
        finish(lp);
        Ok(())
    }

    /// Without free watches a start fails, and succeeds when one is free again. A new directory
    /// that cannot be watched is reported as an error.
    pub fn out_of_watches_is_an_error(lab: &Lab) -> Verdict {
        with_limits_of_its_own(|| out_of_watches(lab))
    }

    fn out_of_watches(lab: &Lab) -> Verdict {
        let (mut lp, directory) = (new_loop(lab)?, Directory::new());
        directory.folder("a/b/c");
        let tree = Watch::tree(&mut lp, directory.root());
        let handle = FsEvent::new(&mut lp);
        let none = Limit::set("/proc/sys/user/max_inotify_watches", 0)?;
        let other = Directory::new();
        for flags in [FsEventFlags::empty(), FsEventFlags::RECURSIVE] {
            let refused = handle.start(&mut lp, other.root(), flags, |_, _, _| {});
            assert_eq!(refusal(refused), ErrorKind::QuotaExceeded);
        }
        assert!(!handle.is_active(&lp));
        directory.folder("new");
        tree.expect(&mut lp, renamed("new"));
        tree.expect(&mut lp, WatchEvent::Failed(ErrorKind::QuotaExceeded));
        directory.file("a/b/c/file", "");
        tree.expect(&mut lp, renamed("a/b/c/file"));
        drop(none);
        let started = handle.start(&mut lp, other.root(), FsEventFlags::RECURSIVE, |_, _, _| {});
        started.expect("there are watches again");
        Ok(())
    }

    /// Without free descriptors, or at the kernel's limit of instances, a start fails, leaks
    /// nothing, and succeeds when one is free again.
    pub fn out_of_descriptors_is_an_error(lab: &Lab) -> Verdict {
        let (mut lp, directory) = (new_loop(lab)?, Directory::new());
        let (handle, before) = (FsEvent::new(&mut lp), settled_descriptors()?);
        let refused = without_descriptors(|| {
            handle.start(&mut lp, directory.root(), FsEventFlags::empty(), |_, _, _| {})
        })?;
        assert_eq!(refusal(refused), ErrorKind::QuotaExceeded);
        assert_eq!(open_descriptors()?, before, "nothing leaks");
        assert!(!handle.is_active(&lp) && !lp.is_alive());
        handle.close(&mut lp).expect("an open handle");
        watch_again(lp, &directory);
        with_limits_of_its_own(|| {
            let (mut lp, directory) = (new_loop(lab)?, Directory::new());
            let handle = FsEvent::new(&mut lp);
            let instances = Limit::set("/proc/sys/user/max_inotify_instances", 0)?;
            let refused =
                handle.start(&mut lp, directory.root(), FsEventFlags::empty(), |_, _, _| {});
            assert_eq!(refusal(refused), ErrorKind::QuotaExceeded);
            drop(instances);
            handle.close(&mut lp).expect("an open handle");
            watch_again(lp, &directory);
            Ok(())
        })
    }

    fn watch_again(mut lp: Loop, directory: &Directory) {
        let watch = Watch::new(&mut lp, directory.root());
        directory.file("file", "");
        watch.expect(&mut lp, renamed("file"));
        watch.handle.close(&mut lp).expect("an open handle");
        finish(lp);
    }
}
