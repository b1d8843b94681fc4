//! Handles on a file or a directory.

use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;

use uv_core::{FsEvent, FsEventFlags, Handle, RunMode};

use crate::support::datagrams::{self, code::EALREADY};
use crate::support::files::Directory;
use crate::support::limits::{open_descriptors, settled_descriptors};
use crate::support::loops::{new_loop, run, run_to_the_end};
use crate::support::streams::{finish, refusal, run_a_moment, run_until};
use crate::support::trace::Count;
use crate::support::watching::{Watch, WatchEvent, changed, needs_names_of_entries, renamed};
use crate::support::wine;
use crate::{Lab, Skip, Verdict};

/// Created, changed and removed entries of a directory are reported by name.
pub fn entry_changes_are_reported_by_name(lab: &Lab) -> Verdict {
    needs_names_of_entries()?;
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    let watch = Watch::new(&mut lp, directory.root());
    watch.expect_nothing(&mut lp, "nothing has happened");
    let file = directory.file("entry", "");
    watch.expect(&mut lp, renamed("entry"));
    watch.drain(&mut lp);
    fs::write(&file, "content").expect("a file to write to");
    watch.expect(&mut lp, changed("entry"));
    watch.drain(&mut lp);
    fs::remove_file(&file).expect("a file to remove");
    watch.expect(&mut lp, renamed("entry"));
    watch.drain(&mut lp);
    directory.folder("folder");
    watch.expect(&mut lp, renamed("folder"));
    watch.drain(&mut lp);
    directory.file("folder/below", "");
    run_a_moment(&mut lp);
    let below = |report: &WatchEvent| matches!(report, WatchEvent::Renamed(path) if path.ends_with("below"));
    assert!(!watch.events().iter().any(below), "not below: {:?}", watch.events());
    watch.handle.close(&mut lp).expect("an open handle");
    finish(lp);
    Ok(())
}

/// A relative path is watched like an absolute one.
pub fn relative_paths_are_watched(lab: &Lab) -> Verdict {
    needs_names_of_entries()?;
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    let here = std::env::current_dir().expect("a working directory");
    let root = directory.root().canonicalize().expect("an absolute path");
    let mut relative = PathBuf::new();
    for _ in here.components().skip(1) {
        relative.push("..");
    }
    relative.extend(root.components().skip(if cfg!(windows) { 2 } else { 1 }));
    if !relative.is_dir() {
        return Err(Skip::because("the temporary directory has no relative path"));
    }
    let watch = Watch::new(&mut lp, &relative);
    let file = directory.file("entry", "");
    watch.expect(&mut lp, renamed("entry"));
    let one = Watch::new(&mut lp, relative.join("entry"));
    fs::write(file, "content").expect("a file to write to");
    one.expect(&mut lp, changed("entry"));
    Ok(())
}

/// Both names of a renamed entry are reported.
pub fn a_rename_reports_both_names(lab: &Lab) -> Verdict {
    needs_names_of_entries()?;
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    let old = directory.file("old", "");
    let watch = Watch::new(&mut lp, directory.root());
    fs::rename(old, directory.path("new")).expect("a rename");
    watch.expect(&mut lp, renamed("old"));
    watch.expect(&mut lp, renamed("new"));
    Ok(())
}

/// A watched file is reported by its name. Other files of its directory are not reported.
pub fn a_watched_file_reports_only_itself(lab: &Lab) -> Verdict {
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    let file = directory.file("watched", "");
    let watch = Watch::new(&mut lp, &file);
    directory.file("neighbour", "content");
    watch.expect_nothing(&mut lp, "a neighbour has changed");
    fs::write(&file, "content").expect("a file to write to");
    watch.expect(&mut lp, changed("watched"));
    watch.drain(&mut lp);
    fs::remove_file(&file).expect("a file to remove");
    watch.expect(&mut lp, renamed("watched"));
    watch.handle.close(&mut lp).expect("an open handle");
    finish(lp);
    Ok(())
}

/// Several handles on one directory, and one on a file in it, each report changes. Stopping one
/// does not affect the others.
pub fn several_handles_watch_one_path(lab: &Lab) -> Verdict {
    needs_names_of_entries()?;
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    let file = directory.file("entry", "");
    let all = [(); 3].map(|()| Watch::new(&mut lp, directory.root()));
    let one = Watch::new(&mut lp, &file);
    fs::write(&file, "content").expect("a file to write to");
    for watch in all.iter().chain([&one]) {
        watch.expect(&mut lp, changed("entry"));
    }
    one.drain(&mut lp);
    all.iter().for_each(Watch::clear);
    all[1].handle.stop(&mut lp).expect("an open handle");
    fs::write(&file, "more content").expect("a file to write to");
    for watch in [&all[0], &all[2], &one] {
        watch.expect(&mut lp, changed("entry"));
    }
    assert_eq!(all[1].events(), [], "it was stopped");
    Ok(())
}

