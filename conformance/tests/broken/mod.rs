//! A backend with one deliberate defect, to show that the suite can fail.

use std::collections::HashMap;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use poll_core::{Backend, Event, Lent, Mode, Op, OpKind, RawSource, Ready, Token, Wake};

/// What is wrong with a [`Broken`] backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    /// Nothing: it behaves as the backend within.
    Nothing,
    /// A registration is watched only after the next wait.
    RegisterComesLate,
    /// `modify` says yes and does nothing.
    ModifyIsDropped,
    /// Of several changes between two waits the first one counts.
    FirstChangeCounts,
    /// Each change makes a system call.
    ChangesCostCalls,
    /// Each wait tells the kernel about every source again.
    WaitsCostCalls,
    /// A register that is refused as `Unsupported` registers all the same.
    RefusedRegisterStays,
    /// A modify that is refused silences the source.
    RefusedModifySilences,
    /// A deregistered token is reported once more.
    StaleTokensAreReported,
    /// A deregistered source cannot be registered again.
    NumbersAreNotFreed,
    /// Deregistering what is not registered is fine.
    DeregisterNeverFails,
    /// A one-shot is reported again and again.
    OneshotRepeats,
    /// A level-triggered source is reported once.
    LevelReportsOnce,
    /// A spent one-shot stays spent.
    SpentForEver,
    /// Edges are accepted, and are levels.
    EdgesAreLevels,
    /// `Ready::NONE` still reports hang-ups and errors.
    NoneReportsHangups,
    /// `Ready::NONE` is for ever.
    SilenceForEver,
    /// A silenced source that becomes ready ends waits, with nothing to report.
    SilenceEndsWaits,
    /// Waits end some milliseconds early.
    WaitsEndEarly,
    /// Timeouts are rounded down to milliseconds.
    TimeoutsAreRoundedDown,
    /// Waits end a quarter of a second late.
    WaitsEndLate,
    /// A timeout of zero waits.
    ZeroWaits,
    /// No timeout is a short one.
    NoneEnds,
    /// The timeout's milliseconds are taken as a 16-bit number.
    HugeTimeoutsOverflow,
    /// Events are looked for when the timeout is over.
    TimeoutsComeFirst,
    /// A signal does not end a wait.
    SignalsAreIgnored,
    /// Wakes do nothing.
    WakesAreLost,
    /// Wakes while nobody waits do nothing.
    EarlyWakesAreLost,
    /// After a wake, every wait returns at once.
    WakesStick,
    /// A wait that was woken forgets what is ready.
    WakesHideEvents,
    /// Every wake makes a system call.
    WakesCostCalls,
    /// Waking a backend that is gone panics.
    LateWakesPanic,
    /// What exists already is accepted.
    TwiceIsFine,
    /// What does not exist is accepted.
    UnknownIsFine,
    /// The generations of tokens are ignored.
    StaleIsFine,
    /// Sources with an error are passed over in silence.
    ErrorsAreHidden,
    /// Sources with an error are reported again and again.
    ErrorsRepeat,
    /// A descriptor that cannot be one panics.
    ImpossiblePanics,
    /// Operations are accepted that are never performed.
    OperationsAreSwallowed,
    /// Cancelling nothing is fine.
    CancelNeverFails,
    /// The last result of an operation is reported twice.
    DoneComesTwice,
    /// Operations that fail end with a success.
    FailuresAreSuccesses,
    /// Operations that were cancelled never end.
    CancelledNeverEnds,
    /// Buffer groups are accepted that are never used.
    GroupsAreSwallowed,
    /// A recycled buffer is not used again.
    RecycledIsLost,
    /// Two conditions are two events.
    TwoEventsASource,
    /// Hang-ups and errors come without `READ` and `WRITE`.
    FailuresImplyNothing,
    /// Nothing is ever writable.
    NothingIsWritable,
    /// Urgent data is reported as data.
    UrgentIsData,
    /// Only the first thousand sources are watched.
    AThousandIsEnough,
    /// Each change looks at every source, slowly.
    ChangesAreQuadratic,
    /// Of many events, those of the highest tokens are forgotten.
    LateComersStarve,
    /// Descriptors from 1024 on are accepted and not watched.
    HighNumbersAreIgnored,
    /// Making and dropping a backend leaves a descriptor open.
    DescriptorsLeak,
    /// Time goes backwards now and then.
    TimeGoesBack,
    /// `after_fork` says yes and does nothing.
    ForksAreIgnored,
    /// There are never any changes that the kernel does not know of.
    ChangesAreDenied,
}

use Defect::*;

