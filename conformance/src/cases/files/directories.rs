//! Directories, and temporary names.

use std::collections::BTreeSet;
use std::io::ErrorKind;

use uv_core::fs::{self, EntryKind, SymlinkKind};

use super::{ask, refusal};
use crate::support::files::Directory;
use crate::support::loops::{new_loop, run_to_the_end};
use crate::{Lab, Verdict};

/// `scandir` returns all entries, sorted by name, with their kinds, without `.` and `..`.
pub fn scandir_sorts_by_name(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    for name in ["b", "a", "c10", "c2", "C"] {
        dir.file(if cfg!(windows) && name == "C" { "D" } else { name }, "");
    }
    std::fs::create_dir(dir.path("dir")).expect("a directory");
    let mut expected = vec![
        (if cfg!(windows) { "D" } else { "C" }, EntryKind::File),
        ("a", EntryKind::File),
        ("b", EntryKind::File),
        ("c10", EntryKind::File),
        ("c2", EntryKind::File),
        ("dir", EntryKind::Dir),
    ];
    if cfg!(unix) {
        let link = fs::symlink("nowhere", dir.path("link"), SymlinkKind::File);
        ask(&mut lp, link).expect("a link");
        expected.push(("link", EntryKind::Link));
    }
    let entries = ask(&mut lp, fs::scandir(dir.path(""))).expect("a directory");
    let found: Vec<_> =
        entries.iter().map(|entry| (entry.name.to_str().expect("a name"), entry.kind)).collect();
    assert_eq!(found, expected);
    std::fs::create_dir(dir.path("dir/empty")).expect("a directory");
    assert_eq!(ask(&mut lp, fs::scandir(dir.path("dir/empty"))).expect("a directory"), []);
    Ok(())
}

/// `readdir` returns batches of the requested size, each entry once, and then empty batches.
pub fn readdir_returns_batches(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let names: BTreeSet<String> = (0..100).map(|number| format!("file {number}")).collect();
    for name in &names {
        dir.file(name, "");
    }
    let reading = ask(&mut lp, fs::opendir(dir.path(""))).expect("a directory");
    let mut found = BTreeSet::new();
    loop {
        let batch = ask(&mut lp, fs::readdir(&reading, 7)).expect("a batch");
        assert!(batch.len() <= 7, "no more than asked for");
        if batch.is_empty() {
            break;
        }
        assert!(batch.len() == 7 || found.len() + batch.len() == 100, "as many as there are");
        for entry in batch {
            assert!(found.insert(entry.name.into_string().expect("a name")), "once each");
        }
    }
    assert_eq!(found, names);
    assert_eq!(ask(&mut lp, fs::readdir(&reading, 7)).expect("no error"), [], "still the end");
    ask(&mut lp, fs::closedir(reading)).expect("a directory to close");
    Ok(())
}

/// Two concurrent `readdir` requests return separate batches.
pub fn concurrent_readdirs_return_separate_batches(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    (0..20).for_each(|number| drop(dir.file(&format!("file {number}"), "")));
    let reading = ask(&mut lp, fs::opendir(dir.path(""))).expect("a directory");
    let found = crate::support::trace::Log::default();
    for _ in 0..5 {
        let found = found.clone();
        let batch = fs::readdir(&reading, 6);
        batch.start(&mut lp, move |_, batch| found.extend(batch.expect("a batch"))).expect("it");
    }
    run_to_the_end(&mut lp);
    let names: BTreeSet<_> = found.take().into_iter().map(|entry| entry.name).collect();
    assert_eq!(names.len(), 20, "each once");
    Ok(())
}

/// A directory in use is not closed.
pub fn a_directory_in_use_stays_open(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    dir.file("file", "");
    let reading = ask(&mut lp, fs::opendir(dir.path(""))).expect("a directory");
    let close = fs::closedir(reading.clone()).start(&mut lp, |_, _| panic!("it never began"));
    assert_eq!(close.expect_err("in use").kind(), ErrorKind::ResourceBusy);
    assert_eq!(ask(&mut lp, fs::readdir(&reading, 2)).expect("a batch").len(), 1);
    ask(&mut lp, fs::closedir(reading)).expect("the directory is not in use");
    Ok(())
}

/// `mkdtemp` and `mkstemp` create unique names, with permissions for the current user only.
pub fn temporary_names_are_unique(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let (mut dirs, mut files) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..20 {
        dirs.insert(ask(&mut lp, fs::mkdtemp(dir.path("dir-XXXXXX"))).expect("a directory"));
        let (file, path) = ask(&mut lp, fs::mkstemp(dir.path("fileXXXXXX"))).expect("a file");
        let (count, _) = ask(&mut lp, fs::write(&file, "x"));
        assert_eq!(count.expect("open to be written"), 1);
        let (count, bytes) = ask(&mut lp, fs::read_at(&file, vec![0], 0));
        assert_eq!((count.expect("open to be read"), &*bytes), (1, &b"x"[..]));
        files.insert(path);
    }
    assert_eq!((dirs.len(), files.len()), (20, 20), "all different");
    for path in dirs.iter().chain(&files) {
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
        let rest = name.strip_prefix("dir-").or(name.strip_prefix("file")).expect("its start");
        assert!(rest.len() == 6 && rest != "XXXXXX", "{name}");
        let mode = ask(&mut lp, fs::stat(path)).expect("the created entry").mode;
        assert!(cfg!(windows) || mode & 0o077 == 0, "{mode:o}: for this user only");
    }
    Ok(())
}

/// A template must end with `XXXXXX`.
pub fn templates_must_end_with_six_x(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    for template in ["dir", "XXXXX", "XXXXXXa", "dirXXXXXx", ""] {
        let template = dir.path(template);
        let kind = refusal(&mut lp, fs::mkdtemp(&template));
        assert_eq!(kind, ErrorKind::InvalidInput, "{template:?}");
        assert_eq!(refusal(&mut lp, fs::mkstemp(&template)), ErrorKind::InvalidInput);
    }
    assert_eq!(ask(&mut lp, fs::scandir(dir.path(""))).expect("a directory"), []);
    Ok(())
}
