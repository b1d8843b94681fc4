//! The environment of a child: arguments, variables, directory, signals, user.

use uv_core::Command;

use crate::support::children::{answer, answer_to, code, each_way, run_child};
use crate::support::files::Directory;
use crate::support::loops::new_loop;
use crate::support::program::{self, child};
use crate::{Lab, Verdict};

/// Arguments are passed unchanged, whatever their content.
pub fn arguments_are_passed_unchanged(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let words = [
        "arguments",
        "plain",
        "",
        "two words",
        "a \"quoted\" word",
        "back\\slash",
        "at the end\\",
        "two at the end\\\\",
        "\\\\\"",
        "before a quote\\\"",
        "\"",
        "tab\there",
        "ünïcödé 漢字",
        "%PATH% $PATH `x` *",
        "--flag=a b",
    ];
    let expected: String = words[1..].iter().map(|word| format!("{word}\n")).collect();
    for command in each_way(child(&words)) {
        assert_eq!(answer_to(&mut lp, command), expected);
    }
    Ok(())
}

/// The child's own name (`argv[0]`) can differ from the program's.
#[cfg(unix)]
pub fn argv0_can_differ_from_the_program(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let shell = Command::new("/bin/sh").arg0("another name").args(["-c", "echo \"$0\""]);
    assert_eq!(answer_to(&mut lp, shell), "another name\n");
    Ok(())
}

/// The child's own name (`argv[0]`) can differ from the program's.
#[cfg(windows)]
pub fn argv0_can_differ_from_the_program(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let named = child(&["arguments", "x"]).arg0("another name");
    assert_eq!(answer_to(&mut lp, named), "x\n", "the other arguments are unchanged");
    Ok(())
}

/// The environment is inherited from this process, unless it is changed or cleared.
pub fn the_environment_is_inherited_or_changed(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let variables = |text: &str| text.lines().map(String::from).collect::<Vec<_>>();
    let mut own: Vec<_> = std::env::vars().collect();
    own.sort();
    let own: Vec<_> = own.iter().map(|(name, value)| format!("{name}={value}")).collect();
    for command in each_way(child(&["environment"])) {
        let inherited = variables(&answer_to(&mut lp, command.clone()));
        if cfg!(unix) {
            assert_eq!(inherited, own);
        }
        let changed = command.clone().env("CASE_A", "1").env("CASE_B", "a=b c").env_remove(REMOVED);
        let changed = variables(&answer_to(&mut lp, changed));
        assert!(changed.contains(&"CASE_A=1".into()) && changed.contains(&"CASE_B=a=b c".into()));
        let is_removed = |line: &String| line.to_uppercase().starts_with(&format!("{REMOVED}="));
        assert!(!changed.iter().any(is_removed), "removed");
        if cfg!(unix) {
            assert_eq!(
                changed.len(),
                own.len() + 2 - usize::from(has(REMOVED)),
                "the other variables stay"
            );
        }
        let cleared = variables(&answer_to(&mut lp, command.clone().env_clear()));
        let only = variables(&answer_to(&mut lp, command.env_clear().env("CASE_A", "2")));
        if cfg!(unix) {
            assert_eq!((cleared, only), (vec![], vec!["CASE_A=2".into()]));
        } else {
            // Windows programs need a few variables, and Wine adds its own.
            let count = only.iter().filter(|line| !line.starts_with("WINE")).count();
            assert!(only.contains(&"CASE_A=2".into()) && count <= 12, "{only:?}");
            assert!(cleared.iter().any(|line| line.to_uppercase().starts_with("SYSTEMROOT=")));
        }
    }
    Ok(())
}

/// A variable that this process has, and that a child does not need.
const REMOVED: &str = if cfg!(windows) { "TEMP" } else { "PATH" };

fn has(name: &str) -> bool {
    std::env::var_os(name).is_some()
}

