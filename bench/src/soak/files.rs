//! Files that are written, read back, compared and removed.

use std::io;
use std::path::PathBuf;
use std::rc::Rc;

use uv_core::fs::{self, File};

use super::flow::bytes;
use super::{Kind, Loop, World};

const BYTES: usize = 1 << 18;

/// Begins with as many files. Each is followed by the next until the world is ending.
pub(super) fn start(world: &Rc<World>, lp: &mut Loop, count: usize) {
    (0..count).for_each(|_| create(world, lp));
}

/// One file.
#[derive(Clone)]
struct One {
    world: Rc<World>,
    seed: u64,
    len: usize,
    path: PathBuf,
}

impl One {
    /// The result, or nothing after the failure was noted and the file was removed.
    fn check<T>(&self, lp: &mut Loop, what: &str, result: io::Result<T>) -> Option<T> {
        let result = self.world.check(Kind::File, what, result);
        if result.is_none() {
            unlink(self.clone(), lp);
        }
        result
    }
}

fn create(world: &Rc<World>, lp: &mut Loop) {
    let (this, seed, len) = (Rc::clone(world), world.draw(), world.size(BYTES));
    let template = std::env::temp_dir().join("bench-soak-XXXXXX");
    let begun = fs::mkstemp(template).start(lp, move |lp, made| {
        if let Some((file, path)) = this.check(Kind::File, "mkstemp", made) {
            write(One { world: this, seed, len, path }, lp, file);
        }
    });
    world.check(Kind::File, "mkstemp", begun);
}

fn write(one: One, lp: &mut Loop, file: File) {
    let (next, of) = (one.clone(), file.clone());
    let content = bytes(one.seed, 0, one.len);
    let begun = fs::write_at(&file, content, 0).start(lp, move |lp, (count, _)| {
        match next.check(lp, "write", count) {
            Some(count) if count == next.len => read(next, lp, of),
            Some(count) => next.world.fail(Kind::File, format!("{count} bytes were written")),
            None => {}
        }
    });
    one.check(lp, "write", begun);
}

fn read(one: One, lp: &mut Loop, file: File) {
    // More than the file has: a read ends where the file does.
    let (next, buffer) = (one.clone(), vec![0; one.len + 1]);
    let of = file.clone();
    let begun = fs::read_at(&file, buffer, 0).start(lp, move |lp, (count, buffer)| {
        let Some(count) = next.check(lp, "read", count) else { return };
        if buffer[..count] != bytes(next.seed, 0, next.len) {
            next.world.fail(Kind::File, format!("{count} bytes are not those written"));
        }
        stat(next, lp, of);
    });
    one.check(lp, "read", begun);
}

fn stat(one: One, lp: &mut Loop, file: File) {
    let next = one.clone();
    let begun = fs::fstat(&file).start(lp, move |lp, stat| {
        let Some(stat) = next.check(lp, "stat", stat) else { return };
        if stat.size != next.len as u64 {
            next.world.fail(Kind::File, format!("{} bytes instead of {}", stat.size, next.len));
        }
        let last = next.clone();
        let closing = fs::close(file).start(lp, move |lp, closed| {
            if last.check(lp, "close", closed).is_some() {
                unlink(last, lp);
            }
        });
        next.check(lp, "close", closing);
    });
    one.check(lp, "stat", begun);
}

fn unlink(one: One, lp: &mut Loop) {
    let (world, len) = (Rc::clone(&one.world), one.len);
    let begun = fs::unlink(one.path).start(lp, move |lp, removed| {
        if one.world.check(Kind::File, "unlink", removed).is_some() {
            one.world.count(Kind::File, len);
        }
        if !one.world.ending.get() {
            create(&one.world, lp);
        }
    });
    world.check(Kind::File, "unlink", begun);
}
