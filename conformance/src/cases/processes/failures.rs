//! Failed spawns: immediate errors that leave nothing behind.

use std::io::{self, ErrorKind};

use uv_core::{Command, Exit, Handle, Pipe, PipeFlags, Process, Stdio, Stream};

use super::pipes::loop_with_pipes;
use crate::support::children::{code, each_way, no_children, run_child};
use crate::support::files::Directory;
use crate::support::limits::{open_descriptors, settled_descriptors, without_descriptors};
use crate::support::loops::{new_loop, run_to_the_end};
use crate::support::program::child;
use crate::support::trace::Count;
use crate::{Lab, Loop, Verdict};

/// Starts a child in each of the ways, which must fail and leave nothing behind.
#[track_caller]
fn fails(lp: &mut Loop, command: Command<'_>) -> Vec<io::Error> {
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
fn fails_with(lp: &mut Loop, command: Command<'_>, kind: ErrorKind) {
    let shown = format!("{command:?}");
    for error in fails(lp, command) {
        assert_eq!(error.kind(), kind, "{error}, for {shown}");
    }
}

/// A missing program fails the spawn: by name, by path, and below a file that is not a directory.
pub fn a_missing_program_fails_the_spawn(lab: &Lab) -> Verdict {
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    let file = directory.file("file", "");
    fails_with(&mut lp, Command::new("no-such-program"), ErrorKind::NotFound);
    fails_with(&mut lp, Command::new(directory.path("none")), ErrorKind::NotFound);
    fails_with(&mut lp, Command::new(""), ErrorKind::NotFound);
    for error in fails(&mut lp, Command::new(file.join("within"))) {
        let kinds = [ErrorKind::NotFound, ErrorKind::NotADirectory];
        assert!(kinds.contains(&error.kind()), "{error}");
    }
    assert_eq!(run_child(&mut lp, &child(&["exit", "5"])), code(5), "other children run");
    Ok(())
}

/// A handle that exists before its program stays after a failed spawn, with open pipes at their
/// end, and can run another.
pub fn a_handle_outlives_a_failed_spawn(lab: &Lab) -> Verdict {
    let mut lp = loop_with_pipes(lab)?;
    let (process, pipe) = (Process::new(&mut lp), Pipe::new(&mut lp));
    let missing = Command::new("no-such-program")
        .stdio([Stdio::Ignore, Stdio::Pipe(pipe, PipeFlags::WRITABLE)]);
    let failed = process.spawn_into(&mut lp, &missing, |_, _, _| panic!("there is no child"));
    assert_eq!(failed.map_err(|error| error.kind()), Err(ErrorKind::NotFound));
    assert!(!process.is_active(&lp));
    let ended = Count::default();
    let end = ended.clone();
    pipe.read_start(&mut lp, move |lp, pipe, bytes| {
        assert_eq!(bytes.expect("the end of the pipe").len(), 0);
        end.add();
        pipe.close(lp).expect("an open pipe");
    })
    .expect("an open pipe");
    let exits = ended.clone();
    let program = child(&["exit", "5"]);
    let exited = move |lp: &mut Loop, process: Process, exit: io::Result<Exit>| {
        assert_eq!(exit.expect("an exit"), code(5));
        exits.add();
        process.close(lp).expect("an open process");
    };
    process.spawn_into(&mut lp, &program, exited).expect("a child");
    let again = process.spawn_into(&mut lp, &program, |_, _, _| {});
    assert_eq!(again.map_err(|error| error.kind()), Err(ErrorKind::ResourceBusy), "a second");
    run_to_the_end(&mut lp);
    assert_eq!(ended.get(), 2);
    Ok(())
}

/// A file without execute permission fails the spawn, and so does a directory.
#[cfg(unix)]
pub fn a_program_without_permission_fails_the_spawn(lab: &Lab) -> Verdict {
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    let file = directory.file("file", "#!/bin/sh\n");
    fails_with(&mut lp, Command::new(&file), ErrorKind::PermissionDenied);
    let parent = file.parent().expect("a parent");
    fails_with(&mut lp, Command::new(parent), ErrorKind::PermissionDenied);
    // The search does not skip it for a missing program, but for an executable one.
    let path = format!("{}:/nowhere", parent.display());
    let named = Command::new("file").env("PATH", path);
    fails_with(&mut lp, named, ErrorKind::PermissionDenied);
    Ok(())
}

/// A file without execute permission fails the spawn, and so does a directory.
#[cfg(windows)]
pub fn a_program_without_permission_fails_the_spawn(lab: &Lab) -> Verdict {
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    let file = directory.file("file", "");
    let parent = file.parent().expect("a parent");
    // A directory is not a program.
    fails_with(&mut lp, Command::new(parent), ErrorKind::NotFound);
    Ok(())
}

/// A file that is not an executable fails the spawn: nothing else runs in its place.
pub fn an_invalid_executable_fails_the_spawn(lab: &Lab) -> Verdict {
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

/// A missing working directory fails the spawn.
pub fn a_missing_directory_fails_the_spawn(lab: &Lab) -> Verdict {
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    let command = child(&["exit", "0"]).current_dir(directory.path("none"));
    for error in fails(&mut lp, command) {
        // Windows has a separate code for this, unlike those of files and paths.
        let kinds = [ErrorKind::NotFound, ErrorKind::NotADirectory];
        assert!(kinds.contains(&error.kind()), "{error}");
    }
    Ok(())
}

/// A lack of descriptors fails the spawn.
pub fn out_of_descriptors_fails_the_spawn(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let ways = each_way(child(&["exit", "0"]));
    // Performs one-time lookups.
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
    if cfg!(any(target_os = "linux", windows)) {
        // The other systems have no process descriptors.
        assert!(failed[0].is_some(), "a child with a descriptor needs one");
    }
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
        assert_eq!(run_child(&mut lp, command), code(0), "it works again");
    }
    Ok(())
}

/// Names, arguments and variables that cannot be passed are refused, and so are invalid streams.
pub fn invalid_commands_are_refused(lab: &Lab) -> Verdict {
    use uv_core::{Handle, Stdio, Tcp};

    use crate::support::datagrams::code::EBADF;
    use crate::support::datagrams::refused as refused_with;

    let mut lp = new_loop(lab)?;
    let refused = |lp: &mut Loop, command: Command<'_>, kind: ErrorKind| {
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
    let without_socket = Process::spawn(&mut lp, &with(tcp), |_, _, _| panic!("no child"));
    refused_with(without_socket, EBADF, "no socket");
    tcp.close(&mut lp).expect("an open handle");
    run_to_the_end(&mut lp);
    refused(&mut lp, with(tcp), ErrorKind::NotFound);
    assert!(lp.walk().is_empty(), "there is no handle");
    no_children("there was none");
    Ok(())
}

/// Changing to another user or group without the privilege is an error. On Windows users and groups
/// are `Unsupported`.
#[cfg(windows)]
pub fn changing_the_user_needs_privileges(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    fails_with(&mut lp, child(&["exit", "0"]).uid(1), ErrorKind::Unsupported);
    fails_with(&mut lp, child(&["exit", "0"]).gid(1), ErrorKind::Unsupported);
    Ok(())
}

/// Changing to another user or group without the privilege is an error. On Windows users and groups
/// are `Unsupported`.
#[cfg(unix)]
pub fn changing_the_user_needs_privileges(lab: &Lab) -> Verdict {
    use crate::support::child::Child;
    use crate::support::observe::SOON;

    drop(lab.backend()?);
    let unprivileged = Child::fork(|| {
        // SAFETY: the call passes no memory; only this forked child changes its user.
        unsafe { libc::setuid(65_534) };
        let mut lp = new_loop(lab)?;
        fails_with(&mut lp, child(&["exit", "0"]).uid(0), ErrorKind::PermissionDenied);
        fails_with(&mut lp, child(&["exit", "0"]).gid(1), ErrorKind::PermissionDenied);
        Ok(())
    });
    unprivileged.join(SOON)
}
