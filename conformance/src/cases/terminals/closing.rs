//! The end of terminals.

use uv_core::{Handle, Stream, Tty, TtyMode};

use super::traffic::reading;
use crate::support::limits::{open_descriptors, settled_descriptors};
use crate::support::loops::{new_loop, run_to_the_end};
use crate::support::ptys::Pty;
use crate::support::streams::{finish, outcome, run_until};
use crate::support::trace::Log;
use crate::{Lab, Loop, Verdict};

/// After a hang-up buffered input is delivered, and then the end of file, once, at both ends.
/// Writing is then an error.
pub fn a_hang_up_is_the_end_of_file(lab: &Lab) -> Verdict {
    // A slave without input is not read before the hang-up, and so not registered.
    for (end, is_written) in [("slave", true), ("slave", false), ("master", true)] {
        let (mut lp, pty) = (new_loop(lab)?, Pty::new()?);
        let Pty { master, slave } = pty;
        let callbacks = Log::default();
        let (ours, theirs) = if end == "slave" { (slave, master) } else { (master, slave) };
        let tty = Tty::new(&mut lp, &ours).unwrap();
        drop(ours);
        if is_written {
            std::io::Write::write_all(&mut &theirs, b"last\n").unwrap();
        }
        let line: &[u8] = if end == "slave" { b"last\n" } else { b"last\r\n" };
        // The kernel may drop data that the slave has not read. The BSDs also drop data that the
        // master has not read.
        let is_kept = end == "master" && cfg!(target_os = "linux");
        if is_written && !is_kept {
            let got = reading(&mut lp, tty);
            run_until(&mut lp, "the last line", |_| got.len() == line.len());
            tty.read_stop(&mut lp).unwrap();
        }
        drop(theirs);
        let log = callbacks.clone();
        tty.read_start(&mut lp, move |lp, tty, bytes| {
            let bytes = bytes.unwrap_or_else(|error| panic!("the {end} reads {error}"));
            assert_eq!(tty.is_active(lp), !bytes.is_empty(), "reading has stopped at the end");
            log.push(bytes.to_vec());
        })
        .unwrap();
        run_to_the_end(&mut lp);
        let mut callbacks = callbacks.take();
        assert_eq!(callbacks.pop().as_deref(), Some(&b""[..]), "the {end}");
        let expected = if is_kept { line } else { b"" };
        assert_eq!(callbacks.concat(), expected, "the {end}");
        if end == "slave" {
            let callbacks = Log::default();
            tty.write(&mut lp, "x", callbacks.written("write")).unwrap();
            run_to_the_end(&mut lp);
            assert_eq!(callbacks.take(), [("write", "failed")]);
        }
        tty.close(&mut lp).unwrap();
        finish(lp);
    }
    Ok(())
}

/// Every callback of a terminal may close it. Pending requests are cancelled.
pub fn any_callback_may_close(lab: &Lab) -> Verdict {
    for how in ["read", "alloc", "pull", "write", "shutdown"] {
        let (mut lp, pty) = (new_loop(lab)?, Pty::new()?);
        let tty = Tty::new(&mut lp, &pty.slave).unwrap();
        tty.set_mode(&mut lp, TtyMode::Raw).unwrap();
        let callbacks = Log::default();
        let (log, closed) = (callbacks.clone(), callbacks.clone());
        let end = move |lp: &mut Loop, tty: Tty| {
            log.push(("callback", "called"));
            tty.close_with(lp, closed.clone().closed("close")).unwrap();
        };
        pty.keys(b"abc");
        let lp_ = &mut lp;
        match how {
            "read" => tty.read_start(lp_, move |lp, tty, _| end(lp, tty)).unwrap(),
            "alloc" => {
                let alloc = |_: &mut Loop, _, _| vec![0; 1];
                tty.read_start_with(lp_, alloc, move |lp, tty, _, _| end(lp, tty)).unwrap();
            }
            "pull" => {
                tty.read(lp_, vec![0], move |lp, tty, _, _| end(lp, tty)).unwrap();
                let second = callbacks.clone();
                // The first callback may have left some data.
                tty.read(lp_, vec![0; 8], move |_, _, result, _| {
                    second.push(("second", outcome(&result)));
                })
                .unwrap();
            }
            "write" => drop(tty.write(lp_, "x", move |lp, tty, _, _| end(lp, tty)).unwrap()),
            _ => tty.shutdown(lp_, move |lp, tty, _| end(lp, tty)).unwrap(),
        }
        finish(lp);
        let callbacks = callbacks.take();
        assert_eq!(callbacks.first(), Some(&("callback", "called")), "{how}");
        assert_eq!(callbacks.last(), Some(&("close", "closed")), "{how}");
        let between = &callbacks[1..callbacks.len() - 1];
        let expected: &[_] = if how == "pull" { &[("second", "cancelled")] } else { &[] };
        assert_eq!(between, expected, "{how}");
    }
    Ok(())
}

/// However terminals end, no descriptor leaks.
pub fn no_descriptor_leaks(lab: &Lab) -> Verdict {
    let round = || -> Verdict {
        let (mut lp, pty) = (new_loop(lab)?, Pty::new()?);
        let [closed, dropped, idle] = [(); 3].map(|()| Tty::new(&mut lp, &pty.slave).unwrap());
        let master = Tty::new(&mut lp, &pty.master).unwrap();
        for tty in [closed, dropped] {
            tty.set_mode(&mut lp, TtyMode::Raw).unwrap();
            tty.write(&mut lp, vec![1; 1 << 16], |_, _, _, _| {}).unwrap();
            reading(&mut lp, tty);
        }
        assert!(Tty::new(&mut lp, &std::fs::File::open("/dev/null").unwrap()).is_err());
        master.read(&mut lp, vec![0; 1], |_, _, _, _| {}).unwrap();
        run_until(&mut lp, "a few iterations", {
            let mut iterations = 0;
            move |lp| {
                lp.defer(|_| {});
                iterations += 1;
                iterations > 2
            }
        });
        closed.close(&mut lp).unwrap();
        idle.close(&mut lp).unwrap();
        lp.run(uv_core::RunMode::NoWait).unwrap();
        Ok(())
    };
    round()?; // Creates what the process keeps.
    let before = settled_descriptors()?;
    for _ in 0..20 {
        round()?;
    }
    assert_eq!(open_descriptors()?, before, "after 20 loops came and went");
    Ok(())
}
