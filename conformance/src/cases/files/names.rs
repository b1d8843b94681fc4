//! Paths of files.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::Path;

use uv_core::fs::{self, Access, CopyFlags, EntryKind, OpenOptions, SymlinkKind};

use super::{CREATE, READ, WRITE, ask, open, refusal};
use crate::support::files::Directory;
use crate::support::loops::new_loop;
use crate::support::wine;
use crate::{Lab, Loop, Skip, Verdict};

/// Creates a symbolic link, or skips where this system refuses.
pub(super) fn link_to(lp: &mut Loop, target: &Path, link: &Path) -> Result<(), Skip> {
    if wine::makes_no_links() {
        return Err(Skip::because("Wine makes no symbolic links"));
    }
    match ask(lp, fs::symlink(target, link, SymlinkKind::File)) {
        Err(error) if cfg!(windows) => {
            Err(Skip::because(format!("no symbolic links here: {error}")))
        }
        result => {
            result.expect("a symbolic link");
            Ok(())
        }
    }
}

/// Directories and links are created, renamed and removed.
pub fn entries_are_created_and_removed(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let (old, new, inner) = (dir.file("old", "text"), dir.path("new"), dir.path("inner"));
    ask(&mut lp, fs::mkdir(&inner, 0o755)).expect("a directory");
    assert!(inner.is_dir());
    ask(&mut lp, fs::rename(&old, inner.join("file"))).expect("a file to move");
    assert!(!old.exists() && inner.join("file").exists());
    ask(&mut lp, fs::link(inner.join("file"), &new)).expect("a second name");
    assert_eq!(std::fs::read(&new).expect("the same file"), b"text");
    assert_eq!(ask(&mut lp, fs::stat(&new)).expect("a file").nlink, 2);
    ask(&mut lp, fs::unlink(inner.join("file"))).expect("a name to remove");
    ask(&mut lp, fs::rmdir(&inner)).expect("an empty directory");
    assert!(!inner.exists() && new.exists(), "the other name is left");
    Ok(())
}

/// A rename replaces the file at the target.
pub fn a_rename_replaces_the_target(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let (one, other) = (dir.file("one", "1"), dir.file("other", "2"));
    ask(&mut lp, fs::rename(&one, &other)).expect("a file to rename");
    assert_eq!((one.exists(), &*std::fs::read(&other).expect("the file")), (false, &b"1"[..]));
    Ok(())
}

/// Every operation on a missing path is `NotFound`.
pub fn missing_paths_are_not_found(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let (lp, gone, new) = (&mut lp, dir.path("gone"), dir.path("new"));
    let mut kinds = vec![
        refusal(lp, fs::open(&gone, READ)),
        refusal(lp, fs::stat(&gone)),
        refusal(lp, fs::lstat(&gone)),
        refusal(lp, fs::unlink(&gone)),
        refusal(lp, fs::rmdir(&gone)),
        refusal(lp, fs::rename(&gone, &new)),
        refusal(lp, fs::link(&gone, &new)),
        refusal(lp, fs::readlink(&gone)),
        refusal(lp, fs::realpath(&gone)),
        refusal(lp, fs::access(&gone, Access::empty())),
        refusal(lp, fs::chmod(&gone, 0o600)),
        refusal(lp, fs::utime(&gone, fs::SetTime::Now, fs::SetTime::Now)),
        refusal(lp, fs::copyfile(&gone, &new, CopyFlags::empty())),
        refusal(lp, fs::opendir(&gone)),
        refusal(lp, fs::scandir(&gone)),
        refusal(lp, fs::statfs(&gone)),
        refusal(lp, fs::mkdir(gone.join("inner"), 0o700)),
        refusal(lp, fs::open(gone.join("file"), CREATE)),
        refusal(lp, fs::mkdtemp(gone.join("XXXXXX"))),
        refusal(lp, fs::mkstemp(gone.join("XXXXXX"))),
        refusal(lp, fs::stat("")),
    ];
    kinds.dedup();
    assert_eq!(kinds, [ErrorKind::NotFound], "all operations report it");
    assert!(!new.exists(), "nothing was made");
    Ok(())
}

/// An existing name is not overwritten by operations that create.
pub fn a_name_in_use_is_refused(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let (lp, one, other) = (&mut lp, dir.file("one", "1"), dir.file("other", "2"));
    let new = OpenOptions::new().write(true).create_new(true);
    for kind in [
        refusal(lp, fs::mkdir(&one, 0o700)),
        refusal(lp, fs::link(&one, &other)),
        refusal(lp, fs::open(&one, new)),
        refusal(lp, fs::copyfile(&one, &other, CopyFlags::EXCLUSIVE)),
    ] {
        assert_eq!(kind, ErrorKind::AlreadyExists);
    }
    if cfg!(unix) {
        let link = refusal(lp, fs::symlink(&one, &other, SymlinkKind::File));
        assert_eq!(link, ErrorKind::AlreadyExists);
    }
    assert_eq!(std::fs::read(&other).expect("the file"), b"2", "unchanged");
    Ok(())
}

