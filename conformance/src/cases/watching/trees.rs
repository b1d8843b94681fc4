//! Directories with all that is below them.

use std::fs;
use std::path::Path;
use std::thread;

use poll_core::Backend;
use uv_core::{FsEventFlags, Handle};

use crate::support::files::Directory;
use crate::support::loops::new_loop;
use crate::support::streams::{finish, run_until};
use crate::support::watching::{Told, Watch, changed, needs_trees, renamed};
use crate::support::wine;
use crate::{Lab, Skip, Verdict};

/// A path below, with the separator of this system.
fn below(path: &str) -> std::path::PathBuf {
    path.split('/').collect()
}

/// What happens in directories below is told, by the path from the root.
pub fn directories_below_are_watched<T: Backend>(lab: &Lab<T>) -> Verdict {
    needs_trees()?;
    if wine::watches_new_directories_only() {
        return Err(Skip::because("Wine does not watch directories that were there before"));
    }
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    directory.folder("a/b/c");
    let file = directory.file("a/b/file", "");
    let watch = Watch::tree(&mut lp, directory.root());
    let alone = Watch::new(&mut lp, directory.root());
    watch.expect_nothing(&mut lp, "nothing has happened");
    fs::write(&file, "content").expect("a file to write to");
    watch.expect(&mut lp, changed(below("a/b/file")));
    directory.file("a/b/c/deep", "");
    watch.expect(&mut lp, renamed(below("a/b/c/deep")));
    directory.file("top", "");
    watch.expect(&mut lp, renamed("top"));
    let is_deep = |told: &Told| matches!(told, Told::Renamed(path) if path.ends_with("deep"));
    assert!(!alone.told().iter().any(is_deep), "this one watches the root alone");
    for watch in [watch, alone] {
        watch.handle.close(&mut lp).expect("an open handle");
    }
    finish(lp);
    Ok(())
}

/// Directories that appear are watched, and nothing in them is missed: neither what came
/// after nor what came before the watch, however deep.
pub fn new_directories_are_watched<T: Backend>(lab: &Lab<T>) -> Verdict {
    needs_trees()?;
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    let watch = Watch::tree(&mut lp, directory.root());
    // All of this is there before the loop hears of any of it.
    directory.folder("x/y/z");
    directory.file("x/y/z/early", "");
    directory.file("x/early", "");
    for path in ["x", "x/y", "x/y/z", "x/y/z/early", "x/early"] {
        watch.expect(&mut lp, renamed(below(path)));
    }
    watch.settle(&mut lp);
    directory.file("x/y/z/late", "");
    watch.expect(&mut lp, renamed(below("x/y/z/late")));
    watch.settle(&mut lp);
    fs::write(directory.path("x/early"), "content").expect("a file to write to");
    watch.expect(&mut lp, changed(below("x/early")));
    Ok(())
}

/// While another thread makes directories and files in them, each file is told.
pub fn no_file_of_a_busy_tree_is_missed<T: Backend>(lab: &Lab<T>) -> Verdict {
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
        let told = watch.told();
        (0..FOLDERS).all(|index| told.contains(&renamed(path(index))))
    });
    busy.join().expect("a thread that makes files");
    assert!(!watch.told().contains(&Told::Lost));
    Ok(())
}

/// A directory that has moved is told by its new name, and so is what happens in it; what has
/// moved away is not told of.
pub fn moved_directories_have_new_names<T: Backend>(lab: &Lab<T>) -> Verdict {
    needs_trees()?;
    if wine::watches_new_directories_only() {
        return Err(Skip::because("Wine does not watch directories that were there before"));
    }
    let (mut lp, directory, elsewhere) = (new_loop(lab)?, Directory::new(), Directory::new());
    directory.folder("old/inner");
    let watch = Watch::tree(&mut lp, directory.root());
    let inner = Watch::new(&mut lp, directory.path("old/inner"));
    if cfg!(windows) {
        // A directory in use cannot be renamed there.
        inner.handle.stop(&mut lp).expect("an open handle");
    }
    fs::rename(directory.path("old"), directory.path("new")).expect("a rename");
    watch.expect(&mut lp, renamed("old"));
    watch.expect(&mut lp, renamed("new"));
    watch.settle(&mut lp);
    directory.file("new/inner/file", "");
    watch.expect(&mut lp, renamed(below("new/inner/file")));
    assert!(!watch.told().contains(&renamed(below("old/inner/file"))), "{:?}", watch.told());
    directory.folder("new/inner/later");
    watch.expect(&mut lp, renamed(below("new/inner/later")));
    watch.settle(&mut lp);
    directory.file("new/inner/later/file", "");
    watch.expect(&mut lp, renamed(below("new/inner/later/file")));
    if cfg!(not(windows)) {
        inner.expect(&mut lp, renamed("later"));
    }
    fs::rename(directory.path("new"), elsewhere.path("away")).expect("a rename");
    watch.expect(&mut lp, renamed("new"));
    watch.settle(&mut lp);
    elsewhere.file("away/inner/file", "content");
    watch.expect_nothing(&mut lp, "it has moved away");
    // And back again.
    fs::rename(elsewhere.path("away"), directory.path("back")).expect("a rename");
    watch.expect(&mut lp, renamed("back"));
    watch.settle(&mut lp);
    fs::write(directory.path("back/inner/file"), "other content").expect("a file to write to");
    watch.expect(&mut lp, changed(below("back/inner/file")));
    Ok(())
}

