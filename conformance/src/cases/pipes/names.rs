//! Names: which can be bound, and when they are removed.

use std::io::ErrorKind;
use std::path::Path;

use uv_core::{Handle, Listener, Pipe, PipeAccess, RunMode};

use crate::support::datagrams::code::EBADF;
use crate::support::datagrams::refused;
#[cfg(unix)]
use crate::support::files::Directory;
use crate::support::loops::{run, run_to_the_end};
use crate::support::pipes::{Name, bound_to, one_echo, piping_loop};
use crate::support::streams::{echo, finish, refusal, run_until};
use crate::support::trace::Log;
use crate::support::wine;
use crate::{Lab, Loop, Skip, Verdict};

/// A listener returns its name, and a client its peer's. A pipe without a name returns an empty
/// one. A handle without a socket returns an error.
pub fn both_ends_have_names(lab: &Lab) -> Verdict {
    let mut lp = piping_loop(lab)?;
    let (name, callbacks) = (Name::new(), Log::default());
    let (server, client) = (bound_to(&mut lp, &name), Pipe::new(&mut lp));
    assert_eq!(server.local_name(&lp).unwrap(), name.as_ref());
    assert_eq!(refusal(server.peer_name(&lp)), ErrorKind::NotConnected);
    refused(client.local_name(&lp), EBADF, "no socket");
    let log = callbacks.clone();
    server
        .listen(&mut lp, 8, move |lp, server, _| {
            let peer = server.accept(lp).unwrap();
            assert_eq!(peer.local_name(lp).unwrap(), server.local_name(lp).unwrap());
            assert_eq!(peer.peer_name(lp).unwrap(), Path::new(""), "a client has none");
            log.push("accepted");
            peer.close(lp).unwrap();
        })
        .unwrap();
    let (expected, log) = (name.as_ref().to_path_buf(), callbacks.clone());
    client
        .connect(&mut lp, &name, move |lp, client, result| {
            result.unwrap();
            assert_eq!(client.peer_name(lp).unwrap(), expected);
            assert_eq!(client.local_name(lp).unwrap(), Path::new(""), "it has none");
            log.push("connected");
        })
        .unwrap();
    run_until(&mut lp, "a connection", |_| callbacks.len() == 2);
    client.close(&mut lp).unwrap();
    server.close(&mut lp).unwrap();
    assert!(server.local_name(&lp).is_err(), "nor is there one any more");
    run_to_the_end(&mut lp);
    assert_eq!(refusal(server.local_name(&lp)), ErrorKind::NotFound);
    assert_eq!(refusal(client.peer_name(&lp)), ErrorKind::NotFound);
    finish(lp);
    Ok(())
}

