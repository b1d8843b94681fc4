//! The data that a child needs before `execve`, in the form that the kernel takes: the child must
//! not allocate.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::ptr;

use super::ChildEnd;
use crate::handles::{Command, CommandFlags};

/// The search path if the child has no `PATH`.
const DEFAULT_PATH: &str = "/usr/local/bin:/bin:/usr/bin";

#[derive(Debug)]
pub(super) struct Plan {
    /// Candidate paths of the program, in search order.
    pub(super) paths: Vec<CString>,
    pub(super) arguments: Strings,
    /// `None` means the environment of this process.
    pub(super) environment: Option<Strings>,
    pub(super) directory: Option<CString>,
    pub(super) ends: Vec<ChildEnd>,
    pub(super) uid: Option<libc::uid_t>,
    pub(super) gid: Option<libc::gid_t>,
    pub(super) detached: bool,
}

/// Strings, and an array of pointers to them that ends with null.
#[derive(Debug)]
pub(super) struct Strings {
    pointers: Vec<*const libc::c_char>,
    _owned: Vec<CString>,
}

impl Strings {
    fn new(owned: Vec<CString>) -> Strings {
        let pointers = owned.iter().map(|string| string.as_ptr());
        let pointers = pointers.chain([ptr::null()]).collect();
        Strings { pointers, _owned: owned }
    }

    pub(super) fn as_ptr(&self) -> *const *const libc::c_char {
        self.pointers.as_ptr()
    }
}

impl Plan {
    pub(super) fn new(command: &Command<'_>, ends: &[ChildEnd]) -> io::Result<Plan> {
        let arg0 = command.arg0.as_ref().unwrap_or(&command.program);
        let arguments = [arg0].into_iter().chain(&command.args);
        let arguments = arguments.map(|arg| c_string(arg)).collect::<io::Result<_>>()?;
        let variables = variables(command)?;
        let path = match &variables {
            Some(variables) => variables.iter().find(|(name, _)| name == "PATH").cloned(),
            None => std::env::var_os("PATH").map(|path| ("PATH".into(), path)),
        };
        let path = path.map_or_else(|| DEFAULT_PATH.into(), |(_, path)| path);
        let environment = variables.map(|variables| {
            variables.into_iter().map(|(name, value)| c_string(&joined(name, &value))).collect()
        });
        Ok(Plan {
            paths: candidates(&command.program, &path)?,
            arguments: Strings::new(arguments),
            environment: environment.transpose()?.map(Strings::new),
            directory: command.directory.as_ref().map(|it| c_string(it.as_ref())).transpose()?,
            ends: ends.to_vec(),
            uid: command.uid,
            gid: command.gid,
            detached: command.flags.contains(CommandFlags::DETACHED),
        })
    }
}

impl Plan {
    /// The child's environment in the form that `execve` takes.
    pub(super) fn environment_pointer(&self) -> *const *const libc::c_char {
        match &self.environment {
            Some(environment) => environment.as_ptr(),
            None => environ(),
        }
    }
}

/// The environment of this process. It must not change during the start: `std::env::set_var` is
/// unsafe, and its contract excludes concurrent readers.
fn environ() -> *const *const libc::c_char {
    cfg_if::cfg_if! {
        if #[cfg(target_vendor = "apple")] {
            // SAFETY: takes no pointer; returns the address of a variable of the C library.
            let place = unsafe { libc::_NSGetEnviron() };
            // SAFETY: the variable lives as long as the process, and `set_var`'s contract excludes
            // concurrent changes.
            unsafe { *place }.cast()
        } else {
            unsafe extern "C" {
                static environ: *const *const libc::c_char;
            }
            // SAFETY: POSIX defines the variable with this type, and `set_var`'s contract excludes
            // concurrent changes.
            unsafe { environ }
        }
    }
}

/// The child's variables; `None` if they are those of this process.
fn variables(command: &Command<'_>) -> io::Result<Option<Vec<(OsString, OsString)>>> {
    let environment = &command.environment;
    if environment.is_inherited() {
        return Ok(None);
    }
    let mut variables = Vec::new();
    if !environment.cleared {
        let unchanged = |(name, _): &(OsString, _)| !environment.changes.contains_key(name);
        variables.extend(std::env::vars_os().filter(unchanged));
    }
    for (name, value) in &environment.changes {
        if name.is_empty() || name.as_bytes().contains(&b'=') {
            let why = format!("{name:?} is no name of a variable: it is empty or contains `=`");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        variables.extend(value.iter().map(|value| (name.clone(), value.clone())));
    }
    Ok(Some(variables))
}

fn joined(mut name: OsString, value: &OsStr) -> OsString {
    name.push("=");
    name.push(value);
    name
}

/// The candidate paths of a program: a name without a slash is searched in the directories of
/// `path`.
fn candidates(program: &OsStr, path: &OsStr) -> io::Result<Vec<CString>> {
    let name = program.as_bytes();
    if name.is_empty() {
        return Err(io::Error::from_raw_os_error(libc::ENOENT));
    }
    if name.contains(&b'/') {
        return Ok(vec![c_string(program)?]);
    }
    let directories = path.as_bytes().split(|&byte| byte == b':');
    let within = |directory: &[u8]| match directory {
        // An empty entry means the child's working directory.
        b"" => c_string(program),
        _ => c_string(&OsString::from_vec([directory, b"/", name].concat())),
    };
    directories.map(within).collect()
}

fn c_string(text: &OsStr) -> io::Result<CString> {
    CString::new(text.as_bytes()).map_err(|_| {
        let why = format!("{text:?} contains a NUL, which cannot be passed to a program");
        io::Error::new(io::ErrorKind::InvalidInput, why)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates_of(program: &str, path: &str) -> Vec<String> {
        let found = candidates(program.as_ref(), path.as_ref()).expect("candidates");
        found.into_iter().map(|path| path.into_string().expect("UTF-8")).collect()
    }

    #[test]
    fn names_are_searched_in_path_and_paths_are_not() {
        assert_eq!(candidates_of("sh", "/bin:/usr/bin"), ["/bin/sh", "/usr/bin/sh"]);
        assert_eq!(candidates_of("sh", "/bin::"), ["/bin/sh", "sh", "sh"]);
        assert_eq!(candidates_of("./sh", "/bin"), ["./sh"]);
        assert_eq!(candidates_of("/sh", ""), ["/sh"]);
    }

    #[test]
    fn variables_are_changed_added_and_removed() {
        let names = |command: &Command<'_>| {
            let variables = variables(command).expect("variables").expect("not inherited");
            variables.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert!(variables(&Command::new("x")).expect("variables").is_none());
        assert_eq!(names(&Command::new("x").env_clear()), [""; 0]);
        assert_eq!(names(&Command::new("x").env_clear().env("A", "1").env("B", "2")), ["A", "B"]);
        assert_eq!(names(&Command::new("x").env("A", "1").env_clear()), [""; 0]);
        let removed = names(&Command::new("x").env_remove("PATH"));
        assert!(!removed.contains(&"PATH".into()));
    }

    #[test]
    fn strings_with_nul_and_invalid_variable_names_are_refused() {
        let refused = |command: Command<'_>| {
            let plan = Plan::new(&command, &[]);
            assert_eq!(plan.unwrap_err().kind(), io::ErrorKind::InvalidInput, "{command:?}");
        };
        refused(Command::new("a\0b"));
        refused(Command::new("a").arg("\0"));
        refused(Command::new("a").env("A=B", "1"));
        refused(Command::new("a").env("", "1"));
        refused(Command::new("a").env("A", "1\0"));
        refused(Command::new("a").current_dir("\0"));
    }
}
