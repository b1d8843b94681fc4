//! The machine: its processors, memory, names, interfaces and users.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use poll_core::Backend;
use uv_core::system;

use crate::support::observe::SOON;
use crate::{Lab, Verdict};

/// There are processors, with a history that goes on.
pub fn processors_are_known<T: Backend>(lab: &Lab<T>) -> Verdict {
    drop(lab.backend()?);
    let total = || {
        let cpus = system::cpu_info().expect("the processors");
        let times = cpus.iter().map(|cpu| cpu.times);
        let spent = times.map(|t| t.user + t.nice + t.system + t.idle + t.irq).sum::<Duration>();
        (cpus.len(), spent)
    };
    let (count, before) = total();
    assert!(count > 0 && count <= 1 << 16, "{count} processors");
    let started = Instant::now();
    while total().1 <= before {
        assert!(started.elapsed() < SOON, "time does not pass for the processors");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(system::load_average().iter().all(|average| average.is_finite() && *average >= 0.0));
    Ok(())
}

/// What is free, available and in use is no more than there is; memory that is written to
/// shows.
pub fn memory_adds_up<T: Backend>(lab: &Lab<T>) -> Verdict {
    const MEGABYTES: usize = 64 << 20;
    drop(lab.backend()?);
    let total = system::total_memory().expect("the machine's memory");
    let free = system::free_memory().expect("free memory");
    let available = system::available_memory().expect("available memory");
    assert!(free <= total && available <= total, "{free}, {available} of {total}");
    assert!(system::constrained_memory() != Some(0), "a process without memory");
    let before = system::resident_memory().expect("resident memory");
    assert!(before > 0 && before < total, "{before} of {total}");
    let written = vec![7_u8; MEGABYTES];
    let after = system::resident_memory().expect("resident memory");
    // Others may have freed some meanwhile.
    assert!(after > before + MEGABYTES as u64 / 4, "{before}, then {after}");
    drop(std::hint::black_box(written));
    let most = system::resource_usage().expect("the usage").max_resident;
    assert!(most >= MEGABYTES as u64, "the most was {most}");
    Ok(())
}

/// Time that a thread spends is counted, as its own and as the process's.
pub fn use_is_counted<T: Backend>(lab: &Lab<T>) -> Verdict {
    const SOME: Duration = Duration::from_millis(50);
    drop(lab.backend()?);
    let time = |usage: system::ResourceUsage| usage.user_time + usage.system_time;
    let of_all = || time(system::resource_usage().expect("the process's"));
    let before = of_all();
    let busy = std::thread::spawn(|| {
        let own = || match system::thread_resource_usage() {
            Ok(usage) => Some(usage.user_time + usage.system_time),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
                None
            }
        };
        let (started, first) = (Instant::now(), own()?);
        while own()? < first + SOME {
            assert!(started.elapsed() < SOON, "a thread's time does not grow");
            std::hint::black_box((0..10_000_u64).sum::<u64>());
        }
        Some(())
    });
    let counted = busy.join().expect("a thread that is busy").is_some();
    if counted {
        let spent = of_all() - before;
        // The two are read at different times, and rounded.
        assert!(spent + SOME / 2 >= SOME, "the process has spent {spent:?} only");
    }
    Ok(())
}

/// The system has a name, and so has the machine; it has been up for a while, and longer
/// later.
pub fn the_system_has_names<T: Backend>(lab: &Lab<T>) -> Verdict {
    drop(lab.backend()?);
    let name = system::uname().expect("the system's name");
    let expected = if cfg!(windows) {
        "Windows_NT"
    } else if cfg!(target_os = "linux") {
        "Linux"
    } else {
        &name.sysname
    };
    assert_eq!(name.sysname, expected);
    let all = [&name.sysname, &name.release, &name.machine];
    assert!(all.iter().all(|text| !text.is_empty()), "{name:?}");
    let host = system::hostname().expect("the machine's name");
    assert!(!host.is_empty() && !host.contains('\0'), "{host:?}");
    #[cfg(target_os = "linux")]
    {
        let read = |file| std::fs::read_to_string(file).expect("/proc").trim().to_owned();
        assert_eq!(name.release, read("/proc/sys/kernel/osrelease"));
        assert_eq!(host, read("/proc/sys/kernel/hostname"));
    }
    let up = system::uptime().expect("the uptime");
    let started = Instant::now();
    while system::uptime().expect("the uptime") <= up {
        assert!(started.elapsed() < SOON, "the uptime does not grow");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// The loopback interface is there, with its address and mask; addresses are told once.
pub fn interfaces_have_addresses<T: Backend>(lab: &Lab<T>) -> Verdict {
    drop(lab.backend()?);
    let all = system::interface_addresses().expect("the interfaces");
    let loopback = all.iter().find(|of| of.address.is_loopback() && of.address.is_ipv4());
    let loopback = loopback.unwrap_or_else(|| panic!("no loopback interface: {all:?}"));
    assert!(loopback.is_internal && !loopback.name.is_empty(), "{loopback:?}");
    assert_eq!(loopback.netmask.to_string(), "255.0.0.0");
    assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len(), "told once: {all:?}");
    for of in &all {
        assert_eq!(of.address.is_ipv4(), of.netmask.is_ipv4(), "{of:?}");
    }
    assert!(system::interface_name(u32::MAX).is_err(), "there is no such interface");
    #[cfg(target_os = "linux")]
    assert_eq!(system::interface_name(1).expect("the first"), loopback.name);
    Ok(())
}

/// The user of the process is in the books; one that is not is an error.
#[cfg(unix)]
pub fn users_and_groups_are_found<T: Backend>(lab: &Lab<T>) -> Verdict {
    use std::os::unix::fs::MetadataExt;

    const NOBODY: u32 = 3_999_999_999;
    drop(lab.backend()?);
    let directory = crate::support::files::Directory::new();
    let uid = std::fs::metadata(directory.file("mine", "")).expect("a file").uid();
    let user = match system::current_user() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(crate::Skip::because("the system's books do not have this user"));
        }
        user => user.expect("this user"),
    };
    assert_eq!(user.uid, Some(uid));
    assert!(!user.name.is_empty() && user.home.is_absolute(), "{user:?}");
    assert_eq!(system::user(uid).expect("by number"), user);
    let gid = user.gid.expect("a group");
    assert_eq!(system::group(gid).expect("the user's group").gid, gid);
    let kind = system::user(NOBODY).map(drop).map_err(|error| error.kind());
    assert_eq!(kind, Err(ErrorKind::NotFound));
    let kind = system::group(NOBODY).map(drop).map_err(|error| error.kind());
    assert_eq!(kind, Err(ErrorKind::NotFound));
    Ok(())
}

/// The user of the process is known; numbers are not what Windows knows users by.
#[cfg(not(unix))]
pub fn users_and_groups_are_found<T: Backend>(lab: &Lab<T>) -> Verdict {
    drop(lab.backend()?);
    let user = system::current_user().expect("this user");
    assert!(!user.name.is_empty() && user.home.is_absolute(), "{user:?}");
    let kind = system::user(0).map(drop).map_err(|error| error.kind());
    assert_eq!(kind, Err(ErrorKind::Unsupported));
    let kind = system::group(0).map(drop).map_err(|error| error.kind());
    assert_eq!(kind, Err(ErrorKind::Unsupported));
    Ok(())
}