/// The backend within, and what is wrong with it.
#[derive(Debug)]
pub(crate) struct Broken<B> {
    within: B,
    defect: Defect,
    /// What was asked for.
    asked: HashMap<Token, Asked>,
    /// Tokens that were deregistered since the last wait.
    stale: Vec<Token>,
    /// Tokens that were reported with an error.
    failed: Vec<Token>,
    shared: Arc<Shared>,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    interest: Ready,
    mode: Mode,
    /// It is told to the backend within after the next wait.
    late: bool,
    /// It was changed since the last wait.
    changed: bool,
    /// It is a one-shot that was reported, or a source that was silenced.
    spent: bool,
}

/// What a waker knows of its backend.
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
        Broken { within, defect, asked, stale, failed, shared: Arc::default() }
    }

    fn has(&self, defect: Defect) -> bool {
        self.defect == defect
    }

    /// The token that the backend within knows.
    fn inner(&self, token: Token) -> Token {
        if self.has(StaleIsFine) { Token::new(token.index(), 0) } else { token }
    }

    /// The token that the caller knows.
    fn outer(&self, token: Token) -> Token {
        let stands_for = |known: &&Token| self.inner(**known) == token;
        match self.defect {
            StaleIsFine => self.asked.keys().find(stands_for).copied().unwrap_or(token),
            _ => token,
        }
    }

    /// What the backend within is told instead of what was asked for.
    fn told(&self, interest: Ready, mode: Mode) -> (Ready, Mode) {
        let mode = match (self.defect, mode) {
            (OneshotRepeats, Mode::Oneshot) | (EdgesAreLevels, Mode::Edge) => Mode::Level,
            (LevelReportsOnce, Mode::Level) => Mode::Oneshot,
            _ => mode,
        };
        let interest = match self.defect {
            NoneReportsHangups | SilenceEndsWaits if interest.is_empty() => Ready::READ,
            UrgentIsData if interest.contains(Ready::READ) => interest | Ready::PRIORITY,
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
            (TimeoutsComeFirst, Some(timeout)) => {
                std::thread::sleep(timeout);
                Some(Duration::ZERO)
            }
            _ => timeout,
        }
    }

    /// Waits within, and again if a defect calls for it.
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
            let left = timeout.map(|timeout| timeout.saturating_sub(started.elapsed()));
            self.within.wait(left, events)?;
            let over = timeout.is_some_and(|timeout| started.elapsed() >= timeout);
            let woken = self.shared.woken.load(Ordering::SeqCst);
            if !self.has(SignalsAreIgnored) || over || woken || !events.is_empty() {
                if over && events.is_empty() && self.has(WaitsEndLate) {
                    std::thread::sleep(Duration::from_millis(250));
                }
                return Ok(());
            }
        }
    }

    /// Damages what the backend within reports.
    fn damage(&mut self, fresh: Vec<Event>, events: &mut Vec<Event>) {
        let failures = Ready::HANGUP | Ready::ERROR;
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
                SilenceEndsWaits if silenced => ready = Ready::NONE,
                ErrorsAreHidden if ready.contains(Ready::ERROR) => ready = Ready::NONE,
                FailuresImplyNothing if ready.intersects(failures) => {
                    ready -= Ready::READ | Ready::WRITE;
                }
                NothingIsWritable => ready -= Ready::WRITE,
                UrgentIsData if ready.contains(Ready::PRIORITY) => ready |= Ready::READ,
                TwoEventsASource if ready.contains(Ready::READ | Ready::WRITE) => {
                    events.push(Event::Ready { token, ready: Ready::READ });
                    ready -= Ready::READ;
                }
                _ => {}
            }
            if ready.contains(Ready::ERROR) && !self.failed.contains(&token) {
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
        let Event::Done { token, result, more, lent } = event else { return };
        let result = match result {
            Err(_) if self.has(FailuresAreSuccesses) => Ok(0),
            Err(_) if self.has(CancelledNeverEnds) => return,
            result => result,
        };
        let event = Event::Done { token, result, more, lent };
        events.push(event);
        if self.has(DoneComesTwice) && !more {
            events.push(event);
        }
    }
}

/// Any system call that does no harm.
fn make_a_call() {
    // SAFETY: it has no preconditions.
    unsafe { libc::getppid() };
}

