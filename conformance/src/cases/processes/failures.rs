//! Children that cannot be started: told at once, with nothing left behind.

use std::io::{self, ErrorKind};

use poll_core::Backend;
use uv_core::{Command, Loop, Process};

use crate::support::children::{code, each_way, no_children, run_child};
use crate::support::files::Directory;
use crate::support::limits::{open_descriptors, settled_descriptors, without_descriptors};
use crate::support::loops::{new_loop, run_to_the_end};
use crate::support::program::child;
use crate::{Lab, Verdict};

/// Tries to start a child, which must fail in each of the ways, and leave nothing.
#[track_caller]
fn fails<T: Backend>(lp: &mut Loop<T>, command: Command<'_>) -> Vec<io::Error> {
    let mut errors = Vec::new();
    for command in each_way(command) {
        let before = settled_descriptors().ok();
        let failed = Process::spawn(lp, &command, |_, _, _| panic!("there is no child"));
        errors.push(failed.expect_err("there is nothing to run"));
        assert!(lp.walk().is_empty(), "there is no handle");
        assert_eq!(open_descriptors().ok(), before, "no descriptor is left: {command:?}");
        no_children("there was none");
        run_to_the_end(lp);
    }
    errors
}

#[track_caller]
fn fails_with<T: Backend>(lp: &mut Loop<T>, command: Command<'_>, kind: ErrorKind) {
    let shown = format!("{command:?}");
    for error in fails(lp, command) {
        assert_eq!(error.kind(), kind, "{error}, for {shown}");
    }
}

/// That a program is not there is told at once: by name, by path, and within what is no
/// directory.
pub fn a_missing_program_is_told_at_once<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    let file = directory.file("file", "");
    fails_with(&mut lp, Command::new("no-such-program"), ErrorKind::NotFound);
    fails_with(&mut lp, Command::new(directory.path("none")), ErrorKind::NotFound);
    fails_with(&mut lp, Command::new(""), ErrorKind::NotFound);
    for error in fails(&mut lp, Command::new(file.join("within"))) {
        let kinds = [ErrorKind::NotFound, ErrorKind::NotADirectory];
        assert!(kinds.contains(&error.kind()), "{error}");
    }
    assert_eq!(run_child(&mut lp, &child(&["exit", "5"])), code(5), "others go on");
    Ok(())
}

/// That a file may not be executed is told, also of a directory.
#[cfg(unix)]
pub fn what_may_not_be_run_is_told<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    let file = directory.file("file", "#!/bin/sh\n");
    fails_with(&mut lp, Command::new(&file), ErrorKind::PermissionDenied);
    let parent = file.parent().expect("a parent");
    fails_with(&mut lp, Command::new(parent), ErrorKind::PermissionDenied);
    // It is not passed over for one that is not there, but for one that may be run.
    let path = format!("{}:/nowhere", parent.display());
    let named = Command::new("file").env("PATH", path);
    fails_with(&mut lp, named, ErrorKind::PermissionDenied);
    Ok(())
}

/// That a file may not be executed is told, also of a directory.
#[cfg(windows)]
pub fn what_may_not_be_run_is_told<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    let file = directory.file("file", "");
    let parent = file.parent().expect("a parent");
    // A directory is not taken for a program.
    fails_with(&mut lp, Command::new(parent), ErrorKind::NotFound);
    Ok(())
}

/// That a file is no program is told: nothing else is run in its stead.
pub fn what_is_no_program_is_told<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    let file = directory.file("program.exe", "neither a binary nor a script");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&file, executable).expect("one's own file");
    }
    for error in fails(&mut lp, Command::new(&file)) {
        #[cfg(unix)]
        assert_eq!(error.raw_os_error(), Some(libc::ENOEXEC), "{error}");
        #[cfg(windows)]
        assert!(error.raw_os_error().is_some(), "{error}");
    }
    Ok(())
}

/// That the directory is not there is told.
pub fn a_missing_directory_is_told<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    let command = child(&["exit", "0"]).current_dir(directory.path("none"));
    for error in fails(&mut lp, command) {
        // Windows has a code for that which is neither a file's nor a path's.
        let kinds = [ErrorKind::NotFound, ErrorKind::NotADirectory];
        assert!(kinds.contains(&error.kind()), "{error}");
    }
    Ok(())
}

