//! Data through pipes, and the end of pipes.

use std::io::ErrorKind;

use uv_core::{Handle, Listener, Pipe, RunMode, Stream};

use crate::support::limits::leaks_no_descriptor;
use crate::support::loops::{run, run_to_the_end};
use crate::support::pipes::{
    Name, OVER_PIPE_BUFFERS, bound_to, one_echo, pipes_are_bidirectional, piping_loop, read_all,
};
use crate::support::streams::{echo, finish, outcome, refusal, run_until};
use crate::support::syscalls;
use crate::support::trace::{Count, Log};
use crate::{Lab, Verdict};

/// The ends of a pair are connected in both directions, which end separately.
pub fn pairs_are_bidirectional(lab: &Lab) -> Verdict {
    let mut lp = piping_loop(lab)?;
    let (one, other) = Pipe::pair(&mut lp).unwrap();
    let (callbacks, back) = (Log::default(), Log::default());
    one.write(&mut lp, "?", callbacks.written("write")).unwrap();
    let answer = callbacks.clone();
    other
        .read(&mut lp, vec![0; 64], move |lp, other, count, buffer| {
            assert_eq!(buffer[..count.unwrap()], *b"?");
            other.write(lp, ["and ", "back"], answer.written("answer")).unwrap();
            other.shutdown(lp, answer.ended("shutdown")).unwrap();
        })
        .unwrap();
    run_until(&mut lp, "a shutdown", |_| callbacks.len() == 3);
    assert_eq!(callbacks.take(), [("write", "done"), ("answer", "done"), ("shutdown", "done")]);
    assert!(!other.is_writable(&lp) && other.is_readable(&lp));
    read_all(&mut lp, one, &back);
    run_until(&mut lp, "the end", |_| back.len() == 1);
    other.close(&mut lp).unwrap();
    finish(lp);
    assert_eq!(back.take(), [b"and back"]);
    Ok(())
}

/// A pipe that was shut down still receives responses from its peer, which reads the end of file as
/// often as it starts. Empty writes are not an end.
pub fn a_half_closed_pipe_can_be_answered(lab: &Lab) -> Verdict {
    let mut lp = piping_loop(lab)?;
    let (one, other) = Pipe::pair(&mut lp).unwrap();
    let (callbacks, received, answer) = (Log::default(), Log::default(), Log::default());
    for question in ["one ", "", "two ", "", "three"] {
        one.write(&mut lp, question, callbacks.written("question")).unwrap();
    }
    one.shutdown(&mut lp, callbacks.ended("shutdown")).unwrap();
    for _ in 0..3 {
        let mut all = Vec::new();
        let log = received.clone();
        other
            .read_start(&mut lp, move |lp, other, bytes| match bytes.unwrap() {
                [] => {
                    log.push(std::mem::take(&mut all));
                    other.read_stop(lp).unwrap();
                }
                bytes => all.extend_from_slice(bytes),
            })
            .unwrap();
        run_to_the_end(&mut lp);
    }
    assert_eq!(received.take(), [&b"one two three"[..], b"", b""]);
    assert_eq!(callbacks.take()[5..], [("shutdown", "done")]);
    assert_eq!(refusal(one.write(&mut lp, "more", |_, _, _, _| {})), ErrorKind::BrokenPipe);
    read_all(&mut lp, one, &answer);
    for word in ["four", "", "!"] {
        other.write(&mut lp, word, callbacks.written("answer")).unwrap();
    }
    other.shutdown(&mut lp, |lp, other, _| other.close(lp).unwrap()).unwrap();
    run_to_the_end(&mut lp);
    assert_eq!((callbacks.len(), answer.take()), (3, vec![b"four!".to_vec()]));
    finish(lp);
    Ok(())
}

/// A write end that is assumed to be readable reports an error when its reader is closed, and
/// nothing before.
#[cfg(unix)]
pub fn a_writer_can_be_notified_when_its_reader_is_closed(lab: &Lab) -> Verdict {
    let mut lp = piping_loop(lab)?;
    let (reader, writer) = Pipe::one_way(&mut lp).unwrap();
    let (errors, all) = (Log::default(), Log::default());
    writer.assume_readable(&mut lp).unwrap();
    let log = errors.clone();
    writer
        .read_start(&mut lp, move |lp, writer, result| {
            // The end of file where pipes are bidirectional.
            log.push(result.map_or(true, <[u8]>::is_empty));
            writer.close(lp).unwrap();
        })
        .unwrap();
    writer.write(&mut lp, "text", |_, _, _, _| {}).unwrap();
    let log = all.clone();
    reader.read_start(&mut lp, move |_, _, bytes| log.push(bytes.unwrap().to_vec())).unwrap();
    run_until(&mut lp, "the text", |_| all.len() == 1);
    assert_eq!(errors.len(), 0, "the reader is open");
    reader.close(&mut lp).unwrap();
    run_until(&mut lp, "the notification", |_| errors.len() == 1);
    assert_eq!(errors.take(), [true]);
    let closed = Pipe::new(&mut lp);
    assert_eq!(refusal(closed.assume_readable(&mut lp)), ErrorKind::NotConnected);
    Ok(())
}