/// A directory is not a file, a file is not a directory, and a non-empty directory is not removed.
pub fn directories_and_files_are_distinct(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let (lp, file, inner) = (&mut lp, dir.file("file", ""), dir.path("inner"));
    std::fs::create_dir(&inner).expect("a directory");
    assert!(ask(lp, fs::unlink(&inner)).is_err(), "unlink is for files");
    assert!(ask(lp, fs::rmdir(&file)).is_err(), "rmdir is for directories");
    assert_eq!(refusal(lp, fs::opendir(&file)), ErrorKind::NotADirectory);
    assert_eq!(refusal(lp, fs::scandir(&file)), ErrorKind::NotADirectory);
    assert!(ask(lp, fs::open(&inner, WRITE)).is_err() || cfg!(windows), "not to be written");
    if cfg!(unix) {
        let opened = open(lp, &inner, READ);
        let (count, _) = ask(lp, fs::read(&opened, vec![0; 4]));
        assert_eq!(count.expect_err("no file").kind(), ErrorKind::IsADirectory);
        assert_eq!(refusal(lp, fs::stat(file.join("x"))), ErrorKind::NotADirectory);
    }
    std::fs::write(inner.join("x"), "").expect("a file");
    assert_eq!(refusal(lp, fs::rmdir(&inner)), ErrorKind::DirectoryNotEmpty);
    assert!(file.is_file() && inner.join("x").exists(), "nothing is gone");
    Ok(())
}

/// A name that is too long for the system is refused.
pub fn long_names_are_refused(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let long = dir.path(&"n".repeat(300));
    let stat = ask(&mut lp, fs::stat(&long)).expect_err("no such name");
    let mkdir = ask(&mut lp, fs::mkdir(&long, 0o700)).expect_err("no such name");
    let open = ask(&mut lp, fs::open(&long, CREATE)).expect_err("no such name");
    if cfg!(unix) {
        for error in [stat, mkdir, open] {
            assert_eq!(error.kind(), ErrorKind::InvalidFilename, "ENAMETOOLONG: {error}");
        }
    }
    Ok(())
}

/// Names may have characters of any script, and characters that are special elsewhere.
pub fn names_may_be_unicode(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let names = ["naïve", "файл", "文件", "🦀 file", "e\u{301}", " lead", "%41"];
    for name in names {
        let file = open(&mut lp, &dir.path(name), CREATE);
        ask(&mut lp, fs::close(file)).expect("a file to close");
    }
    let mut found: Vec<_> = ask(&mut lp, fs::scandir(dir.path("")))
        .expect("a directory")
        .into_iter()
        .map(|entry| entry.name)
        .collect();
    found.sort();
    let mut expected: Vec<_> = names.map(OsString::from).to_vec();
    expected.sort();
    assert_eq!(found, expected);
    Ok(())
}

/// Names may be invalid Unicode.
pub fn names_may_be_invalid_unicode(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let name = not_text();
    let path = dir.path("").join(&name);
    match ask(&mut lp, fs::open(&path, CREATE)) {
        Err(error) if !cfg!(target_os = "linux") => {
            return Err(Skip::because(format!("this file system wants text: {error}")));
        }
        file => drop(file.expect("a file with such a name")),
    }
    let entries = ask(&mut lp, fs::scandir(dir.path(""))).expect("a directory");
    assert_eq!(entries.len(), 1);
    assert_eq!((&entries[0].name, entries[0].kind), (&name, EntryKind::File));
    let real = ask(&mut lp, fs::realpath(&path)).expect("a path");
    assert_eq!(real.file_name(), Some(&*name));
    ask(&mut lp, fs::unlink(&path)).expect("a file to remove");
    Ok(())
}

#[cfg(unix)]
fn not_text() -> OsString {
    use std::os::unix::ffi::OsStringExt;
    OsString::from_vec(b"not\xfftext".to_vec())
}

/// An unpaired surrogate.
#[cfg(windows)]
fn not_text() -> OsString {
    use std::os::windows::ffi::OsStringExt;
    OsString::from_wide(&[0x66, 0xd800, 0x66])
}

