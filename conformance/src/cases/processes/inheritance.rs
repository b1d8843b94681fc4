//! What a child reads and writes.

use std::fs::File;

use poll_core::Backend;
#[cfg(unix)]
use uv_core::Tcp;
use uv_core::{Handle, Stdio, Stream};

use crate::support::children::{code, each_way, of_file, run_child, spawn};
use crate::support::files::Directory;
use crate::support::loops::{new_loop, run_to_the_end};
use crate::support::program::child;
use crate::support::trace::Log;
use crate::{Lab, Verdict};

/// Unless told otherwise a child reads nothing, and what it writes goes nowhere.
pub fn standard_streams_are_the_null_device<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (directory, words) = (Directory::new(), ["input"]);
    for command in each_way(child(&words)) {
        let path = directory.path("answer");
        let file = File::create(&path).expect("a file for the answer");
        let command = command.stdio([Stdio::Ignore, of_file(&file)]);
        assert_eq!(run_child(&mut lp, &command), code(0));
        assert_eq!(std::fs::read_to_string(path).expect("an answer"), "true: ", "end of file");
    }
    for words in [["say", "into the void"], ["complain", "into the void"]] {
        for command in each_way(child(&words)) {
            assert_eq!(run_child(&mut lp, &command), code(0), "it can write, to nobody");
        }
    }
    Ok(())
}

/// A child has the files that it was given: as input, as output, as both kinds of output.
pub fn files_are_inherited<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    let input = directory.file("input", "what there is to read");
    for command in each_way(child(&["cat"])) {
        let (input, path) = (File::open(&input).expect("the input"), directory.path("output"));
        let output = File::create(&path).expect("a file");
        let command = command.stdio([of_file(&input), of_file(&output)]);
        assert_eq!(run_child(&mut lp, &command), code(0));
        assert_eq!(std::fs::read_to_string(path).expect("text"), "what there is to read");
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

/// This process's own standard streams can be a child's, in any order.
pub fn standard_streams_are_inherited<T: Backend>(lab: &Lab<T>) -> Verdict {
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

/// A child can have more than three, with gaps.
pub fn there_can_be_more_than_three<T: Backend>(lab: &Lab<T>) -> Verdict {
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

/// Descriptors come to their places also where the numbers cross: each may be where another
/// is to go.
#[cfg(unix)]
pub fn descriptors_may_change_places<T: Backend>(lab: &Lab<T>) -> Verdict {
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
    // As many as reach above the numbers of the files, so that all of them are in the way.
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

/// Nothing that the loop has open is inherited, and nothing that a child was not given.
#[cfg(unix)]
pub fn nothing_else_is_inherited<T: Backend>(lab: &Lab<T>) -> Verdict {
    use crate::support::children::answer_to;

    let mut lp = new_loop(lab)?;
    let (one, other) = Tcp::pair(&mut lp).expect("a pair");
    let ends = Log::default();
    let running = spawn(&mut lp, &child(&["sleep"]), &ends);
    running.unreference(&mut lp).expect("an open handle");
    for command in each_way(child(&["descriptors"])) {
        let found = answer_to(&mut lp, command.clone());
        let numbers: Vec<_> = found.lines().filter_map(|line| line.split(' ').next()).collect();
        // What this process itself has inherited without the mark goes on.
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
    // SAFETY: asking for the flags of any number is harmless.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
    flags != -1 && flags & libc::FD_CLOEXEC == 0
}

/// A stream's connection can be a child's: what it writes arrives, and it blocks, as programs
/// expect. Programs of Windows read and write no sockets: there it is a pipe.
pub fn streams_are_inherited<T: Backend>(lab: &Lab<T>) -> Verdict {
    for command in each_way(child(&["cat"])) {
        #[cfg(unix)]
        let mut lp = new_loop(lab)?;
        #[cfg(windows)]
        let mut lp = crate::support::pipes::piping_loop(lab)?;
        #[cfg(unix)]
        let (ours, theirs) = Tcp::pair(&mut lp).expect("a pair");
        #[cfg(windows)]
        let (ours, theirs) = uv_core::Pipe::pair(&mut lp).expect("a pair");
        let (ends, heard) = (Log::default(), Log::default());
        let stdio = [Stdio::stream(theirs), Stdio::stream(theirs)];
        spawn(&mut lp, &command.stdio(stdio), &ends);
        theirs.close(&mut lp).expect("an open handle");
        ours.write(&mut lp, "hello", |lp, ours, result, _| {
            result.expect("written");
            ours.shutdown(lp, |_, _, _| {}).expect("an open stream");
        })
        .expect("a write");
        let hears = heard.clone();
        ours.read_start(&mut lp, move |lp, ours, bytes| match bytes.expect("bytes") {
            [] => ours.close(lp).expect("an open handle"),
            bytes => hears.extend(bytes.iter().copied()),
        })
        .expect("reading");
        run_to_the_end(&mut lp);
        assert_eq!(heard.take(), b"hello", "what went in comes out");
        assert_eq!(ends.take(), [code(0)]);
    }
    Ok(())
}

#[cfg(windows)]
unix_alone! {
    descriptors_may_change_places: "Windows' handles are in nobody's place"
    nothing_else_is_inherited: "Windows inherits handles by list, which nobody can look at"
}
