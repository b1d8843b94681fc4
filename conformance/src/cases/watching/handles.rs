//! Handles on a file or a directory.

use std::fs;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;

use poll_core::Backend;
use uv_core::{FsEvent, FsEventFlags, Handle, RunMode};

use crate::support::files::Directory;
use crate::support::limits::{open_descriptors, settled_descriptors};
use crate::support::loops::{new_loop, run, run_to_the_end};
use crate::support::streams::{finish, refusal, run_a_moment, run_until};
use crate::support::trace::Count;
use crate::support::watching::{Told, Watch, changed, needs_names_of_entries, renamed};
use crate::support::wine;
use crate::{Lab, Skip, Verdict};

/// Entries of a directory that come, change and go are told, by their names.
pub fn entries_are_told_by_name<T: Backend>(lab: &Lab<T>) -> Verdict {
    needs_names_of_entries()?;
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    let watch = Watch::new(&mut lp, directory.root());
    watch.expect_nothing(&mut lp, "nothing has happened");
    let file = directory.file("entry", "");
    watch.expect(&mut lp, renamed("entry"));
    watch.settle(&mut lp);
    fs::write(&file, "content").expect("a file to write to");
    watch.expect(&mut lp, changed("entry"));
    watch.settle(&mut lp);
    fs::remove_file(&file).expect("a file to remove");
    watch.expect(&mut lp, renamed("entry"));
    watch.settle(&mut lp);
    directory.folder("folder");
    watch.expect(&mut lp, renamed("folder"));
    watch.settle(&mut lp);
    directory.file("folder/below", "");
    run_a_moment(&mut lp);
    let below = |told: &Told| matches!(told, Told::Renamed(path) if path.ends_with("below"));
    assert!(!watch.told().iter().any(below), "not below: {:?}", watch.told());
    watch.handle.close(&mut lp).expect("an open handle");
    finish(lp);
    Ok(())
}

/// Both names of a renamed entry are told.
pub fn a_new_name_is_told_with_the_old<T: Backend>(lab: &Lab<T>) -> Verdict {
    needs_names_of_entries()?;
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    let old = directory.file("old", "");
    let watch = Watch::new(&mut lp, directory.root());
    fs::rename(old, directory.path("new")).expect("a rename");
    watch.expect(&mut lp, renamed("old"));
    watch.expect(&mut lp, renamed("new"));
    Ok(())
}

/// A file is watched alone: it is told by its name, and its neighbours are not.
pub fn a_file_is_told_alone<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    let file = directory.file("watched", "");
    let watch = Watch::new(&mut lp, &file);
    directory.file("neighbour", "content");
    watch.expect_nothing(&mut lp, "a neighbour has changed");
    fs::write(&file, "content").expect("a file to write to");
    watch.expect(&mut lp, changed("watched"));
    watch.settle(&mut lp);
    fs::remove_file(&file).expect("a file to remove");
    watch.expect(&mut lp, renamed("watched"));
    watch.handle.close(&mut lp).expect("an open handle");
    finish(lp);
    Ok(())
}

/// Several handles on one directory, and one on a file in it, are each told; those that stop
/// leave the others as they were.
pub fn several_watch_one_path<T: Backend>(lab: &Lab<T>) -> Verdict {
    needs_names_of_entries()?;
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    let file = directory.file("entry", "");
    let all = [(); 3].map(|()| Watch::new(&mut lp, directory.root()));
    let one = Watch::new(&mut lp, &file);
    fs::write(&file, "content").expect("a file to write to");
    for watch in all.iter().chain([&one]) {
        watch.expect(&mut lp, changed("entry"));
    }
    one.settle(&mut lp);
    all.iter().for_each(Watch::forget);
    all[1].handle.stop(&mut lp).expect("an open handle");
    fs::write(&file, "more content").expect("a file to write to");
    for watch in [&all[0], &all[2], &one] {
        watch.expect(&mut lp, changed("entry"));
    }
    assert_eq!(all[1].told(), [], "it was stopped");
    Ok(())
}

