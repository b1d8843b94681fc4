//! A backend with one injected defect, to show that the suite can fail.

use std::collections::HashMap;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use poll_core::{
    Backend, BufferLease, Event, Interest, Mode, Op, RawSource, Readiness, Token, Wake,
    delegate_backend,
};

/// The defect of a [`Broken`] backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    /// None: it behaves as the inner backend.
    Nothing,
    /// A registration takes effect only after the next wait.
    RegisterTakesEffectLate,
    /// `modify` returns `Ok` and does nothing.
    ModifyIsDropped,
    /// Of several changes between two waits, the first one wins.
    FirstChangeWins,
    /// Each change makes a system call.
    ChangesCostCalls,
    /// Each wait registers every source with the kernel again.
    WaitsCostCalls,
    /// A register that is refused as `Unsupported` takes effect nevertheless.
    RefusedRegisterStays,
    /// A modify that is refused silences the source.
    RefusedModifySilences,
    /// A deregistered token is reported once more.
    StaleTokensAreReported,
    /// After a source was deregistered, no wait sleeps.
    DeregisteredSourcesSpin,
    /// A deregistered source cannot be registered again.
    SourcesAreNotFreed,
    /// Deregistering an unknown token succeeds.
    DeregisterNeverFails,
    /// A one-shot is reported repeatedly.
    OneshotRepeats,
    /// A level-triggered source is reported once.
    LevelReportsOnce,
    /// A spent one-shot stays spent after `modify`.
    SpentIsPermanent,
    /// Edge-triggered mode is accepted and is level-triggered.
    EdgesAreLevels,
    /// `Interest::NONE` still reports hang-ups and errors.
    NoneReportsHangups,
    /// With a silenced source or a spent one-shot no wait sleeps.
    SilenceSpins,
    /// `Interest::NONE` cannot be undone.
    SilenceIsPermanent,
    /// A silenced source that becomes ready ends waits without events.
    SilenceEndsWaits,
    /// Waits end some milliseconds early.
    WaitsEndEarly,
    /// Timeouts are rounded down to milliseconds.
    TimeoutsAreRoundedDown,
    /// Timeouts are rounded down to milliseconds; a wait polls until the rest of it is over.
    FractionsSpin,
    /// Waits end a quarter of a second late.
    WaitsEndLate,
    /// A timeout of zero blocks.
    ZeroWaits,
    /// A wait without a timeout ends after a short one.
    NoneEnds,
    /// The timeout's milliseconds are taken as a 16-bit number.
    HugeTimeoutsOverflow,
    /// Events are polled only after the timeout.
    EventsAreDelayed,
    /// A signal does not end a wait.
    SignalsAreIgnored,
    /// Wakes do nothing.
    WakesAreLost,
    /// Wakes before a wait do nothing.
    EarlyWakesAreLost,
    /// After a wake, every wait returns immediately.
    WakesStick,
    /// A wait that was woken drops its events.
    WakesHideEvents,
    /// After a wake no wait sleeps: each polls until its timeout is over.
    WakesAreNotDrained,
    /// Every wake makes a system call.
    WakesCostCalls,
    /// Waking a dropped backend panics.
    LateWakesPanic,
    /// Duplicate tokens and sources are accepted.
    DuplicatesAreAccepted,
    /// Unknown tokens are accepted.
    UnknownIsAccepted,
    /// The generations of tokens are ignored.
    StaleIsAccepted,
    /// Sources with an error are not reported.
    ErrorsAreHidden,
    /// Sources with an error are reported repeatedly.
    ErrorsRepeat,
    /// An invalid descriptor number panics.
    InvalidDescriptorPanics,
    /// Unsupported operations are accepted and never performed.
    UnsupportedOpsAreAccepted,
    /// Cancelling an unknown token succeeds.
    CancelNeverFails,
    /// The last result of an operation is reported twice.
    DoneIsDuplicated,
    /// Failed operations report success.
    FailuresReportSuccess,
    /// Cancelled operations never complete.
    CancelledNeverEnds,
    /// Unsupported buffer groups are accepted and never used.
    UnsupportedGroupsAreAccepted,
    /// A released buffer is not used again.
    ReleasedBufferIsLost,
    /// Two conditions of one source are two events.
    TwoEventsASource,
    /// Hang-ups and errors are reported without `READ` and `WRITE`.
    FailuresImplyNothing,
    /// No source is ever writable.
    NothingIsWritable,
    /// Urgent data is reported as data.
    UrgentIsData,
    /// Only the first thousand sources are watched.
    SourcesAreCapped,
    /// Each change walks every source, slowly.
    ChangesAreQuadratic,
    /// Of many events, those of the highest tokens are dropped.
    HighTokensStarve,
    /// Descriptors from 1024 on are accepted and not watched.
    HighNumbersAreIgnored,
    /// Creating and dropping a backend leaks a descriptor.
    DescriptorsLeak,
    /// Time goes backwards occasionally.
    TimeGoesBackwards,
    /// `after_fork` returns `Ok` and does nothing.
    ForksAreIgnored,
    /// `has_unflushed_changes` is always false.
    UnflushedChangesAreHidden,
}

