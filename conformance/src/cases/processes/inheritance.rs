//! The descriptors of a child.

use std::fs::File;

#[cfg(unix)]
use uv_core::Tcp;
use uv_core::{Handle, Stdio, Stream};

use crate::support::children::{code, each_way, of_file, run_child, spawn};
use crate::support::files::Directory;
use crate::support::loops::{new_loop, run_to_the_end};
use crate::support::program::child;
use crate::support::trace::Log;
use crate::{Lab, Verdict};

/// By default a child reads from and writes to the null device.
pub fn standard_streams_default_to_the_null_device(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (directory, words) = (Directory::new(), ["input"]);
    for command in each_way(child(&words)) {
        let path = directory.path("answer");
        let file = File::create(&path).expect("a file for the answer");
        let command = command.stdio([Stdio::Ignore, of_file(&file)]);
        assert_eq!(run_child(&mut lp, &command), code(0));
        assert_eq!(std::fs::read_to_string(path).expect("an answer"), "true: ", "end of file");
    }
    for words in [["say", "discarded"], ["complain", "discarded"]] {
        for command in each_way(child(&words)) {
            assert_eq!(run_child(&mut lp, &command), code(0), "it can write to the null device");
        }
    }
    Ok(())
}

/// A child inherits the given files: as input, as output, and as both outputs.
pub fn files_are_inherited(lab: &Lab) -> Verdict {
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    let input = directory.file("input", "the content");
    for command in each_way(child(&["cat"])) {
        let (input, path) = (File::open(&input).expect("the input"), directory.path("output"));
        let output = File::create(&path).expect("a file");
        let command = command.stdio([of_file(&input), of_file(&output)]);
        assert_eq!(run_child(&mut lp, &command), code(0));
        assert_eq!(std::fs::read_to_string(path).expect("text"), "the content");
    }
    for command in each_way(child(&["complain", "both"])) {
        let path = directory.path("output");
        let output = File::create(&path).expect("a file");
        let command = command.stdio([Stdio::Ignore, of_file(&output), of_file(&output)]);
        assert_eq!(run_child(&mut lp, &command), code(0));
        assert_eq!(std::fs::read_to_string(path).expect("text"), "both");
    }
    Ok(())
}

/// A child can inherit this process's standard streams, in any order.
pub fn standard_streams_are_inherited(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let own = [Stdio::Standard(0), Stdio::Standard(1), Stdio::Standard(2)];
    let swapped = [Stdio::Standard(0), Stdio::Standard(2), Stdio::Standard(1)];
    for stdio in [own, swapped] {
        for command in each_way(child(&["exit", "2"]).stdio(stdio)) {
            assert_eq!(run_child(&mut lp, &command), code(2));
        }
    }
    Ok(())
}

/// A process whose standard streams are closed starts children, whose streams are as requested,
/// although the descriptors of the loop have the numbers 0 to 2.
#[cfg(unix)]
pub fn a_parent_may_have_no_standard_streams(lab: &Lab) -> Verdict {
    use crate::support::child::Child;
    use crate::support::observe::SOON;

    let directory = Directory::new();
    let forked = Child::fork(|| {
        for standard in 0..3 {
            // SAFETY: this process is a copy for this case, and nothing in it uses these.
            unsafe { libc::close(standard) };
        }
        let mut lp = new_loop(lab)?;
        for command in each_way(child(&["say", "hello"])) {
            let path = directory.path("output");
            let output = File::create(&path).expect("a file");
            let command = command.stdio([Stdio::Ignore, of_file(&output), Stdio::Ignore]);
            assert_eq!(run_child(&mut lp, &command), code(0));
            assert_eq!(std::fs::read_to_string(path).expect("text"), "hello");
        }
        Ok(())
    });
    forked.join(SOON)
}

/// A process whose standard streams are closed starts children, whose streams are as requested.
#[cfg(not(unix))]
pub fn a_parent_may_have_no_standard_streams(_lab: &Lab) -> Verdict {
    Err(crate::Skip::because("there is no fork to make such a process with"))
}

