//! Reading and writing terminals.

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use poll_core::Backend;
use uv_core::{Handle, Loop, Stream, Tty, TtyMode, WindowSize};

use crate::support::loops::{new_loop, run_to_the_end};
use crate::support::ptys::{Pty, flags};
use crate::support::streams::{finish, refusal, run_a_moment, run_until};
use crate::support::trace::Log;
use crate::{Lab, Verdict};

/// Reads a terminal for as long as it lives; gives what has been read.
pub(super) fn reading<T: Backend>(lp: &mut Loop<T>, tty: Tty) -> Log<u8> {
    let got = Log::default();
    let gathered = got.clone();
    tty.read_start(lp, move |_, _, bytes| gathered.extend(bytes.unwrap().iter().copied())).unwrap();
    got
}

/// As a terminal usually is, what is typed is echoed, and comes when the line is complete.
pub fn lines_come_when_they_end<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, pty) = (new_loop(lab)?, Pty::new()?);
    let tty = Tty::new(&mut lp, &pty.slave).unwrap();
    assert!(tty.is_readable(&lp) && tty.is_writable(&lp) && !tty.is_active(&lp));
    let got = reading(&mut lp, tty);
    assert!(tty.is_active(&lp), "a terminal that is read is active");
    pty.keys(b"hel");
    pty.shows(b"hel");
    assert!(run_a_moment(&mut lp) < 6, "half a line does not wake the loop");
    assert_eq!(got.len(), 0, "half a line is nothing yet");
    pty.keys(b"lo\n");
    run_until(&mut lp, "a line", |_| got.len() == 6);
    assert_eq!(got.take(), b"hello\n");
    pty.shows(b"lo\r\n");
    let told = Log::default();
    tty.write(&mut lp, "wor", told.written("write")).unwrap();
    assert_eq!(tty.try_write(&mut lp, b"ld\n").unwrap(), 3, "nothing is queued");
    pty.shows(b"world\r\n");
    tty.read_stop(&mut lp).unwrap();
    run_to_the_end(&mut lp);
    assert_eq!(told.take(), [("write", "done")]);
    tty.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// In raw mode keys come one by one as they are, without an echo, pushed or pulled; lines
/// that are written still begin at the left.
pub fn keys_come_as_they_are_typed<T: Backend>(lab: &Lab<T>) -> Verdict {
    for mode in [TtyMode::Raw, TtyMode::RawVt] {
        let (mut lp, pty) = (new_loop(lab)?, Pty::new()?);
        let tty = Tty::new(&mut lp, &pty.slave).unwrap();
        tty.set_mode(&mut lp, mode).unwrap();
        let got = reading(&mut lp, tty);
        // What would interrupt, end the line, and end the file.
        for key in [b'x', 3, b'\r', 4, 0x1A] {
            pty.keys(&[key]);
            run_until(&mut lp, "a key", |_| got.len() > 0);
            assert_eq!(got.take(), [key]);
        }
        tty.read_stop(&mut lp).unwrap();
        let pulled = got.clone();
        tty.read(&mut lp, vec![0; 8], move |_, _, count, buffer| {
            pulled.extend(buffer[..count.unwrap()].iter().copied());
        })
        .unwrap();
        pty.keys(b"y");
        run_to_the_end(&mut lp);
        assert_eq!(got.take(), b"y");
        tty.try_write(&mut lp, b"1\n2\n").unwrap();
        pty.shows(b"1\r\n2\r\n");
        tty.close(&mut lp).unwrap();
        finish(lp);
    }
    Ok(())
}

/// A terminal that is used as a wire changes nothing on the way, whatever the bytes.
pub fn a_wire_changes_nothing<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, pty) = (new_loop(lab)?, Pty::new()?);
    let tty = Tty::new(&mut lp, &pty.slave).unwrap();
    tty.set_mode(&mut lp, TtyMode::Io).unwrap();
    let (all, got) = (Vec::from_iter(0..=255), reading(&mut lp, tty));
    pty.keys(&all);
    run_until(&mut lp, "all bytes", |_| got.len() == all.len());
    assert_eq!(got.take(), all);
    assert_eq!(tty.try_write(&mut lp, &all).unwrap(), all.len());
    let mut shown = Vec::new();
    run_until(&mut lp, "all bytes", |lp| {
        lp.defer(|_| {}); // The screen is no event: look again at once.
        shown.extend(pty.look());
        shown.len() >= all.len()
    });
    assert_eq!(shown, all);
    tty.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// The terminal is opened anew: the loop's descriptor does not block, while the caller's, and
