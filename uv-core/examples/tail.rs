//! `tail -f`: prints what is appended to a file, also after it was replaced or truncated.
//!
//! ```sh
//! cargo run -p uv-core --example tail -- --file /var/log/syslog
//! ```
//!
//! The directory of the file is watched, so that a file that is renamed away by log rotation is
//! opened again. With `--bytes N` it ends after N bytes.

mod common;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use uv_core::backends::Auto;
use uv_core::{FsEvent, FsEventFlags, Handle, Loop, RunMode, fs};

type Print = Box<dyn FnMut(&[u8])>;

#[derive(Default)]
struct Tail {
    path: PathBuf,
    /// The file and its inode.
    file: Option<(fs::File, u64)>,
    at: u64,
    /// The file that has replaced it: what was appended to the old one comes first.
    next: Option<(fs::File, u64)>,
    reading: bool,
    /// The file has changed while it was read.
    again: bool,
    left: u64,
    print: Option<Print>,
}

pub(crate) fn main() -> io::Result<()> {
    let arguments = common::Arguments::read(&["--backend", "--file", "--bytes"])?;
    let backend: String = arguments.get("--backend", "auto".into())?;
    let path: PathBuf = arguments.get("--file", "tail.log".into())?;
    let left = arguments.get("--bytes", u64::MAX)?;
    follow(
        &backend,
        &path,
        left,
        || {},
        |bytes| {
            let _ = io::stdout().write_all(bytes);
        },
    )
}

/// Follows a file until `left` bytes were printed; calls `ready` when it is being watched.
pub(crate) fn follow(
    backend: &str,
    path: &Path,
    left: u64,
    ready: impl FnOnce(),
    print: impl FnMut(&[u8]) + 'static,
) -> io::Result<()> {
    let mut lp = Loop::new(common::backend(backend)?);
    let tail = lp.state::<Tail>();
    (tail.path, tail.left) = (path.into(), left);
    tail.print = Some(Box::new(print));
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let watch = FsEvent::new(&mut lp);
    watch.start(&mut lp, folder.unwrap_or(Path::new(".")), FsEventFlags::empty(), check_event)?;
    check(&mut lp, watch);
    ready();
    lp.run(RunMode::Default)?;
    Ok(())
}

fn check_event(lp: &mut Loop<Auto>, watch: FsEvent, event: io::Result<uv_core::FsEventKind<'_>>) {
    match event {
        Ok(_) => check(lp, watch),
        Err(error) => watch.fail(lp, error),
    }
}

/// Checks the file: it may be new, shorter or longer than before.
fn check(lp: &mut Loop<Auto>, watch: FsEvent) {
    let tail = lp.state::<Tail>();
    if std::mem::replace(&mut tail.reading, true) {
        tail.again = true;
        return;
    }
    let path = tail.path.clone();
    let options = fs::OpenOptions::new().read(true);
    // A file that does not exist yet is found when it is created.
    fs::open(path, options).start_with(lp, move |lp, file| match file {
        Ok(file) => examine(lp, watch, file),
        Err(_) => done(lp, watch),
    });
}

fn examine(lp: &mut Loop<Auto>, watch: FsEvent, file: fs::File) {
    fs::fstat(&file).start_with(lp, move |lp, stat| {
        let Ok(stat) = stat else { return done(lp, watch) };
        let tail = lp.state::<Tail>();
        match &tail.file {
            Some((_, inode)) if *inode != stat.ino => tail.next = Some((file, stat.ino)),
            // It was truncated.
            Some(_) if stat.size < tail.at => tail.at = 0,
            Some(_) => {}
            None => tail.file = Some((file, stat.ino)),
        }
        read(lp, watch);
    });
}

fn read(lp: &mut Loop<Auto>, watch: FsEvent) {
    let tail = lp.state::<Tail>();
    let Some((file, _)) = &tail.file else { return done(lp, watch) };
    let reading = fs::read_at(file, vec![0; 64 * 1024], tail.at);
    reading.start_with(lp, move |lp, (count, bytes)| {
        let count = count.unwrap_or(0);
        let tail = lp.state::<Tail>();
        tail.at += count as u64;
        tail.left = tail.left.saturating_sub(count as u64);
        if let Some(print) = &mut tail.print {
            print(&bytes[..count]);
        }
        match (count, tail.left) {
            (0, _) => at_end(lp, watch),
            (_, 0) => watch.close_if_open(lp),
            _ => read(lp, watch),
        }
    });
}

/// All of the file was read: goes on with the one that has replaced it.
fn at_end(lp: &mut Loop<Auto>, watch: FsEvent) {
    let tail = lp.state::<Tail>();
    let Some(next) = tail.next.take() else { return done(lp, watch) };
    (tail.file, tail.at) = (Some(next), 0);
    read(lp, watch);
}

fn done(lp: &mut Loop<Auto>, watch: FsEvent) {
    let tail = lp.state::<Tail>();
    tail.reading = false;
    if std::mem::take(&mut tail.again) {
        check(lp, watch);
    }
}