/// A child can have more than three descriptors, with gaps.
pub fn more_than_three_descriptors_can_be_passed(lab: &Lab) -> Verdict {
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    for target in [3, 4, 7, 40] {
        for command in each_way(child(&["write", &target.to_string(), "here"])) {
            let path = directory.path("output");
            let output = File::create(&path).expect("a file");
            let mut stdio = vec![Stdio::Ignore; target];
            stdio.push(of_file(&output));
            let command = command.stdio(stdio);
            assert_eq!(run_child(&mut lp, &command), code(0), "number {target}");
            assert_eq!(std::fs::read_to_string(path).expect("text"), "here");
        }
    }
    Ok(())
}

/// Descriptors get their numbers even if those overlap: each number may be that of another source.
#[cfg(unix)]
pub fn descriptors_may_be_permuted(lab: &Lab) -> Verdict {
    use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    let files: Vec<_> = (0..6)
        .map(|number| directory.path(&format!("{number}")))
        .map(|path| File::create(path).expect("a file"))
        .collect();
    let inode = |fd: BorrowedFd<'_>| {
        use std::os::unix::fs::MetadataExt;
        let file = File::from(fd.try_clone_to_owned().expect("a duplicate"));
        let metadata = file.metadata().expect("its metadata");
        format!("{}:{}", metadata.dev(), metadata.ino())
    };
    // Enough to reach above the numbers of the files, so that all of them overlap.
    let highest = files.iter().map(|file| file.as_raw_fd()).max().expect("files") as usize;
    let orders: [Box<dyn Fn(usize) -> usize>; 4] = [
        Box::new(|at| at),
        Box::new(|at| 5 - at),
        Box::new(|at| (at + 1) % 6),
        Box::new(|at| at / 2),
    ];
    for order in orders {
        let mut expected = String::new();
        let answer = File::create(directory.path("answer")).expect("a file");
        let mut stdio = vec![Stdio::Ignore; highest + 1];
        stdio[1] = of_file(&answer);
        for (at, file) in files.iter().enumerate() {
            let target = file.as_raw_fd() as usize;
            let source = files[order(at)].as_fd();
            stdio[target] = Stdio::Descriptor(source);
            expected += &format!("{target} {} blocks\n", inode(source));
        }
        for command in each_way(child(&["descriptors"])) {
            answer.set_len(0).expect("one's own file");
            let mut writes = &answer;
            std::io::Seek::rewind(&mut writes).expect("one's own file");
            assert_eq!(run_child(&mut lp, &command.stdio(stdio.clone())), code(0));
            let found = std::fs::read_to_string(directory.path("answer")).expect("an answer");
            let of_files: String = found
                .lines()
                .filter(|line| !["0 ", "1 ", "2 "].iter().any(|it| line.starts_with(it)))
                .map(|line| format!("{line}\n"))
                .collect();
            let mut lines: Vec<_> = expected.lines().collect();
            lines.sort_by_key(|line| line.split(' ').next().and_then(|it| it.parse::<u32>().ok()));
            let lines = lines.into_iter().filter(|line| {
                line.split(' ').next().and_then(|it| it.parse().ok()).is_some_and(|it: u32| it < 32)
            });
            assert_eq!(of_files, lines.map(|line| format!("{line}\n")).collect::<String>());
        }
    }
    Ok(())
}

/// A child inherits neither the loop's descriptors nor any that it was not given.
#[cfg(unix)]
pub fn no_other_descriptor_is_inherited(lab: &Lab) -> Verdict {
    use crate::support::children::answer_to;

    let mut lp = new_loop(lab)?;
    let (one, other) = Tcp::pair(&mut lp).expect("a pair");
    let ends = Log::default();
    let running = spawn(&mut lp, &child(&["sleep"]), &ends);
    running.unreference(&mut lp).expect("an open handle");
    for command in each_way(child(&["descriptors"])) {
        let found = answer_to(&mut lp, command.clone());
        let numbers: Vec<_> = found.lines().filter_map(|line| line.split(' ').next()).collect();
        // Descriptors that this process itself inherited without close-on-exec are passed on.
        let expected: Vec<_> = (0..32).filter(|fd| *fd < 3 || is_marked_to_stay(*fd)).collect();
        let expected: Vec<_> = expected.iter().map(ToString::to_string).collect();
        assert_eq!(numbers, expected, "{command:?}");
    }
    running.kill(&mut lp, 9).expect("it is there to be killed");
    running.reference(&mut lp).expect("an open handle");
    for handle in [one, other] {
        handle.close(&mut lp).expect("an open handle");
    }
    run_to_the_end(&mut lp);
    Ok(())
}