/// all that share its flags, stay as they are.
pub fn the_callers_descriptor_stays_as_it_is<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, pty) = (new_loop(lab)?, Pty::new()?);
    let before = flags(&pty.slave);
    assert_eq!(before & libc::O_NONBLOCK, 0);
    let tty = Tty::new(&mut lp, &pty.slave).unwrap();
    let ours = tty.descriptor(&lp).unwrap().fd();
    assert_ne!(ours, pty.slave.as_raw_fd());
    assert_ne!(flags(&ours) & libc::O_NONBLOCK, 0, "ours does not block");
    let got = reading(&mut lp, tty);
    pty.keys(b"x\n");
    run_until(&mut lp, "a line", |_| got.len() > 0);
    tty.try_write(&mut lp, b"y").unwrap();
    assert_eq!(flags(&pty.slave), before, "theirs is as it was");
    tty.close(&mut lp).unwrap();
    finish(lp);
    assert_eq!(flags(&pty.slave), before, "and stays so");
    std::io::Write::write_all(&mut &pty.slave, b"z").expect("a descriptor that is open");
    Ok(())
}

/// The master of a pseudo-terminal cannot be opened anew. It is read and written all the same,
/// and keeps its flags.
pub fn a_master_is_a_terminal_too<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, pty) = (new_loop(lab)?, Pty::new()?);
    // SAFETY: no memory is passed.
    let set = unsafe { libc::fcntl(pty.master.as_raw_fd(), libc::F_SETFL, libc::O_RDWR) };
    assert_eq!(set, 0, "it blocks, as usual");
    let before = flags(&pty.master);
    let (near, far) =
        (Tty::new(&mut lp, &pty.slave).unwrap(), Tty::new(&mut lp, &pty.master).unwrap());
    assert_eq!(flags(&pty.master), before, "as it was");
    let (typed, shown) = (reading(&mut lp, near), reading(&mut lp, far));
    let told = Log::default();
    far.write(&mut lp, "question\n", told.written("question")).unwrap();
    run_until(&mut lp, "the question", |_| typed.len() == 9);
    near.write(&mut lp, "answer\n", told.written("answer")).unwrap();
    let expected = b"question\r\nanswer\r\n";
    run_until(&mut lp, "the answer", |_| shown.len() == expected.len());
    assert_eq!((typed.take(), shown.take()), (b"question\n".to_vec(), expected.to_vec()));
    assert_eq!(told.take(), [("question", "done"), ("answer", "done")]);
    assert!(run_a_moment(&mut lp) < 6, "with nothing to read the loop sleeps");
    assert_eq!(flags(&pty.master), before, "still as it was");
    near.close(&mut lp).unwrap();
    far.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// The size of the window is that of the terminal, now.
pub fn the_window_has_a_size<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, pty) = (new_loop(lab)?, Pty::new()?);
    let tty = Tty::new(&mut lp, &pty.slave).unwrap();
    assert_eq!(tty.window_size(&mut lp).unwrap(), WindowSize { columns: 80, rows: 24 });
    pty.resize(132, 43);
    assert_eq!(tty.window_size(&mut lp).unwrap(), WindowSize { columns: 132, rows: 43 });
    tty.close(&mut lp).unwrap();
    assert_eq!(refusal(tty.window_size(&mut lp)), ErrorKind::InvalidInput);
    finish(lp);
    Ok(())
}