use Defect::*;

/// The inner backend and its defect.
#[derive(Debug)]
pub(crate) struct Broken<B> {
    within: B,
    defect: Defect,
    /// The requested registrations.
    asked: HashMap<Token, Asked>,
    /// Tokens that were deregistered since the last wait.
    stale: Vec<Token>,
    /// Tokens that were reported with an error.
    failed: Vec<Token>,
    /// A wait was woken, or a source deregistered, whichever the defect is about.
    spins: bool,
    shared: Arc<Shared>,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    interest: Interest,
    mode: Mode,
    /// It is registered with the inner backend after the next wait.
    late: bool,
    /// It was changed since the last wait.
    changed: bool,
    /// It is a spent one-shot or a silenced source.
    spent: bool,
}

/// State shared with the wakers.
#[derive(Debug, Default)]
struct Shared {
    waiting: AtomicBool,
    woken: AtomicBool,
    gone: AtomicBool,
}

impl<B: Backend> Broken<B> {
    pub(crate) fn new(within: B, defect: Defect) -> Broken<B> {
        if defect == DescriptorsLeak {
            std::mem::forget(std::net::UdpSocket::bind("127.0.0.1:0"));
        }
        let (asked, stale, failed) = (HashMap::new(), Vec::new(), Vec::new());
        Broken { within, defect, asked, stale, failed, spins: false, shared: Arc::default() }
    }

    fn has(&self, defect: Defect) -> bool {
        self.defect == defect
    }

    /// The inner backend's token.
    fn inner(&self, token: Token) -> Token {
        if self.has(StaleIsAccepted) { Token::new(token.index(), 0) } else { token }
    }

    /// The caller's token.
    fn outer(&self, token: Token) -> Token {
        let stands_for = |known: &&Token| self.inner(**known) == token;
        match self.defect {
            StaleIsAccepted => self.asked.keys().find(stands_for).copied().unwrap_or(token),
            _ => token,
        }
    }

    /// The interest and mode passed to the inner backend instead of the requested ones.
    fn altered(&self, interest: Interest, mode: Mode) -> (Interest, Mode) {
        let mode = match (self.defect, mode) {
            (OneshotRepeats, Mode::Oneshot) | (EdgesAreLevels, Mode::Edge) => Mode::Level,
            (LevelReportsOnce, Mode::Level) => Mode::Oneshot,
            _ => mode,
        };
        let interest = match self.defect {
            NoneReportsHangups | SilenceEndsWaits if interest.is_empty() => Interest::READ,
            UrgentIsData if interest.contains(Interest::READ) => interest | Interest::PRIORITY,
            _ => interest,
        };
        (interest, mode)
    }

    fn timeout(&self, timeout: Option<Duration>) -> Option<Duration> {
        let short = Duration::from_millis(20);
        match (self.defect, timeout) {
            (WaitsEndEarly, Some(timeout)) => {
                Some(timeout.saturating_sub(Duration::from_millis(3)))
            }
            (TimeoutsAreRoundedDown, Some(timeout)) => {
                Some(Duration::from_millis(timeout.as_millis().min(1 << 31) as u64))
            }
            (ZeroWaits, Some(Duration::ZERO)) => Some(short * 10),
            (NoneEnds, None) => Some(short),
            (HugeTimeoutsOverflow, Some(timeout)) => {
                Some(Duration::from_millis(timeout.as_nanos().div_ceil(1_000_000) as u16 as u64))
            }
            (EventsAreDelayed, Some(timeout)) => {
                std::thread::sleep(timeout);
                Some(Duration::ZERO)
            }
            _ => timeout,
        }
    }

