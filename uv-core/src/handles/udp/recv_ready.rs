//! Receiving by the caller: readiness instead of datagrams.

use std::io;
use std::net::Ipv4Addr;

use poll_core::{Backend, Readiness};

use super::{Udp, UdpBindFlags, arm};
use crate::event_loop::exchange;
use crate::storage::InlineFnMut;
use crate::{Loop, error};

/// The callback of [`Udp::recv_ready_start`].
pub(super) type OnReady<B> = InlineFnMut<B, (Udp, UdpReady)>;

/// The readiness that [`Udp::recv_ready_start`] reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
// Exhaustive: code that polls the socket by itself constructs it.
pub struct UdpReady {
    /// Datagrams, or an error of the socket.
    pub readable: bool,
    /// Reports in the error queue, of a socket with
    /// [`REPORT_ERRORS`](UdpBindFlags::REPORT_ERRORS).
    pub has_reports: bool,
}

impl Udp {
    /// Calls `callback` while there is something to receive, which receives it from the socket by
    /// itself: into memory of its own, as many as it likes. [`recv_stop`](Udp::recv_stop) ends it.
    ///
    /// The socket is non-blocking, and is bound to any address if it is not bound.
    ///
    #[cfg_attr(unix, doc = "```")]
    #[cfg_attr(not(unix), doc = "```ignore")]
    /// use std::net::UdpSocket;
    /// use uv_core::{Handle, Loop, RunMode, Udp, UdpReady};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let socket = UdpSocket::bind("127.0.0.1:0")?;
    /// socket.send_to(b"datagram", socket.local_addr()?)?;
    /// let udp = Udp::new(&mut lp);
    /// udp.open(&mut lp, socket.try_clone()?)?;
    /// udp.recv_ready_start(&mut lp, move |lp, udp, ready: UdpReady| {
    ///     assert!(ready.readable);
    ///     let mut mine = [0; 16];
    ///     assert_eq!(socket.recv(&mut mine).unwrap(), 8);
    ///     udp.close(lp).unwrap();
    /// })?;
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the handle is closing, `EALREADY` if it
    /// receives, and the errors of a bind and of the backend.
    #[doc(alias = "uv_udp_recv_start")]
    pub fn recv_ready_start<B: Backend>(
        self,
        lp: &mut Loop<B>,
        mut callback: impl FnMut(&mut Loop<B>, Udp, UdpReady) + 'static,
    ) -> io::Result<()> {
        if self.open_slot(lp)?.receiving {
            return Err(error::already());
        }
        self.bind_to_any(lp, (Ipv4Addr::UNSPECIFIED, 0).into(), UdpBindFlags::empty())?;
        self.use_readiness_only(lp)?;
        self.open_slot(lp)?.receiving = true;
        if let Err(error) = arm::update(lp, self) {
            self.open_slot(lp)?.receiving = false;
            return Err(error);
        }
        self.open_slot(lp)?.on_ready =
            Some(InlineFnMut::new(move |lp: &mut Loop<B>, (udp, ready)| callback(lp, udp, ready)));
        lp.udps.update_active(&mut lp.active_handles, self);
        Ok(())
    }
}

/// Calls the callback of a handle that receives by itself. False if it does not.
pub(super) fn report<B: Backend>(lp: &mut Loop<B>, udp: Udp, ready: Readiness) -> bool {
    let Some(slot) = lp.udps.slots.get_mut(udp.0) else { return false };
    let Some(mut callback) = slot.on_ready.take() else { return false };
    let ready = UdpReady {
        readable: ready.contains(Readiness::READ),
        has_reports: ready.contains(Readiness::ERROR) && slot.reports_errors,
    };
    if !ready.readable && !ready.has_reports {
        slot.on_ready = Some(callback);
        return true;
    }
    lp.call_with(&mut callback, (udp, ready), udp, |lp, udp| drop(udp.recv_stop(lp)));
    match lp.udps.slots.get_mut(udp.0) {
        Some(slot) if slot.receiving && slot.callback.is_none() => {
            slot.on_ready.get_or_insert(callback);
        }
        Some(_) => {}
        None => exchange::note(),
    }
    true
}
