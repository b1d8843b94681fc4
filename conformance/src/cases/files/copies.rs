//! Copying.

use std::io::{self, ErrorKind, Read};

use uv_core::fs::{self, CopyFlags};

use super::{CREATE, READ, ask, open, refusal};
use crate::support::files::{Directory, file_of};
use crate::support::loops::new_loop;
use crate::support::wine;
use crate::{Lab, Verdict};

/// A copy has the content and the permissions of its source, also if it overwrites a file.
pub fn copies_are_identical(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let content = "text ".repeat(50_000);
    let (from, to) = (dir.file("from", &content), dir.file("to", &"longer ".repeat(90_000)));
    ask(&mut lp, fs::chmod(&from, 0o444)).expect("a file");
    let new = dir.path("new");
    for to in [&to, &new] {
        ask(&mut lp, fs::copyfile(&from, to, CopyFlags::empty())).expect("a copy");
        assert!(std::fs::read_to_string(to).expect("the copy") == content, "the content");
        if *to == new || !wine::keeps_attributes_of_replaced_file() {
            assert_eq!(ask(&mut lp, fs::stat(to)).expect("the copy").mode & 0o777, 0o444);
        }
        // Windows does not remove a read-only file at the end of the case.
        ask(&mut lp, fs::chmod(to, 0o666)).expect("a file");
    }
    ask(&mut lp, fs::chmod(&from, 0o666)).expect("a file");
    Ok(())
}

/// Copying a file onto itself, under any of its names, changes nothing.
pub fn a_copy_onto_itself_changes_nothing(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let (file, other) = (dir.file("file", "text"), dir.path("other"));
    std::fs::hard_link(&file, &other).expect("a second name");
    for to in [&file, &other] {
        ask(&mut lp, fs::copyfile(&file, to, CopyFlags::empty())).expect("nothing to do");
        ask(&mut lp, fs::copyfile(&file, to, CopyFlags::CLONE)).expect("nothing to do");
    }
    assert_eq!(std::fs::read(&file).expect("the file"), b"text");
    assert_eq!(
        refusal(&mut lp, fs::copyfile(&file, &file, CopyFlags::EXCLUSIVE)),
        ErrorKind::AlreadyExists
    );
    Ok(())
}

/// With an optional clone a copy always succeeds. With a required clone it is a clone, or an error
/// that changes nothing.
pub fn clones_are_made_or_refused(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let (from, to, new) = (dir.file("from", "new"), dir.file("to", "old text"), dir.path("new"));
    let forced = ask(&mut lp, fs::copyfile(&from, &to, CopyFlags::FORCE_CLONE));
    let expected = if forced.is_ok() { "new" } else { "old text" };
    assert_eq!(std::fs::read_to_string(&to).expect("the file"), expected);
    let forced_new = ask(&mut lp, fs::copyfile(&from, &new, CopyFlags::FORCE_CLONE));
    assert_eq!((forced_new.is_ok(), new.exists()), (forced.is_ok(), forced.is_ok()));
    ask(&mut lp, fs::copyfile(&from, &to, CopyFlags::CLONE)).expect("a clone or a copy");
    assert_eq!(std::fs::read_to_string(&to).expect("the file"), "new");
    Ok(())
}

/// A failed copy leaves no partial file.
pub fn a_partial_copy_is_removed(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let (inner, to) = (dir.path("inner"), dir.path("to"));
    std::fs::create_dir(&inner).expect("a directory");
    let copied = ask(&mut lp, fs::copyfile(&inner, &to, CopyFlags::empty()));
    assert!(copied.is_err(), "a directory is no file to copy");
    assert!(!to.exists(), "no partial copy is left");
    Ok(())
}

/// `sendfile` copies a range of one file to the position of another, up to the available bytes.
pub fn sendfile_copies_a_range(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let content = "0123456789".repeat(10_000);
    let from = open(&mut lp, &dir.file("from", &content), READ);
    let to = open(&mut lp, &dir.path("to"), CREATE);
    assert_eq!(ask(&mut lp, fs::sendfile(&to, &from, 5, 10)).expect("some"), 10);
    let rest = ask(&mut lp, fs::sendfile(&to, &from, 15, 1 << 30)).expect("the rest");
    assert_eq!(rest, content.len() - 15, "no more than there is");
    assert_eq!(ask(&mut lp, fs::sendfile(&to, &from, 1 << 20, 9)).expect("the end"), 0);
    assert_eq!(ask(&mut lp, fs::sendfile(&to, &from, 0, 0)).expect("nothing"), 0);
    let copied = std::fs::read_to_string(dir.path("to")).expect("the copy");
    assert!(copied == content[5..], "in order");
    let (count, _) = ask(&mut lp, fs::read(&from, vec![0; 3]));
    assert_eq!(count.expect("a read"), 3, "its position is unchanged");
    Ok(())
}

/// `sendfile` sends a file through a pipe that accepts it in parts.
pub fn sendfile_fills_a_pipe_in_parts(lab: &Lab) -> Verdict {
    let (mut lp, dir) = (new_loop(lab)?, Directory::new());
    let content = "0123456789".repeat(50_000);
    let from = open(&mut lp, &dir.file("from", &content), READ);
    let (mut reader, writer) = io::pipe().expect("a pipe");
    let thread = std::thread::spawn(move || {
        let mut all = String::new();
        reader.read_to_string(&mut all).map(|_| all)
    });
    let (to, mut sent) = (file_of(writer), 0);
    while sent < content.len() {
        let part = fs::sendfile(&to, &from, sent as u64, content.len() - sent);
        let count = ask(&mut lp, part).expect("a pipe that is read");
        assert!(count > 0, "something");
        sent += count;
    }
    drop(to);
    let read = thread.join().expect("a reader").expect("the sent data");
    assert!(read == content, "in order, and whole");
    Ok(())
}
