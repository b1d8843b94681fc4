//! How terminals end.

use poll_core::Backend;
use uv_core::{Handle, Loop, Stream, Tty, TtyMode};

use super::traffic::reading;
use crate::support::limits::{open_descriptors, settled_descriptors};
use crate::support::loops::{new_loop, run_to_the_end};
use crate::support::ptys::Pty;
use crate::support::streams::{finish, outcome, run_until};
use crate::support::trace::Log;
use crate::{Lab, Verdict};

/// When nobody is at the other end any more, what has come is read, and then the end, once.
/// That is so at both ends. Writing is an error then.
pub fn a_hang_up_is_the_end<T: Backend>(lab: &Lab<T>) -> Verdict {
    for end in ["slave", "master"] {
        let (mut lp, pty) = (new_loop(lab)?, Pty::new()?);
        let Pty { master, slave } = pty;
        let told = Log::default();
        let (ours, theirs) = if end == "slave" { (slave, master) } else { (master, slave) };
        let tty = Tty::new(&mut lp, &ours).unwrap();
        drop(ours);
        std::io::Write::write_all(&mut &theirs, b"last\n").unwrap();
        if end == "slave" {
            // The kernel may drop what a terminal that hangs up has not read.
            let got = reading(&mut lp, tty);
            run_until(&mut lp, "the last line", |_| got.len() == 5);
            tty.read_stop(&mut lp).unwrap();
        }
        drop(theirs);
        let tell = told.clone();
        tty.read_start(&mut lp, move |lp, tty, bytes| {
            let bytes = bytes.unwrap_or_else(|error| panic!("the {end} reads {error}"));
            assert_eq!(tty.is_active(lp), !bytes.is_empty(), "reading has stopped at the end");
            tell.push(bytes.to_vec());
        })
        .unwrap();
        run_to_the_end(&mut lp);
        let mut told = told.take();
        assert_eq!(told.pop().as_deref(), Some(&b""[..]), "the {end}");
        let expected: &[u8] = if end == "slave" { b"" } else { b"last\r\n" };
        assert_eq!(told.concat(), expected, "the {end}");
        if end == "slave" {
            let told = Log::default();
            tty.write(&mut lp, "x", told.written("write")).unwrap();
            run_to_the_end(&mut lp);
            assert_eq!(told.take(), [("write", "failed")]);
        }
        tty.close(&mut lp).unwrap();
        finish(lp);
    }
    Ok(())
}

/// Every callback of a terminal may close it. Requests that wait are cancelled then.
pub fn any_callback_may_close<T: Backend>(lab: &Lab<T>) -> Verdict {
    for how in ["read", "late", "pull", "write", "shutdown"] {
        let (mut lp, pty) = (new_loop(lab)?, Pty::new()?);
        let tty = Tty::new(&mut lp, &pty.slave).unwrap();
        tty.set_mode(&mut lp, TtyMode::Raw).unwrap();
        let told = Log::default();
        let (tell, closed) = (told.clone(), told.clone());
        let end = move |lp: &mut Loop<T>, tty: Tty| {
            tell.push(("callback", "told"));
            tty.close_with(lp, closed.clone().closed("close")).unwrap();
        };
        pty.keys(b"abc");
        let lp_ = &mut lp;
        match how {
            "read" => tty.read_start(lp_, move |lp, tty, _| end(lp, tty)).unwrap(),
            "late" => {
                let alloc = |_: &mut Loop<T>, _, _| vec![0; 1];
                tty.read_start_with(lp_, alloc, move |lp, tty, _, _| end(lp, tty)).unwrap();
            }
            "pull" => {
                tty.read(lp_, vec![0], move |lp, tty, _, _| end(lp, tty)).unwrap();
                let second = told.clone();
                // The first may have left it something.
                tty.read(lp_, vec![0; 8], move |_, _, result, _| {
                    second.push(("second", outcome(&result)));
                })
                .unwrap();
            }
            "write" => drop(tty.write(lp_, "x", move |lp, tty, _, _| end(lp, tty)).unwrap()),
            _ => tty.shutdown(lp_, move |lp, tty, _| end(lp, tty)).unwrap(),
        }
        finish(lp);
        let told = told.take();
        assert_eq!(told.first(), Some(&("callback", "told")), "{how}");
        assert_eq!(told.last(), Some(&("close", "closed")), "{how}");
        let between = &told[1..told.len() - 1];
        let expected: &[_] = if how == "pull" { &[("second", "cancelled")] } else { &[] };
        assert_eq!(between, expected, "{how}");
    }
    Ok(())
}

/// However terminals come and go, no descriptor is left.
pub fn no_descriptor_is_left_behind<T: Backend>(lab: &Lab<T>) -> Verdict {
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
        run_until(&mut lp, "a turn", {
            let mut turns = 0;
            move |lp| {
                lp.defer(|_| {});
                turns += 1;
                turns > 2
            }
        });
        closed.close(&mut lp).unwrap();
        idle.close(&mut lp).unwrap();
        lp.run(uv_core::RunMode::NoWait).unwrap();
        Ok(())
    };
    round()?; // What is made once and kept for the whole process is made now.
    let before = settled_descriptors()?;
    for _ in 0..20 {
        round()?;
    }
    assert_eq!(open_descriptors()?, before, "after 20 loops came and went");
    Ok(())
}
