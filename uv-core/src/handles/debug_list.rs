//! Printable lists of handles, for debugging.

use std::fmt;

use poll_core::Backend;

use crate::Loop;
use crate::handles::{AnyHandle, Base, Tcp};
use crate::streams::Flags;

/// The number of handles that the error of [`Loop::close`] names.
const NAMED: usize = 10;

/// A printable list of handles, one per line, as returned by [`Loop::debug_handles`].
///
/// ```
/// use uv_core::{DebugHandles, Loop, Tcp};
/// use uv_core::poll_core::Backend;
///
/// fn log<B: Backend>(handles: DebugHandles<'_, B>) {
///     eprint!("{handles}");
/// }
///
/// let mut lp = Loop::with_default_backend()?;
/// Tcp::pair(&mut lp)?;
/// log(lp.debug_handles());
/// assert_eq!(lp.debug_handles().to_string().lines().count(), 2);
/// # std::io::Result::Ok(())
/// ```
pub struct DebugHandles<'a, B: Backend> {
    lp: &'a Loop<B>,
    which: Which,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    All,
    Active,
    KeepAlive,
}

impl Which {
    fn includes(self, base: Base) -> bool {
        match self {
            Which::All => true,
            Which::Active => base.is_active(),
            Which::KeepAlive => base.is_closing() || base.is_active() && base.is_referenced(),
        }
    }
}

impl<B: Backend> Loop<B> {
    /// A printable list of all handles. `[RA-] timer 3` is a timer that is referenced, active and
    /// not closing (`C`). Streams and processes add what they do. With the feature `origins` each
    /// line ends with the place in the program that has made the handle.
    ///
    /// ```
    /// use uv_core::{Handle, Idle, Loop, Tcp, Timer};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// Timer::new(&mut lp);
    /// let idle = Idle::new(&mut lp);
    /// idle.start(&mut lp, |_, _| {})?;
    /// idle.unreference(&mut lp)?;
    /// # if cfg!(feature = "origins") { return Ok(()); }
    /// assert_eq!(lp.debug_handles().to_string(), "[R--] timer 0\n[-A-] idle 0\n");
    /// assert_eq!(lp.debug_active_handles().to_string(), "[-A-] idle 0\n");
    ///
    /// let server = Tcp::listen_on(&mut lp, "127.0.0.1:0", |_, _| Ok(()))?;
    /// let listed = format!("[RA-] tcp 0, listens on {}\n", server.local_addr(&lp)?);
    /// assert!(lp.debug_handles().to_string().ends_with(&listed));
    /// # std::io::Result::Ok(())
    /// ```
    #[doc(alias = "uv_print_all_handles")]
    pub fn debug_handles(&self) -> DebugHandles<'_, B> {
        DebugHandles { lp: self, which: Which::All }
    }

    /// A printable list of the active handles.
    #[doc(alias = "uv_print_active_handles")]
    pub fn debug_active_handles(&self) -> DebugHandles<'_, B> {
        DebugHandles { lp: self, which: Which::Active }
    }

    /// A printable answer to "why does this loop not end?": the handles that keep it alive, then
    /// the number of requests and deferred callbacks that do. Empty if the loop is not
    /// [alive](Loop::is_alive).
    ///
    /// ```
    /// use std::time::Duration;
    /// use uv_core::{Handle, Loop, Stream, Tcp, Timer};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// Timer::new(&mut lp); // Not started: the loop does not wait for it.
    /// let (one, other) = Tcp::pair(&mut lp)?;
    /// one.read(&mut lp, vec![0; 64], |_, _, _, _| {})?;
    /// other.read_start(&mut lp, |_, _, _| {})?;
    /// # if cfg!(feature = "origins") { return Ok(()); }
    /// let listed = lp.debug_alive().to_string(); // "[RA-] tcp 1, reads\n1 request of handles\n"
    /// assert!(listed.starts_with("[RA-] tcp 1, "));
    /// assert!(listed.ends_with("reads\n1 request of handles\n"));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn debug_alive(&self) -> DebugHandles<'_, B> {
        DebugHandles { lp: self, which: Which::KeepAlive }
    }
}