#[cfg(unix)]
fn is_marked_to_stay(fd: libc::c_int) -> bool {
    // SAFETY: the call passes no memory, and a query of any number is harmless.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
    flags != -1 && flags & libc::FD_CLOEXEC == 0
}

/// A child can inherit the socket of a stream: its output arrives, and the socket blocks, as
/// programs expect. Programs on Windows do not use sockets as streams; there it is a pipe.
pub fn streams_are_inherited(lab: &Lab) -> Verdict {
    for command in each_way(child(&["cat"])) {
        #[cfg(unix)]
        let mut lp = new_loop(lab)?;
        #[cfg(windows)]
        let mut lp = crate::support::pipes::piping_loop(lab)?;
        #[cfg(unix)]
        let (ours, theirs) = Tcp::pair(&mut lp).expect("a pair");
        #[cfg(windows)]
        let (ours, theirs) = uv_core::Pipe::pair(&mut lp).expect("a pair");
        let (ends, output) = (Log::default(), Log::default());
        let stdio = [Stdio::stream(theirs), Stdio::stream(theirs)];
        spawn(&mut lp, &command.stdio(stdio), &ends);
        theirs.close(&mut lp).expect("an open handle");
        ours.write(&mut lp, "hello", |lp, ours, result, _| {
            result.expect("written");
            ours.shutdown(lp, |_, _, _| {}).expect("an open stream");
        })
        .expect("a write");
        let log = output.clone();
        ours.read_start(&mut lp, move |lp, ours, bytes| match bytes.expect("bytes") {
            [] => ours.close(lp).expect("an open handle"),
            bytes => log.extend(bytes.iter().copied()),
        })
        .expect("reading");
        run_to_the_end(&mut lp);
        assert_eq!(output.take(), b"hello", "the output equals the input");
        assert_eq!(ends.take(), [code(0)]);
    }
    Ok(())
}

/// Bytes that have arrived are not lost when a stream that was stopped goes to a child: the child
/// reads them, or `spawn` is refused until the loop's reader has them. What arrives later is for
/// the child.
#[cfg(unix)]
pub fn a_stream_keeps_its_bytes_for_a_child(lab: &Lab) -> Verdict {
    use std::io::{ErrorKind, Write as _};
    use std::net::Shutdown;
    use std::rc::Rc;

    use crate::support::children::try_spawn;
    use crate::support::streams::{connected, run_a_moment, run_until};

    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    let (path, ends, spawned) = (directory.path("output"), Log::default(), Log::default());
    let output = Rc::new(File::create(&path).expect("a file"));
    let ((one, mut other_end), (two, mut peer)) = (connected(&mut lp), connected(&mut lp));
    let give = {
        let ends = ends.clone();
        move |lp: &mut crate::Loop| {
            let command = child(&["cat"]).stdio([Stdio::stream(two), of_file(&output)]);
            try_spawn(lp, &command, &ends).map(drop).map_err(|error| error.kind())
        }
    };
    // Whichever callback runs first stops the other stream, whose bytes arrived with its own.
    let read = Log::default();
    let log = read.clone();
    two.read_start(&mut lp, move |lp, two, bytes| {
        log.extend(bytes.expect("bytes").iter().copied());
        two.read_stop(lp).expect("an open stream");
    })
    .expect("reading");
    let (result, gives) = (spawned.clone(), give.clone());
    one.read_start(&mut lp, move |lp, one, _| {
        one.close(lp).expect("an open handle");
        two.read_stop(lp).expect("an open stream");
        result.push(gives(lp));
    })
    .expect("reading");
    run_a_moment(&mut lp);
    other_end.write_all(b"now").expect("a write");
    peer.write_all(b"early ").expect("a write");
    run_until(&mut lp, "a child or a refusal", |_| spawned.len() > 0);
    if let Some(Err(kind)) = spawned.take().pop() {
        assert_eq!(kind, ErrorKind::ResourceBusy);
        let log = read.clone();
        two.read_start(&mut lp, move |lp, two, bytes| {
            log.extend(bytes.expect("bytes").iter().copied());
            two.read_stop(lp).expect("an open stream");
        })
        .expect("reading");
        run_until(&mut lp, "the bytes of the loop", |_| read.len() > 0);
        assert_eq!(give(&mut lp), Ok(()), "nothing is left in the loop");
    }
    peer.write_all(b"late").expect("a write");
    peer.shutdown(Shutdown::Write).expect("a connection");
    run_until(&mut lp, "the end of the child", |_| ends.len() > 0);
    two.close(&mut lp).expect("an open handle");
    run_to_the_end(&mut lp);
    let mut all = read.take();
    all.extend(std::fs::read(path).expect("the output"));
    assert_eq!(String::from_utf8_lossy(&all), "early late");
    Ok(())
}

