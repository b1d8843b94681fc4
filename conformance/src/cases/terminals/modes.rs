//! Modes of terminals, and that they are changed back.

use std::io::ErrorKind;

use poll_core::Backend;
use uv_core::{Handle, Tty, TtyMode};

use crate::support::loops::{new_loop, run_to_the_end};
use crate::support::ptys::Pty;
use crate::support::signals::{Handler, Thread};
use crate::support::streams::{finish, refusal};
use crate::{Lab, Verdict};

const CHANGED: [TtyMode; 3] = [TtyMode::Raw, TtyMode::Io, TtyMode::RawVt];

/// Normal mode is what the terminal was in before: said so, by a close, or by the end of the
/// loop, it is in that again.
pub fn the_mode_is_restored<T: Backend>(lab: &Lab<T>) -> Verdict {
    let pty = Pty::new()?;
    let before = pty.mode();
    for how in ["said", "closed", "dropped"] {
        for mode in CHANGED {
            let mut lp = new_loop(lab)?;
            let tty = Tty::new(&mut lp, &pty.slave).unwrap();
            tty.set_mode(&mut lp, TtyMode::Normal).unwrap();
            assert_eq!(pty.mode(), before, "it is that already");
            tty.set_mode(&mut lp, TtyMode::Io).unwrap();
            tty.set_mode(&mut lp, mode).unwrap();
            assert_ne!(pty.mode(), before, "{mode:?}");
            match how {
                "said" => tty.set_mode(&mut lp, TtyMode::Normal).unwrap(),
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

/// Of several handles of one terminal, as those of standard input and output are, the last
/// restores what was there before the first, whoever goes first.
pub fn several_handles_restore_the_first_mode<T: Backend>(lab: &Lab<T>) -> Verdict {
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

/// A reset restores every terminal that was changed, from any thread and in a signal handler,
/// and changes nothing else: the mode can be set again.
pub fn a_reset_restores_all_modes<T: Backend>(lab: &Lab<T>) -> Verdict {
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

/// A program that ends without closing its terminals leaves them as they were, but a forked
/// child that ends leaves its parent's alone.
pub fn the_end_of_the_program_restores_the_mode<T: Backend>(lab: &Lab<T>) -> Verdict {
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

/// Runs `body` in a child that ends as programs do, and waits for that.
fn exits(body: impl FnOnce()) {
    // SAFETY: other threads may hold locks that the child will find locked for ever. It takes
    // those of the allocator, which fork itself cares for.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork: {}", std::io::Error::last_os_error());
    if child == 0 {
        // SAFETY: it has no preconditions; it ends the child if it hangs.
        unsafe { libc::alarm(10) };
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        // SAFETY: it has no preconditions: no other thread is in this process.
        unsafe { libc::exit(i32::from(done.is_err())) };
    }
    let mut status = 0;
    // SAFETY: the child is ours, and not reaped yet.
    let reaped = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((reaped, status), (child, 0), "the child ends well");
}
