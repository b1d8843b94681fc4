//! Pipes that are made for a child.

use std::io::ErrorKind;

use poll_core::Backend;
use uv_core::{Command, Handle, Loop, Pipe, PipeFlags, Process, Stdio, Stream};

use crate::support::children::{code, each_way, signal, spawn};
use crate::support::loops::{new_loop, run_to_the_end};
use crate::support::program::child;
use crate::support::trace::Log;
use crate::{Lab, Skip, Verdict};

const READABLE: PipeFlags = PipeFlags::READABLE;
const WRITABLE: PipeFlags = PipeFlags::WRITABLE;

/// A loop that has pipes.
fn loop_with_pipes<T: Backend>(lab: &Lab<T>) -> Result<Loop<T>, Skip> {
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

/// Reads all that comes, and closes at the end.
fn collect<T: Backend>(lp: &mut Loop<T>, pipe: Pipe, heard: &Log<u8>) {
    let heard = heard.clone();
    let started = pipe.read_start(lp, move |lp, pipe, bytes| match bytes.expect("bytes") {
        [] => pipe.close(lp).expect("an open handle"),
        bytes => heard.extend(bytes.iter().copied()),
    });
    started.expect("reading");
}

/// Writes, and closes when all is written.
fn send<T: Backend>(lp: &mut Loop<T>, pipe: Pipe, bytes: Vec<u8>) {
    let written = pipe.write(lp, bytes, |lp, pipe, result, _| {
        result.expect("written");
        pipe.close(lp).expect("an open handle");
    });
    written.expect("a write");
}

/// What is sent to a child that sends it back comes back, also if it is much.
pub fn a_child_sends_back_what_it_is_sent<T: Backend>(lab: &Lab<T>) -> Verdict {
    for length in [5, 3_000_000] {
        let text: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        for command in each_way(child(&["cat"])) {
            let mut lp = loop_with_pipes(lab)?;
            let (input, output) = (Pipe::new(&mut lp), Pipe::new(&mut lp));
            let (ends, heard) = (Log::default(), Log::default());
            let stdio = [Stdio::Pipe(input, READABLE), Stdio::Pipe(output, WRITABLE)];
            spawn(&mut lp, &command.stdio(stdio), &ends);
            assert_eq!((input.is_readable(&lp), input.is_writable(&lp)), (false, true));
            assert_eq!((output.is_readable(&lp), output.is_writable(&lp)), (true, false));
            send(&mut lp, input, text.clone());
            collect(&mut lp, output, &heard);
            run_to_the_end(&mut lp);
            assert_eq!(ends.take(), [code(0)]);
            assert!(heard.take() == text, "what went in comes out");
        }
    }
    Ok(())
}

/// Each of a child's outputs can be a pipe of its own, and so can others than the first three.
pub fn each_output_is_a_pipe_of_its_own<T: Backend>(lab: &Lab<T>) -> Verdict {
    for (words, expected) in [
        (&["say", "out"][..], ["out", "", ""]),
        (&["complain", "err"], ["", "err", ""]),
        (&["write", "3", "three"], ["", "", "three"]),
    ] {
        for command in each_way(child(words)) {
            let mut lp = loop_with_pipes(lab)?;
            let pipes = [(); 3].map(|()| Pipe::new(&mut lp));
            let heard = [(); 3].map(|()| Log::default());
            let ends = Log::default();
            let outputs = pipes.map(|pipe| Stdio::Pipe(pipe, WRITABLE));
            let command = command.stdio([Stdio::Ignore].into_iter().chain(outputs));
            spawn(&mut lp, &command, &ends);
            pipes.iter().zip(&heard).for_each(|(pipe, heard)| collect(&mut lp, *pipe, heard));
            run_to_the_end(&mut lp);
            assert_eq!(ends.take(), [code(0)]);
            let heard = heard.map(|heard| String::from_utf8(heard.take()).expect("UTF-8"));
            assert_eq!(heard, expected);
        }
    }
    Ok(())
}

/// A pipe can go both ways.
pub fn a_pipe_may_go_both_ways<T: Backend>(lab: &Lab<T>) -> Verdict {
    for command in each_way(child(&["write", "3", "back"])) {
        let mut lp = loop_with_pipes(lab)?;
        let (both, ends, heard) = (Pipe::new(&mut lp), Log::default(), Log::default());
        let mut stdio = vec![Stdio::Ignore; 3];
        stdio.push(Stdio::Pipe(both, READABLE | WRITABLE));
        spawn(&mut lp, &command.stdio(stdio), &ends);
        assert!(both.is_readable(&lp) && both.is_writable(&lp));
        collect(&mut lp, both, &heard);
        run_to_the_end(&mut lp);
        assert_eq!((ends.take(), heard.take()), (vec![code(0)], b"back".to_vec()));
    }
    Ok(())
}

/// The end of a child is the end of what comes from it, however it ends.
pub fn a_killed_child_ends_its_pipes<T: Backend>(lab: &Lab<T>) -> Verdict {
    for command in each_way(child(&["greet", "hello"])) {
        let mut lp = loop_with_pipes(lab)?;
        let (input, output) = (Pipe::new(&mut lp), Pipe::new(&mut lp));
        let (ends, heard) = (Log::default(), Log::default());
        let stdio = [Stdio::Pipe(input, READABLE), Stdio::Pipe(output, WRITABLE)];
        let process = spawn(&mut lp, &command.stdio(stdio), &ends);
        let hears = heard.clone();
        let started = output.read_start(&mut lp, move |lp, output, bytes| match bytes {
            Ok([]) | Err(_) => {
                output.close(lp).expect("an open handle");
                input.close(lp).expect("an open handle");
            }
            Ok(bytes) => {
                hears.extend(bytes.iter().copied());
                process.kill(lp, 9).expect("it is there to be killed");
            }
        });
        started.expect("reading");
        run_to_the_end(&mut lp);
        assert_eq!((ends.take(), heard.take()), (vec![signal(9)], b"hello".to_vec()));
    }
    Ok(())
}

/// If the child cannot be started, no pipe is made: the handles are as they were.
pub fn no_child_is_no_pipe<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = loop_with_pipes(lab)?;
    let pipe = Pipe::new(&mut lp);
    let stdio = [Stdio::Ignore, Stdio::Pipe(pipe, WRITABLE)];
    for command in each_way(Command::new("no-such-program").stdio(stdio)) {
        let failed = Process::spawn(&mut lp, &command, |_, _, _| panic!("there is no child"));
        assert_eq!(failed.map_err(|error| error.kind()), Err(ErrorKind::NotFound));
        assert!(!pipe.is_readable(&lp) && !pipe.is_writable(&lp), "not connected");
    }
    let (ends, heard) = (Log::default(), Log::default());
    spawn(&mut lp, &child(&["say", "now"]).stdio(stdio), &ends);
    collect(&mut lp, pipe, &heard);
    run_to_the_end(&mut lp);
    assert_eq!((ends.take(), heard.take()), (vec![code(0)], b"now".to_vec()));
    Ok(())
}

