//! This process and its threads.

use std::io::ErrorKind;
use std::thread;

use uv_core::system::{self, ThreadPriority, priority};

#[cfg(unix)]
use crate::support::child::Child;
#[cfg(unix)]
use crate::support::observe::SOON;
use crate::{Lab, Skip, Verdict};

/// A process title of any length can be set, and is visible to system tools.
pub fn the_process_title_is_visible(lab: &Lab) -> Verdict {
    drop(lab.backend()?);
    let before = match system::process_title() {
        // A Windows program without a console.
        Err(error) if cfg!(windows) => return Err(Skip::because(error.to_string())),
        title => title.expect("a title"),
    };
    assert!(cfg!(windows) || !before.is_empty(), "the first argument");
    let long = "a title that is longer than any arguments were: ".repeat(20);
    for title in ["short", &long, "", "ünïcödé"] {
        if cfg!(windows) && title.is_empty() {
            continue; // Not every console accepts an empty title.
        }
        system::set_process_title(title).expect("a title");
        assert_eq!(system::process_title().expect("a title"), title);
        #[cfg(target_os = "linux")]
        {
            let name = std::fs::read("/proc/self/comm").expect("/proc");
            let (kept, _) = title.as_bytes().split_at(title.len().min(15));
            assert_eq!(name.strip_suffix(b"\n"), Some(kept), "the process's name");
            let line = std::fs::read("/proc/self/cmdline").expect("/proc");
            let arguments: Vec<String> = std::env::args().collect();
            let (set, unset) = (format!("{title}\0"), arguments.join("\0") + "\0");
            let line = String::from_utf8_lossy(&line);
            assert!(line == set || line == unset, "the command line: {line:?}");
        }
    }
    assert!(std::env::args().next().is_some_and(|first| !first.starts_with("short")));
    let refused = system::set_process_title("a\0b").map_err(|error| error.kind());
    assert_eq!(refused, Err(ErrorKind::InvalidInput));
    system::set_process_title(&before).expect("a title");
    Ok(())
}

/// Processes have a priority, which can be lowered.
pub fn priorities_can_be_lowered(lab: &Lab) -> Verdict {
    drop(lab.backend()?);
    for wrong in [20, -21, i32::MAX] {
        let refused = system::set_process_priority(0, wrong).map_err(|error| error.kind());
        assert_eq!(refused, Err(ErrorKind::InvalidInput), "{wrong}");
    }
    assert!(system::process_priority(u32::MAX >> 2).is_err(), "there is no such process");
    let lower = || {
        let before = system::process_priority(0).expect("a priority");
        assert_eq!(system::process_priority(std::process::id()).expect("a priority"), before);
        let lower = if before < priority::BELOW_NORMAL { priority::BELOW_NORMAL } else { before };
        system::set_process_priority(0, lower).expect("a lower priority");
        assert_eq!(system::process_priority(0).expect("a priority"), lower);
        before
    };
    // It cannot be raised again, so a child that exits does this.
    #[cfg(unix)]
    Child::fork(move || {
        lower();
        Ok(())
    })
    .join(SOON)?;
    #[cfg(not(unix))]
    system::set_process_priority(0, lower()).expect("the priority of before");
    let parent = system::parent_id().expect("a parent");
    assert_ne!(parent, std::process::id());
    Ok(())
}

/// A thread can be named, bound to a processor, and given a lower priority.
pub fn threads_have_a_name_an_affinity_and_a_priority(lab: &Lab) -> Verdict {
    drop(lab.backend()?);
    let thread = thread::spawn(|| -> Verdict {
        system::set_thread_name("a thread").expect("a name");
        assert_eq!(system::thread_name().expect("a name"), "a thread");
        system::set_thread_name(&"long".repeat(50)).expect("a name to be cut");
        assert!(system::thread_name().expect("a name").starts_with("longlonglonglon"));
        let refused = system::set_thread_name("a\0b").map_err(|error| error.kind());
        assert_eq!(refused, Err(ErrorKind::InvalidInput));

        assert!(system::thread_priority().is_ok(), "every thread has one");
        system::set_thread_priority(ThreadPriority::Lowest).expect("a low priority");
        if cfg!(any(target_os = "linux", windows)) {
            let lowest = system::thread_priority().expect("a priority");
            assert_eq!(lowest, ThreadPriority::Lowest);
        }

        let cpus = match system::thread_affinity() {
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                return Err(Skip::because(error.to_string()));
            }
            cpus => cpus.expect("processors"),
        };
        let last = *cpus.last().expect("at least one");
        assert_eq!(system::set_thread_affinity(&[last]).expect("a processor"), cpus);
        assert_eq!(system::thread_affinity().expect("a processor"), [last]);
        if let Ok(now) = system::current_cpu()
            && !crate::support::wine::ignores_affinity()
        {
            assert_eq!(now, last, "where it runs");
        }
        assert!(system::set_thread_affinity(&[]).is_err(), "nowhere to run");
        assert!(system::set_thread_affinity(&[1 << 20]).is_err(), "no such processor");
        assert_eq!(system::thread_affinity().expect("a processor"), [last], "unchanged");
        system::set_thread_affinity(&cpus).expect("all of them again");
        Ok(())
    });
    thread.join().expect("a thread that passes")
}

