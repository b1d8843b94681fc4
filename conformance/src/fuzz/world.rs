//! The state of a running program: its handles, its open requests, and what went wrong.

use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use uv_core::fs::FsRequest;
use uv_core::{ReadRequest, Tcp, WorkRequest, WriteRequest};

use super::objects::Item;
use super::program::{Kind, Program};
use crate::Loop;
use crate::support::files::Directory;

/// A program that has as many callbacks does not end.
const MAX_CALLBACKS: usize = 100_000;

/// The payload of the panics that programs contain on purpose.
#[derive(Debug)]
pub(super) struct Planned;

/// Panics without a message on standard error.
pub(super) fn panic_as_planned() -> ! {
    resume_unwind(Box::new(Planned))
}

/// A value whose destructor panics, unless a panic is under way.
#[derive(Debug)]
pub(super) struct Bomb(pub(super) bool);

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.0 && !std::thread::panicking() {
            panic_as_planned();
        }
    }
}

/// Whether a handle is closing, and whether its close callback has run.
#[derive(Debug, Default)]
pub(super) struct Life {
    pub(super) closing: Cell<bool>,
    pub(super) closed: Cell<bool>,
    /// A duplicate of it may be on its way to another handle.
    pub(super) passed: Cell<bool>,
    /// The program has done something that may break the connection.
    pub(super) excused: Cell<bool>,
}

/// How far a program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Steps are executed, and callbacks execute theirs.
    Program,
    /// Streams are shut down and read to their end.
    Drain,
    /// Everything is closed.
    Close,
}

/// Behaviour that is allowed on one backend and a failure on others.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tolerated {
    /// It injects errors, or descriptors are few: a request may fail without a reason of the program's.
    pub(super) errors: bool,
    /// It sends without copying: a write may be reported after the close callback.
    pub(super) late_writes: bool,
}

impl Tolerated {
    pub(super) const ALL: Tolerated = Tolerated { errors: true, late_writes: true };
}

/// The state that all callbacks of a program share.
pub(super) struct World {
    pub(super) kinds: Vec<Kind>,
    pub(super) ordered: bool,
    pub(super) tolerated: Tolerated,
    pub(super) slots: RefCell<Vec<[Option<Item>; 2]>>,
    /// The loop that a callback may exchange its own for.
    pub(super) spare: RefCell<Option<Loop>>,
    pub(super) stage: Cell<Stage>,
    pub(super) works: RefCell<Vec<WorkRequest>>,
    pub(super) files: RefCell<Vec<FsRequest>>,
    pub(super) reads: RefCell<Vec<ReadRequest>>,
    pub(super) writes: RefCell<Vec<WriteRequest>>,
    pub(super) listeners: RefCell<Vec<Tcp>>,
    /// The number of children whose exit was not reported.
    pub(super) children: Cell<isize>,
    directory: OnceCell<Directory>,
    trace: RefCell<Vec<String>>,
    failures: RefCell<Vec<String>>,
    tickets: Cell<u64>,
    pending: RefCell<BTreeMap<u64, String>>,
    dropped: RefCell<BTreeMap<u64, String>>,
    refused: RefCell<BTreeSet<u64>>,
    callbacks: Cell<usize>,
    /// How often a stream has reported bytes, the end of file or an error.
    pub(super) reads_reported: Cell<u64>,
    in_verb: Cell<bool>,
    /// A destructor of the program's has unwound through a verb. The compiler then forgets the
    /// verb's result (rust-lang/rust#47949).
    pub(super) forgets: Cell<bool>,
    /// The callback of the step that is executed has a destructor that panics.
    pub(super) has_bomb: Cell<bool>,
}

impl World {
    pub(super) fn new(program: &Program, tolerated: Tolerated) -> Rc<World> {
        Rc::new(World {
            kinds: program.slots.clone(),
            ordered: program.ordered,
            tolerated,
            slots: RefCell::new(program.slots.iter().map(|_| [None, None]).collect()),
            spare: RefCell::new(None),
            stage: Cell::new(Stage::Program),
            works: RefCell::default(),
            files: RefCell::default(),
            reads: RefCell::default(),
            writes: RefCell::default(),
            listeners: RefCell::default(),
            children: Cell::new(0),
            directory: OnceCell::new(),
            trace: RefCell::default(),
            failures: RefCell::default(),
            tickets: Cell::new(0),
            pending: RefCell::default(),
            dropped: RefCell::default(),
            refused: RefCell::default(),
            callbacks: Cell::new(0),
            reads_reported: Cell::new(0),
            in_verb: Cell::new(false),
            forgets: Cell::new(false),
            has_bomb: Cell::new(false),
        })
    }

