//! Programs: what they consist of, how a seed makes one, how they are printed.

use std::fmt;
use std::rc::Rc;

use uv_core::RunMode;

use crate::rng::SplitMix64;

/// The content of a slot of a program. Streams and datagram sockets come in pairs with two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Two connected TCP sockets.
    Tcp,
    /// Two connected local sockets.
    Pipe,
    /// A pipe of one direction: end `a` reads, end `b` writes.
    OneWay,
    /// A TCP client that connects to a listener, and what that accepts.
    Dialled,
    /// Two connected local sockets that pass handles.
    Passing,
    /// A child that copies its input, end `b`, to its output, end `a`.
    Child,
    Udp,
    /// A poll of a socket that it owns.
    Poll,
    /// A poll of a descriptor that the program may close behind the loop's back.
    RawPoll,
    Signal,
    FsEvent,
    FsPoll,
    Timer,
    Idle,
    Prepare,
    Check,
    Async,
    Channel,
}

/// The action of a step. A verb that the slot's kind does not have does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Open,
    Close,
    Reference,
    Unreference,
    Start,
    Stop,
    Again,
    Send,
    Write,
    TryWrite,
    WriteCoalesced,
    /// Sends a range of a file.
    SendFile,
    Shutdown,
    ReadStart,
    ReadStartWith,
    ReadStop,
    Read,
    TryRead,
    CancelRead,
    CancelWrite,
    ShrinkBuffers,
    /// Writes, and passes the handle of another slot.
    Pass,
    /// Accepts the handles that have arrived.
    AcceptPassed,
    /// Limits the handles that wait to be accepted.
    LimitPassed,
    /// Replaces a descriptor behind the loop's back.
    Replace,
    /// Closes a descriptor behind the loop's back.
    CloseBehind,
    /// Starts a child that inherits a stream.
    Spawn,
    Defer,
    Work,
    CancelWork,
    Stat,
    FileRead,
    /// Creates a file, writes and reads it, and removes it.
    FileWrite,
    Scandir,
    CancelFile,
    StopLoop,
    Swap,
    Panic,
}

/// One step, and the steps that its callback executes.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) slot: usize,
    pub(super) end: usize,
    pub(super) verb: Verb,
    pub(super) size: usize,
    /// The callback captures a value whose destructor panics.
    pub(super) bomb: bool,
    pub(super) body: Rc<Vec<Step>>,
}

/// A program of loop verbs.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) seed: u64,
    /// Only what has a defined order: the trace is the same on every backend, on a virtual clock.
    pub(super) ordered: bool,
    /// The number of descriptors that it can open.
    pub(super) descriptors: Option<usize>,
    pub(super) slots: Vec<Kind>,
    pub(super) modes: Vec<RunMode>,
    pub(super) steps: Vec<Step>,
}

/// How many steps a new program has, nested ones included.
const STEPS: usize = 40;

/// How deep callbacks nest.
const DEPTH: usize = 4;

const STREAMS: [Kind; 6] =
    [Kind::Tcp, Kind::Pipe, Kind::OneWay, Kind::Dialled, Kind::Passing, Kind::Child];
const OTHERS: [Kind; 7] =
    [Kind::Udp, Kind::Udp, Kind::Poll, Kind::RawPoll, Kind::Signal, Kind::FsEvent, Kind::FsPoll];
const ORDERED: [Kind; 6] =
    [Kind::Timer, Kind::Idle, Kind::Prepare, Kind::Check, Kind::Async, Kind::Channel];
const SIZES: [usize; 9] = [0, 1, 2, 7, 100, 1000, 5000, 70_000, 300_000];

impl Program {
    /// The program of a seed.
    pub(super) fn generate(seed: u64) -> Program {
        let mut rng = SplitMix64::new(seed);
        let ordered = rng.below(4) == 0;
        let mut slots = Vec::new();
        for _ in 0..2 + rng.below(5) {
            slots.push(match rng.below(10) {
                _ if ordered => rng.pick(&ORDERED),
                0..5 => rng.pick(&STREAMS),
                5..7 => rng.pick(&OTHERS),
                _ => rng.pick(&ORDERED),
            });
        }
        // One program in sixteen has few descriptors.
        let descriptors = (!ordered && rng.below(16) == 0).then(|| rng.below(12));
        let modes = [RunMode::Default, RunMode::Once, RunMode::NoWait];
        let modes = (0..rng.below(4)).map(|_| rng.pick(&modes)).collect();
        let mut made = Generator { rng, ordered, slots: &slots, left: STEPS };
        let mut steps = Vec::new();
        for slot in 0..slots.len() {
            steps.push(made.step_of(slot, Verb::Open, 0));
        }
        while made.left > 0 {
            steps.push(made.step(0));
        }
        Program { seed, ordered, descriptors, slots, modes, steps }
    }

    /// The number of steps, nested ones included.
    pub(super) fn len(&self) -> usize {
        count(&self.steps)
    }

    /// True if a step anywhere has this verb.
    pub(super) fn has(&self, verb: Verb) -> bool {
        fn has(steps: &[Step], verb: Verb) -> bool {
            steps.iter().any(|step| step.verb == verb || has(&step.body, verb))
        }
        has(&self.steps, verb)
    }
}

pub(super) fn count(steps: &[Step]) -> usize {
    steps.iter().map(|step| 1 + count(&step.body)).sum()
}

struct Generator<'a> {
    rng: SplitMix64,
    ordered: bool,
    slots: &'a [Kind],
    left: usize,
}

