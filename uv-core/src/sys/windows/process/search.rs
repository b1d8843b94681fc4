//! The search for an executable file.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use super::environment::{Variable, value_of};
use crate::handles::{Command, CommandFlags};

/// File name extensions to try, in this order.
const ENDINGS: [&str; 2] = [".com", ".exe"];

/// Finds the file of a program. A name with a directory is used as a path; another is searched in
/// the child's directory, then in its `PATH`. A name with an extension is first tried as it is.
pub(super) fn find(command: &Command<'_>, variables: Option<&[Variable]>) -> io::Result<PathBuf> {
    let program = Path::new(&command.program);
    let here = match &command.directory {
        Some(directory) => std::env::current_dir()?.join(directory),
        None => std::env::current_dir()?,
    };
    let is_exact = command.flags.contains(CommandFlags::EXACT_NAME);
    let Some(name) = program.file_name() else { return Err(not_found()) };
    if name.len() < program.as_os_str().len() {
        return within(&here.join(program.with_file_name("")), name, is_exact)
            .ok_or_else(not_found);
    }
    let own;
    let path = match variables {
        Some(variables) => value_of(variables, "PATH"),
        None => {
            own = std::env::var_os("PATH");
            own.as_deref()
        }
    };
    let path = path.unwrap_or_default();
    // This variable disables the search in the current directory.
    let looks_here = std::env::var_os("NoDefaultCurrentDirectoryInExePath").is_none();
    let directories = std::env::split_paths(path).filter(|entry| !entry.as_os_str().is_empty());
    looks_here
        .then(PathBuf::new)
        .into_iter()
        .chain(directories)
        .find_map(|directory| within(&here.join(directory), name, is_exact))
        .ok_or_else(not_found)
}

/// Finds a file in one directory.
fn within(directory: &Path, name: &OsStr, is_exact: bool) -> Option<PathBuf> {
    let has_ending = Path::new(name).extension().is_some_and(|ending| !ending.is_empty());
    let as_it_is = (has_ending || is_exact).then(|| name.to_os_string());
    let endings: &[&str] = if is_exact { &[] } else { &ENDINGS };
    let ended = endings.iter().map(|ending| {
        let mut ended = OsString::from(name);
        ended.push(ending);
        ended
    });
    as_it_is.into_iter().chain(ended).map(|name| directory.join(name)).find(|path| path.is_file())
}

fn not_found() -> io::Error {
    let code = windows_sys::Win32::Foundation::ERROR_FILE_NOT_FOUND;
    io::Error::from_raw_os_error(code as i32)
}