/// A path with a NUL is refused immediately, and the loop has no request.
pub fn a_nul_in_a_path_is_refused_immediately(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let started = fs::stat("a\0b").start(&mut lp, |_, _| panic!("it never began"));
    assert_eq!(started.expect_err("no path").kind(), ErrorKind::InvalidInput);
    let started = fs::rename("a", "b\0").start(&mut lp, |_, _| panic!("it never began"));
    assert_eq!(started.expect_err("no path").kind(), ErrorKind::InvalidInput);
    let performed = fs::mkdtemp("a\0XXXXXX").perform();
    assert_eq!(performed.expect_err("no path").kind(), ErrorKind::InvalidInput);
    let started = fs::open("a", OpenOptions::new()).start(&mut lp, |_, _| panic!("never began"));
    assert_eq!(started.expect_err("neither read nor written").kind(), ErrorKind::InvalidInput);
    assert!(!lp.is_alive(), "no request is in flight");
    Ok(())
}

/// A link returns its target as it was set. The target has one real path.
pub fn links_are_read_and_resolved(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let (file, link) = (dir.file("file", "text"), dir.path("link"));
    link_to(&mut lp, "file".as_ref(), &link)?;
    assert_eq!(ask(&mut lp, fs::readlink(&link)).expect("a link").as_os_str(), "file");
    let real = ask(&mut lp, fs::realpath(&link)).expect("a path");
    assert_eq!(real, ask(&mut lp, fs::realpath(&file)).expect("a path"));
    assert!(real.is_absolute() && !real.to_string_lossy().starts_with(r"\\?\"), "{real:?}");
    let (followed, itself) =
        (ask(&mut lp, fs::stat(&link)).expect("a file"), ask(&mut lp, fs::lstat(&link)));
    let itself = itself.expect("a link");
    assert!(followed.is_file() && followed.size == 4);
    assert!(itself.is_symlink() && itself.size == 4 && itself.ino != followed.ino);
    assert!(ask(&mut lp, fs::readlink(&file)).is_err(), "no link");
    ask(&mut lp, fs::unlink(&link)).expect("a link to remove");
    assert!(file.exists(), "the target is kept");
    Ok(())
}

/// Links that form a loop are an error.
pub fn link_loops_are_an_error(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let (one, other) = (dir.path("one"), dir.path("other"));
    link_to(&mut lp, "other".as_ref(), &one)?;
    link_to(&mut lp, "one".as_ref(), &other)?;
    let errors = [
        ask(&mut lp, fs::stat(&one)).map(drop),
        ask(&mut lp, fs::open(&one, READ)).map(drop),
        ask(&mut lp, fs::realpath(&other)).map(drop),
    ];
    for error in errors.map(|result| result.expect_err("a circle")) {
        assert_ne!(error.kind(), ErrorKind::NotFound, "a link loop, not a missing path");
        #[cfg(unix)]
        assert_eq!(error.raw_os_error(), Some(libc::ELOOP), "{error}");
    }
    assert!(ask(&mut lp, fs::lstat(&one)).expect("a link").is_symlink());
    Ok(())
}

/// Windows junctions link to directories without a privilege.
pub fn junctions_lead_to_directories(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let (target, link) = (dir.path("target"), dir.path("link"));
    std::fs::create_dir(&target).expect("a directory");
    std::fs::write(target.join("file"), "").expect("a file");
    let made = ask(&mut lp, fs::symlink(&target, &link, SymlinkKind::Junction));
    match made {
        Err(error) if cfg!(windows) => {
            assert!(!link.exists(), "a junction that failed leaves nothing behind");
            return Err(Skip::because(format!("no junctions here: {error}")));
        }
        result => result.expect("on Unix, a symbolic link"),
    }
    assert!(link.join("file").exists(), "it leads there");
    assert!(ask(&mut lp, fs::lstat(&link)).expect("a link").is_symlink());
    assert_eq!(ask(&mut lp, fs::readlink(&link)).expect("a link"), target, "without a prefix");
    ask(&mut lp, fs::unlink(&link)).expect("a link to remove");
    assert!(target.join("file").exists(), "the target is kept");
    Ok(())
}

/// The permitted access to a file can be checked.
pub fn access_can_be_checked(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let file = dir.file("file", "");
    ask(&mut lp, fs::access(&file, Access::empty())).expect("it exists");
    ask(&mut lp, fs::access(&file, Access::READ | Access::WRITE)).expect("it is ours");
    ask(&mut lp, fs::access(dir.path(""), Access::all())).expect("a directory");
    if cfg!(unix) {
        // Without any execute permission, not even root may execute it.
        assert_eq!(
            refusal(&mut lp, fs::access(&file, Access::EXECUTE)),
            ErrorKind::PermissionDenied
        );
    } else {
        ask(&mut lp, fs::chmod(&file, 0o444)).expect("a file to protect");
        assert_eq!(refusal(&mut lp, fs::access(&file, Access::WRITE)), ErrorKind::PermissionDenied);
        ask(&mut lp, fs::unlink(&file)).expect("removed all the same, as on Unix");
    }
    Ok(())
}