    pub(super) fn fail(&self, why: impl Into<String>) {
        self.failures.borrow_mut().push(why.into());
    }

    /// Notes an event whose place in the order is defined.
    pub(super) fn trace(&self, what: &str) {
        if self.ordered {
            self.trace.borrow_mut().push(what.to_string());
        }
    }

    /// A callback begins. `life` is its handle's, if its callbacks end with a close.
    pub(super) fn begin_callback(&self, lp: &mut Loop, what: &str, life: Option<&Life>) {
        self.trace(what);
        if self.in_verb.get() {
            self.fail(format!("{what}: the callback ran from within a verb"));
        }
        if life.is_some_and(|life| life.closing.get()) {
            self.fail(format!("{what}: the callback ran after the handle was closed"));
        }
        self.callbacks.set(self.callbacks.get() + 1);
        if self.callbacks.get() > MAX_CALLBACKS {
            self.fail(format!("{what}: the loop does not end, after {MAX_CALLBACKS} callbacks"));
            lp.stop();
        }
    }

    /// Calls a verb. No callback runs in it, and no panic comes out of it but that of the callback
    /// which it refuses, whose destructor is the caller's own.
    pub(super) fn verb<R>(
        &self,
        what: &str,
        call: impl FnOnce() -> io::Result<R>,
    ) -> io::Result<R> {
        let outer = self.in_verb.replace(true);
        let result = catch_unwind(AssertUnwindSafe(call));
        self.in_verb.set(outer);
        result.unwrap_or_else(|payload| {
            self.forgets.set(true);
            if !payload.is::<Planned>() || !self.has_bomb.get() {
                self.fail(format!("{what}: the verb unwound: {}", text(&*payload)));
            }
            Err(io::Error::other("the verb unwound"))
        })
    }

    /// Opens a request: its callback has to report it exactly once.
    pub(super) fn ticket(self: &Rc<World>, what: String) -> Ticket {
        let id = self.tickets.get();
        self.tickets.set(id + 1);
        self.pending.borrow_mut().insert(id, what);
        Ticket { world: Rc::clone(self), id }
    }

    /// The verb of a request has failed: its callback has to be dropped and not called.
    pub(super) fn refuse(&self, id: u64) {
        self.dropped.borrow_mut().remove(&id);
        if let Some(what) = self.pending.borrow_mut().remove(&id) {
            self.fail(format!("{what}: refused, but its callback is kept"));
        }
        self.refused.borrow_mut().insert(id);
    }

    /// All that went wrong, once the program has ended.
    pub(super) fn finish(&self) -> (Vec<String>, Vec<String>) {
        for what in self.pending.borrow().values() {
            self.fail(format!("{what}: never reported"));
        }
        for what in self.dropped.borrow().values() {
            self.fail(format!("{what}: its callback was dropped and not called"));
        }
        (self.failures.take(), self.trace.take())
    }

    /// The directory of the program's files.
    pub(super) fn directory(&self) -> &Directory {
        self.directory.get_or_init(Directory::new)
    }

    pub(super) fn has_failed(&self) -> bool {
        !self.failures.borrow().is_empty()
    }
}

/// A request that has not been reported. Its callback owns it.
pub(super) struct Ticket {
    world: Rc<World>,
    pub(super) id: u64,
}

impl Ticket {
    /// The callback runs. `life` is of the handle that the request belongs to.
    pub(super) fn report(&self, life: Option<&Life>) {
        let what = self.world.pending.borrow_mut().remove(&self.id);
        match what {
            Some(what) if life.is_some_and(|life| life.closed.get()) => {
                self.world.fail(format!("{what}: reported after the close callback"));
            }
            Some(_) => {}
            None => self.world.fail("a request was reported twice, or after it was refused"),
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(what) = self.world.pending.borrow_mut().remove(&self.id) {
            self.world.dropped.borrow_mut().insert(self.id, what);
        }
    }
}

/// The text of a panic.
pub(super) fn text(payload: &(dyn Any + Send)) -> String {
    match payload.is::<Planned>() {
        true => "with a panic of the program's own".into(),
        false => crate::run::message(payload),
    }
}