/// A handle watches one path at a time, and says which; one that is stopped can start anew.
pub fn a_handle_watches_one_path<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, one, two) = (new_loop(lab)?, Directory::new(), Directory::new());
    let watch = Watch::new(&mut lp, one.root());
    let (handle, none) = (watch.handle, FsEventFlags::empty());
    assert_eq!(handle.path(&lp), Some(&*one.root()));
    let refused = watch.start(&mut lp, &two.root(), none);
    assert_eq!(refusal(refused), ErrorKind::InvalidInput, "it watches already");
    assert_eq!(handle.path(&lp), Some(&*one.root()), "as it was");
    handle.stop(&mut lp).expect("an open handle");
    handle.stop(&mut lp).expect("stopping twice is stopping");
    assert!(!handle.is_active(&lp) && handle.path(&lp).is_none());
    let missing = watch.start(&mut lp, &two.path("missing"), none);
    assert_eq!(refusal(missing), ErrorKind::NotFound);
    assert!(!handle.is_active(&lp) && handle.path(&lp).is_none(), "as it was");
    watch.start(&mut lp, &two.root(), none).expect("another path");
    one.file("entry", "");
    watch.expect_nothing(&mut lp, "it watches the other");
    two.file("entry", "");
    run_until(&mut lp, "a change to the other", |_| !watch.told().is_empty());
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

/// What happened before a handle was started is not told to it, though others are told.
pub fn the_past_is_not_told<T: Backend>(lab: &Lab<T>) -> Verdict {
    needs_names_of_entries()?;
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    directory.file("before", "");
    let early = Watch::new(&mut lp, directory.root());
    directory.file("between", "");
    if cfg!(windows) {
        // There a thread is told, some time later.
        early.expect(&mut lp, renamed("between"));
    }
    let late = Watch::new(&mut lp, directory.root());
    directory.file("after", "");
    early.expect(&mut lp, renamed("between"));
    early.expect(&mut lp, renamed("after"));
    late.expect(&mut lp, renamed("after"));
    assert!(!early.told().contains(&renamed("before")), "{:?}", early.told());
    assert!(!late.told().contains(&renamed("between")), "{:?}", late.told());
    Ok(())
}

/// A handle that stops or closes in its callback is not called again, whatever has happened.
pub fn a_callback_may_end_it<T: Backend>(lab: &Lab<T>) -> Verdict {
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

/// A handle that is closed or stopped is not told what had happened before that.
pub fn a_closed_handle_is_told_nothing<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    let closed = Watch::new(&mut lp, directory.root());
    let stopped = Watch::new(&mut lp, directory.root());
    directory.file("entry", "content");
    closed.handle.close(&mut lp).expect("an open handle");
    stopped.handle.stop(&mut lp).expect("an open handle");
    stopped.expect_nothing(&mut lp, "it was stopped");
    assert_eq!(closed.told(), [], "it was closed");
    stopped.handle.close(&mut lp).expect("an open handle");
    finish(lp);
    Ok(())
}

/// A handle keeps the loop alive while it watches, unless it is unreferenced.
pub fn keep_the_loop_unless_unreferenced<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    let handle = FsEvent::new(&mut lp);
    assert!(!lp.alive() && !handle.is_active(&lp), "not started");
    let watch = Watch::new(&mut lp, directory.root());
    assert!(lp.alive() && watch.handle.is_active(&lp));
    watch.handle.unreference(&mut lp).expect("an open handle");
    assert!(!lp.alive() && watch.handle.is_active(&lp));
    run_to_the_end(&mut lp);
    watch.handle.reference(&mut lp).expect("an open handle");
    watch.handle.stop(&mut lp).expect("an open handle");
    assert!(!lp.alive());
    Ok(())
}

/// A directory that is removed is told by its own name. Then nothing comes, the loop sleeps,
/// and the handle can be used for another.
pub fn a_removed_directory_is_told<T: Backend>(lab: &Lab<T>) -> Verdict {
    if wine::keeps_watched_directories() {
        return Err(Skip::because("Wine does not remove a directory that is watched"));
    }
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    let doomed = directory.folder("doomed");
    let watch = Watch::new(&mut lp, &doomed);
    fs::remove_dir(&doomed).expect("an empty directory");
    watch.expect(&mut lp, renamed("doomed"));
    watch.settle(&mut lp);
    let polls = run_a_moment(&mut lp);
    assert!(polls < 6, "it polled {polls} times though nothing happens");
    // Another of that name is another.
    directory.folder("doomed");
    directory.file("doomed/entry", "");
    watch.expect_nothing(&mut lp, "what it watched is gone");
    assert!(watch.handle.is_active(&lp), "until it is stopped");
    watch.handle.stop(&mut lp).expect("an open handle");
    watch.start(&mut lp, &doomed, FsEventFlags::empty()).expect("the new one");
    directory.file("doomed/another", "");
    run_until(&mut lp, "a change to the new one", |_| !watch.told().is_empty());
    watch.handle.close(&mut lp).expect("an open handle");
    finish(lp);
    Ok(())
}

