//! Pipes created for a child.

use std::io::ErrorKind;

use uv_core::{Command, Handle, Pipe, PipeFlags, Process, Stdio, Stream};

use crate::support::children::{code, each_way, signal, spawn};
use crate::support::loops::{new_loop, run_to_the_end};
use crate::support::program::child;
use crate::support::trace::Log;
use crate::{Lab, Loop, Skip, Verdict};

const READABLE: PipeFlags = PipeFlags::READABLE;
const WRITABLE: PipeFlags = PipeFlags::WRITABLE;

/// A loop with pipes.
pub(super) fn loop_with_pipes(lab: &Lab) -> Result<Loop, Skip> {
    let mut lp = new_loop(lab)?;
    match Pipe::pair(&mut lp) {
        Ok((one, other)) => {
            for pipe in [one, other] {
                pipe.close(&mut lp).expect("an open handle");
            }
            run_to_the_end(&mut lp);
            Ok(lp)
        }
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            Err(Skip::because(error.to_string()))
        }
        Err(error) => panic!("a pair of pipes: {error}"),
    }
}

/// Reads until the end of file, and closes.
fn collect(lp: &mut Loop, pipe: Pipe, received: &Log<u8>) {
    let received = received.clone();
    let started = pipe.read_start(lp, move |lp, pipe, bytes| match bytes.expect("bytes") {
        [] => pipe.close(lp).expect("an open handle"),
        bytes => received.extend(bytes.iter().copied()),
    });
    started.expect("reading");
}

/// Writes, and closes after the write.
fn send(lp: &mut Loop, pipe: Pipe, bytes: Vec<u8>) {
    let written = pipe.write(lp, bytes, |lp, pipe, result, _| {
        result.expect("written");
        pipe.close(lp).expect("an open handle");
    });
    written.expect("a write");
}

/// A child echoes all data sent to it through pipes, in any amount.
pub fn a_child_echoes_through_pipes(lab: &Lab) -> Verdict {
    for length in [5, 3_000_000] {
        let text: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        for command in each_way(child(&["cat"])) {
            let mut lp = loop_with_pipes(lab)?;
            let (input, output) = (Pipe::new(&mut lp), Pipe::new(&mut lp));
            let (ends, received) = (Log::default(), Log::default());
            let stdio = [Stdio::Pipe(input, READABLE), Stdio::Pipe(output, WRITABLE)];
            spawn(&mut lp, &command.stdio(stdio), &ends);
            assert_eq!((input.is_readable(&lp), input.is_writable(&lp)), (false, true));
            assert_eq!((output.is_readable(&lp), output.is_writable(&lp)), (true, false));
            send(&mut lp, input, text.clone());
            collect(&mut lp, output, &received);
            run_to_the_end(&mut lp);
            assert_eq!(ends.take(), [code(0)]);
            assert!(received.take() == text, "the output equals the input");
        }
    }
    Ok(())
}

/// Each output of a child, and descriptors above the first three, can have a separate pipe.
pub fn outputs_have_separate_pipes(lab: &Lab) -> Verdict {
    for (words, expected) in [
        (&["say", "out"][..], ["out", "", ""]),
        (&["complain", "err"], ["", "err", ""]),
        (&["write", "3", "three"], ["", "", "three"]),
    ] {
        for command in each_way(child(words)) {
            let mut lp = loop_with_pipes(lab)?;
            let pipes = [(); 3].map(|()| Pipe::new(&mut lp));
            let received = [(); 3].map(|()| Log::default());
            let ends = Log::default();
            let outputs = pipes.map(|pipe| Stdio::Pipe(pipe, WRITABLE));
            let command = command.stdio([Stdio::Ignore].into_iter().chain(outputs));
            spawn(&mut lp, &command, &ends);
            pipes
                .iter()
                .zip(&received)
                .for_each(|(pipe, received)| collect(&mut lp, *pipe, received));
            run_to_the_end(&mut lp);
            assert_eq!(ends.take(), [code(0)]);
            let received =
                received.map(|received| String::from_utf8(received.take()).expect("UTF-8"));
            assert_eq!(received, expected);
        }
    }
    Ok(())
}

/// A pipe to a child may be bidirectional.
pub fn a_pipe_may_be_bidirectional(lab: &Lab) -> Verdict {
    for command in each_way(child(&["write", "3", "back"])) {
        let mut lp = loop_with_pipes(lab)?;
        let (both, ends, received) = (Pipe::new(&mut lp), Log::default(), Log::default());
        let mut stdio = vec![Stdio::Ignore; 3];
        stdio.push(Stdio::Pipe(both, READABLE | WRITABLE));
        spawn(&mut lp, &command.stdio(stdio), &ends);
        assert!(both.is_readable(&lp) && both.is_writable(&lp));
        collect(&mut lp, both, &received);
        run_to_the_end(&mut lp);
        assert_eq!((ends.take(), received.take()), (vec![code(0)], b"back".to_vec()));
    }
    Ok(())
}