/// What a terminal does not take waits its turn, and the loop sleeps meanwhile. All of it
/// comes in order.
pub fn what_nobody_reads_waits<T: Backend>(lab: &Lab<T>) -> Verdict {
    const SIZE: usize = 1 << 20;
    let (mut lp, pty) = (new_loop(lab)?, Pty::new()?);
    let tty = Tty::new(&mut lp, &pty.slave).unwrap();
    tty.set_mode(&mut lp, TtyMode::Io).unwrap();
    let (text, told) = (Vec::from_iter((0..SIZE).map(|at| (at % 251) as u8)), Log::default());
    tty.write(&mut lp, text.clone(), told.written("first")).unwrap();
    tty.write(&mut lp, "last", told.written("last")).unwrap();
    run_a_moment(&mut lp);
    let polls = run_a_moment(&mut lp);
    assert!(polls < 6, "it polled {polls} times though nobody reads");
    assert!(tty.write_queue_size(&lp) > 0 && told.len() == 0, "no terminal takes that much");
    assert_eq!(refusal(tty.try_write(&mut lp, b"x")), ErrorKind::WouldBlock);
    let mut shown = Vec::new();
    run_until(&mut lp, "all of it", |lp| {
        lp.defer(|_| {}); // The screen is no event: look again at once.
        shown.extend(pty.look());
        shown.len() >= SIZE + 4
    });
    assert!(shown == [&text[..], b"last"].concat(), "in order and whole");
    run_to_the_end(&mut lp);
    assert_eq!(told.take(), [("first", "done"), ("last", "done")]);
    tty.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A terminal that was opened for one direction is of that one alone.
pub fn directions_are_those_of_the_descriptor<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, pty) = (new_loop(lab)?, Pty::new()?);
    let path = format!("/dev/fd/{}", pty.slave.as_raw_fd());
    let mut options = File::options();
    options.custom_flags(libc::O_NOCTTY);
    let (Ok(read), Ok(write)) =
        (options.clone().read(true).open(&path), options.clone().write(true).open(&path))
    else {
        return Err(crate::Skip::because("a descriptor has no path here"));
    };
    let (reads, writes) = (Tty::new(&mut lp, &read).unwrap(), Tty::new(&mut lp, &write).unwrap());
    assert!(reads.is_readable(&lp) && !reads.is_writable(&lp));
    assert!(!writes.is_readable(&lp) && writes.is_writable(&lp));
    assert_eq!(refusal(writes.read_start(&mut lp, |_, _, _| {})), ErrorKind::NotConnected);
    assert_eq!(refusal(reads.write(&mut lp, "x", |_, _, _, _| {})), ErrorKind::BrokenPipe);
    assert_eq!(refusal(reads.try_write(&mut lp, b"x")), ErrorKind::BrokenPipe);
    let got = reading(&mut lp, reads);
    pty.keys(b"x\n");
    run_until(&mut lp, "a line", |_| got.len() == 2);
    writes.try_write(&mut lp, b"y").unwrap();
    pty.shows(b"x\r\ny");
    reads.close(&mut lp).unwrap();
    writes.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// Nobody connects to a terminal: it does not listen. Its end can be told, and is nothing
/// that the terminal would know of.
pub fn a_terminal_has_no_peers<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, pty) = (new_loop(lab)?, Pty::new()?);
    let tty = Tty::new(&mut lp, &pty.slave).unwrap();
    assert_eq!(refusal(tty.listen(&mut lp, 1, |_, _, _| {})), ErrorKind::InvalidInput);
    assert_eq!(refusal(tty.accept(&mut lp)), ErrorKind::InvalidInput);
    assert!(!tty.is_active(&lp), "it is as it was");
    let told = Log::default();
    tty.write(&mut lp, "x", told.written("write")).unwrap();
    tty.shutdown(&mut lp, told.ended("shutdown")).unwrap();
    run_to_the_end(&mut lp);
    assert_eq!(told.take(), [("write", "done"), ("shutdown", "done")]);
    assert_eq!(refusal(tty.write(&mut lp, "y", |_, _, _, _| {})), ErrorKind::BrokenPipe);
    let got = reading(&mut lp, tty);
    pty.keys(b"z\n");
    run_until(&mut lp, "a line", |_| got.len() == 2);
    // SAFETY: the stream keeps it open.
    let ours = unsafe { BorrowedFd::borrow_raw(tty.descriptor(&lp).unwrap().fd()) };
    assert_eq!(uv_core::guess_handle(&ours), uv_core::Guess::Tty);
    tty.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}