    /// Waits on the inner backend, and again if the defect requires it.
    fn wait_within(
        &mut self,
        timeout: Option<Duration>,
        events: &mut Vec<Event>,
    ) -> io::Result<()> {
        let (started, timeout) = (Instant::now(), self.timeout(timeout));
        if self.has(WakesStick) && self.shared.woken.load(Ordering::SeqCst) {
            return self.within.wait(Some(Duration::ZERO), events);
        }
        loop {
            let mut left = timeout.map(|timeout| timeout.saturating_sub(started.elapsed()));
            let silenced = |asked: &Asked| asked.spent || asked.interest.is_empty();
            if self.spins || (self.has(SilenceSpins) && self.asked.values().any(silenced)) {
                left = Some(Duration::ZERO);
            } else if self.has(FractionsSpin) {
                left = left.map(|left| Duration::from_millis(left.as_millis() as u64));
            }
            self.within.wait(left, events)?;
            let over = timeout.is_some_and(|timeout| started.elapsed() >= timeout);
            let woken = self.shared.woken.load(Ordering::SeqCst);
            let goes_on = match self.defect {
                SignalsAreIgnored => true,
                FractionsSpin | SilenceSpins => timeout.is_some(),
                _ => self.spins,
            };
            if !goes_on || over || woken || !events.is_empty() {
                if over && events.is_empty() && self.has(WaitsEndLate) {
                    std::thread::sleep(Duration::from_millis(250));
                }
                return Ok(());
            }
        }
    }

    /// Applies the defect to the inner backend's events.
    fn damage(&mut self, fresh: Vec<Event>, events: &mut Vec<Event>) {
        let failures = Readiness::HANGUP | Readiness::ERROR;
        for event in fresh {
            let Event::Ready { token, mut ready } = event else {
                self.damage_done(event, events);
                continue;
            };
            let token = self.outer(token);
            let asked = self.asked.get(&token).copied();
            let silenced = asked.is_some_and(|asked| asked.interest.is_empty());
            match self.defect {
                NoneReportsHangups if silenced => ready &= failures,
                SilenceEndsWaits if silenced => ready = Readiness::NONE,
                ErrorsAreHidden if ready.contains(Readiness::ERROR) => ready = Readiness::NONE,
                FailuresImplyNothing if ready.intersects(failures) => {
                    ready -= Readiness::READ | Readiness::WRITE;
                }
                NothingIsWritable => ready -= Readiness::WRITE,
                UrgentIsData if ready.contains(Readiness::PRIORITY) => ready |= Readiness::READ,
                TwoEventsASource if ready.contains(Readiness::READ | Readiness::WRITE) => {
                    events.push(Event::Ready { token, ready: Readiness::READ });
                    ready -= Readiness::READ;
                }
                _ => {}
            }
            if ready.contains(Readiness::ERROR) && !self.failed.contains(&token) {
                self.failed.push(token);
            }
            if let Some(asked) = self.asked.get_mut(&token) {
                asked.spent |= asked.mode == Mode::Oneshot;
            }
            if !ready.is_empty() {
                events.push(Event::Ready { token, ready });
            }
        }
    }

    fn damage_done(&self, event: Event, events: &mut Vec<Event>) {
        let Event::Done { token, result, more, lease } = event else { return };
        let result = match result {
            Err(_) if self.has(FailuresReportSuccess) => Ok(0),
            Err(_) if self.has(CancelledNeverEnds) => return,
            result => result,
        };
        let event = Event::Done { token, result, more, lease };
        events.push(event);
        if self.has(DoneIsDuplicated) && !more {
            events.push(event);
        }
    }
}

/// A harmless system call.
fn make_a_call() {
    // SAFETY: the call has no preconditions.
    unsafe { libc::getppid() };
}

