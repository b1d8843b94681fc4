//! Modes of terminals, and their restoration.

use std::io::ErrorKind;

use uv_core::{Handle, Tty, TtyMode};

use crate::support::loops::{new_loop, run_to_the_end};
use crate::support::ptys::Pty;
use crate::support::signals::{Handler, Thread};
use crate::support::streams::{finish, refusal};
use crate::{Lab, Verdict};

const CHANGED: [TtyMode; 3] = [TtyMode::Raw, TtyMode::Io, TtyMode::RawVt];

/// Normal mode is the terminal's original mode. It is restored on request, by a close, and when the
/// loop is dropped.
pub fn the_mode_is_restored(lab: &Lab) -> Verdict {
    let pty = Pty::new()?;
    let before = pty.mode();
    for how in ["requested", "closed", "dropped"] {
        for mode in CHANGED {
            let mut lp = new_loop(lab)?;
            let tty = Tty::new(&mut lp, &pty.slave).unwrap();
            tty.set_mode(&mut lp, TtyMode::Normal).unwrap();
            assert_eq!(pty.mode(), before, "the terminal is in that mode");
            tty.set_mode(&mut lp, TtyMode::Io).unwrap();
            tty.set_mode(&mut lp, mode).unwrap();
            assert_ne!(pty.mode(), before, "{mode:?}");
            match how {
                "requested" => tty.set_mode(&mut lp, TtyMode::Normal).unwrap(),
                "closed" => tty.close(&mut lp).unwrap(),
                _ => drop(lp),
            }
            assert_eq!(pty.mode(), before, "{how}, from {mode:?}");
        }
    }
    let mut lp = new_loop(lab)?;
    let tty = Tty::new(&mut lp, &pty.slave).unwrap();
    tty.close(&mut lp).unwrap();
    assert_eq!(refusal(tty.set_mode(&mut lp, TtyMode::Raw)), ErrorKind::InvalidInput);
    run_to_the_end(&mut lp);
    assert_eq!(refusal(tty.set_mode(&mut lp, TtyMode::Raw)), ErrorKind::NotFound);
    assert_eq!(pty.mode(), before, "nothing was changed");
    Ok(())
}

/// If several handles share a terminal, as those of standard input and output do, the last one to
/// close restores the mode from before the first, in any order.
pub fn several_handles_restore_the_first_mode(lab: &Lab) -> Verdict {
    let pty = Pty::new()?;
    let before = pty.mode();
    for first in [0, 1] {
        let mut lp = new_loop(lab)?;
        let ttys = [(); 2].map(|()| Tty::new(&mut lp, &pty.slave).unwrap());
        for tty in ttys {
            tty.set_mode(&mut lp, TtyMode::Raw).unwrap();
        }
        let raw = pty.mode();
        ttys[first].close(&mut lp).unwrap();
        assert_eq!(pty.mode(), raw, "the other still wants it");
        ttys[1 - first].close(&mut lp).unwrap();
        assert_eq!(pty.mode(), before, "as before both");
        finish(lp);
    }
    Ok(())
}

/// A reset restores every changed terminal, from any thread and in a signal handler, and changes
/// nothing else: the mode can be set again.
pub fn a_reset_restores_all_modes(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let ptys = [Pty::new()?, Pty::new()?, Pty::new()?];
    let modes = || ptys.each_ref().map(Pty::mode);
    let before = modes();
    let mut ttys = Vec::new();
    for pty in &ptys {
        ttys.push(Tty::new(&mut lp, &pty.slave).unwrap());
    }
    for how in ["here", "thread", "signal", "panic"] {
        for (tty, mode) in ttys.iter().zip(CHANGED) {
            tty.set_mode(&mut lp, mode).unwrap();
        }
        assert!(modes().iter().zip(&before).all(|(now, before)| now != before), "{how}");
        match how {
            "here" => Tty::reset_mode().unwrap(),
            "thread" => std::thread::spawn(Tty::reset_mode).join().unwrap().unwrap(),
            "signal" => {
                let handler = Handler::new(|| Tty::reset_mode().expect("a reset in a handler"));
                Thread::current().call_handler();
                drop(handler);
            }
            _ => {
                struct InUnwinding;
                impl Drop for InUnwinding {
                    fn drop(&mut self) {
                        Tty::reset_mode().expect("a reset in a panic");
                    }
                }
                let panics = std::thread::spawn(|| {
                    let _reset = InUnwinding;
                    std::panic::resume_unwind(Box::new("on purpose"));
                });
                assert!(panics.join().is_err());
            }
        }
        assert_eq!(modes(), before, "{how}");
    }
    ttys[0].set_mode(&mut lp, TtyMode::Raw).unwrap();
    ttys[0].close(&mut lp).unwrap();
    assert_eq!(modes(), before, "closing restores as ever");
    drop(lp);
    Tty::reset_mode().expect("with nothing to do");
    Ok(())
}

/// A program that exits without closing its terminals restores their modes, but the exit of a
/// forked child does not affect its parent's.
pub fn program_exit_restores_the_mode(lab: &Lab) -> Verdict {
    let pty = Pty::new()?;
    let before = pty.mode();
    let mut lp = new_loop(lab)?;
    exits(|| {
        let tty = Tty::new(&mut lp, &pty.slave).expect("a terminal");
        tty.set_mode(&mut lp, TtyMode::Raw).expect("a mode");
        assert_ne!(pty.mode(), before);
    });
    assert_eq!(pty.mode(), before, "the child has ended");
    let tty = Tty::new(&mut lp, &pty.slave).unwrap();
    tty.set_mode(&mut lp, TtyMode::Raw).unwrap();
    let raw = pty.mode();
    exits(|| {});
    assert_eq!(pty.mode(), raw, "the mode is the parent's");
    tty.close(&mut lp).unwrap();
    assert_eq!(pty.mode(), before);
    finish(lp);
    Ok(())
}

/// Runs `body` in a child that exits like a program, and waits for it.
fn exits(body: impl FnOnce()) {
    // SAFETY: other threads may hold locks that stay locked in the child. It takes only those of
    // the allocator, which `fork` itself handles.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork: {}", std::io::Error::last_os_error());
    if child == 0 {
        // SAFETY: it has no preconditions; it ends the child if it hangs.
        unsafe { libc::alarm(10) };
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        // SAFETY: it has no preconditions: this process has no other thread.
        unsafe { libc::exit(i32::from(done.is_err())) };
    }
    let mut status = 0;
    // SAFETY: the child is ours, and not reaped yet.
    let reaped = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((reaped, status), (child, 0), "the child ends well");
}