/// A stream that a child was given stays non-blocking for the loop: it reads all that has
/// arrived and runs on. The child's descriptor blocks, if it is a connection or if the kernel
/// can open a pipe once more.
#[cfg(unix)]
pub fn a_shared_stream_does_not_block_the_loop(lab: &Lab) -> Verdict {
    use uv_core::{Loop, Pipe};

    use crate::support::children::answer_with_input;

    // As much as the loop reads by one call, after which it reads again.
    const FULL: usize = 64 * 1024;

    fn check<S: Stream>(mut lp: crate::Loop, reader: S, writer: S, blocks: bool) {
        let ends = Log::default();
        for command in each_way(child(&["descriptors"])) {
            let found = answer_with_input(&mut lp, command, Stdio::stream(reader));
            let input = found.lines().find(|line| line.starts_with("0 ")).expect("an input");
            assert_eq!(input.ends_with(" blocks"), blocks, "{input}");
        }
        let sleeping = child(&["sleep"]).stdio([Stdio::stream(reader)]);
        let running = spawn(&mut lp, &sleeping, &ends);
        writer
            .write(&mut lp, vec![7; FULL], |_, _, result, _| result.expect("sent"))
            .expect("sent");
        let mut left = FULL;
        let read = move |lp: &mut crate::Loop, reader: S, bytes: std::io::Result<&[u8]>| {
            left -= bytes.expect("bytes").len();
            if left == 0 {
                // The pending phase is reached only if the next read does not wait.
                lp.defer(move |lp| {
                    running.kill(lp, 9).expect("it sleeps");
                    reader.close(lp).expect("an open handle");
                    writer.close(lp).expect("an open handle");
                });
            }
        };
        reader.read_start(&mut lp, read).expect("reading");
        run_to_the_end(&mut lp);
        assert_eq!(ends.len(), 1, "the child was killed");
    }

    let open = |make: fn(&mut Loop<_>) -> std::io::Result<(Pipe, Pipe)>| {
        let mut lp = new_loop(lab)?;
        let (reader, writer) = make(&mut lp).expect("a pipe");
        Ok((lp, reader, writer))
    };
    let mut lp = new_loop(lab)?;
    let (reader, writer) = Tcp::pair(&mut lp).expect("a pair");
    check(lp, reader, writer, true);
    let (lp, reader, writer) = open(Pipe::pair)?;
    check(lp, reader, writer, true);
    let (lp, reader, writer) = open(Pipe::one_way)?;
    check(lp, reader, writer, cfg!(target_os = "linux"));
    Ok(())
}

#[cfg(windows)]
unix_alone! {
    a_stream_keeps_its_bytes_for_a_child: "Windows programs do not read sockets"
    a_shared_stream_does_not_block_the_loop: "Windows pipes and sockets have no such flag"
    descriptors_may_be_permuted: "handles of Windows have no fixed numbers"
    no_other_descriptor_is_inherited: "Windows inherits handles by a list that cannot be inspected"
}
