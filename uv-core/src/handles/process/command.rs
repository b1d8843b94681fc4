//! What to run, and how.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use bitflags::bitflags;

use super::Stdio;

bitflags! {
    /// How a child is run.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct Flags: u8 {
        const DETACHED = 1;
        const VERBATIM_ARGUMENTS = 1 << 1;
        const HIDE_CONSOLE = 1 << 2;
        const HIDE_GUI = 1 << 3;
        const EXACT_NAME = 1 << 4;
        /// No `pidfd` is used, as if the kernel had none.
        const WITHOUT_PIDFD = 1 << 5;
        /// The child is made by `fork`, as if there were nothing better.
        const BY_FORK = 1 << 6;
        /// The child is made by `posix_spawn` where that can do all that is asked for.
        const BY_POSIX_SPAWN = 1 << 7;
    }
}

/// A program to run as a child process, with its arguments and surroundings: what
/// [`Process::spawn`](crate::Process::spawn) takes.
///
/// Unless told otherwise the child has this process's environment and directory, and nothing
/// to read from or write to: its standard streams are the null device.
///
/// ```
/// use uv_core::{Command, Stdio};
///
/// let command = Command::new("rustc")
///     .args(["--print", "sysroot"])
///     .env("LANG", "C")
///     .stdio([Stdio::Ignore, Stdio::Standard(1), Stdio::Standard(2)]);
/// ```
///
/// In surroundings of its own:
///
#[cfg_attr(unix, doc = "```")]
#[cfg_attr(not(unix), doc = "```ignore")]
/// use uv_core::{Command, Handle, Loop, Pipe, PipeFlags, Process, RunMode, Stdio, Stream};
///
/// let mut lp = Loop::with_default_backend()?;
/// let output = Pipe::new(&mut lp);
/// let command = Command::new("/bin/sh")
///     .arg0("greeter")
///     .args(["-c", "echo $0 says $WORD${NAME+ to }$NAME in $(pwd)"])
///     .env_clear()
///     .envs([("WORD", "hello"), ("NAME", "everybody")])
///     .env_remove("NAME")
///     .current_dir("/")
///     .stdio([Stdio::Ignore, Stdio::Pipe(output, PipeFlags::WRITABLE)]);
/// Process::spawn(&mut lp, &command, |lp, process, _| process.close(lp).unwrap())?;
/// output.read_start(&mut lp, |lp, output, bytes| match bytes.unwrap() {
///     [] => output.close(lp).unwrap(),
///     bytes => assert_eq!(bytes, b"greeter says hello in /\n"),
/// })?;
/// lp.run(RunMode::Default)?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
pub struct Command<'a> {
    pub(crate) program: OsString,
    pub(crate) arg0: Option<OsString>,
    pub(crate) args: Vec<OsString>,
    pub(crate) environment: Environment,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) stdio: Vec<Stdio<'a>>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) flags: Flags,
}

/// How the child's environment differs from this process's.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    pub(crate) cleared: bool,
    /// `None` removes a variable.
    pub(crate) changes: BTreeMap<OsString, Option<OsString>>,
}

impl Environment {
    pub(crate) fn is_inherited(&self) -> bool {
        !self.cleared && self.changes.is_empty()
    }
}

