//! Descriptors that exist, and handles that take them over.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

use std::fs::File;
use std::io::ErrorKind;

use poll_core::Backend;
use uv_core::{Handle, Pipe, PipeEnd, Stream, pipe_pair};

use crate::support::files::Directory;
use crate::support::loops::run_to_the_end;
use crate::support::pipes::{piping_loop, read_all};
use crate::support::streams::{finish, refusal};
use crate::support::trace::Log;
use crate::{Lab, Verdict};

#[cfg(unix)]
pub use unix::*;
#[cfg(windows)]
pub use windows::*;

/// Files and directories are no pipes: they are refused, and closed.
pub fn files_are_refused<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = piping_loop(lab)?;
    let directory = Directory::new();
    let pipe = Pipe::new(&mut lp);
    let file = directory.file("file", "content");
    // Windows opens no directories as files.
    let parent = file.parent().filter(|_| cfg!(unix));
    for path in [Some(file.as_path()), parent].into_iter().flatten() {
        let refused = pipe.open(&mut lp, File::open(path).unwrap());
        assert_eq!(refusal(refused), ErrorKind::InvalidInput);
        assert!(!pipe.is_readable(&lp) && pipe.descriptor(&lp).is_err(), "as it was");
    }
    std::fs::remove_file(&file).expect("nobody has it open");
    let (reader, _writer) = pipe_pair(PipeEnd::NonBlocking, PipeEnd::NonBlocking).unwrap();
    pipe.open(&mut lp, reader).expect("it can take another");
    pipe.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A handle has one descriptor: it takes no second one, and one that is closing takes none.
pub fn a_handle_takes_one_descriptor<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = piping_loop(lab)?;
    let pair = || pipe_pair(PipeEnd::NonBlocking, PipeEnd::NonBlocking).unwrap();
    let (pipe, (reader, writer)) = (Pipe::new(&mut lp), pair());
    pipe.open(&mut lp, reader).unwrap();
    assert_eq!(refusal(pipe.open(&mut lp, writer)), ErrorKind::ResourceBusy);
    let all = Log::default();
    read_all(&mut lp, pipe, &all);
    run_to_the_end(&mut lp);
    assert_eq!(all.take(), [b""], "what was refused is closed: the end of file");
    assert_eq!(refusal(pipe.open(&mut lp, pair().0)), ErrorKind::NotFound);
    let closing = Pipe::new(&mut lp);
    closing.close(&mut lp).unwrap();
    let refused = closing.open(&mut lp, pair().0);
    assert_eq!(refusal(refused), ErrorKind::InvalidInput);
    finish(lp);
    Ok(())
}
