//! Recursive watches.

use std::fs;
use std::path::Path;
use std::thread;

use uv_core::{FsEventFlags, Handle};

use crate::support::files::Directory;
use crate::support::loops::new_loop;
use crate::support::streams::{finish, run_until};
use crate::support::watching::{Watch, WatchEvent, changed, needs_trees, renamed};
use crate::support::wine;
use crate::{Lab, Skip, Verdict};

/// A path below the root, with the separator of this system.
fn below(path: &str) -> std::path::PathBuf {
    path.split('/').collect()
}

/// Changes in directories below the root are reported, by the path from the root.
pub fn directories_below_are_watched(lab: &Lab) -> Verdict {
    needs_trees()?;
    if wine::watches_new_directories_only() {
        return Err(Skip::because("Wine does not watch directories that were there before"));
    }
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    directory.folder("a/b/c");
    let file = directory.file("a/b/file", "");
    let watch = Watch::tree(&mut lp, directory.root());
    let flat = Watch::new(&mut lp, directory.root());
    watch.expect_nothing(&mut lp, "nothing has happened");
    fs::write(&file, "content").expect("a file to write to");
    watch.expect(&mut lp, changed(below("a/b/file")));
    directory.file("a/b/c/deep", "");
    watch.expect(&mut lp, renamed(below("a/b/c/deep")));
    directory.file("top", "");
    watch.expect(&mut lp, renamed("top"));
    let is_deep =
        |report: &WatchEvent| matches!(report, WatchEvent::Renamed(path) if path.ends_with("deep"));
    assert!(!flat.events().iter().any(is_deep), "this handle is not recursive");
    for watch in [watch, flat] {
        watch.handle.close(&mut lp).expect("an open handle");
    }
    finish(lp);
    Ok(())
}

/// A relative path is that of the start, also for directories that are created after a change of
/// the working directory, and in a forked child.
#[cfg(unix)]
pub fn a_relative_tree_survives_a_change_of_directory(lab: &Lab) -> Verdict {
    use crate::support::child::{Child, after_fork};
    use crate::support::observe::SOON;

    needs_trees()?;
    let directory = Directory::new();
    // The working directory is that of the whole process.
    let child = Child::fork(|| {
        std::env::set_current_dir(directory.root()).expect("a working directory");
        let mut lp = new_loop(lab)?;
        let watch = Watch::tree(&mut lp, ".");
        std::env::set_current_dir("/").expect("a working directory");
        directory.folder("new");
        watch.expect(&mut lp, renamed("new"));
        directory.file("new/entry", "");
        watch.expect(&mut lp, renamed(below("new/entry")));
        let child = Child::fork(|| {
            after_fork(&mut lp)?;
            directory.file("new/of the child", "");
            watch.expect(&mut lp, renamed(below("new/of the child")));
            Ok(())
        });
        child.join(SOON)
    });
    child.join(SOON)
}

/// A relative path is that of the start, also for directories that are created after a change of
/// the working directory, and in a forked child.
#[cfg(not(unix))]
pub fn a_relative_tree_survives_a_change_of_directory(_lab: &Lab) -> Verdict {
    Err(Skip::because("only a forked child can change its working directory alone"))
}

/// New directories are watched at any depth, and none of their entries is missed: neither those
/// from after the watch nor those from before it.
pub fn new_directories_are_watched(lab: &Lab) -> Verdict {
    needs_trees()?;
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    let watch = Watch::tree(&mut lp, directory.root());
    // All entries exist before the loop gets the first change.
    directory.folder("x/y/z");
    directory.file("x/y/z/early", "");
    directory.file("x/early", "");
    for path in ["x", "x/y", "x/y/z", "x/y/z/early", "x/early"] {
        watch.expect(&mut lp, renamed(below(path)));
    }
    watch.drain(&mut lp);
    directory.file("x/y/z/late", "");
    watch.expect(&mut lp, renamed(below("x/y/z/late")));
    watch.drain(&mut lp);
    fs::write(directory.path("x/early"), "content").expect("a file to write to");
    watch.expect(&mut lp, changed(below("x/early")));
    Ok(())
}

