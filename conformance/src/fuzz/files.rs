//! The steps of files.

use std::io;
use std::path::PathBuf;
use std::rc::Rc;

use uv_core::fs::{self, FsRequest, OpenOptions};

use super::exec::run_body;
use super::program::{Step, Verb};
use super::world::{Bomb, World};
use crate::Loop;

/// Ends a request with its result.
type Done = Box<dyn FnOnce(&mut Loop, io::Result<()>)>;

/// Executes a step that needs no handle: it asks about a file, or opens one and uses it.
pub(super) fn exec(world: &Rc<World>, lp: &mut Loop, step: &Step) {
    if step.verb == Verb::CancelFile {
        let last = world.files.borrow().last().copied();
        drop(last.map(|last| world.verb("cancel of a file request", || last.cancel(lp))));
        return;
    }
    let (this, body, bomb) = (Rc::clone(world), Rc::clone(&step.body), Bomb(step.bomb));
    let what = format!("{:?}", step.verb);
    let ticket = world.ticket(what.clone());
    let (id, label) = (ticket.id, what.clone());
    let done: Done = Box::new(move |lp: &mut Loop, result: io::Result<()>| {
        let _bomb = bomb;
        ticket.report(None);
        this.begin_callback(lp, &what, None);
        if let Err(error) = result
            && !this.tolerated.errors
            && !uv_core::is_cancelled(&error)
        {
            this.fail(format!("{what}: {error}"));
        }
        run_body(&this, lp, &body);
    });
    let started = match step.verb {
        Verb::Stat => {
            let ended = move |lp: &mut Loop, stat: io::Result<fs::Stat>| done(lp, stat.map(drop));
            start(world, &label, || fs::stat(exe()).start(lp, ended))
        }
        Verb::Scandir => {
            let path = world.directory().path("");
            let ended = move |lp: &mut Loop, names: io::Result<Vec<_>>| done(lp, names.map(drop));
            start(world, &label, || fs::scandir(path).start(lp, ended))
        }
        Verb::FileWrite => write_file(world, lp, step.size, done),
        _ => read_exe(world, lp, step.size as u64, done),
    };
    if started.is_err() {
        world.refuse(id);
    }
}

/// Starts a file request that a later step may cancel.
fn start(
    world: &World,
    what: &str,
    request: impl FnOnce() -> io::Result<FsRequest>,
) -> io::Result<()> {
    world.verb(what, request).map(|request| world.files.borrow_mut().push(request))
}

/// As [`start`], within a chain of requests: none is refused.
fn next(world: &World, what: &str, request: impl FnOnce() -> io::Result<FsRequest>) {
    if let Err(error) = start(world, what, request) {
        world.fail(format!("{what}: {error}"));
    }
}

fn exe() -> PathBuf {
    std::env::current_exe().unwrap_or_default()
}

/// Opens the executable and reads from it.
fn read_exe(world: &Rc<World>, lp: &mut Loop, offset: u64, done: Done) -> io::Result<()> {
    let this = Rc::clone(world);
    let opened = move |lp: &mut Loop, file: io::Result<fs::File>| match file {
        Ok(file) => next(&this, "read_at", || {
            let read = fs::read_at(&file, vec![0; 64], offset);
            read.start(lp, move |lp, (count, _)| done(lp, count.map(drop)))
        }),
        Err(error) => done(lp, Err(error)),
    };
    start(world, "open", || fs::open(exe(), OpenOptions::new().read(true)).start(lp, opened))
}

/// Creates a file, writes and reads it, and removes it.
fn write_file(world: &Rc<World>, lp: &mut Loop, len: usize, done: Done) -> io::Result<()> {
    let number = world.files.borrow().len();
    let path = world.directory().path(&format!("file{number}"));
    let options = OpenOptions::new().read(true).write(true).create(true);
    let (this, of) = (Rc::clone(world), path.clone());
    let opened = move |lp: &mut Loop, file: io::Result<fs::File>| match file {
        Ok(file) => next(&Rc::clone(&this), "write_at", || {
            let bytes: Vec<_> = (0..len).map(|at| (at % 251) as u8).collect();
            fs::write_at(&file.clone(), bytes, 0).start(lp, move |lp, (count, bytes)| match count {
                Ok(count) if count == bytes.len() => {
                    read_back(&this, lp, &file, bytes, of, done);
                }
                Ok(count) => done(lp, Err(io::Error::other(format!("wrote {count} bytes")))),
                Err(error) => done(lp, Err(error)),
            })
        }),
        Err(error) => done(lp, Err(error)),
    };
    start(world, "open", || fs::open(path, options).start(lp, opened))
}

fn read_back(
    world: &Rc<World>,
    lp: &mut Loop,
    file: &fs::File,
    written: Vec<u8>,
    path: PathBuf,
    done: Done,
) {
    let this = Rc::clone(world);
    next(world, "read_at", || {
        fs::read_at(file, vec![0; written.len()], 0).start(
            lp,
            move |lp, (count, bytes)| match count {
                Ok(count) if bytes[..count] != written[..] => {
                    this.fail(format!("FileWrite: other {count} bytes than were written"));
                    done(lp, Ok(()));
                }
                Ok(_) => next(&this, "unlink", || fs::unlink(path).start(lp, done)),
                Err(error) => done(lp, Err(error)),
            },
        )
    });
}