/// Directories that are removed and made again are watched again.
pub fn removed_directories_may_come_back<T: Backend>(lab: &Lab<T>) -> Verdict {
    needs_trees()?;
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    let watch = Watch::tree(&mut lp, directory.root());
    for round in 0..5 {
        directory.folder("a/b");
        let file = format!("a/b/{round}");
        directory.file(&file, "");
        watch.expect(&mut lp, renamed(below(&file)));
        fs::remove_dir_all(directory.path("a")).expect("a directory to remove");
        watch.settle(&mut lp);
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

/// A root that moves is told by its own name and watched on. What is made in it from then on
/// cannot be watched, and that is told; started with the new path, it can.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub fn a_moved_root_is_told<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    directory.folder("root/inner");
    let watch = Watch::tree(&mut lp, directory.path("root"));
    fs::rename(directory.path("root"), directory.path("moved")).expect("a rename");
    // Another one in its place is not the one that is watched.
    directory.folder("root/new");
    watch.expect(&mut lp, renamed("root"));
    watch.settle(&mut lp);
    directory.file("moved/inner/file", "");
    watch.expect(&mut lp, renamed(below("inner/file")));
    watch.settle(&mut lp);
    directory.folder("moved/new");
    watch.expect(&mut lp, renamed("new"));
    watch.expect(&mut lp, Told::Failed(std::io::ErrorKind::NotFound));
    watch.settle(&mut lp);
    directory.file("root/new/file", "");
    watch.expect_nothing(&mut lp, "it is in another directory of that name");
    watch.handle.stop(&mut lp).expect("an open handle");
    let started = watch.start(&mut lp, &directory.path("moved"), FsEventFlags::RECURSIVE);
    started.expect("a handle that watches");
    directory.file("moved/new/file", "");
    watch.expect(&mut lp, renamed(below("new/file")));
    Ok(())
}

/// A root that moves is told by its own name.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub fn a_moved_root_is_told<T: Backend>(_lab: &Lab<T>) -> Verdict {
    Err(Skip::because("only Linux watches recursively and tells of the root"))
}

/// A root that is removed with all that is in it is told by its own name; the handle stays
/// active, and may be stopped and started when there is one again.
pub fn a_removed_root_may_come_back<T: Backend>(lab: &Lab<T>) -> Verdict {
    needs_trees()?;
    if wine::keeps_watched_directories() {
        return Err(Skip::because("Wine keeps directories that are watched"));
    }
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    directory.folder("root/inner/most");
    let watch = Watch::tree(&mut lp, directory.path("root"));
    fs::remove_dir_all(directory.path("root")).expect("a directory to remove");
    watch.expect(&mut lp, renamed("root"));
    watch.settle(&mut lp);
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

/// Symbolic links below are not followed, even if they lead back: a tree has an end.
#[cfg(unix)]
pub fn links_are_not_followed<T: Backend>(lab: &Lab<T>) -> Verdict {
    needs_trees()?;
    let (mut lp, directory, elsewhere) = (new_loop(lab)?, Directory::new(), Directory::new());
    directory.folder("a");
    std::os::unix::fs::symlink(directory.root(), directory.path("a/up")).expect("a link");
    let watch = Watch::tree(&mut lp, directory.root());
    std::os::unix::fs::symlink(elsewhere.root(), directory.path("a/away")).expect("a link");
    watch.expect(&mut lp, renamed(below("a/away")));
    watch.settle(&mut lp);
    elsewhere.file("file", "content");
    watch.expect_nothing(&mut lp, "it is behind a link");
    directory.file("file", "");
    watch.expect(&mut lp, renamed("file"));
    assert!(!watch.told().contains(&renamed(below("a/up/file"))), "{:?}", watch.told());
    // The root itself may be a link.
    let link = elsewhere.path("link");
    std::os::unix::fs::symlink(directory.root(), &link).expect("a link");
    let by_link = Watch::tree(&mut lp, &link);
    directory.file("a/below", "");
    by_link.expect(&mut lp, renamed(below("a/below")));
    Ok(())
}

/// Symbolic links below are not followed.
#[cfg(not(unix))]
pub fn links_are_not_followed<T: Backend>(_lab: &Lab<T>) -> Verdict {
    Err(Skip::because("links are for the privileged here"))
}