// SAFETY: sources and leased pieces are those of the inner backend. Some defects violate the
// contract on purpose: they run only in cases that adopt no source and free no memory because of a
// `Done`.
unsafe impl<B: Backend> Backend for Broken<B> {
    delegate_backend! {
        self => self.within,
        Waker = BrokenWaker<B::Waker>,
        except {
            waker, register, modify, deregister, wait, submit, cancel, register_buffers, release_buffer, now,
            has_unflushed_changes, after_fork,
        }
    }

    fn waker(&self) -> Self::Waker {
        BrokenWaker {
            within: self.within.waker(),
            defect: self.defect,
            shared: self.shared.clone(),
        }
    }

    unsafe fn register(
        &mut self,
        token: Token,
        source: RawSource,
        interest: Interest,
        mode: Mode,
    ) -> io::Result<()> {
        let (mut inner_interest, inner_mode) = self.altered(interest, mode);
        let late = match self.defect {
            RegisterTakesEffectLate => true,
            SourcesAreCapped => self.asked.len() >= 1000,
            HighNumbersAreIgnored => source.fd() >= 1024,
            _ => false,
        };
        if late {
            inner_interest = Interest::NONE;
        }
        if self.has(InvalidDescriptorPanics) {
            assert!(source.fd() >= 0);
        }
        let inner = self.inner(token);
        // SAFETY: the caller upholds the contract of `register`.
        let result = unsafe { self.within.register(inner, source, inner_interest, inner_mode) };
        match result {
            Err(error)
                if self.has(DuplicatesAreAccepted)
                    && error.kind() == io::ErrorKind::AlreadyExists =>
            {
                return Ok(());
            }
            Err(error) if self.has(RefusedRegisterStays) => {
                // SAFETY: the cases for this defect keep the source open until the backend is
                // dropped, although `register` fails.
                let _ =
                    unsafe { self.within.register(inner, source, Interest::WRITE, Mode::Level) };
                return Err(error);
            }
            Err(error) => return Err(error),
            Ok(()) => {}
        }
        let (changed, spent) = (false, false);
        self.asked.insert(token, Asked { interest, mode, late, changed, spent });
        Ok(())
    }

    fn modify(&mut self, token: Token, interest: Interest, mode: Mode) -> io::Result<()> {
        match self.defect {
            ChangesCostCalls => make_a_call(),
            ChangesAreQuadratic => {
                for asked in self.asked.values() {
                    std::hint::black_box(format!("{asked:?}"));
                }
            }
            ModifyIsDropped => return Ok(()),
            _ => {}
        }
        let defect = self.defect;
        if let Some(asked) = self.asked.get_mut(&token) {
            let ignore = match defect {
                FirstChangeWins => asked.changed,
                SpentIsPermanent => asked.spent,
                SilenceIsPermanent => asked.interest.is_empty(),
                _ => false,
            };
            if ignore {
                return Ok(());
            }
        }
        let (inner_interest, inner_mode) = self.altered(interest, mode);
        let inner = self.inner(token);
        match self.within.modify(inner, inner_interest, inner_mode) {
            Err(error)
                if self.has(UnknownIsAccepted) && error.kind() == io::ErrorKind::NotFound =>
            {
                return Ok(());
            }
            Err(error) => {
                if self.has(RefusedModifySilences) {
                    let _ = self.within.modify(inner, Interest::NONE, Mode::Level);
                }
                return Err(error);
            }
            Ok(()) => {}
        }
        if let Some(asked) = self.asked.get_mut(&token) {
            *asked = Asked { interest, mode, changed: true, spent: false, ..*asked };
        }
        Ok(())
    }