/// A one-way pipe is read at one end and written at the other. A shutdown or a close of the writer
/// is the reader's end of file. Data that the kernel does not accept stays queued.
pub fn one_way_pipes_are_unidirectional(lab: &Lab) -> Verdict {
    for ending in ["shutdown", "close"] {
        let mut lp = piping_loop(lab)?;
        let (reader, writer) = Pipe::one_way(&mut lp).unwrap();
        assert!(reader.is_readable(&lp) && writer.is_writable(&lp));
        if !pipes_are_bidirectional() {
            assert!(!reader.is_writable(&lp) && !writer.is_readable(&lp));
            assert_eq!(refusal(reader.try_write(&mut lp, b"x")), ErrorKind::BrokenPipe);
            assert_eq!(refusal(writer.read_start(&mut lp, |_, _, _| {})), ErrorKind::NotConnected);
        }
        let (callbacks, all) = (Log::default(), Log::default());
        let sent: Vec<u8> = (0..1_000_000).map(|at| (at % 251) as u8).collect();
        writer.write(&mut lp, sent.clone(), callbacks.written("write")).unwrap();
        assert!(writer.write_queue_size(&lp) > 0, "no kernel accepts everything immediately");
        match ending {
            "shutdown" => writer.shutdown(&mut lp, callbacks.ended("shutdown")).unwrap(),
            _ => {
                let log = callbacks.clone();
                writer
                    .write(&mut lp, "", move |lp, writer, result, _| {
                        log.push(("last", outcome(&result)));
                        writer.close(lp).unwrap();
                    })
                    .map(drop)
                    .unwrap();
            }
        }
        read_all(&mut lp, reader, &all);
        run_until(&mut lp, "the end", |_| all.len() == 1);
        assert!(all.take() == [sent], "as written");
        let last = if ending == "shutdown" { "shutdown" } else { "last" };
        assert_eq!(callbacks.take(), [("write", "done"), (last, "done")]);
        if ending == "shutdown" {
            assert!(!writer.is_writable(&lp) && !writer.is_closing(&lp));
            writer.close(&mut lp).unwrap();
        }
        finish(lp);
    }
    Ok(())
}

/// Without a reader a write fails, and so do the writes queued behind it. No `SIGPIPE` ends the
/// process.
pub fn a_write_without_a_reader_fails(lab: &Lab) -> Verdict {
    let mut lp = piping_loop(lab)?;
    for both_ways in [false, true] {
        let pair = if both_ways { Pipe::pair(&mut lp) } else { Pipe::one_way(&mut lp) };
        let ((reader, writer), callbacks) = (pair.unwrap(), Log::default());
        writer.write(&mut lp, vec![1; OVER_PIPE_BUFFERS], callbacks.written("large")).unwrap();
        writer.write(&mut lp, "small", callbacks.written("small")).unwrap();
        run(&mut lp, RunMode::NoWait);
        assert_eq!(callbacks.len(), 0, "both are queued");
        reader.close(&mut lp).unwrap();
        run_until(&mut lp, "both errors", |_| callbacks.len() == 2);
        assert_eq!(callbacks.take(), [("large", "failed"), ("small", "failed")]);
        writer.close(&mut lp).unwrap();
        run_to_the_end(&mut lp);
    }
    finish(lp);
    Ok(())
}

