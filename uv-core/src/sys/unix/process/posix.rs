//! Children by `posix_spawn`, which the C library or the kernel starts without a copy of this
//! process's memory.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};

use super::ChildEnd;
use super::plan::Plan;

/// True if there is nothing in the plan that `posix_spawn` has no words for.
pub(super) fn can_do(plan: &Plan) -> bool {
    plan.uid.is_none() && plan.gid.is_none() && plan.directory.is_none() && !plan.detached
}

pub(super) fn spawn(plan: &Plan) -> io::Result<libc::pid_t> {
    let (actions, attributes) = (Actions::new(plan)?, Attributes::new()?);
    let environment = plan.environment_pointer();
    let mut result = libc::ENOENT;
    for path in &plan.paths {
        let mut pid = 0;
        // SAFETY: the path ends with a NUL, the arrays with a null; the others are initialised.
        let error = unsafe {
            libc::posix_spawn(
                &raw mut pid,
                path.as_ptr(),
                &raw const actions.raw,
                &raw const attributes.0,
                plan.arguments.as_ptr().cast(),
                environment.cast(),
            )
        };
        match error {
            0 => return Ok(pid),
            libc::ENOENT | libc::ENOTDIR | libc::ENODEV | libc::ESTALE | libc::ETIMEDOUT => {}
            // There may be another that may be run.
            libc::EACCES => result = libc::EACCES,
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
    Err(io::Error::from_raw_os_error(result))
}

/// What is done to the child's descriptors.
struct Actions {
    raw: libc::posix_spawn_file_actions_t,
    /// Duplicates of those whose number is to be another's.
    moved: Vec<OwnedFd>,
}

impl Actions {
    fn new(plan: &Plan) -> io::Result<Actions> {
        let mut raw = MaybeUninit::uninit();
        // SAFETY: initialises the actions.
        check(unsafe { libc::posix_spawn_file_actions_init(raw.as_mut_ptr()) })?;
        // SAFETY: initialised above.
        let mut actions = Actions { raw: unsafe { raw.assume_init() }, moved: Vec::new() };
        let count = plan.ends.len() as libc::c_int;
        for (target, end) in (0..).zip(&plan.ends) {
            match *end {
                ChildEnd::Ignore if target < 3 => actions.open_null(target)?,
                ChildEnd::Ignore => actions.close(target)?,
                ChildEnd::Inherit(source) | ChildEnd::Made(source) => {
                    let source =
                        if source < count { actions.aside(source, count)? } else { source };
                    if target < 3 && matches!(end, ChildEnd::Inherit(_)) {
                        make_blocking(source)?;
                    }
                    actions.place(source, target)?;
                }
            }
        }
        Ok(actions)
    }

    fn open_null(&mut self, target: libc::c_int) -> io::Result<()> {
        let mode = if target == 0 { libc::O_RDONLY } else { libc::O_RDWR };
        let (raw, path) = (&raw mut self.raw, c"/dev/null".as_ptr());
        // SAFETY: the actions are initialised, and the path ends with a NUL.
        check(unsafe { libc::posix_spawn_file_actions_addopen(raw, target, path, mode, 0) })
    }

    fn close(&mut self, target: libc::c_int) -> io::Result<()> {
        // SAFETY: no memory is passed.
        if unsafe { libc::fcntl(target, libc::F_GETFD) } == -1 {
            return Ok(()); // Some systems do not close what is not open.
        }
        // SAFETY: the actions are initialised.
        check(unsafe { libc::posix_spawn_file_actions_addclose(&raw mut self.raw, target) })
    }

    fn place(&mut self, source: libc::c_int, target: libc::c_int) -> io::Result<()> {
        // SAFETY: the actions are initialised.
        check(unsafe { libc::posix_spawn_file_actions_adddup2(&raw mut self.raw, source, target) })
    }

    /// A duplicate with a number that is no child's.
    fn aside(&mut self, source: libc::c_int, count: libc::c_int) -> io::Result<libc::c_int> {
        // SAFETY: no memory is passed.
        match unsafe { libc::fcntl(source, libc::F_DUPFD_CLOEXEC, count) } {
            -1 => Err(io::Error::last_os_error()),
            fd => {
                // SAFETY: the kernel has just given it to us.
                self.moved.push(unsafe { OwnedFd::from_raw_fd(fd) });
                Ok(fd)
            }
        }
    }
}

impl Drop for Actions {
    fn drop(&mut self) {
        // SAFETY: initialised by `new`, and not used again.
        unsafe { libc::posix_spawn_file_actions_destroy(&raw mut self.raw) };
    }
}

/// No signal handled, ignored or blocked.
struct Attributes(libc::posix_spawnattr_t);

impl Attributes {
    fn new() -> io::Result<Attributes> {
        let mut raw = MaybeUninit::uninit();
        // SAFETY: initialises the attributes.
        check(unsafe { libc::posix_spawnattr_init(raw.as_mut_ptr()) })?;
        // SAFETY: initialised above.
        let mut attributes = Attributes(unsafe { raw.assume_init() });
        let (mut all, mut none) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: initialises the set.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        // SAFETY: initialises the set.
        unsafe { libc::sigemptyset(none.as_mut_ptr()) };
        for signum in [libc::SIGKILL, libc::SIGSTOP] {
            // Some systems refuse what cannot be changed.
            // SAFETY: the set is initialised, the signal exists.
            unsafe { libc::sigdelset(all.as_mut_ptr(), signum) };
        }
        let raw = &raw mut attributes.0;
        // SAFETY: both are initialised.
        check(unsafe { libc::posix_spawnattr_setsigdefault(raw, all.as_ptr()) })?;
        // SAFETY: both are initialised.
        check(unsafe { libc::posix_spawnattr_setsigmask(raw, none.as_ptr()) })?;
        let flags = libc::POSIX_SPAWN_SETSIGDEF | libc::POSIX_SPAWN_SETSIGMASK;
        // SAFETY: the attributes are initialised.
        check(unsafe { libc::posix_spawnattr_setflags(raw, flags as libc::c_short) })?;
        Ok(attributes)
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        // SAFETY: initialised by `new`, and not used again.
        unsafe { libc::posix_spawnattr_destroy(&raw mut self.0) };
    }
}

fn make_blocking(fd: libc::c_int) -> io::Result<()> {
    let mut off: libc::c_int = 0;
    // SAFETY: the kernel reads one `int`, which lives across the call.
    match unsafe { libc::ioctl(fd, libc::FIONBIO, &raw mut off) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// These functions return their errors.
fn check(error: libc::c_int) -> io::Result<()> {
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}