/// The affinity, the priority and the name of another thread are read and set by its handle. One
/// that has ended has none, and the calling thread is not taken for it.
pub fn other_threads_have_a_name_an_affinity_and_a_priority(lab: &Lab) -> Verdict {
    use std::sync::mpsc::channel;

    drop(lab.backend()?);
    let own = system::thread_priority().expect("a priority");
    let ((ready, is_ready), (stop, stopped)) = (channel::<()>(), channel::<()>());
    let named = thread::Builder::new().name("another".into());
    let other = named.spawn(move || {
        ready.send(()).expect("a receiver");
        let _ = stopped.recv();
        (system::thread_priority(), system::thread_affinity())
    });
    let other = other.expect("a thread");
    is_ready.recv().expect("a thread that runs");
    if cfg!(any(target_os = "linux", target_os = "freebsd", windows)) {
        assert_eq!(system::thread_name_of(&other).expect("a name"), "another");
    }
    system::set_thread_priority_of(&other, ThreadPriority::Lowest).expect("a low priority");
    if cfg!(any(target_os = "linux", windows)) {
        let lowest = system::thread_priority_of(&other).expect("a priority");
        assert_eq!(lowest, ThreadPriority::Lowest);
        assert_eq!(system::thread_priority().expect("a priority"), own, "the caller keeps its own");
    }
    let cpus = match system::thread_affinity_of(&other) {
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            return Err(Skip::because(error.to_string()));
        }
        cpus => cpus.expect("processors"),
    };
    let (mine, last) = (system::thread_affinity().expect("processors"), *cpus.last().expect("one"));
    assert_eq!(system::set_thread_affinity_of(&other, &[last]).expect("a processor"), cpus);
    assert_eq!(system::thread_affinity_of(&other).expect("a processor"), [last]);
    assert_eq!(system::thread_affinity().expect("processors"), mine, "the caller keeps its own");
    drop(stop);
    while !other.is_finished() {
        thread::yield_now();
    }
    if cfg!(target_os = "linux") {
        // The system removes a thread soon after its function has returned.
        while system::thread_affinity_of(&other).is_ok() {
            thread::yield_now();
        }
        let ended = system::set_thread_affinity_of(&other, &[last]).expect_err("it has ended");
        assert_eq!(uv_core::error_name(&ended), Some("ESRCH"));
        assert!(system::set_thread_priority_of(&other, ThreadPriority::Lowest).is_err());
        assert!(system::thread_name_of(&other).is_err());
        assert_eq!(system::thread_affinity().expect("processors"), mine);
    }
    let (priority, affinity) = other.join().expect("a thread that passes");
    assert_eq!(affinity.expect("a processor"), [last], "what the thread itself reads");
    if cfg!(any(target_os = "linux", windows)) {
        assert_eq!(priority.expect("a priority"), ThreadPriority::Lowest);
    }
    Ok(())
}

/// The temporary directory is that of the first environment variable that is set, or the system's
/// default, without a trailing slash.
#[cfg(unix)]
pub fn the_temporary_directory_follows_the_environment(lab: &Lab) -> Verdict {
    use std::path::Path;

    drop(lab.backend()?);
    let child = Child::fork(|| {
        const VARIABLES: [&str; 4] = ["TMPDIR", "TMP", "TEMP", "TEMPDIR"];
        for name in VARIABLES {
            // SAFETY: a forked child has one thread.
            unsafe { std::env::remove_var(name) };
        }
        let default = if cfg!(target_os = "android") { "/data/local/tmp" } else { "/tmp" };
        assert_eq!(system::temp_dir(), Path::new(default));
        for name in VARIABLES.into_iter().rev() {
            // SAFETY: a forked child has one thread.
            unsafe { std::env::set_var(name, format!("/of/{name}/")) };
            let path = format!("/of/{name}");
            assert_eq!(system::temp_dir(), Path::new(&path), "earlier variables take precedence");
        }
        // SAFETY: a forked child has one thread.
        unsafe { std::env::set_var("TMPDIR", "/") };
        assert_eq!(system::temp_dir(), Path::new("/"));
        Ok(())
    });
    child.join(SOON)
}

/// The temporary directory is that of the first environment variable that is set, or the system's
/// default, without a trailing slash.
#[cfg(not(unix))]
pub fn the_temporary_directory_follows_the_environment(lab: &Lab) -> Verdict {
    drop(lab.backend()?);
    let path = system::temp_dir();
    assert!(path.is_absolute() && path.is_dir(), "{}", path.display());
    assert!(!path.to_string_lossy().ends_with('\\'), "{}", path.display());
    Ok(())
}