/// A program name without a directory is searched in the child's own `PATH`, not in this process's.
pub fn programs_are_searched_in_the_childs_path(lab: &Lab) -> Verdict {
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    let copy = directory.path("a-name-of-its-own.exe");
    if std::fs::hard_link(program::path(), &copy).is_err() {
        std::fs::copy(program::path(), &copy).expect("a copy of this executable");
    }
    let there = copy.parent().expect("a parent").display().to_string();
    let separator = if cfg!(windows) { ";" } else { ":" };
    // Windows searches libraries in the same directories.
    let own = if cfg!(windows) { std::env::var("PATH").unwrap_or_default() } else { String::new() };
    let path = ["/nowhere", &there, &own].join(separator);
    for name in ["a-name-of-its-own.exe", "a-name-of-its-own"] {
        if cfg!(unix) && !name.ends_with(".exe") {
            continue; // Only Windows adds suffixes.
        }
        let named = Command::new(name).args([program::mark(), "exit", "6"]).env("PATH", &path);
        for command in each_way(named) {
            assert_eq!(run_child(&mut lp, &command), code(6), "{command:?}");
        }
    }
    Ok(())
}

/// The child starts in the given directory, or in this process's.
pub fn the_working_directory_can_be_set(lab: &Lab) -> Verdict {
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    let own = std::env::current_dir().expect("a directory");
    let there = directory.file("x", "").parent().expect("a parent").canonicalize();
    let there = there.expect("a directory");
    assert_eq!(answer(&mut lp, &["directory"]), own.display().to_string());
    for command in each_way(child(&["directory"]).current_dir(&there)) {
        let answer = answer_to(&mut lp, command);
        let answered = std::path::Path::new(&answer).canonicalize().expect("a directory");
        assert_eq!(answered, there);
    }
    assert_eq!(std::env::current_dir().ok(), Some(own), "this process stays");
    Ok(())
}

/// A child has default dispositions and an empty signal mask, whatever those of this process are.
#[cfg(unix)]
pub fn signal_dispositions_are_reset(lab: &Lab) -> Verdict {
    use crate::support::dispositions::{Changed, Disposition};
    use uv_core::{Handle, Signal};

    let mut lp = new_loop(lab)?;
    let _ignored = Changed::to(libc::SIGUSR1, Disposition::Ignored);
    let handled = Signal::new(&mut lp);
    handled.start(&mut lp, libc::SIGUSR2, |_, _, _| {}).expect("a signal");
    handled.unreference(&mut lp).expect("an open handle");
    let _blocked = Blocked::new(libc::SIGTERM);
    for command in each_way(child(&["signals"])) {
        let found = answer_to(&mut lp, command.clone());
        // The test executable itself ignores this signal, once it runs.
        let found: Vec<_> =
            found.lines().filter(|it| !it.starts_with(&format!("{}:", libc::SIGPIPE))).collect();
        assert!(found.is_empty(), "{found:?} in {command:?}");
    }
    Ok(())
}

/// A signal that this thread blocks.
#[cfg(unix)]
struct Blocked(libc::sigset_t);

#[cfg(unix)]
impl Blocked {
    fn new(signum: libc::c_int) -> Blocked {
        // SAFETY: all zeros is a valid, empty set.
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: the set is valid, and the signal exists.
        unsafe { libc::sigaddset(&raw mut set, signum) };
        // SAFETY: reads one set.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        Blocked(set)
    }
}

#[cfg(unix)]
impl Drop for Blocked {
    fn drop(&mut self) {
        let set = &raw const self.0;
        // SAFETY: reads one set.
        unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, set, std::ptr::null_mut()) };
    }
}

/// A detached child leads its own session. Other children stay in this one.
#[cfg(unix)]
pub fn detached_children_lead_a_session(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    for (detached, expected) in [(true, "leads true"), (false, "leads false")] {
        for command in each_way(child(&["identity"]).detached(detached)) {
            let found = answer_to(&mut lp, command);
            assert!(found.ends_with(expected), "{found}");
        }
    }
    Ok(())
}