/// An echo through a named pipe is complete for any length, with many concurrent clients.
pub fn an_echo_is_complete(lab: &Lab) -> Verdict {
    const CLIENTS: usize = 8;
    const SIZE: usize = 300_000;
    let mut lp = piping_loop(lab)?;
    let (name, ends, back) = (Name::new(), Log::default(), Log::default());
    let server = bound_to(&mut lp, &name);
    echo(&mut lp, server, &ends);
    for client in 0..CLIENTS {
        let (pipe, back) = (Pipe::new(&mut lp), back.clone());
        let begun = pipe.connect(&mut lp, &name, move |lp, pipe, result| {
            result.unwrap();
            let sent: Vec<u8> = (0..SIZE).map(|at| (at % (200 + client)) as u8).collect();
            let (expected, mut got) = (sent.clone(), Vec::new());
            pipe.write(lp, sent, |_, _, result, _| result.unwrap()).unwrap();
            pipe.read_start(lp, move |lp, pipe, bytes| {
                got.extend_from_slice(bytes.unwrap());
                if got.len() == SIZE {
                    back.push(got == expected);
                    pipe.close(lp).unwrap();
                }
            })
            .unwrap();
        });
        begun.unwrap();
    }
    run_until(&mut lp, "all echoes", |_| ends.len() == CLIENTS);
    assert_eq!(back.take(), [true; CLIENTS]);
    assert_eq!(ends.take(), ["done"; CLIENTS]);
    server.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// An echoed message costs one wait, one read and one write.
pub fn an_echo_costs_three_system_calls(lab: &Lab) -> Verdict {
    const ROUNDS: u32 = 50;
    let mut lp = piping_loop(lab)?;
    let (one, other) = Pipe::pair(&mut lp).unwrap();
    let echoed = Count::default();
    other
        .read_start(&mut lp, |lp, other, bytes| {
            assert_eq!(bytes.unwrap(), b"ping");
            other.write(lp, "pong", |_, _, result, _| result.unwrap()).unwrap();
        })
        .unwrap();
    let count = echoed.clone();
    one.read_start(&mut lp, move |lp, one, bytes| {
        assert_eq!(bytes.unwrap(), b"pong");
        count.count();
        one.write(lp, "ping", |_, _, result, _| result.unwrap()).unwrap();
    })
    .unwrap();
    one.write(&mut lp, "ping", |_, _, result, _| result.unwrap()).unwrap();
    let rounds = |lp: &mut crate::Loop, until: u64| {
        while echoed.get() < until {
            run(lp, RunMode::Once);
        }
    };
    rounds(&mut lp, 10); // Pays one-time costs.
    let calls = syscalls::count(|| rounds(&mut lp, 10 + u64::from(ROUNDS)))?.1;
    let (messages, at_the_edges) = (2 * ROUNDS, 3);
    assert!(calls.total() <= 3 * messages + at_the_edges, "{calls:?} for {messages} messages");
    one.close(&mut lp).unwrap();
    other.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// However pipes and their loop end, no descriptor leaks.
pub fn no_descriptor_leaks(lab: &Lab) -> Verdict {
    leaks_no_descriptor(|| {
        let mut lp = piping_loop(lab)?;
        let (name, ends) = (Name::new(), Log::default());
        let server = bound_to(&mut lp, &name);
        echo(&mut lp, server, &ends);
        one_echo(&mut lp, name.as_ref(), "hello");
        run_until(&mut lp, "an end", |_| ends.len() == 1);
        let unanswered = Pipe::new(&mut lp);
        unanswered.connect(&mut lp, Name::new(), |_, _, _| {}).unwrap();
        let given_up = Pipe::new(&mut lp);
        given_up.connect(&mut lp, &name, |_, _, _| {}).unwrap();
        given_up.close(&mut lp).unwrap();
        // One connection that is reported and not accepted, and one behind it.
        let (other, callbacks) = (Name::new(), Log::default());
        let (lazy, log) = (bound_to(&mut lp, &other), callbacks.clone());
        lazy.listen(&mut lp, 8, move |_, _, _| log.push(())).unwrap();
        for _ in 0..2 {
            Pipe::new(&mut lp).connect(&mut lp, &other, |_, _, _| {}).unwrap();
        }
        run_until(&mut lp, "a connection", |_| callbacks.len() > 0);
        let (_, writer) = Pipe::one_way(&mut lp).unwrap();
        writer.write(&mut lp, vec![1; OVER_PIPE_BUFFERS], |_, _, _, _| {}).unwrap();
        let (_, ended) = Pipe::one_way(&mut lp).unwrap();
        ended.shutdown(&mut lp, |_, _, _| {}).unwrap();
        let (one, other) = Pipe::pair(&mut lp).unwrap();
        one.read_start(&mut lp, |_, _, _| {}).unwrap();
        other.close(&mut lp).unwrap();
        run(&mut lp, RunMode::NoWait);
        Ok(())
    })
}