/// A handle watches one path at a time, and returns it. A stopped handle can be started again.
pub fn a_handle_watches_one_path(lab: &Lab) -> Verdict {
    let (mut lp, one, two) = (new_loop(lab)?, Directory::new(), Directory::new());
    let watch = Watch::new(&mut lp, one.root());
    let (handle, none) = (watch.handle, FsEventFlags::empty());
    assert_eq!(handle.path(&lp), Some(&*one.root()));
    let refused = watch.start(&mut lp, &two.root(), none);
    datagrams::refused(refused, EALREADY, "it is started");
    assert_eq!(handle.path(&lp), Some(&*one.root()), "unchanged");
    handle.stop(&mut lp).expect("an open handle");
    handle.stop(&mut lp).expect("stopping twice is stopping");
    assert!(!handle.is_active(&lp) && handle.path(&lp).is_none());
    let missing = watch.start(&mut lp, &two.path("missing"), none);
    assert_eq!(refusal(missing), ErrorKind::NotFound);
    assert!(!handle.is_active(&lp) && handle.path(&lp).is_none(), "unchanged");
    watch.start(&mut lp, &two.root(), none).expect("another path");
    one.file("entry", "");
    watch.expect_nothing(&mut lp, "it watches the other");
    two.file("entry", "");
    run_until(&mut lp, "a change to the other", |_| !watch.events().is_empty());
    handle.close(&mut lp).expect("an open handle");
    assert_eq!(
        refusal(watch.start(&mut lp, &one.root(), none)),
        ErrorKind::InvalidInput,
        "closing"
    );
    assert_eq!(handle.path(&lp), None);
    run_to_the_end(&mut lp);
    assert_eq!(refusal(handle.stop(&mut lp)), ErrorKind::NotFound, "closed");
    finish(lp);
    Ok(())
}

/// Changes from before a handle's start are not reported to it, although other handles report them.
pub fn changes_before_the_start_are_not_reported(lab: &Lab) -> Verdict {
    needs_names_of_entries()?;
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    directory.file("before", "");
    let early = Watch::new(&mut lp, directory.root());
    directory.file("between", "");
    if cfg!(windows) {
        // On this system a thread gets the changes later.
        early.expect(&mut lp, renamed("between"));
    }
    let late = Watch::new(&mut lp, directory.root());
    directory.file("after", "");
    early.expect(&mut lp, renamed("between"));
    early.expect(&mut lp, renamed("after"));
    late.expect(&mut lp, renamed("after"));
    assert!(!early.events().contains(&renamed("before")), "{:?}", early.events());
    assert!(!late.events().contains(&renamed("between")), "{:?}", late.events());
    Ok(())
}

/// A handle that stops or closes in its callback is not called again, whatever has changed.
pub fn a_callback_may_stop_or_close(lab: &Lab) -> Verdict {
    for closes in [false, true] {
        let (mut lp, directory, calls) = (new_loop(lab)?, Directory::new(), Count::default());
        let (handle, counted) = (FsEvent::new(&mut lp), calls.clone());
        let started = handle.start(
            &mut lp,
            directory.root(),
            FsEventFlags::empty(),
            move |lp, handle, news| {
                news.expect("a change");
                counted.count();
                if closes { handle.close(lp) } else { handle.stop(lp) }.expect("an open handle");
            },
        );
        started.expect("a handle that watches");
        for index in 0..10 {
            directory.file(&index.to_string(), "content");
        }
        run_to_the_end(&mut lp);
        assert_eq!(calls.get(), 1, "closes: {closes}");
        if !closes {
            handle.close(&mut lp).expect("an open handle");
        }
        finish(lp);
    }
    Ok(())
}

/// A closed or stopped handle does not report earlier changes.
pub fn a_closed_handle_gets_no_change(lab: &Lab) -> Verdict {
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    let closed = Watch::new(&mut lp, directory.root());
    let stopped = Watch::new(&mut lp, directory.root());
    directory.file("entry", "content");
    closed.handle.close(&mut lp).expect("an open handle");
    stopped.handle.stop(&mut lp).expect("an open handle");
    stopped.expect_nothing(&mut lp, "it was stopped");
    assert_eq!(closed.events(), [], "it was closed");
    stopped.handle.close(&mut lp).expect("an open handle");
    finish(lp);
    Ok(())
}

/// A watching handle keeps the loop alive, unless it is unreferenced.
pub fn keep_the_loop_alive_unless_unreferenced(lab: &Lab) -> Verdict {
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    let handle = FsEvent::new(&mut lp);
    assert!(!lp.is_alive() && !handle.is_active(&lp), "not started");
    let watch = Watch::new(&mut lp, directory.root());
    assert!(lp.is_alive() && watch.handle.is_active(&lp));
    watch.handle.unreference(&mut lp).expect("an open handle");
    assert!(!lp.is_alive() && watch.handle.is_active(&lp));
    run_to_the_end(&mut lp);
    watch.handle.reference(&mut lp).expect("an open handle");
    watch.handle.stop(&mut lp).expect("an open handle");
    assert!(!lp.is_alive());
    Ok(())
}