    fn deregister(&mut self, token: Token) -> io::Result<()> {
        let inner = self.inner(token);
        let result = match self.defect {
            SourcesAreNotFreed => self.within.modify(inner, Interest::NONE, Mode::Level),
            _ => self.within.deregister(inner),
        };
        if let Err(error) = result {
            let fine = self.has(DeregisterNeverFails) || self.has(UnknownIsAccepted);
            return if fine { Ok(()) } else { Err(error) };
        }
        self.asked.remove(&token);
        self.stale.push(token);
        self.spins |= self.has(DeregisteredSourcesSpin);
        Ok(())
    }

    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        let mut fresh = Vec::new();
        let stale = std::mem::take(&mut self.stale);
        if self.has(StaleTokensAreReported) && !stale.is_empty() {
            fresh.extend(
                stale.into_iter().map(|token| Event::Ready { token, ready: Readiness::READ }),
            );
        }
        if self.has(ErrorsRepeat) {
            let repeated = |token: &Token| Event::Ready { token: *token, ready: Readiness::ERROR };
            fresh.extend(self.failed.iter().map(repeated));
        }
        if self.has(WaitsCostCalls) {
            self.asked.iter().for_each(|_| make_a_call());
        }
        self.shared.waiting.store(true, Ordering::SeqCst);
        let timeout = if fresh.is_empty() { timeout } else { Some(Duration::ZERO) };
        let result = self.wait_within(timeout, &mut fresh);
        self.shared.waiting.store(false, Ordering::SeqCst);
        let woken = match self.defect {
            WakesStick => false,
            _ => self.shared.woken.swap(false, Ordering::SeqCst),
        };
        self.spins |= woken && self.has(WakesAreNotDrained);
        match self.defect {
            WakesHideEvents if woken => fresh.clear(),
            HighTokensStarve if fresh.len() > 16 => {
                fresh.sort_by_key(Event::token);
                fresh.truncate(16);
            }
            _ => {}
        }
        self.damage(fresh, events);
        if matches!(self.defect, RegisterTakesEffectLate | FirstChangeWins) {
            for (token, asked) in &mut self.asked {
                if std::mem::take(&mut asked.late) {
                    self.within.modify(*token, asked.interest, asked.mode)?;
                }
                asked.changed = false;
            }
        }
        result
    }

    unsafe fn submit(&mut self, token: Token, op: Op) -> io::Result<()> {
        // SAFETY: the caller upholds the contract of `submit`.
        let result = unsafe { self.within.submit(token, op) };
        if self.has(UnsupportedOpsAreAccepted) { Ok(()) } else { result }
    }

    fn cancel(&mut self, token: Token) -> io::Result<()> {
        let result = self.within.cancel(token);
        if self.has(CancelNeverFails) { Ok(()) } else { result }
    }

    unsafe fn register_buffers(
        &mut self,
        group: u16,
        memory: NonNull<u8>,
        size: u32,
        count: u16,
    ) -> io::Result<()> {
        // SAFETY: the caller upholds the contract of `register_buffers`.
        let result = unsafe { self.within.register_buffers(group, memory, size, count) };
        if self.has(UnsupportedGroupsAreAccepted) { Ok(()) } else { result }
    }

    fn release_buffer(&mut self, lease: BufferLease) {
        if !self.has(ReleasedBufferIsLost) {
            self.within.release_buffer(lease);
        }
    }

    fn now(&self) -> Duration {
        let now = self.within.now();
        if self.has(TimeGoesBackwards) && now.subsec_micros().is_multiple_of(8) {
            return now.saturating_sub(Duration::from_millis(1));
        }
        now
    }

    fn has_unflushed_changes(&self) -> bool {
        !self.has(UnflushedChangesAreHidden) && self.within.has_unflushed_changes()
    }

    fn after_fork(&mut self) -> io::Result<()> {
        if self.has(ForksAreIgnored) { Ok(()) } else { self.within.after_fork() }
    }
}

impl<B> Drop for Broken<B> {
    fn drop(&mut self) {
        self.shared.gone.store(true, Ordering::SeqCst);
    }
}

/// The inner waker and the defect of its backend.
#[derive(Clone, Debug)]
pub(crate) struct BrokenWaker<W> {
    within: W,
    defect: Defect,
    shared: Arc<Shared>,
}

impl<W: Wake> Wake for BrokenWaker<W> {
    fn wake(&self) -> io::Result<()> {
        match self.defect {
            WakesAreLost => return Ok(()),
            EarlyWakesAreLost if !self.shared.waiting.load(Ordering::SeqCst) => return Ok(()),
            LateWakesPanic => {
                assert!(!self.shared.gone.load(Ordering::SeqCst), "the backend was dropped")
            }
            WakesCostCalls => make_a_call(),
            _ => {}
        }
        self.shared.woken.store(true, Ordering::SeqCst);
        self.within.wake()
    }
}
