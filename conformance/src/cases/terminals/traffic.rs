//! Reading and writing terminals.

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use uv_core::{Handle, Stream, Tty, TtyMode, WindowSize};

use crate::support::loops::{new_loop, run_to_the_end};
use crate::support::ptys::{Pty, flags};
use crate::support::streams::{finish, refusal, run_a_moment, run_until};
use crate::support::trace::Log;
use crate::{Lab, Loop, Verdict};

/// Reads a terminal until it is closed; returns the log of its input.
pub(super) fn reading(lp: &mut Loop, tty: Tty) -> Log<u8> {
    let got = Log::default();
    let gathered = got.clone();
    tty.read_start(lp, move |_, _, bytes| gathered.extend(bytes.unwrap().iter().copied())).unwrap();
    got
}

/// In normal mode input is echoed, and delivered when the line is complete.
pub fn normal_mode_delivers_lines(lab: &Lab) -> Verdict {
    let (mut lp, pty) = (new_loop(lab)?, Pty::new()?);
    let tty = Tty::new(&mut lp, &pty.slave).unwrap();
    assert!(tty.is_readable(&lp) && tty.is_writable(&lp) && !tty.is_active(&lp));
    let got = reading(&mut lp, tty);
    assert!(tty.is_active(&lp), "a terminal that is read is active");
    pty.keys(b"hel");
    pty.shows(b"hel");
    assert!(run_a_moment(&mut lp) < 6, "half a line does not wake the loop");
    assert_eq!(got.len(), 0, "an incomplete line is not delivered");
    pty.keys(b"lo\n");
    run_until(&mut lp, "a line", |_| got.len() == 6);
    assert_eq!(got.take(), b"hello\n");
    pty.shows(b"lo\r\n");
    let callbacks = Log::default();
    tty.write(&mut lp, "wor", callbacks.written("write")).unwrap();
    assert_eq!(tty.try_write(&mut lp, b"ld\n").unwrap(), 3, "nothing is queued");
    pty.shows(b"world\r\n");
    tty.read_stop(&mut lp).unwrap();
    run_to_the_end(&mut lp);
    assert_eq!(callbacks.take(), [("write", "done")]);
    tty.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// Raw mode delivers keys as they are typed, without echo, to both reading interfaces. Output lines
/// still start at the left margin.
pub fn raw_mode_delivers_keys(lab: &Lab) -> Verdict {
    for mode in [TtyMode::Raw, TtyMode::RawVt] {
        let (mut lp, pty) = (new_loop(lab)?, Pty::new()?);
        let tty = Tty::new(&mut lp, &pty.slave).unwrap();
        tty.set_mode(&mut lp, mode).unwrap();
        let got = reading(&mut lp, tty);
        // The characters that would interrupt, end the line, and end the file.
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

/// In I/O mode a terminal passes all bytes unchanged.
pub fn io_mode_changes_no_byte(lab: &Lab) -> Verdict {
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
        lp.defer(|_| {}); // The screen causes no event: check again.
        shown.extend(pty.take_output());
        shown.len() >= all.len()
    });
    assert_eq!(shown, all);
    tty.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// The terminal is reopened: the loop's descriptor does not block, while the caller's, and all that
/// share its flags, are unchanged.
pub fn the_callers_descriptor_keeps_its_flags(lab: &Lab) -> Verdict {
    let (mut lp, pty) = (new_loop(lab)?, Pty::new()?);
    let before = flags(&pty.slave);
    assert_eq!(before & libc::O_NONBLOCK, 0);
    let tty = Tty::new(&mut lp, &pty.slave).unwrap();
    let ours = tty.raw_source(&lp).unwrap().fd();
    assert_ne!(ours, pty.slave.as_raw_fd());
    assert_ne!(flags(&ours) & libc::O_NONBLOCK, 0, "ours does not block");
    let got = reading(&mut lp, tty);
    pty.keys(b"x\n");
    run_until(&mut lp, "a line", |_| got.len() > 0);
    tty.try_write(&mut lp, b"y").unwrap();
    assert_eq!(flags(&pty.slave), before, "the caller's is unchanged");
    tty.close(&mut lp).unwrap();
    finish(lp);
    assert_eq!(flags(&pty.slave), before, "and stays so");
    std::io::Write::write_all(&mut &pty.slave, b"z").expect("a descriptor that is open");
    Ok(())
}

/// The master of a pseudo-terminal cannot be reopened. It can still be read and written, and keeps
/// its flags.
pub fn a_master_is_a_terminal_too(lab: &Lab) -> Verdict {
    let (mut lp, pty) = (new_loop(lab)?, Pty::new()?);
    // SAFETY: the call passes no memory.
    let set = unsafe { libc::fcntl(pty.master.as_raw_fd(), libc::F_SETFL, libc::O_RDWR) };
    assert_eq!(set, 0, "it blocks, as usual");
    let before = flags(&pty.master);
    let (near, far) =
        (Tty::new(&mut lp, &pty.slave).unwrap(), Tty::new(&mut lp, &pty.master).unwrap());
    assert_eq!(flags(&pty.master), before, "unchanged");
    let (typed, shown) = (reading(&mut lp, near), reading(&mut lp, far));
    let callbacks = Log::default();
    far.write(&mut lp, "question\n", callbacks.written("question")).unwrap();
    run_until(&mut lp, "the question", |_| typed.len() == 9);
    near.write(&mut lp, "answer\n", callbacks.written("answer")).unwrap();
    let expected = b"question\r\nanswer\r\n";
    run_until(&mut lp, "the answer", |_| shown.len() == expected.len());
    assert_eq!((typed.take(), shown.take()), (b"question\n".to_vec(), expected.to_vec()));
    assert_eq!(callbacks.take(), [("question", "done"), ("answer", "done")]);
    assert!(run_a_moment(&mut lp) < 6, "without data the loop blocks");
    assert_eq!(flags(&pty.master), before, "still unchanged");
    near.close(&mut lp).unwrap();
    far.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// The window size is the terminal's current size.
pub fn the_window_has_a_size(lab: &Lab) -> Verdict {
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

/// Output that the terminal does not accept stays queued, and the loop blocks meanwhile. All of it
/// arrives in order.
pub fn unread_output_stays_queued(lab: &Lab) -> Verdict {
    const SIZE: usize = 1 << 20;
    let (mut lp, pty) = (new_loop(lab)?, Pty::new()?);
    let tty = Tty::new(&mut lp, &pty.slave).unwrap();
    tty.set_mode(&mut lp, TtyMode::Io).unwrap();
    let (text, callbacks) = (Vec::from_iter((0..SIZE).map(|at| (at % 251) as u8)), Log::default());
    tty.write(&mut lp, text.clone(), callbacks.written("first")).unwrap();
    tty.write(&mut lp, "last", callbacks.written("last")).unwrap();
    run_a_moment(&mut lp);
    let polls = run_a_moment(&mut lp);
    assert!(polls < 6, "{polls} polls although the output is not read");
    assert!(
        tty.write_queue_size(&lp) > 0 && callbacks.len() == 0,
        "no terminal accepts this many bytes"
    );
    assert_eq!(refusal(tty.try_write(&mut lp, b"x")), ErrorKind::WouldBlock);
    let mut shown = Vec::new();
    run_until(&mut lp, "all of it", |lp| {
        lp.defer(|_| {}); // The screen causes no event: check again.
        shown.extend(pty.take_output());
        shown.len() >= SIZE + 4
    });
    assert!(shown == [&text[..], b"last"].concat(), "in order and whole");
    run_to_the_end(&mut lp);
    assert_eq!(callbacks.take(), [("first", "done"), ("last", "done")]);
    tty.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A terminal opened for one direction has that direction only.
pub fn directions_follow_the_access_mode(lab: &Lab) -> Verdict {
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

/// A shutdown completes after the writes, and does not affect the terminal.
pub fn a_shutdown_leaves_the_terminal_open(lab: &Lab) -> Verdict {
    let (mut lp, pty) = (new_loop(lab)?, Pty::new()?);
    let tty = Tty::new(&mut lp, &pty.slave).unwrap();
    let callbacks = Log::default();
    tty.write(&mut lp, "x", callbacks.written("write")).unwrap();
    tty.shutdown(&mut lp, callbacks.ended("shutdown")).unwrap();
    run_to_the_end(&mut lp);
    assert_eq!(callbacks.take(), [("write", "done"), ("shutdown", "done")]);
    assert_eq!(refusal(tty.write(&mut lp, "y", |_, _, _, _| {})), ErrorKind::BrokenPipe);
    let got = reading(&mut lp, tty);
    pty.keys(b"z\n");
    run_until(&mut lp, "a line", |_| got.len() == 2);
    // SAFETY: the stream keeps it open.
    let ours = unsafe { BorrowedFd::borrow_raw(tty.raw_source(&lp).unwrap().fd()) };
    assert_eq!(uv_core::guess_handle(&ours), uv_core::HandleKind::Tty);
    tty.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}