/// A child runs as the given user and group, without supplementary groups.
#[cfg(unix)]
pub fn users_and_groups_can_be_set(lab: &Lab) -> Verdict {
    use crate::support::children::no_children;

    // SAFETY: the call passes no memory.
    if unsafe { libc::getuid() } != 0 {
        return Err(crate::Skip::because("only the superuser may become another user"));
    }
    let mut lp = new_loop(lab)?;
    // Without access for other users, the program could not run.
    let executable = Directory::new();
    let copy = executable.path("program");
    std::fs::copy(program::path(), &copy).expect("a copy of this executable");
    for command in each_way(Command::new(&copy).args([program::mark(), "identity"])) {
        let both = command.clone().uid(65_533).gid(65_532);
        assert_eq!(answer_to(&mut lp, both), "user 65533, group 65532, 0 more, leads false");
        let group = command.gid(65_532);
        assert_eq!(answer_to(&mut lp, group), "user 0, group 65532, 0 more, leads false");
    }
    // SAFETY: the call passes no memory.
    assert_eq!(unsafe { libc::getuid() }, 0, "this process keeps its user");
    no_children("all were waited for");
    Ok(())
}

/// A child with another user that would keep the groups of this process does not run.
#[cfg(target_os = "linux")]
pub fn groups_that_cannot_be_dropped_fail_the_spawn(lab: &Lab) -> Verdict {
    use std::thread;

    use crate::support::children::no_children;
    use uv_core::Process;

    // SAFETY: the call passes no memory.
    if unsafe { libc::getuid() } != 0 {
        return Err(crate::Skip::because("only the superuser may become another user"));
    }
    thread::scope(|scope| {
        let spawned = scope.spawn(|| {
            without_the_right_to_change_groups();
            let mut lp = new_loop(lab)?;
            for command in each_way(Command::new(program::path()).args([program::mark(), "exit"])) {
                let refused = Process::spawn(&mut lp, &command.uid(65_533), |_, _, _| {});
                let error = refused.map(drop).expect_err("its groups would be those of this user");
                assert_eq!(error.raw_os_error(), Some(libc::EPERM), "{error}");
            }
            Ok(())
        });
        spawned.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    no_children("all were waited for");
    Ok(())
}

/// Removes `CAP_SETGID` from the calling thread permanently.
#[cfg(target_os = "linux")]
fn without_the_right_to_change_groups() {
    const VERSION_3: u32 = 0x2008_0522;
    const CAP_SETGID: u32 = 6;
    let header = [VERSION_3, 0];
    // Two sets of 32 capabilities: effective, permitted, inheritable.
    let mut sets = [[0_u32; 3]; 2];
    // SAFETY: reads the header, and writes two sets.
    let got = unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) };
    assert_eq!(got, 0, "capget");
    sets[0].iter_mut().for_each(|set| *set &= !(1 << CAP_SETGID));
    // SAFETY: reads the header and two sets.
    let set = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) };
    assert_eq!(set, 0, "capset");
}

#[cfg(not(target_os = "linux"))]
/// A child with another user that would keep the groups of this process does not run.
pub fn groups_that_cannot_be_dropped_fail_the_spawn(_lab: &Lab) -> Verdict {
    Err(crate::Skip::because("only Linux has capabilities per thread"))
}

/// A child with flags for Windows runs on every system.
pub fn windows_flags_are_accepted_everywhere(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let command = child(&["exit", "4"]).windows_hide_console(true).windows_hide_gui(true);
    assert_eq!(run_child(&mut lp, &command), code(4));
    assert_eq!(run_child(&mut lp, &command.clone().windows_exact_name(true)), code(4));
    let verbatim = child(&["exit", "4"]).windows_verbatim_arguments(true);
    assert_eq!(run_child(&mut lp, &verbatim), code(4), "there is nothing to quote");
    assert_eq!(run_child(&mut lp, &command.detached(true)), code(4));
    Ok(())
}

#[cfg(windows)]
unix_alone! {
    signal_dispositions_are_reset: "Windows has no signal handlers to inherit"
    detached_children_lead_a_session: "Windows has no sessions of that kind"
    users_and_groups_can_be_set: "Windows cannot change the user of a child like that"
}
