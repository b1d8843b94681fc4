//! A file copier with a progress bar: reads ahead of the writes, with bounded memory.
//!
//! ```sh
//! cargo run --release -p uv-core --example copy -- --from large.iso --to copy.iso
//! ```
//!
//! Four chunks are under way at a time, each read and then written at its own offset. (For a copy
//! without progress `fs::copyfile` is one call, and a clone where the file system can.)

mod common;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use uv_core::backends::Auto;
use uv_core::{Loop, RunMode, fs};

const CHUNK: u64 = 256 * 1024;
const CONCURRENT: usize = 4;

type Progress = Box<dyn FnMut(u64, u64)>;

#[derive(Default)]
struct Copy {
    size: u64,
    /// The offset of the next chunk to read.
    next: u64,
    written: u64,
    error: Option<io::Error>,
    progress: Option<Progress>,
}

pub(crate) fn main() -> io::Result<()> {
    let arguments = common::Arguments::read(&["--backend", "--from", "--to"])?;
    let backend: String = arguments.get("--backend", "auto".into())?;
    let paths: [PathBuf; 2] =
        [arguments.get("--from", "Cargo.toml".into())?, arguments.get("--to", "copy".into())?];
    let copied = copy(&backend, &paths[0], &paths[1], |written, size| {
        let filled = (written * 40).checked_div(size).unwrap_or(40) as usize;
        print!("\r[{:40}] {written} of {size} bytes", "#".repeat(filled));
        let _ = io::stdout().flush();
    })?;
    println!("\n{copied} bytes");
    Ok(())
}

/// Copies a file; returns its size.
pub(crate) fn copy(
    backend: &str,
    from: &Path,
    to: &Path,
    progress: impl FnMut(u64, u64) + 'static,
) -> io::Result<u64> {
    let mut lp = Loop::new(common::backend(backend)?);
    // Short calls before the loop runs may block.
    let from = fs::open(from, fs::OpenOptions::new().read(true)).perform()?;
    let options = fs::OpenOptions::new().write(true).create(true).truncate(true);
    let to = fs::open(to, options).perform()?;
    let size = fs::fstat(&from).perform()?.size;
    *lp.state() = Copy { size, progress: Some(Box::new(progress)), ..Copy::default() };
    for _ in 0..CONCURRENT {
        copy_chunk(&mut lp, &from, &to, Vec::new());
    }
    lp.run(RunMode::Default)?;
    let copy = lp.state::<Copy>();
    copy.error.take().map_or(Ok(copy.written), Err)
}

/// Reads the next chunk, writes it, and goes on with the one that is next then.
fn copy_chunk(lp: &mut Loop<Auto>, from: &fs::File, to: &fs::File, mut buffer: Vec<u8>) {
    let copy = lp.state::<Copy>();
    let (at, end) = (copy.next, copy.size.min(copy.next + CHUNK));
    if at == end || copy.error.is_some() {
        return;
    }
    copy.next = end;
    buffer.resize((end - at) as usize, 0);
    let files = (from.clone(), to.clone());
    fs::read_at(from, buffer, at).start_with(lp, move |lp, (count, buffer)| {
        match count {
            Ok(count) if count == buffer.len() => {}
            Ok(_) => return fail(lp, io::ErrorKind::UnexpectedEof.into()), // The file has shrunk.
            Err(error) => return fail(lp, error),
        }
        let writing = fs::write_at(&files.1, buffer, at);
        writing.start_with(lp, move |lp, (count, buffer)| match count {
            Ok(count) => {
                let copy = lp.state::<Copy>();
                copy.written += count as u64;
                if let Some(progress) = &mut copy.progress {
                    progress(copy.written, copy.size);
                }
                copy_chunk(lp, &files.0, &files.1, buffer);
            }
            Err(error) => fail(lp, error),
        });
    });
}

/// Keeps the first error; no more chunks are begun.
fn fail(lp: &mut Loop<Auto>, error: io::Error) {
    lp.state::<Copy>().error.get_or_insert(error);
}