/// A panic in a callback stops that handle, and the others are told all the same.
pub fn a_panic_leaves_the_rest<T: Backend>(lab: &Lab<T>) -> Verdict {
    needs_names_of_entries()?;
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    let first = FsEvent::new(&mut lp);
    let started = first.start(&mut lp, directory.root(), FsEventFlags::empty(), |_, _, _| {
        // Without a message on the standard error stream.
        resume_unwind(Box::new("on purpose"))
    });
    started.expect("a handle that watches");
    let second = Watch::new(&mut lp, directory.root());
    for name in ["one", "two", "three"] {
        directory.file(name, "");
    }
    let panicked = catch_unwind(AssertUnwindSafe(|| run(&mut lp, RunMode::Default)));
    assert!(panicked.is_err(), "the panic comes out of the run");
    assert!(!first.is_active(&lp), "stopped");
    for name in ["one", "two", "three"] {
        second.expect(&mut lp, renamed(name));
    }
    Ok(())
}

/// Thousands of changes are all told, or said to be lost.
pub fn thousands_of_changes<T: Backend>(lab: &Lab<T>) -> Verdict {
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
    let told_all = |watch: &Watch| {
        let told = watch.told();
        let is_told = |index: usize| told.contains(&renamed(Path::new(&index.to_string())));
        told.contains(&Told::Lost) || (0..FILES).rev().all(is_told)
    };
    run_until(&mut lp, "the last of them", |_| {
        let last = renamed((FILES - 1).to_string());
        let told = watch.told();
        told.contains(&last) || told.contains(&Told::Lost)
    });
    assert!(told_all(&watch), "some are missing: {}", watch.told().len());
    Ok(())
}

/// However handles end, no descriptor is left behind.
pub fn no_descriptor_is_left_behind<T: Backend>(lab: &Lab<T>) -> Verdict {
    let directory = Directory::new();
    directory.folder("a/b/c");
    let round = || -> Verdict {
        let mut lp = new_loop(lab)?;
        let watches = [(); 5].map(|()| Watch::new(&mut lp, directory.root()));
        directory.file("entry", "");
        run_until(&mut lp, "a change", |_| watches.iter().all(|watch| !watch.told().is_empty()));
        watches[0].handle.close(&mut lp).expect("an open handle");
        watches[1].handle.stop(&mut lp).expect("an open handle");
        fs::remove_file(directory.path("entry")).expect("a file to remove");
        run(&mut lp, RunMode::NoWait);
        Ok(())
    };
    // The first may leave what the system keeps for the process.
    round()?;
    let before = settled_descriptors()?;
    for _ in 0..10 {
        round()?;
    }
    assert_eq!(open_descriptors()?, before);
    Ok(())
}

/// A forked child is told what happens from then on, and the parent as if there were none.
#[cfg(unix)]
pub fn a_forked_child_watches_on<T: Backend>(lab: &Lab<T>) -> Verdict {
    use crate::support::child::Child;
    use crate::support::observe::SOON;

    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    let watch = Watch::new(&mut lp, directory.root());
    let child = Child::fork(|| {
        match lp.fork() {
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                return Err(Skip::because(error.to_string()));
            }
            result => result.expect("a loop that goes on"),
        }
        watch.expect_nothing(&mut lp, "nothing has happened");
        directory.file("of the child", "");
        run_until(&mut lp, "a change", |_| !watch.told().is_empty());
        Ok(())
    });
    run_until(&mut lp, "a change", |_| !watch.told().is_empty());
    child.join(SOON)
}

/// A forked child is told what happens from then on, and the parent as if there were none.
#[cfg(not(unix))]
pub fn a_forked_child_watches_on<T: Backend>(_lab: &Lab<T>) -> Verdict {
    Err(Skip::because("Windows has no fork"))
}