/// The exit of a child ends its pipes, however it exits.
pub fn a_killed_child_ends_its_pipes(lab: &Lab) -> Verdict {
    for command in each_way(child(&["greet", "hello"])) {
        let mut lp = loop_with_pipes(lab)?;
        let (input, output) = (Pipe::new(&mut lp), Pipe::new(&mut lp));
        let (ends, received) = (Log::default(), Log::default());
        let stdio = [Stdio::Pipe(input, READABLE), Stdio::Pipe(output, WRITABLE)];
        let process = spawn(&mut lp, &command.stdio(stdio), &ends);
        let log = received.clone();
        let started = output.read_start(&mut lp, move |lp, output, bytes| match bytes {
            Ok([]) | Err(_) => {
                output.close(lp).expect("an open handle");
                input.close(lp).expect("an open handle");
            }
            Ok(bytes) => {
                log.extend(bytes.iter().copied());
                process.kill(lp, 9).expect("it is there to be killed");
            }
        });
        started.expect("reading");
        run_to_the_end(&mut lp);
        assert_eq!((ends.take(), received.take()), (vec![signal(9)], b"hello".to_vec()));
    }
    Ok(())
}

/// A failed spawn creates no pipe: the handles are unchanged.
pub fn a_failed_spawn_leaves_pipes_unopened(lab: &Lab) -> Verdict {
    let mut lp = loop_with_pipes(lab)?;
    let pipe = Pipe::new(&mut lp);
    let stdio = [Stdio::Ignore, Stdio::Pipe(pipe, WRITABLE)];
    for command in each_way(Command::new("no-such-program").stdio(stdio)) {
        let failed = Process::spawn(&mut lp, &command, |_, _, _| panic!("there is no child"));
        assert_eq!(failed.map_err(|error| error.kind()), Err(ErrorKind::NotFound));
        assert!(!pipe.is_readable(&lp) && !pipe.is_writable(&lp), "not connected");
    }
    let (ends, received) = (Log::default(), Log::default());
    spawn(&mut lp, &child(&["say", "now"]).stdio(stdio), &ends);
    collect(&mut lp, pipe, &received);
    run_to_the_end(&mut lp);
    assert_eq!((ends.take(), received.take()), (vec![code(0)], b"now".to_vec()));
    Ok(())
}

/// A connected pipe, a pipe used twice, a pipe without a direction and a stale key are refused.
pub fn invalid_pipes_are_refused(lab: &Lab) -> Verdict {
    let mut lp = loop_with_pipes(lab)?;
    let refused = |lp: &mut Loop, stdio: Vec<Stdio<'_>>, kind| {
        let command = child(&["exit", "0"]).stdio(stdio);
        let failed = Process::spawn(lp, &command, |_, _, _| panic!("there is no child"));
        assert_eq!(failed.map_err(|error| error.kind()), Err(kind));
    };
    let pipe = Pipe::new(&mut lp);
    let (nowhere, once) = (Stdio::Pipe(pipe, PipeFlags::NON_BLOCKING), Stdio::Pipe(pipe, READABLE));
    refused(&mut lp, vec![nowhere], ErrorKind::InvalidInput);
    refused(&mut lp, vec![once, once], ErrorKind::ResourceBusy);
    let ends = Log::default();
    spawn(&mut lp, &child(&["exit", "0"]).stdio([once]), &ends);
    refused(&mut lp, vec![once], ErrorKind::ResourceBusy);
    pipe.close(&mut lp).expect("an open handle");
    refused(&mut lp, vec![once], ErrorKind::InvalidInput);
    run_to_the_end(&mut lp);
    refused(&mut lp, vec![once], ErrorKind::NotFound);
    assert_eq!(ends.take(), [code(0)]);
    Ok(())
}

/// The child's end of a pipe blocks, as programs expect, unless it is requested non-blocking.
pub fn child_ends_block_unless_non_blocking(lab: &Lab) -> Verdict {
    for (flags, expected) in
        [(WRITABLE, "blocks"), (WRITABLE | PipeFlags::NON_BLOCKING, "does not block")]
    {
        for command in each_way(child(&["descriptors"])) {
            let mut lp = loop_with_pipes(lab)?;
            let (pipe, ends, received) = (Pipe::new(&mut lp), Log::default(), Log::default());
            let command = command.stdio([Stdio::Ignore, Stdio::Pipe(pipe, flags)]);
            spawn(&mut lp, &command, &ends);
            collect(&mut lp, pipe, &received);
            run_to_the_end(&mut lp);
            let received = String::from_utf8(received.take()).expect("UTF-8");
            let output = received.lines().find(|line| line.starts_with("1 ")).expect("an output");
            assert!(output.ends_with(expected), "{output}");
        }
    }
    Ok(())
}