/// The removal of the watched directory is reported by its own name. Then nothing is reported, the
/// loop blocks, and the handle can watch another path.
pub fn a_removed_directory_is_reported(lab: &Lab) -> Verdict {
    if wine::keeps_watched_directories() {
        return Err(Skip::because("Wine does not remove a directory that is watched"));
    }
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    let doomed = directory.folder("doomed");
    let watch = Watch::new(&mut lp, &doomed);
    fs::remove_dir(&doomed).expect("an empty directory");
    watch.expect(&mut lp, renamed("doomed"));
    watch.drain(&mut lp);
    let polls = run_a_moment(&mut lp);
    assert!(polls < 6, "{polls} polls without an event");
    // Another directory of that name is not the watched one.
    directory.folder("doomed");
    directory.file("doomed/entry", "");
    watch.expect_nothing(&mut lp, "the watched directory is gone");
    assert!(watch.handle.is_active(&lp), "until it is stopped");
    watch.handle.stop(&mut lp).expect("an open handle");
    watch.start(&mut lp, &doomed, FsEventFlags::empty()).expect("the new one");
    directory.file("doomed/another", "");
    run_until(&mut lp, "a change to the new one", |_| !watch.events().is_empty());
    watch.handle.close(&mut lp).expect("an open handle");
    finish(lp);
    Ok(())
}

/// A panic in a callback stops that handle. The other handles still report.
pub fn a_panic_keeps_other_changes(lab: &Lab) -> Verdict {
    needs_names_of_entries()?;
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    let first = FsEvent::new(&mut lp);
    let started = first.start(&mut lp, directory.root(), FsEventFlags::empty(), |_, _, _| {
        // Without a message on standard error.
        resume_unwind(Box::new("on purpose"))
    });
    started.expect("a handle that watches");
    let second = Watch::new(&mut lp, directory.root());
    for name in ["one", "two", "three"] {
        directory.file(name, "");
    }
    let panicked = catch_unwind(AssertUnwindSafe(|| run(&mut lp, RunMode::Default)));
    assert!(panicked.is_err(), "the panic propagates out of the run");
    assert!(!first.is_active(&lp), "stopped");
    for name in ["one", "two", "three"] {
        second.expect(&mut lp, renamed(name));
    }
    Ok(())
}

/// Thousands of changes are all reported, or reported as lost.
pub fn thousands_of_changes_are_reported_or_lost(lab: &Lab) -> Verdict {
    const FILES: usize = 3_000;
    needs_names_of_entries()?;
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    let watch = Watch::new(&mut lp, directory.root());
    for index in 0..FILES {
        directory.file(&index.to_string(), "");
        if index % 500 == 0 {
            run(&mut lp, RunMode::NoWait);
        }
    }
    let last = renamed((FILES - 1).to_string());
    run_until(&mut lp, "the last of them", |_| watch.has(&last) || watch.has(&WatchEvent::Lost));
    let reports: HashSet<_> = watch.events().into_iter().collect();
    let complete = reports.contains(&WatchEvent::Lost)
        || (0..FILES).all(|index| reports.contains(&renamed(index.to_string())));
    assert!(complete, "some are missing: {}", reports.len());
    Ok(())
}

/// However handles end, no descriptor leaks.
pub fn no_descriptor_leaks(lab: &Lab) -> Verdict {
    let directory = Directory::new();
    directory.folder("a/b/c");
    let round = || -> Verdict {
        let mut lp = new_loop(lab)?;
        let watches = [(); 5].map(|()| Watch::new(&mut lp, directory.root()));
        directory.file("entry", "");
        run_until(&mut lp, "a change", |_| watches.iter().all(|watch| !watch.events().is_empty()));
        watches[0].handle.close(&mut lp).expect("an open handle");
        watches[1].handle.stop(&mut lp).expect("an open handle");
        fs::remove_file(directory.path("entry")).expect("a file to remove");
        run(&mut lp, RunMode::NoWait);
        Ok(())
    };
    // The first round may leave what the system keeps for the process.
    round()?;
    let before = settled_descriptors()?;
    for _ in 0..10 {
        round()?;
    }
    assert_eq!(open_descriptors()?, before);
    Ok(())
}

/// A forked child reports the changes after the fork, and does not affect its parent.
#[cfg(unix)]
pub fn a_forked_child_continues_to_watch(lab: &Lab) -> Verdict {
    use crate::support::child::{Child, after_fork};
    use crate::support::observe::SOON;

    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    let watch = Watch::new(&mut lp, directory.root());
    let child = Child::fork(|| {
        after_fork(&mut lp)?;
        watch.expect_nothing(&mut lp, "nothing has happened");
        directory.file("of the child", "");
        run_until(&mut lp, "a change", |_| !watch.events().is_empty());
        Ok(())
    });
    child.join(SOON)?;
    run_until(&mut lp, "a change", |_| !watch.events().is_empty());
    Ok(())
}

/// A forked child reports the changes after the fork, and does not affect its parent.
#[cfg(not(unix))]
pub fn a_forked_child_continues_to_watch(_lab: &Lab) -> Verdict {
    Err(Skip::because("Windows has no fork"))
}