impl<'a> Command<'a> {
    /// A program without arguments.
    ///
    /// A name without a slash is looked up in the `PATH` that the child will have; on Windows
    /// in its directory first, and with the endings `.com` and `.exe`. Other relative names
    /// start in the child's directory.
    pub fn new(program: impl AsRef<OsStr>) -> Command<'a> {
        Command {
            program: program.as_ref().into(),
            arg0: None,
            args: Vec::new(),
            environment: Environment::default(),
            directory: None,
            stdio: Vec::new(),
            uid: None,
            gid: None,
            flags: Flags::empty(),
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().into()));
        self
    }

    /// What the child sees as its own name, instead of the program's.
    #[must_use]
    pub fn arg0(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.arg0 = Some(arg.as_ref().into());
        self
    }

    /// Sets a variable of the child's environment.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment.changes.insert(name.as_ref().into(), Some(value.as_ref().into()));
        self
    }

    /// Sets variables of the child's environment.
    #[must_use]
    pub fn envs(
        self,
        variables: impl IntoIterator<Item = (impl AsRef<OsStr>, impl AsRef<OsStr>)>,
    ) -> Self {
        variables.into_iter().fold(self, |this, (name, value)| this.env(name, value))
    }

    /// Removes a variable from the child's environment.
    #[must_use]
    pub fn env_remove(mut self, name: impl AsRef<OsStr>) -> Self {
        self.environment.changes.insert(name.as_ref().into(), None);
        self
    }

    /// Begins with an empty environment instead of this process's, and forgets what was said
    /// of variables so far. Windows adds the few variables that no program runs without.
    #[must_use]
    pub fn env_clear(mut self) -> Self {
        self.environment = Environment { cleared: true, changes: BTreeMap::new() };
        self
    }

    /// The directory that the child begins in.
    #[must_use]
    pub fn current_dir(mut self, directory: impl AsRef<Path>) -> Self {
        self.directory = Some(directory.as_ref().into());
        self
    }

    /// What the child's descriptors 0, 1, 2 and so on are, instead of what was said so far.
    /// Of the first three those that are not named are [`Stdio::Ignore`].
    #[must_use]
    pub fn stdio(mut self, stdio: impl IntoIterator<Item = Stdio<'a>>) -> Self {
        self.stdio = stdio.into_iter().collect();
        self
    }

    /// The user that the child runs as. Other groups than the primary one are given up, where
    /// that is permitted. Windows cannot do that: spawning is `Unsupported` there.
    ///
    /// ```
    /// use uv_core::Command;
    ///
    /// // As `nobody` of most systems. Only root may do that.
    /// let command = Command::new("true").uid(65534).gid(65534);
    /// ```
    #[must_use]
    pub fn uid(mut self, uid: u32) -> Self {
        self.uid = Some(uid);
        self
    }

    /// The group that the child runs as. Other groups are given up, where that is permitted.
    /// Windows cannot do that: spawning is `Unsupported` there.
    #[must_use]
    pub fn gid(mut self, gid: u32) -> Self {
        self.gid = Some(gid);
        self
    }

    /// Lets the child live on when this process ends: it leads a session of its own (Unix), or
    /// a process group of its own without a console, and does not end with this process as
    /// others do (Windows).
    ///
    /// The loop still waits for its end; [unreference](crate::Handle::unreference) the handle
    /// to let it go.
    ///
    /// ```
    /// use uv_core::{Command, Handle, Loop, Process};
    ///
    /// # if cfg!(windows) { return Ok(()); }
    /// let mut lp = Loop::with_default_backend()?;
    /// let command = Command::new("true").detached(true);
    /// let process = Process::spawn(&mut lp, &command, |_, _, _| {})?;
    /// process.unreference(&mut lp)?;
    /// assert!(!lp.alive());
    /// # std::io::Result::Ok(())
    /// ```
    #[must_use]
    pub fn detached(self, detached: bool) -> Self {
        self.with(Flags::DETACHED, detached)
    }

    /// Passes the arguments on Windows as they are, with spaces between, neither quoted nor
    /// escaped. Means nothing on Unix, as all that follow.
    ///
    /// ```
    /// use uv_core::Command;
    ///
    /// // Its own rules for quotes, no window that flashes up, and no other `cmd` by accident.
    /// let command = Command::new("cmd.exe")
    ///     .args(["/C", "echo \"hello\" & pause"])
    ///     .windows_verbatim_arguments(true)
    ///     .windows_hide_console(true)
    ///     .windows_hide_gui(true)
    ///     .windows_exact_name(true);
    /// ```
    #[must_use]
    pub fn windows_verbatim_arguments(self, verbatim: bool) -> Self {
        self.with(Flags::VERBATIM_ARGUMENTS, verbatim)
    }

    /// Gives a console program on Windows no window.
    #[must_use]
    pub fn windows_hide_console(self, hide: bool) -> Self {
        self.with(Flags::HIDE_CONSOLE, hide)
    }

    /// Asks a program with windows on Windows not to show its first.
    #[must_use]
    pub fn windows_hide_gui(self, hide: bool) -> Self {
        self.with(Flags::HIDE_GUI, hide)
    }

    /// Looks for exactly this name on Windows, without other endings.
    #[must_use]
    pub fn windows_exact_name(self, exact: bool) -> Self {
        self.with(Flags::EXACT_NAME, exact)
    }

    /// Uses no `pidfd`: the loop is told of the end by `SIGCHLD`. For tests of that.
    #[doc(hidden)]
    #[must_use]
    pub fn without_pidfd(self) -> Self {
        self.with(Flags::WITHOUT_PIDFD, true)
    }

    /// Makes the child by `fork`. For tests of that.
    #[doc(hidden)]
    #[must_use]
    pub fn by_fork(self) -> Self {
        self.with(Flags::BY_FORK, true)
    }

    /// Makes the child by `posix_spawn`, where that will do. For tests of that.
    #[doc(hidden)]
    #[must_use]
    pub fn by_posix_spawn(self) -> Self {
        self.with(Flags::BY_POSIX_SPAWN, true)
    }

    fn with(mut self, flag: Flags, on: bool) -> Self {
        self.flags.set(flag, on);
        self
    }
}