/// While another thread creates directories and files in them, each file is reported.
pub fn no_file_of_a_busy_tree_is_missed(lab: &Lab) -> Verdict {
    const FOLDERS: usize = 60;
    needs_trees()?;
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    let watch = Watch::tree(&mut lp, directory.root());
    let root = directory.root();
    let busy = thread::spawn(move || {
        for index in 0..FOLDERS {
            let folder = root.join(format!("{}/{index}/inner", index % 7));
            fs::create_dir_all(&folder).expect("a directory");
            fs::write(folder.join("file"), "").expect("a file");
        }
    });
    let path = |index: usize| below(&format!("{}/{index}/inner/file", index % 7));
    run_until(&mut lp, "all of them", |_| {
        let reports = watch.events();
        (0..FOLDERS).all(|index| reports.contains(&renamed(path(index))))
    });
    busy.join().expect("a thread that makes files");
    assert!(!watch.events().contains(&WatchEvent::Lost));
    Ok(())
}

/// A moved directory, and changes in it, are reported under the new path. A directory moved out of
/// the tree is not reported any more.
pub fn moved_directories_report_new_paths(lab: &Lab) -> Verdict {
    needs_trees()?;
    if wine::watches_new_directories_only() {
        return Err(Skip::because("Wine does not watch directories that were there before"));
    }
    let (mut lp, directory, elsewhere) = (new_loop(lab)?, Directory::new(), Directory::new());
    directory.folder("old/inner");
    let watch = Watch::tree(&mut lp, directory.root());
    let inner = Watch::new(&mut lp, directory.path("old/inner"));
    if cfg!(windows) {
        // A directory in use cannot be renamed on this system.
        inner.handle.stop(&mut lp).expect("an open handle");
    }
    fs::rename(directory.path("old"), directory.path("new")).expect("a rename");
    watch.expect(&mut lp, renamed("old"));
    watch.expect(&mut lp, renamed("new"));
    watch.drain(&mut lp);
    directory.file("new/inner/file", "");
    watch.expect(&mut lp, renamed(below("new/inner/file")));
    assert!(!watch.events().contains(&renamed(below("old/inner/file"))), "{:?}", watch.events());
    directory.folder("new/inner/later");
    watch.expect(&mut lp, renamed(below("new/inner/later")));
    watch.drain(&mut lp);
    directory.file("new/inner/later/file", "");
    watch.expect(&mut lp, renamed(below("new/inner/later/file")));
    if cfg!(not(windows)) {
        inner.expect(&mut lp, renamed("later"));
    }
    fs::rename(directory.path("new"), elsewhere.path("away")).expect("a rename");
    watch.expect(&mut lp, renamed("new"));
    watch.drain(&mut lp);
    elsewhere.file("away/inner/file", "content");
    watch.expect_nothing(&mut lp, "it has moved away");
    // And back again.
    fs::rename(elsewhere.path("away"), directory.path("back")).expect("a rename");
    watch.expect(&mut lp, renamed("back"));
    watch.drain(&mut lp);
    fs::write(directory.path("back/inner/file"), "other content").expect("a file to write to");
    watch.expect(&mut lp, changed(below("back/inner/file")));
    Ok(())
}

/// Directories that are removed and recreated are watched again.
pub fn removed_directories_may_be_recreated(lab: &Lab) -> Verdict {
    needs_trees()?;
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    let watch = Watch::tree(&mut lp, directory.root());
    for round in 0..5 {
        directory.folder("a/b");
        let file = format!("a/b/{round}");
        directory.file(&file, "");
        watch.expect(&mut lp, renamed(below(&file)));
        fs::remove_dir_all(directory.path("a")).expect("a directory to remove");
        watch.drain(&mut lp);
    }
    if !wine::keeps_watched_directories() {
        fs::remove_dir(directory.root()).expect("an empty directory");
        let name = directory.root();
        watch.expect(&mut lp, renamed(name.file_name().map(Path::new).expect("a name")));
    }
    watch.handle.close(&mut lp).expect("an open handle");
    finish(lp);
    Ok(())
}

