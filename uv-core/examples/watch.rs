//! A directory watcher: prints each change, collected for a moment so that a burst is one line.
//!
//! ```sh
//! cargo run -p uv-core --example watch -- --folder src
//! ```
//!
//! With `--changes N` it ends after N lines.

mod common;

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use uv_core::{FsEvent, FsEventFlags, FsEventKind, Handle, Loop, RunMode, Timer};

/// Changes within this time are reported together.
const MOMENT: Duration = Duration::from_millis(50);

#[derive(Default)]
struct Changes(BTreeSet<PathBuf>);

pub(crate) fn main() -> io::Result<()> {
    let arguments = common::Arguments::read(&["--backend", "--folder", "--changes"])?;
    let backend: String = arguments.get("--backend", "auto".into())?;
    let folder: PathBuf = arguments.get("--folder", ".".into())?;
    let changes = arguments.get("--changes", u64::MAX)?;
    watch(&backend, folder, changes, || println!("watching"), |names| println!("{names:?}"))
}

/// Reports the names of changed entries until `left` reports were made.
pub(crate) fn watch(
    backend: &str,
    folder: PathBuf,
    mut left: u64,
    ready: impl FnOnce(),
    mut report: impl FnMut(&BTreeSet<PathBuf>) + 'static,
) -> io::Result<()> {
    let mut lp = Loop::new(common::backend(backend)?);
    lp.on_error(|_, handle, error| eprintln!("{handle}: {error}"));
    let (watch, timer) = (FsEvent::new(&mut lp), Timer::new(&mut lp));
    timer.start(&mut lp, MOMENT, MOMENT, move |lp, timer| {
        let names = std::mem::take(&mut lp.state::<Changes>().0);
        if !names.is_empty() {
            report(&names);
            left -= 1;
        }
        if left == 0 {
            timer.close_if_open(lp);
            watch.close_if_open(lp);
        }
    })?;
    watch.start(&mut lp, folder, FsEventFlags::empty(), move |lp, watch, event| match event {
        Ok(FsEventKind::Change(name) | FsEventKind::Rename(name)) => {
            lp.state::<Changes>().0.insert(name.into());
        }
        Ok(FsEventKind::Overflow) => eprintln!("changes were lost: scan the folder again"),
        Err(error) => watch.fail(lp, error),
    })?;
    ready();
    lp.run(RunMode::Default)?;
    Ok(())
}
