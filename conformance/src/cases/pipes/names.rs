//! Names: which can be bound, what is left of them.

use std::io::ErrorKind;
use std::path::Path;

use poll_core::Backend;
use uv_core::{Handle, Loop, Pipe, PipeAccess, RunMode, Stream};

use crate::support::loops::{run, run_to_the_end};
use crate::support::pipes::{Name, bound_to, one_echo, piping_loop};
use crate::support::streams::{echo, finish, refusal, run_until};
use crate::support::trace::Log;
use crate::support::wine;
use crate::{Lab, Skip, Verdict};

/// A listener knows its name, who has connected knows that of its peer, and what has none
/// says so by an empty one. Without a socket there is nothing to ask.
pub fn names_are_known<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = piping_loop(lab)?;
    let (name, told) = (Name::new(), Log::default());
    let (server, client) = (bound_to(&mut lp, &name), Pipe::new(&mut lp));
    assert_eq!(server.local_name(&lp).unwrap(), name.as_ref());
    assert_eq!(refusal(server.peer_name(&lp)), ErrorKind::NotConnected);
    assert_eq!(refusal(client.local_name(&lp)), ErrorKind::NotConnected);
    let tell = told.clone();
    server
        .listen(&mut lp, 8, move |lp, server, _| {
            let peer = server.accept(lp).unwrap();
            assert_eq!(peer.local_name(lp).unwrap(), server.local_name(lp).unwrap());
            assert_eq!(peer.peer_name(lp).unwrap(), Path::new(""), "a client has none");
            tell.push("accepted");
            peer.close(lp).unwrap();
        })
        .unwrap();
    let (expected, tell) = (name.as_ref().to_path_buf(), told.clone());
    client
        .connect(&mut lp, &name, move |lp, client, result| {
            result.unwrap();
            assert_eq!(client.peer_name(lp).unwrap(), expected);
            assert_eq!(client.local_name(lp).unwrap(), Path::new(""), "it has none");
            tell.push("connected");
        })
        .unwrap();
    run_until(&mut lp, "a connection", |_| told.len() == 2);
    client.close(&mut lp).unwrap();
    server.close(&mut lp).unwrap();
    assert!(server.local_name(&lp).is_err(), "nor is there one any more");
    run_to_the_end(&mut lp);
    assert_eq!(refusal(server.local_name(&lp)), ErrorKind::NotFound);
    assert_eq!(refusal(client.peer_name(&lp)), ErrorKind::NotFound);
    finish(lp);
    Ok(())
}

/// Linux has names that begin with a NUL and are no files: they are free again when the
/// listener is closed. Elsewhere they are refused.
pub fn abstract_names_are_no_files<T: Backend>(lab: &Lab<T>) -> Verdict {
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
    let no_file = first.let_everybody(&mut lp, PipeAccess::READABLE);
    assert_eq!(refusal(no_file), ErrorKind::InvalidInput);
    let ends = Log::default();
    echo(&mut lp, first, &ends);
    one_echo(&mut lp, Path::new(&name), "hello");
    run_until(&mut lp, "an end", |_| ends.len() == 1);
    first.close(&mut lp).unwrap();
    second.bind(&mut lp, &name).expect("it is free at once");
    second.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A name is used as it is or refused: none that is empty, too long, or has a NUL where none
/// can be. The handle can be used with another.
pub fn impossible_names_are_refused<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = piping_loop(lab)?;
    let (pipe, name) = (Pipe::new(&mut lp), Name::new());
    let mut with_nul = name.as_ref().as_os_str().to_owned();
    with_nul.push("\0x");
    let mut too_long = name.as_ref().as_os_str().to_owned();
    too_long.push("x".repeat(300));
    for impossible in ["".as_ref(), with_nul.as_os_str(), too_long.as_os_str()] {
        assert_eq!(refusal(pipe.bind(&mut lp, impossible)), ErrorKind::InvalidInput);
        let connect = pipe.connect(&mut lp, impossible, |_, _, _| panic!("told of nothing"));
        assert_eq!(refusal(connect), ErrorKind::InvalidInput);
    }
    assert!(!run(&mut lp, RunMode::NoWait), "nothing is under way");
    pipe.bind(&mut lp, &name).expect("a possible name");
    pipe.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// What is in use is refused at once, and so is a directory that is not there, as a lack of
/// permission. A handle is bound once.
pub fn a_name_in_use_is_refused<T: Backend>(lab: &Lab<T>) -> Verdict {
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
        assert!(!again.as_ref().exists(), "what was refused leaves nothing");
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

/// What a bind has made is gone when its handle is closed, at once, and when the loop is
/// dropped; but not if something else has taken its place.
pub fn the_path_goes_with_the_handle<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = piping_loop(lab)?;
    let name = Name::new();
    let server = bound_to(&mut lp, &name);
    if cfg!(unix) {
        assert!(name.as_ref().exists(), "it is a file");
    }
    server.listen_quietly(&mut lp, 1).unwrap();
    server.close(&mut lp).unwrap();
    if cfg!(unix) {
        assert!(!name.as_ref().exists(), "it goes with the handle");
    }
    run_to_the_end(&mut lp);
    let next = bound_to(&mut lp, &name);
    drop(lp);
    if cfg!(windows) {
        return Ok(());
    }
    assert!(!name.as_ref().exists(), "it goes with the loop");

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

/// Everybody may be let in: to read, to write, or both; what could be done before still can.
pub fn access_can_be_widened<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = piping_loop(lab)?;
    let name = Name::new();
    let server = Pipe::new(&mut lp);
    let all = PipeAccess::READABLE | PipeAccess::WRITABLE;
    assert_eq!(refusal(server.let_everybody(&mut lp, all)), ErrorKind::NotConnected);
    server.bind(&mut lp, &name).unwrap();
    let nothing = server.let_everybody(&mut lp, PipeAccess::empty());
    assert_eq!(refusal(nothing), ErrorKind::InvalidInput);
    for access in [PipeAccess::READABLE, PipeAccess::WRITABLE, all] {
        server.let_everybody(&mut lp, access).unwrap();
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
    assert_eq!(refusal(server.let_everybody(&mut lp, all)), ErrorKind::InvalidInput);
    finish(lp);
    Ok(())
}

/// A pipe listens at a name only: one that has none is refused, whatever else it has.
pub fn listening_needs_a_name<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = piping_loop(lab)?;
    let fresh = Pipe::new(&mut lp);
    let (one, other) = Pipe::pair(&mut lp).unwrap();
    for pipe in [fresh, one] {
        let refused = pipe.listen(&mut lp, 8, |_: &mut Loop<T>, _, _| {});
        assert_eq!(refusal(refused), ErrorKind::InvalidInput);
        assert!(!pipe.is_active(&lp));
    }
    for pipe in [fresh, one, other] {
        pipe.close(&mut lp).unwrap();
    }
    finish(lp);
    Ok(())
}