/// A moved root is reported by its own name and still watched. Directories created in it afterwards
/// cannot be watched, which is reported. A restart with the new path watches them.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub fn a_moved_root_is_reported(lab: &Lab) -> Verdict {
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    directory.folder("root/inner");
    let watch = Watch::tree(&mut lp, directory.path("root"));
    fs::rename(directory.path("root"), directory.path("moved")).expect("a rename");
    // Another directory in its place is not the watched one.
    directory.folder("root/new");
    watch.expect(&mut lp, renamed("root"));
    watch.drain(&mut lp);
    directory.file("moved/inner/file", "");
    watch.expect(&mut lp, renamed(below("inner/file")));
    watch.drain(&mut lp);
    directory.folder("moved/new");
    watch.expect(&mut lp, renamed("new"));
    watch.expect(&mut lp, WatchEvent::Failed(std::io::ErrorKind::NotFound));
    watch.drain(&mut lp);
    directory.file("root/new/file", "");
    watch.expect_nothing(&mut lp, "it is in another directory of that name");
    watch.handle.stop(&mut lp).expect("an open handle");
    let started = watch.start(&mut lp, &directory.path("moved"), FsEventFlags::RECURSIVE);
    started.expect("a handle that watches");
    directory.file("moved/new/file", "");
    watch.expect(&mut lp, renamed(below("new/file")));
    Ok(())
}

/// A moved root is reported by its own name and still watched. Directories created in it afterwards
/// cannot be watched, which is reported. A restart with the new path watches them.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub fn a_moved_root_is_reported(_lab: &Lab) -> Verdict {
    Err(Skip::because("only Linux watches recursively and reports the root"))
}

/// A root removed with its entries is reported by its own name. The handle stays active, and may be
/// stopped, and started when the root exists again.
pub fn a_removed_root_may_be_recreated(lab: &Lab) -> Verdict {
    needs_trees()?;
    if wine::keeps_watched_directories() {
        return Err(Skip::because("Wine keeps directories that are watched"));
    }
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    directory.folder("root/inner/most");
    let watch = Watch::tree(&mut lp, directory.path("root"));
    fs::remove_dir_all(directory.path("root")).expect("a directory to remove");
    watch.expect(&mut lp, renamed("root"));
    watch.drain(&mut lp);
    directory.folder("root/inner");
    watch.expect_nothing(&mut lp, "that is another directory");
    assert!(watch.handle.is_active(&lp), "until it is stopped");
    watch.handle.stop(&mut lp).expect("an open handle");
    let started = watch.start(&mut lp, &directory.path("root"), FsEventFlags::RECURSIVE);
    started.expect("a handle that watches");
    directory.file("root/inner/file", "");
    watch.expect(&mut lp, renamed(below("inner/file")));
    Ok(())
}

/// Symbolic links below the root are not followed, even if they lead back to it.
#[cfg(unix)]
pub fn links_are_not_followed(lab: &Lab) -> Verdict {
    needs_trees()?;
    let (mut lp, directory, elsewhere) = (new_loop(lab)?, Directory::new(), Directory::new());
    directory.folder("a");
    std::os::unix::fs::symlink(directory.root(), directory.path("a/up")).expect("a link");
    let watch = Watch::tree(&mut lp, directory.root());
    std::os::unix::fs::symlink(elsewhere.root(), directory.path("a/away")).expect("a link");
    watch.expect(&mut lp, renamed(below("a/away")));
    watch.drain(&mut lp);
    elsewhere.file("file", "content");
    watch.expect_nothing(&mut lp, "it is behind a link");
    directory.file("file", "");
    watch.expect(&mut lp, renamed("file"));
    assert!(!watch.events().contains(&renamed(below("a/up/file"))), "{:?}", watch.events());
    // The root itself may be a link.
    let link = elsewhere.path("link");
    std::os::unix::fs::symlink(directory.root(), &link).expect("a link");
    let by_link = Watch::tree(&mut lp, &link);
    directory.file("a/below", "");
    by_link.expect(&mut lp, renamed(below("a/below")));
    Ok(())
}

/// Symbolic links below the root are not followed, even if they lead back to it.
#[cfg(not(unix))]
pub fn links_are_not_followed(_lab: &Lab) -> Verdict {
    Err(Skip::because("links are for the privileged here"))
}
