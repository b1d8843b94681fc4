//! The machine: processors, memory, names, interfaces and users.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use uv_core::system;

use crate::support::observe::SOON;
use crate::{Lab, Verdict};

/// The processors are listed, with times that grow.
pub fn processors_are_listed(lab: &Lab) -> Verdict {
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

/// Free, available and used memory do not exceed the total. Written memory shows up in the resident
/// size.
pub fn memory_sizes_are_consistent(lab: &Lab) -> Verdict {
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
    // Other threads may have freed some meanwhile.
    assert!(after > before + MEGABYTES as u64 / 4, "{before}, then {after}");
    drop(std::hint::black_box(written));
    let most = system::resource_usage().expect("the usage").max_resident;
    assert!(most >= MEGABYTES as u64, "the most was {most}");
    Ok(())
}

/// The CPU time of a thread is counted for the thread and for the process.
pub fn resource_usage_grows(lab: &Lab) -> Verdict {
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

/// The system and the machine have names. The uptime is positive and grows.
pub fn uname_hostname_and_uptime_are_known(lab: &Lab) -> Verdict {
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

/// The loopback interface is listed with its address and mask. Each address is listed once.
pub fn interfaces_have_addresses(lab: &Lab) -> Verdict {
    drop(lab.backend()?);
    let all = system::interface_addresses().expect("the interfaces");
    let loopback = all.iter().find(|of| of.address.is_loopback() && of.address.is_ipv4());
    let loopback = loopback.unwrap_or_else(|| panic!("no loopback interface: {all:?}"));
    assert!(loopback.is_internal && !loopback.name.is_empty(), "{loopback:?}");
    assert_eq!(loopback.netmask.to_string(), "255.0.0.0");
    assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len(), "each once: {all:?}");
    for of in &all {
        assert_eq!(of.address.is_ipv4(), of.netmask.is_ipv4(), "{of:?}");
    }
    assert!(system::interface_name(u32::MAX).is_err(), "there is no such interface");
    assert!(system::interface_index("no such interface").is_err());
    let index = (1..64).find(|&index| system::interface_name(index).is_ok());
    let index = index.expect("an interface");
    let name = system::interface_name(index).expect("its name");
    assert_eq!(system::interface_index(&name).expect("its number"), index);
    let identifier = system::interface_identifier(index).expect("its identifier");
    let address = system::socket_addr_v6(&format!("fe80::1%{identifier}"), 7);
    assert_eq!(address.expect("an address").scope_id(), index);
    assert!(system::socket_addr_v6("fe80::1%no such interface", 7).is_err());
    #[cfg(target_os = "linux")]
    assert_eq!(system::interface_name(1).expect("the first"), loopback.name);
    Ok(())
}

/// The user of the process is found by its numbers, where the system has such numbers. An unknown
/// user is an error.
#[cfg(unix)]
pub fn users_and_groups_are_found(lab: &Lab) -> Verdict {
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

/// The user of the process is found by its numbers, where the system has such numbers. An unknown
/// user is an error.
#[cfg(not(unix))]
pub fn users_and_groups_are_found(lab: &Lab) -> Verdict {
    drop(lab.backend()?);
    let user = system::current_user().expect("this user");
    assert!(!user.name.is_empty() && user.home.is_absolute(), "{user:?}");
    let kind = system::user(0).map(drop).map_err(|error| error.kind());
    assert_eq!(kind, Err(ErrorKind::Unsupported));
    let kind = system::group(0).map(drop).map_err(|error| error.kind());
    assert_eq!(kind, Err(ErrorKind::Unsupported));
    Ok(())
}
