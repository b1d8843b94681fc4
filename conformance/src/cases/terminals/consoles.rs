//! Windows consoles.

use std::fs::File;
use std::os::windows::io::AsRawHandle;

use uv_core::{Handle, HandleKind, Stream, Tty, TtyMode, guess_handle};
use windows_sys::Win32::System::Console::{
    AllocConsole, GetConsoleMode, INPUT_RECORD, INPUT_RECORD_0, KEY_EVENT, KEY_EVENT_RECORD,
    KEY_EVENT_RECORD_0, WriteConsoleInputW,
};

use crate::support::loops::{new_loop, run_to_the_end};
use crate::support::streams::{finish, run_a_moment, run_until};
use crate::support::trace::Log;
use crate::{Lab, Skip, Verdict};

fn console(name: &str) -> Result<File, Skip> {
    let open = || File::options().read(true).write(true).open(name);
    let opened = open().or_else(|_| {
        // SAFETY: it has no preconditions, and fails if there is a console.
        unsafe { AllocConsole() };
        open()
    });
    opened.map_err(|error| Skip::because(format!("this process has no console: {error}")))
}

fn mode(console: &File) -> u32 {
    let mut mode = 0;
    // SAFETY: an invalid handle is an error; the call writes one number.
    let got = unsafe { GetConsoleMode(console.as_raw_handle(), &raw mut mode) };
    assert_ne!(got, 0, "GetConsoleMode: {}", std::io::Error::last_os_error());
    mode
}

/// Types on the console's keyboard.
fn keys(console: &File, text: &str) {
    for unit in text.encode_utf16() {
        for down in [1, 0] {
            let key = KEY_EVENT_RECORD {
                bKeyDown: down,
                wRepeatCount: 1,
                wVirtualKeyCode: if unit == 13 { 13 } else { 0 },
                wVirtualScanCode: 0,
                uChar: KEY_EVENT_RECORD_0 { UnicodeChar: unit },
                dwControlKeyState: 0,
            };
            let event = INPUT_RECORD_0 { KeyEvent: key };
            let record = INPUT_RECORD { EventType: KEY_EVENT as u16, Event: event };
            let mut written = 0;
            let handle = console.as_raw_handle();
            // SAFETY: reads one record and writes one number.
            let typed = unsafe { WriteConsoleInputW(handle, &raw const record, 1, &mut written) };
            assert_eq!((typed != 0, written), (true, 1), "{}", std::io::Error::last_os_error());
        }
    }
}

/// A console is read by lines or, in raw mode, by keys, in UTF-8. A close restores its mode. Input
/// typed while the handle does not read is kept for the next reader.
pub fn consoles_are_read(lab: &Lab) -> Verdict {
    let (input, mut lp) = (console("CONIN$")?, new_loop(lab)?);
    assert_eq!(guess_handle(&input), HandleKind::Tty);
    let before = mode(&input);
    let tty = Tty::new(&mut lp, &input).unwrap();
    assert!(tty.is_readable(&lp) && !tty.is_writable(&lp));
    let got = Log::default();
    let gathered = got.clone();
    tty.set_mode(&mut lp, TtyMode::Raw).unwrap();
    tty.read_start(&mut lp, move |_, _, bytes| gathered.extend(bytes.unwrap().iter().copied()))
        .unwrap();
    for key in ["x", "ä", "€", "😀", "\u{3}"] {
        keys(&input, key);
        run_until(&mut lp, "a key", |_| got.len() >= key.len());
        assert_eq!(got.take(), key.as_bytes());
    }
    tty.read_stop(&mut lp).unwrap();
    run_a_moment(&mut lp);
    keys(&input, "later");
    let pulled = got.clone();
    tty.read(&mut lp, vec![0; 64], move |_, _, count, buffer| {
        pulled.extend(buffer[..count.unwrap()].iter().copied());
    })
    .unwrap();
    run_to_the_end(&mut lp);
    assert!(got.len() > 0 && b"later".starts_with(&got.take()), "input typed meanwhile");

    tty.close(&mut lp).unwrap();
    assert_eq!(mode(&input), before, "a close restores it");
    let tty = Tty::new(&mut lp, &input).unwrap();
    let gathered = got.clone();
    tty.read_start(&mut lp, move |_, _, bytes| gathered.extend(bytes.unwrap().iter().copied()))
        .unwrap();
    keys(&input, "line\r");
    run_until(&mut lp, "a line", |_| got.len() >= 6);
    let line = got.take();
    assert!(line.ends_with(b"line\r\n"), "{:?}", String::from_utf8_lossy(&line));
    // Half a line: a close does not wait for the rest.
    keys(&input, "ha");
    run_a_moment(&mut lp);
    tty.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A console is written in UTF-8, in slices of any size, and its window has a size.
pub fn consoles_are_written(lab: &Lab) -> Verdict {
    let (output, mut lp) = (console("CONOUT$")?, new_loop(lab)?);
    assert_eq!(guess_handle(&output), HandleKind::Tty);
    let before = mode(&output);
    let tty = Tty::new(&mut lp, &output).unwrap();
    assert!(!tty.is_readable(&lp) && tty.is_writable(&lp));
    let size = tty.window_size(&mut lp).unwrap();
    assert!(size.columns > 0 && size.rows > 0, "{size:?}");
    let callbacks = Log::default();
    tty.write(&mut lp, ["one ", "ä€", "\r\n"], callbacks.written("write")).unwrap();
    for byte in "😀\r\n".as_bytes() {
        assert_eq!(tty.try_write(&mut lp, &[*byte]).unwrap(), 1);
    }
    tty.shutdown(&mut lp, callbacks.ended("shutdown")).unwrap();
    run_to_the_end(&mut lp);
    assert_eq!(callbacks.take(), [("write", "done"), ("shutdown", "done")]);
    tty.close(&mut lp).unwrap();
    finish(lp);
    assert_eq!(mode(&output), before, "a close restores it");
    Ok(())
}
