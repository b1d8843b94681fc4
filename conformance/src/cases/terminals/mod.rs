//! Point 31: terminals.

#[cfg(windows)]
mod consoles;
#[cfg(unix)]
mod endings;
#[cfg(unix)]
mod modes;
#[cfg(unix)]
mod traffic;

#[cfg(windows)]
pub use consoles::*;
#[cfg(unix)]
pub use endings::*;
#[cfg(unix)]
pub use modes::*;
#[cfg(unix)]
pub use traffic::*;

use std::fs::File;
use std::io::ErrorKind;

use poll_core::Backend;
use uv_core::{Guess, Tty, guess_handle};

use crate::support::files::Directory;
use crate::support::loops::new_loop;
use crate::support::streams::refusal;
use crate::{Lab, Verdict};

/// The file that takes everything and gives nothing.
fn null() -> File {
    let name = if cfg!(windows) { "NUL" } else { "/dev/null" };
    File::options().read(true).write(true).open(name).expect("a null device")
}

/// Files, pipes and the null device are no terminals: an error says so, and nothing is left.
pub fn what_is_no_terminal_is_refused<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let directory = Directory::new();
    let file = File::open(directory.file("file", "content")).expect("a file");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    assert_eq!(refusal(Tty::new(&mut lp, &file)), ErrorKind::InvalidInput);
    assert_eq!(refusal(Tty::new(&mut lp, &null())), ErrorKind::InvalidInput);
    assert_eq!(refusal(Tty::new(&mut lp, &reader)), ErrorKind::InvalidInput);
    assert_eq!(refusal(Tty::new(&mut lp, &writer)), ErrorKind::InvalidInput);
    assert!(lp.walk().is_empty() && lp.close().is_ok(), "nothing is left");
    Ok(())
}

/// What a descriptor is can be asked, to know what to make of it.
pub fn descriptors_are_told_apart<T: Backend>(_lab: &Lab<T>) -> Verdict {
    let directory = Directory::new();
    let file = File::open(directory.file("file", "content")).expect("a file");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    assert_eq!(guess_handle(&file), Guess::File);
    assert_eq!(guess_handle(&null()), Guess::File);
    assert_eq!([guess_handle(&reader), guess_handle(&writer)], [Guess::Pipe; 2]);
    #[cfg(unix)]
    {
        use std::net::{TcpListener, UdpSocket};
        use std::os::unix::net::{UnixDatagram, UnixStream};

        assert_eq!(guess_handle(&TcpListener::bind("127.0.0.1:0").expect("TCP")), Guess::Tcp);
        assert_eq!(guess_handle(&UdpSocket::bind("127.0.0.1:0").expect("UDP")), Guess::Udp);
        assert_eq!(guess_handle(&UnixStream::pair().expect("a pair").0), Guess::Pipe);
        assert_eq!(guess_handle(&UnixDatagram::pair().expect("a pair").0), Guess::Unknown);
        let pty = crate::support::ptys::Pty::new()?;
        assert_eq!([guess_handle(&pty.slave), guess_handle(&pty.master)], [Guess::Tty; 2]);
    }
    Ok(())
}

/// Cases that one kind of system has.
#[allow(unused_macros, reason = "one of them for each kind of system")]
macro_rules! elsewhere {
    ($why:literal: $($name:ident)*) => { $(
        /// Is about what this system does not have.
        pub fn $name<T: Backend>(_lab: &Lab<T>) -> Verdict {
            Err(crate::Skip::because($why))
        }
    )* };
}

#[cfg(not(windows))]
elsewhere! {
    "consoles are of Windows":
    consoles_are_read consoles_are_written
}

#[cfg(not(unix))]
elsewhere! {
    "Windows has no pseudo-terminals with descriptors":
    lines_come_when_they_end keys_come_as_they_are_typed a_wire_changes_nothing
    the_mode_is_restored several_handles_restore_the_first_mode a_reset_restores_all_modes
    the_end_of_the_program_restores_the_mode the_callers_descriptor_stays_as_it_is
    a_master_is_a_terminal_too the_window_has_a_size a_hang_up_is_the_end
    what_nobody_reads_waits directions_are_those_of_the_descriptor
    a_terminal_has_no_peers any_callback_may_close no_descriptor_is_left_behind
}