impl<B: Backend> Backend for Broken<B> {
    type Waker = BrokenWaker<B::Waker>;

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
        interest: Ready,
        mode: Mode,
    ) -> io::Result<()> {
        let (mut told, told_mode) = self.told(interest, mode);
        let late = match self.defect {
            RegisterComesLate => true,
            AThousandIsEnough => self.asked.len() >= 1000,
            HighNumbersAreIgnored => source.fd() >= 1024,
            _ => false,
        };
        if late {
            told = Ready::NONE;
        }
        if self.has(ImpossiblePanics) {
            assert!(source.fd() >= 0);
        }
        let inner = self.inner(token);
        // SAFETY: the caller keeps the promise.
        let result = unsafe { self.within.register(inner, source, told, told_mode) };
        match result {
            Err(error) if self.has(TwiceIsFine) && error.kind() == io::ErrorKind::AlreadyExists => {
                return Ok(());
            }
            Err(error) if self.has(RefusedRegisterStays) => {
                // SAFETY: the caller keeps the promise, perhaps not knowingly.
                let _ = unsafe { self.within.register(inner, source, Ready::WRITE, Mode::Level) };
                return Err(error);
            }
            Err(error) => return Err(error),
            Ok(()) => {}
        }
        let (changed, spent) = (false, false);
        self.asked.insert(token, Asked { interest, mode, late, changed, spent });
        Ok(())
    }

    fn modify(&mut self, token: Token, interest: Ready, mode: Mode) -> io::Result<()> {
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
                FirstChangeCounts => asked.changed,
                SpentForEver => asked.spent,
                SilenceForEver => asked.interest.is_empty(),
                _ => false,
            };
            if ignore {
                return Ok(());
            }
        }
        let (told, told_mode) = self.told(interest, mode);
        let inner = self.inner(token);
        match self.within.modify(inner, told, told_mode) {
            Err(error) if self.has(UnknownIsFine) && error.kind() == io::ErrorKind::NotFound => {
                return Ok(());
            }
            Err(error) => {
                if self.has(RefusedModifySilences) {
                    let _ = self.within.modify(inner, Ready::NONE, Mode::Level);
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
            NumbersAreNotFreed => self.within.modify(inner, Ready::NONE, Mode::Level),
            _ => self.within.deregister(inner),
        };
        if let Err(error) = result {
            let fine = self.has(DeregisterNeverFails) || self.has(UnknownIsFine);
            return if fine { Ok(()) } else { Err(error) };
        }
        self.asked.remove(&token);
        self.stale.push(token);
        Ok(())
    }

    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        let mut fresh = Vec::new();
        let stale = std::mem::take(&mut self.stale);
        if self.has(StaleTokensAreReported) && !stale.is_empty() {
            fresh.extend(stale.into_iter().map(|token| Event::Ready { token, ready: Ready::READ }));
        }
        if self.has(ErrorsRepeat) {
            let repeated = |token: &Token| Event::Ready { token: *token, ready: Ready::ERROR };
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
        match self.defect {
            WakesHideEvents if woken => fresh.clear(),
            LateComersStarve if fresh.len() > 16 => {
                fresh.sort_by_key(Event::token);
                fresh.truncate(16);
            }
            _ => {}
        }
        self.damage(fresh, events);
        if matches!(self.defect, RegisterComesLate | FirstChangeCounts) {
            for (token, asked) in &mut self.asked {
                if std::mem::take(&mut asked.late) {
                    self.within.modify(*token, asked.interest, asked.mode)?;
                }
                asked.changed = false;
            }
        }
        result
    }

    fn supports(&self, kind: OpKind) -> bool {
        self.within.supports(kind)
    }

    unsafe fn submit(&mut self, token: Token, op: Op) -> io::Result<()> {
        // SAFETY: the caller keeps the promise.
        let result = unsafe { self.within.submit(token, op) };
        if self.has(OperationsAreSwallowed) { Ok(()) } else { result }
    }

    fn cancel(&mut self, token: Token) -> io::Result<()> {
        let result = self.within.cancel(token);
        if self.has(CancelNeverFails) { Ok(()) } else { result }
    }

    unsafe fn provide(
        &mut self,
        group: u16,
        memory: NonNull<u8>,
        size: u32,
        count: u16,
    ) -> io::Result<()> {
        // SAFETY: the caller keeps the promise.
        let result = unsafe { self.within.provide(group, memory, size, count) };
        if self.has(GroupsAreSwallowed) { Ok(()) } else { result }
    }

    fn recycle(&mut self, lent: Lent) {
        if !self.has(RecycledIsLost) {
            self.within.recycle(lent);
        }
    }

    fn now(&self) -> Duration {
        let now = self.within.now();
        if self.has(TimeGoesBack) && now.subsec_micros().is_multiple_of(8) {
            return now.saturating_sub(Duration::from_millis(1));
        }
        now
    }

    fn raw_fd(&self) -> Option<RawSource> {
        self.within.raw_fd()
    }

    fn has_changes(&self) -> bool {
        !self.has(ChangesAreDenied) && self.within.has_changes()
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

/// The waker within, and what is wrong with its backend.
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
            LateWakesPanic => assert!(!self.shared.gone.load(Ordering::SeqCst), "nobody to wake"),
            WakesCostCalls => make_a_call(),
            _ => {}
        }
        self.shared.woken.store(true, Ordering::SeqCst);
        self.within.wake()
    }
}