/// Linux abstract names begin with a NUL and create no file: they are free again when the listener
/// is closed. Other systems refuse them.
pub fn abstract_names_create_no_file(lab: &Lab) -> Verdict {
    let mut lp = piping_loop(lab)?;
    let name = format!("\0conformance {}, with \0 in {:?}", std::process::id(), lab as *const _);
    let (first, second) = (Pipe::new(&mut lp), Pipe::new(&mut lp));
    match first.bind(&mut lp, &name) {
        Err(error) if !cfg!(target_os = "linux") => {
            let expected = [ErrorKind::Unsupported, ErrorKind::InvalidInput];
            assert!(expected.contains(&error.kind()), "{error}");
            return Err(Skip::because("abstract names are Linux's"));
        }
        result => result.unwrap(),
    }
    assert_eq!(first.local_name(&lp).unwrap(), Path::new(&name), "all of it, NULs included");
    assert_eq!(refusal(second.bind(&mut lp, &name)), ErrorKind::AddrInUse);
    let no_file = first.set_permissions(&mut lp, PipeAccess::READABLE);
    assert_eq!(refusal(no_file), ErrorKind::InvalidInput);
    let ends = Log::default();
    echo(&mut lp, first, &ends);
    one_echo(&mut lp, Path::new(&name), "hello");
    run_until(&mut lp, "an end", |_| ends.len() == 1);
    first.close(&mut lp).unwrap();
    second.bind(&mut lp, &name).expect("the name is free immediately");
    second.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// Linux assigns a name to a pipe that is bound to the empty name, and clients can connect to it. A
/// single NUL is a name as well.
pub fn the_empty_name_is_assigned_by_linux(lab: &Lab) -> Verdict {
    let mut lp = piping_loop(lab)?;
    let [chosen, another, nul] = [(); 3].map(|()| Pipe::new(&mut lp));
    if !cfg!(target_os = "linux") {
        assert_eq!(refusal(chosen.bind(&mut lp, "")), ErrorKind::InvalidInput);
        return Err(Skip::because("abstract names are Linux's"));
    }
    chosen.bind(&mut lp, "").unwrap();
    another.bind(&mut lp, "").unwrap();
    let names = [chosen, another].map(|pipe| pipe.local_name(&lp).unwrap());
    assert_ne!(names[0], names[1], "each has one of its own");
    let ends = Log::default();
    echo(&mut lp, chosen, &ends);
    one_echo(&mut lp, &names[0], "hello");
    run_until(&mut lp, "an end", |_| ends.len() == 1);
    match nul.bind(&mut lp, "\0") {
        // One name for the whole machine: another program may have it.
        Err(error) => assert_eq!(error.kind(), ErrorKind::AddrInUse),
        Ok(()) => assert_eq!(nul.local_name(&lp).unwrap(), Path::new("\0")),
    }
    for pipe in [chosen, another, nul] {
        pipe.close(&mut lp).unwrap();
    }
    finish(lp);
    Ok(())
}

/// A name is used whole or refused: empty, too long, or with a misplaced NUL. The handle can be
/// used with another name.
pub fn invalid_names_are_refused(lab: &Lab) -> Verdict {
    let mut lp = piping_loop(lab)?;
    let (pipe, name) = (Pipe::new(&mut lp), Name::new());
    let mut with_nul = name.as_ref().as_os_str().to_owned();
    with_nul.push("\0x");
    let mut too_long = name.as_ref().as_os_str().to_owned();
    too_long.push("x".repeat(300));
    for impossible in ["".as_ref(), with_nul.as_os_str(), too_long.as_os_str()] {
        if !(impossible.is_empty() && cfg!(target_os = "linux")) {
            assert_eq!(refusal(pipe.bind(&mut lp, impossible)), ErrorKind::InvalidInput);
        }
        let connect =
            pipe.connect(&mut lp, impossible, |_, _, _| panic!("a refused call has called back"));
        assert_eq!(refusal(connect), ErrorKind::InvalidInput);
    }
    assert!(!run(&mut lp, RunMode::NoWait), "no request is in flight");
    pipe.bind(&mut lp, &name).expect("a possible name");
    pipe.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A name in use is refused immediately. A missing directory is reported as a lack of permission. A
/// handle is bound once.
pub fn a_name_in_use_is_refused(lab: &Lab) -> Verdict {
    let mut lp = piping_loop(lab)?;
    let name = Name::new();
    let (server, other) = (bound_to(&mut lp, &name), Pipe::new(&mut lp));
    if !wine::shares_names_of_pipes() {
        assert_eq!(refusal(other.bind(&mut lp, &name)), ErrorKind::AddrInUse);
    }
    let again = Name::new();
    assert_eq!(refusal(server.bind(&mut lp, &again)), ErrorKind::InvalidInput);
    if cfg!(unix) {
        let nowhere = name.as_ref().with_file_name("nowhere").join("pipe");
        assert_eq!(refusal(other.bind(&mut lp, nowhere)), ErrorKind::PermissionDenied);
        assert!(!again.as_ref().exists(), "a refused bind creates no file");
    }
    other.bind(&mut lp, &again).expect("a handle that was refused is as it was");
    let ends = Log::default();
    echo(&mut lp, server, &ends);
    one_echo(&mut lp, name.as_ref(), "to the first");
    server.close(&mut lp).unwrap();
    other.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// The path created by a bind is removed immediately when its handle is closed, and when the loop
/// is dropped, unless another file has taken its place.
pub fn a_close_removes_the_path(lab: &Lab) -> Verdict {
    let mut lp = piping_loop(lab)?;
    let name = Name::new();
    let server = bound_to(&mut lp, &name);
    if cfg!(unix) {
        assert!(name.as_ref().exists(), "it is a file");
    }
    server.listen_without_callback(&mut lp, 1).unwrap();
    server.close(&mut lp).unwrap();
    if cfg!(unix) {
        assert!(!name.as_ref().exists(), "it is removed with the handle");
    }
    run_to_the_end(&mut lp);
    let next = bound_to(&mut lp, &name);
    drop(lp);
    if cfg!(windows) {
        return Ok(());
    }
    assert!(!name.as_ref().exists(), "it is removed with the loop");

    let mut lp = piping_loop(lab)?;
    assert_eq!(refusal(next.close(&mut lp)), ErrorKind::NotFound);
    let server = bound_to(&mut lp, &name);
    std::fs::remove_file(name.as_ref()).unwrap();
    std::fs::write(name.as_ref(), "another's").unwrap();
    server.close(&mut lp).unwrap();
    assert_eq!(std::fs::read(name.as_ref()).unwrap(), b"another's");
    finish(lp);
    Ok(())
}

/// Permissions can be widened for all users: to read, to write, or both. Existing permissions stay.
pub fn permissions_can_be_widened(lab: &Lab) -> Verdict {
    let mut lp = piping_loop(lab)?;
    let name = Name::new();
    let server = Pipe::new(&mut lp);
    let all = PipeAccess::READABLE | PipeAccess::WRITABLE;
    refused(server.set_permissions(&mut lp, all), EBADF, "no socket");
    server.bind(&mut lp, &name).unwrap();
    let nothing = server.set_permissions(&mut lp, PipeAccess::empty());
    assert_eq!(refusal(nothing), ErrorKind::InvalidInput);
    for access in [PipeAccess::READABLE, PipeAccess::WRITABLE, all] {
        server.set_permissions(&mut lp, access).unwrap();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = std::fs::metadata(name.as_ref()).unwrap().permissions().mode();
            for (bits, of) in [(0o444, PipeAccess::READABLE), (0o222, PipeAccess::WRITABLE)] {
                assert!(!access.contains(of) || mode & bits == bits, "{mode:o}");
            }
        }
    }
    server.close(&mut lp).unwrap();
    assert_eq!(refusal(server.set_permissions(&mut lp, all)), ErrorKind::InvalidInput);
    finish(lp);
    Ok(())
}

/// If a link has replaced the path of a pipe, its target does not become accessible.
#[cfg(unix)]
pub fn widening_permissions_follows_no_link(lab: &Lab) -> Verdict {
    use std::os::unix::fs::PermissionsExt;

    let (mut lp, directory) = (piping_loop(lab)?, Directory::new());
    let (name, secret) = (directory.path("pipe"), directory.file("secret", "for its owner"));
    std::fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).unwrap();
    let server = Pipe::new(&mut lp);
    server.bind(&mut lp, &name).unwrap();
    std::fs::remove_file(&name).unwrap();
    std::os::unix::fs::symlink(&secret, &name).unwrap();
    let refused = server.set_permissions(&mut lp, PipeAccess::READABLE);
    assert_eq!(refusal(refused), ErrorKind::InvalidInput);
    let mode = std::fs::metadata(&secret).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "{mode:o}");
    server.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A pipe listens at a name only: a pipe without one is refused.
pub fn listening_needs_a_name(lab: &Lab) -> Verdict {
    let mut lp = piping_loop(lab)?;
    let fresh = Pipe::new(&mut lp);
    let (one, other) = Pipe::pair(&mut lp).unwrap();
    for pipe in [fresh, one] {
        let refused = pipe.listen(&mut lp, 8, |_: &mut Loop, _, _| {});
        assert_eq!(refusal(refused), ErrorKind::InvalidInput);
        assert!(!pipe.is_active(&lp));
    }
    for pipe in [fresh, one, other] {
        pipe.close(&mut lp).unwrap();
    }
    finish(lp);
    Ok(())
}