/// Writes the open handles for the error of [`Loop::close`].
pub(crate) fn write_open<B: Backend>(lp: &Loop<B>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match lp.open_handles() {
        0 => f.write_str("the loop is busy: no handle is open, but requests are pending")?,
        1 => f.write_str("the loop is busy: 1 handle is open")?,
        count => write!(f, "the loop is busy: {count} handles are open")?,
    }
    let all = lp.walk();
    for &handle in all.iter().take(NAMED) {
        f.write_str("\n  ")?;
        write_handle(lp, handle, f)?;
    }
    if all.len() > NAMED {
        write!(f, "\n  and {} more", all.len() - NAMED)?;
    }
    Ok(())
}

fn write_handle<B: Backend>(
    lp: &Loop<B>,
    handle: AnyHandle,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let Some(base) = lp.base(handle) else { return Ok(()) };
    let flag = |on: bool, letter: char| if on { letter } else { '-' };
    write!(
        f,
        "[{}{}{}] {handle}",
        flag(base.is_referenced(), 'R'),
        flag(base.is_active(), 'A'),
        flag(base.is_closing(), 'C'),
    )?;
    match handle {
        AnyHandle::Tcp(_) | AnyHandle::Pipe(_) | AnyHandle::Tty(_) => {
            write_stream(lp, handle, f)?;
        }
        AnyHandle::Process(process) => {
            if let Ok(pid) = process.pid(lp) {
                write!(f, ", pid {pid}")?;
            }
        }
        _ => {}
    }
    match lp.origins.get(base.id()) {
        Some(origin) => write!(f, ", made at {origin}"),
        None => Ok(()),
    }
}

fn write_stream<B: Backend>(
    lp: &Loop<B>,
    handle: AnyHandle,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let Some(slot) = lp.streams.slots.get(handle.key()) else { return Ok(()) };
    let address = |address: fn(Tcp, &Loop<B>) -> std::io::Result<_>| match handle {
        AnyHandle::Tcp(tcp) => address(tcp, lp).ok(),
        _ => None,
    };
    if slot.flags.contains(Flags::LISTENING) {
        f.write_str(", listens")?;
        if let Some(address) = address(Tcp::local_addr) {
            write!(f, " on {address}")?;
        }
    } else if slot.flags.contains(Flags::CONNECTING) {
        f.write_str(", connects")?;
    } else if let Some(address) = address(Tcp::peer_addr) {
        write!(f, ", connected to {address}")?;
    }
    if slot.flags.contains(Flags::READING) {
        f.write_str(", reads")?;
    }
    if slot.flags.contains(Flags::SHUTTING) {
        f.write_str(", shuts down")?;
    }
    match slot.queued_bytes() {
        0 => Ok(()),
        bytes => write!(f, ", {bytes} bytes to write"),
    }
}

impl<B: Backend> fmt::Display for DebugHandles<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for handle in self.lp.walk() {
            if self.lp.base(handle).is_some_and(|base| self.which.includes(base)) {
                write_handle(self.lp, handle, f)?;
                writeln!(f)?;
            }
        }
        if self.which != Which::KeepAlive {
            return Ok(());
        }
        let requests = [
            (self.lp.active_requests, "request", "of handles"),
            (self.lp.works.active(), "request", "of the pool or the file system"),
            (self.lp.deferred_callbacks(), "deferred callback", "to run"),
        ];
        for (count, what, of) in requests.into_iter().filter(|(count, ..)| *count > 0) {
            writeln!(f, "{count} {what}{} {of}", if count == 1 { "" } else { "s" })?;
        }
        Ok(())
    }
}

impl<B: Backend> fmt::Debug for DebugHandles<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
