//! The standard streams, whatever they are: terminals, pipes, sockets or files.

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};

use poll_core::Backend;
use socket2::Socket;

use super::Pipe;
use crate::handles::{HandleKind, guess_handle};
use crate::streams::{self, Flags, Kind};
use crate::sys::{self, Terminal, Transport};
use crate::{Loop, error};

/// The use of a standard stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Input,
    Output,
}

impl Pipe {
    /// Standard input as a stream: a terminal, a pipe, a socket, or a file, which a thread reads
    /// ahead. The descriptor itself stays open; [`open`](Pipe::open) describes when it becomes
    /// non-blocking for other processes.
    ///
    /// For the modes of a terminal use [`Tty`](crate::Tty).
    ///
    /// ```no_run
    /// use uv_core::{Handle, Loop, Pipe, RunMode, Stream};
    ///
    /// // `cat`: copies standard input to standard output.
    /// let mut lp = Loop::with_default_backend()?;
    /// let (input, output) = (Pipe::stdin(&mut lp)?, Pipe::stdout(&mut lp)?);
    /// input.on_read(&mut lp, move |lp, input, bytes| match bytes {
    ///     [] => input.close(lp).map(|()| output.finish(lp)),
    ///     bytes => Ok(output.send(lp, bytes.to_vec())),
    /// })?;
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `EBADF` if it is closed, and the system's errors.
    #[cfg_attr(feature = "origins", track_caller)]
    pub fn stdin<B: Backend>(lp: &mut Loop<B>) -> io::Result<Pipe> {
        Pipe::standard(lp, &io::stdin(), Direction::Input)
    }

    /// Standard output as a stream. A file is written immediately, and so blocks the loop as long
    /// as the write takes; other kinds are written as any stream is. The example of
    /// [`stdin`](Pipe::stdin) uses it.
    ///
    /// # Errors
    ///
    /// As [`stdin`](Pipe::stdin).
    #[cfg_attr(feature = "origins", track_caller)]
    pub fn stdout<B: Backend>(lp: &mut Loop<B>) -> io::Result<Pipe> {
        Pipe::standard(lp, &io::stdout(), Direction::Output)
    }

    /// Standard error output as a stream, as [`stdout`](Pipe::stdout).
    ///
    /// ```
    /// use uv_core::{Handle, Loop, Pipe, RunMode, Stream};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let output = Pipe::stderr(&mut lp)?;
    /// output.write(&mut lp, "a warning\n", |lp, output, _, _| output.close_if_open(lp))?;
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`stdin`](Pipe::stdin).
    #[cfg_attr(feature = "origins", track_caller)]
    pub fn stderr<B: Backend>(lp: &mut Loop<B>) -> io::Result<Pipe> {
        Pipe::standard(lp, &io::stderr(), Direction::Output)
    }

    /// A stream of an open descriptor, which stays open.
    #[cfg_attr(feature = "origins", track_caller)]
    fn standard<B: Backend>(
        lp: &mut Loop<B>,
        descriptor: &impl AsFd,
        direction: Direction,
    ) -> io::Result<Pipe> {
        let fd = descriptor.as_fd();
        match guess_handle(descriptor) {
            HandleKind::Tty => {
                let Terminal { transport, readable, writable, blocking } = Terminal::open(&fd)?;
                Pipe::of(lp, transport, [readable, writable, blocking])
            }
            HandleKind::File => Pipe::file(lp, fd.try_clone_to_owned()?, direction),
            _ => {
                let pipe = Pipe::new(lp);
                let adopted = fd.try_clone_to_owned().and_then(sys::adopt);
                let taken = adopted.and_then(|adopted| pipe.take(lp, adopted));
                taken.inspect_err(|_| crate::Handle::close_if_open(pipe, lp))?;
                Ok(pipe)
            }
        }
    }

    /// A stream of a file or a device, which no backend can poll. Writes block, which is short; a
    /// thread reads, because devices may block long.
    #[cfg_attr(feature = "origins", track_caller)]
    fn file<B: Backend>(lp: &mut Loop<B>, file: OwnedFd, direction: Direction) -> io::Result<Pipe> {
        if direction == Direction::Output {
            return Pipe::of(lp, Transport::plain(file), [false, true, true]);
        }
        let (ours, theirs) = sys::socket_pair()?;
        theirs.set_nonblocking(false)?;
        let copy = move || copy(std::fs::File::from(file), &theirs);
        std::thread::Builder::new().name("uv-stdin".into()).spawn(copy)?;
        Pipe::of(lp, ours.into(), [true, false, false])
    }

    #[cfg_attr(feature = "origins", track_caller)]
    fn of<B: Backend>(
        lp: &mut Loop<B>,
        transport: Transport,
        [readable, writable, blocking]: [bool; 3],
    ) -> io::Result<Pipe> {
        let pipe = Pipe(streams::new_stream(lp, Kind::Pipe, Some(transport)));
        let slot = lp.streams.slots.get_mut(pipe.0).ok_or_else(error::stale)?;
        slot.flags.set(Flags::READABLE, readable);
        slot.flags.set(Flags::WRITABLE, writable);
        slot.flags.set(Flags::BLOCKING, blocking);
        Ok(pipe)
    }
}

/// Copies until the end of the file, an error, or the end of the reader. A read error is an end of
/// file for the loop: the socket cannot carry it.
fn copy(mut from: impl Read, to: &Socket) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let mut left = &buffer[..count];
        while !left.is_empty() {
            // Flags instead of a write: the end of the reader must raise no `SIGPIPE`.
            match to.send_with_flags(left, sys::SEND_FLAGS) {
                Ok(sent) => left = &left[sent..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }
}