/// A pipe that is connected already, one for two, one that goes nowhere and a stale one are
/// refused.
pub fn impossible_pipes_are_refused<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = loop_with_pipes(lab)?;
    let refused = |lp: &mut Loop<T>, stdio: Vec<Stdio<'_>>, kind| {
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

/// A child's end blocks, as programs expect, unless it is not to.
pub fn ends_block_unless_asked_not_to<T: Backend>(lab: &Lab<T>) -> Verdict {
    for (flags, expected) in
        [(WRITABLE, "blocks"), (WRITABLE | PipeFlags::NON_BLOCKING, "does not block")]
    {
        for command in each_way(child(&["descriptors"])) {
            let mut lp = loop_with_pipes(lab)?;
            let (pipe, ends, heard) = (Pipe::new(&mut lp), Log::default(), Log::default());
            let command = command.stdio([Stdio::Ignore, Stdio::Pipe(pipe, flags)]);
            spawn(&mut lp, &command, &ends);
            collect(&mut lp, pipe, &heard);
            run_to_the_end(&mut lp);
            let heard = String::from_utf8(heard.take()).expect("UTF-8");
            let output = heard.lines().find(|line| line.starts_with("1 ")).expect("an output");
            assert!(output.ends_with(expected), "{output}");
        }
    }
    Ok(())
}
