//! Existing descriptors, and handles that take them.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

use std::fs::File;
use std::io::ErrorKind;

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

/// Regular files and directories are refused and closed.
pub fn regular_files_are_refused(lab: &Lab) -> Verdict {
    let mut lp = piping_loop(lab)?;
    let directory = Directory::new();
    let pipe = Pipe::new(&mut lp);
    let file = directory.file("file", "content");
    // Windows does not open directories as files.
    let parent = file.parent().filter(|_| cfg!(unix));
    for path in [Some(file.as_path()), parent].into_iter().flatten() {
        let refused = pipe.open(&mut lp, File::open(path).unwrap());
        assert_eq!(refusal(refused), ErrorKind::InvalidInput);
        assert!(!pipe.is_readable(&lp) && pipe.raw_source(&lp).is_err(), "unchanged");
    }
    std::fs::remove_file(&file).expect("the file is closed");
    let (reader, _writer) = pipe_pair(PipeEnd::NonBlocking, PipeEnd::NonBlocking).unwrap();
    pipe.open(&mut lp, reader).expect("it can take another");
    pipe.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A handle takes one descriptor, and none while it is closing.
pub fn a_handle_takes_one_descriptor(lab: &Lab) -> Verdict {
    let mut lp = piping_loop(lab)?;
    let pair = || pipe_pair(PipeEnd::NonBlocking, PipeEnd::NonBlocking).unwrap();
    let (pipe, (reader, writer)) = (Pipe::new(&mut lp), pair());
    pipe.open(&mut lp, reader).unwrap();
    assert_eq!(refusal(pipe.open(&mut lp, writer)), ErrorKind::ResourceBusy);
    let all = Log::default();
    read_all(&mut lp, pipe, &all);
    run_to_the_end(&mut lp);
    assert_eq!(all.take(), [b""], "the refused descriptor is closed: the end of file");
    assert_eq!(refusal(pipe.open(&mut lp, pair().0)), ErrorKind::NotFound);
    let closing = Pipe::new(&mut lp);
    closing.close(&mut lp).unwrap();
    let refused = closing.open(&mut lp, pair().0);
    assert_eq!(refusal(refused), ErrorKind::InvalidInput);
    finish(lp);
    Ok(())
}
