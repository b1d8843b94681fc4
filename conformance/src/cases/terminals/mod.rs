//! Point 31: terminals.

#[cfg(unix)]
mod closing;
#[cfg(windows)]
mod consoles;
#[cfg(unix)]
mod modes;
#[cfg(unix)]
mod traffic;

#[cfg(unix)]
pub use closing::*;
#[cfg(windows)]
pub use consoles::*;
#[cfg(unix)]
pub use modes::*;
#[cfg(unix)]
pub use traffic::*;

use std::fs::File;
use std::io::ErrorKind;

use uv_core::{HandleKind, Tty, guess_handle};

use crate::support::files::Directory;
use crate::support::loops::new_loop;
use crate::support::streams::refusal;
use crate::{Lab, Verdict};

/// The null device.
fn null() -> File {
    let name = if cfg!(windows) { "NUL" } else { "/dev/null" };
    File::options().read(true).write(true).open(name).expect("a null device")
}

/// Files, pipes and the null device are refused with an error, and leave nothing behind.
pub fn other_descriptors_are_refused(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let directory = Directory::new();
    let file = File::open(directory.file("file", "content")).expect("a file");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    assert_eq!(refusal(Tty::new(&mut lp, &file)), ErrorKind::InvalidInput);
    assert_eq!(refusal(Tty::new(&mut lp, &null())), ErrorKind::InvalidInput);
    assert_eq!(refusal(Tty::new(&mut lp, &reader)), ErrorKind::InvalidInput);
    assert_eq!(refusal(Tty::new(&mut lp, &writer)), ErrorKind::InvalidInput);
    assert!(lp.walk().is_empty() && lp.close().is_ok(), "no handle is open");
    Ok(())
}

/// The kind of a descriptor can be queried, to select the matching handle.
pub fn descriptor_kinds_are_distinguished(_lab: &Lab) -> Verdict {
    let directory = Directory::new();
    let file = File::open(directory.file("file", "content")).expect("a file");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    assert_eq!(guess_handle(&file), HandleKind::File);
    assert_eq!(guess_handle(&null()), HandleKind::File);
    assert_eq!([guess_handle(&reader), guess_handle(&writer)], [HandleKind::Pipe; 2]);
    #[cfg(unix)]
    {
        use std::net::{TcpListener, UdpSocket};
        use std::os::unix::net::{UnixDatagram, UnixStream};

        assert_eq!(guess_handle(&TcpListener::bind("127.0.0.1:0").expect("TCP")), HandleKind::Tcp);
        assert_eq!(guess_handle(&UdpSocket::bind("127.0.0.1:0").expect("UDP")), HandleKind::Udp);
        assert_eq!(guess_handle(&UnixStream::pair().expect("a pair").0), HandleKind::Pipe);
        assert_eq!(guess_handle(&UnixDatagram::pair().expect("a pair").0), HandleKind::Unknown);
        let pty = crate::support::ptys::Pty::new()?;
        assert_eq!([guess_handle(&pty.slave), guess_handle(&pty.master)], [HandleKind::Tty; 2]);
    }
    Ok(())
}

/// Cases of one kind of system.
#[allow(unused_macros, reason = "one of them for each kind of system")]
macro_rules! elsewhere {
    ($why:literal: $($name:ident)*) => { $(
        /// Needs a facility that this system lacks.
        pub fn $name(_lab: &Lab) -> Verdict {
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
    normal_mode_delivers_lines raw_mode_delivers_keys io_mode_changes_no_byte
    the_mode_is_restored several_handles_restore_the_first_mode a_reset_restores_all_modes
    program_exit_restores_the_mode the_callers_descriptor_keeps_its_flags
    a_master_is_a_terminal_too the_window_has_a_size a_hang_up_is_the_end_of_file
    unread_output_stays_queued directions_follow_the_access_mode
    a_shutdown_leaves_the_terminal_open any_callback_may_close no_descriptor_leaks
}
