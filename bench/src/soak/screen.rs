//! The counters on the screen.

use std::cell::Cell;
use std::io::{self, Write};
use std::rc::Rc;
use std::time::{Duration, Instant};

use console::Term;

use super::memory::Usage;
use super::{Kind, World};

pub(super) const INTERVAL: Duration = Duration::from_millis(500);

/// A table that is drawn again and again on a terminal. Elsewhere each cycle has a line.
#[derive(Clone)]
pub(super) struct Screen {
    backend: Rc<str>,
    term: Option<Term>,
    began: Instant,
    /// Lines that are on the screen.
    lines: Rc<Cell<usize>>,
    cycles: Rc<Cell<u32>>,
}

impl Screen {
    pub(super) fn new(backend: &str) -> Screen {
        let term = Some(Term::stdout()).filter(Term::is_term);
        let (lines, cycles) = (Rc::default(), Rc::default());
        Screen { backend: backend.into(), term, began: Instant::now(), lines, cycles }
    }

    /// Draws the counters, if there is a terminal.
    pub(super) fn update(&self, world: &World) {
        if let Some(term) = &self.term {
            let text = table(&self.backend, world, self.began.elapsed(), &Usage::now());
            let _ = term.clear_last_lines(self.lines.get());
            self.lines.set(text.lines().count());
            let _ = term.write_str(&text);
        }
    }

    /// A cycle has ended.
    pub(super) fn cycle(
        &self,
        world: &World,
        time: Duration,
        now: &Usage,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        self.cycles.set(self.cycles.get() + 1);
        if self.term.is_some() {
            self.update(world);
            return Ok(());
        }
        let counts: Vec<_> = Kind::ALL
            .iter()
            .map(|kind| (kind, world.counters[*kind as usize].done.get()))
            .map(|(kind, done)| format!("{} {done}", format!("{kind:?}").to_lowercase()))
            .collect();
        let (cycle, counts) = (self.cycles.get(), counts.join(", "));
        let seconds = time.as_secs();
        writeln!(out, "{}: cycle {cycle}, {seconds} s: {counts}; {}", self.backend, text(now))?;
        out.flush()
    }

    /// The run has ended.
    pub(super) fn end(
        &self,
        world: &World,
        time: Duration,
        now: &Usage,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        if let Some(term) = &self.term {
            term.clear_last_lines(self.lines.replace(0))?;
        }
        write!(out, "{}", table(&self.backend, world, time, now))?;
        out.flush()
    }
}

fn text(usage: &Usage) -> String {
    let Usage { descriptors, heap, pages } = usage;
    format!("{descriptors} descriptors, {} KiB heap, {} KiB pages", heap >> 10, pages >> 10)
}

fn table(backend: &str, world: &World, time: Duration, usage: &Usage) -> String {
    let mut table = format!("{backend} after {:.1} s: {}\n", time.as_secs_f64(), text(usage));
    for kind in Kind::ALL {
        let counter = &world.counters[kind as usize];
        let (done, bytes) = (counter.done.get(), counter.bytes.get());
        let name = format!("{kind:?}").to_lowercase();
        table.push_str(&format!("  {name:<8} {done:>12} {:>10} KiB compared\n", bytes >> 10));
    }
    table
}