impl Generator<'_> {
    fn step(&mut self, depth: usize) -> Step {
        let slot = self.rng.below(self.slots.len());
        let verb = match self.rng.below(100) {
            0..8 => Verb::Defer,
            8..10 => Verb::StopLoop,
            10..13 if depth > 0 => Verb::Panic,
            13..15 if depth > 0 => Verb::Swap,
            15..18 => Verb::Reference,
            18..22 => Verb::Unreference,
            22..30 => Verb::Close,
            30..36 => Verb::Open,
            36..39 if !self.ordered => Verb::Work,
            39..40 if !self.ordered => Verb::CancelWork,
            40..42 if !self.ordered => Verb::Stat,
            42..44 if !self.ordered => Verb::FileRead,
            44..46 if !self.ordered => Verb::FileWrite,
            46..47 if !self.ordered => Verb::Scandir,
            47..48 if !self.ordered => Verb::CancelFile,
            48..50 if !self.ordered => Verb::Spawn,
            _ => self.verb_of(self.slots[slot]),
        };
        self.step_of(slot, verb, depth)
    }

    fn step_of(&mut self, slot: usize, verb: Verb, depth: usize) -> Step {
        self.left = self.left.saturating_sub(1);
        let mut body = Vec::new();
        if depth < DEPTH && verb.has_callback() {
            for _ in 0..self.rng.below(4) {
                if self.left > 0 {
                    body.push(self.step(depth + 1));
                }
            }
        }
        Step {
            slot,
            end: self.rng.below(2),
            verb,
            size: self.rng.pick(&SIZES),
            bomb: verb.has_callback() && self.rng.below(12) == 0,
            body: Rc::new(body),
        }
    }

    fn verb_of(&mut self, kind: Kind) -> Verb {
        use Verb::{
            AcceptPassed, Again, CancelRead, CancelWrite, CloseBehind, LimitPassed, Pass, Read,
            ReadStart, ReadStartWith, ReadStop, Replace, Send, SendFile, ShrinkBuffers, Shutdown,
            Start, Stop, TryRead, TryWrite, Write, WriteCoalesced,
        };
        match kind {
            Kind::Timer => self.rng.pick(&[Start, Start, Start, Stop, Again]),
            Kind::Idle | Kind::Prepare | Kind::Check => self.rng.pick(&[Start, Start, Stop]),
            Kind::Async | Kind::Channel => Send,
            Kind::Udp => self.rng.pick(&[Start, Send, Send, Send, TryWrite, Stop]),
            Kind::Poll | Kind::Signal => self.rng.pick(&[Start, Start, Send, Send, Stop]),
            Kind::RawPoll => self.rng.pick(&[Start, Start, Send, Stop, CloseBehind]),
            Kind::FsEvent | Kind::FsPoll => self.rng.pick(&[Start, Start, Stop]),
            Kind::Passing if self.rng.below(2) == 0 => {
                self.rng.pick(&[Pass, Pass, Pass, AcceptPassed, AcceptPassed, LimitPassed])
            }
            _ => self.rng.pick(&[
                Replace,
                Write,
                Write,
                Write,
                Write,
                TryWrite,
                WriteCoalesced,
                WriteCoalesced,
                SendFile,
                SendFile,
                SendFile,
                Shutdown,
                ReadStart,
                ReadStart,
                ReadStart,
                ReadStartWith,
                ReadStop,
                Read,
                Read,
                Read,
                TryRead,
                TryRead,
                CancelRead,
                CancelWrite,
                ShrinkBuffers,
            ]),
        }
    }
}

impl Verb {
    fn has_callback(self) -> bool {
        use Verb::{
            Close, Defer, FileRead, FileWrite, Open, Pass, Read, ReadStart, ReadStartWith, Scandir,
            Send, SendFile, Shutdown, Spawn, Start, Stat, Work, Write,
        };
        matches!(
            self,
            Open | Close
                | Start
                | Send
                | SendFile
                | Write
                | Shutdown
                | ReadStart
                | ReadStartWith
                | Read
                | Defer
                | Work
                | Stat
                | FileRead
                | FileWrite
                | Scandir
                | Pass
                | Spawn
        )
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clock = if self.ordered { ", on a virtual clock" } else { "" };
        let modes: Vec<_> = self.modes.iter().map(|mode| format!("{mode:?}, ")).collect();
        let limit = self.descriptors.map(|count| format!(", with {count} descriptors"));
        let limit = limit.unwrap_or_default();
        writeln!(f, "  run {}then Default to the end{clock}{limit}:", modes.concat())?;
        write_steps(f, &self.slots, &self.steps, 1)
    }
}

fn write_steps(
    f: &mut fmt::Formatter<'_>,
    slots: &[Kind],
    steps: &[Step],
    depth: usize,
) -> fmt::Result {
    for step in steps {
        let kind = slots.get(step.slot).map(|kind| format!("{kind:?}").to_lowercase());
        let (kind, end) = (kind.unwrap_or_default(), ["a", "b"][step.end]);
        write!(f, "{:2$}{kind}{}.{end} ", "", step.slot, depth * 4)?;
        write!(f, "{:?} {}", step.verb, step.size)?;
        if step.bomb {
            write!(f, ", captures a destructor that panics")?;
        }
        if step.body.is_empty() {
            writeln!(f)?;
        } else {
            writeln!(f, ", whose callback does:")?;
            write_steps(f, slots, &step.body, depth + 1)?;
        }
    }
    Ok(())
}