/// That descriptors have run out is told.
pub fn out_of_descriptors_is_told<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let ways = each_way(child(&["exit", "0"]));
    // What is looked up once is looked up now.
    for command in &ways {
        assert_eq!(run_child(&mut lp, command), code(0));
    }
    let before = settled_descriptors()?;
    let failed = without_descriptors(|| {
        let try_one = |command| Process::spawn(&mut lp, command, |_, _, _| {}).err();
        ways.iter().map(try_one).collect::<Vec<_>>()
    })?;
    for (failed, command) in failed.iter().zip(&ways) {
        // The second and the last need no descriptor here; then the child runs.
        let code = failed.as_ref().map(|error| error.raw_os_error());
        #[cfg(unix)]
        assert!(matches!(code, None | Some(Some(libc::EMFILE))), "{failed:?}: {command:?}");
        #[cfg(windows)]
        let _ = (code, command);
    }
    assert!(failed[0].is_some(), "a child with a descriptor needs one");
    run_to_the_end(&mut lp);
    let open = lp.walk();
    for handle in open {
        use uv_core::Handle;
        handle.close(&mut lp).expect("an open handle");
    }
    run_to_the_end(&mut lp);
    no_children("all were waited for");
    assert_eq!(open_descriptors()?, before, "no descriptor is left");
    for command in &ways {
        assert_eq!(run_child(&mut lp, command), code(0), "all is well again");
    }
    Ok(())
}

/// Names, arguments and variables that cannot be passed on are refused, and so are streams
/// that are none.
pub fn what_cannot_be_passed_on_is_refused<T: Backend>(lab: &Lab<T>) -> Verdict {
    use uv_core::{Handle, Stdio, Tcp};

    let mut lp = new_loop(lab)?;
    let refused = |lp: &mut Loop<T>, command: Command<'_>, kind: ErrorKind| {
        let shown = format!("{command:?}");
        let failed = Process::spawn(lp, &command, |_, _, _| panic!("there is no child"));
        let error = failed.expect_err("it cannot be run");
        assert_eq!(error.kind(), kind, "{error}, for {shown}");
    };
    let invalid = ErrorKind::InvalidInput;
    refused(&mut lp, Command::new("a\0b"), invalid);
    refused(&mut lp, child(&["a\0b"]), invalid);
    refused(&mut lp, child(&["exit", "0"]).env("A", "\0"), invalid);
    refused(&mut lp, child(&["exit", "0"]).current_dir("\0"), invalid);
    refused(&mut lp, child(&["exit", "0"]).stdio([Stdio::Standard(3)]), invalid);
    let tcp = Tcp::new(&mut lp);
    let with = |tcp| child(&["exit", "0"]).stdio([Stdio::stream(tcp)]);
    refused(&mut lp, with(tcp), ErrorKind::NotConnected);
    tcp.close(&mut lp).expect("an open handle");
    run_to_the_end(&mut lp);
    refused(&mut lp, with(tcp), ErrorKind::NotFound);
    assert!(lp.walk().is_empty(), "there is no handle");
    no_children("there was none");
    Ok(())
}

/// Users and groups are `Unsupported` on Windows.
#[cfg(windows)]
pub fn users_need_the_right_to_change<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    fails_with(&mut lp, child(&["exit", "0"]).uid(1), ErrorKind::Unsupported);
    fails_with(&mut lp, child(&["exit", "0"]).gid(1), ErrorKind::Unsupported);
    Ok(())
}

/// Who has no right to become another user or group is told so.
#[cfg(unix)]
pub fn users_need_the_right_to_change<T: Backend>(lab: &Lab<T>) -> Verdict {
    use crate::support::child::Child;
    use crate::support::observe::SOON;

    drop(lab.backend()?);
    let unprivileged = Child::fork(|| {
        // SAFETY: no memory is passed; the user changes in this forked child alone.
        unsafe { libc::setuid(65_534) };
        let mut lp = new_loop(lab)?;
        fails_with(&mut lp, child(&["exit", "0"]).uid(0), ErrorKind::PermissionDenied);
        fails_with(&mut lp, child(&["exit", "0"]).gid(1), ErrorKind::PermissionDenied);
        Ok(())
    });
    unprivileged.join(SOON)
}
