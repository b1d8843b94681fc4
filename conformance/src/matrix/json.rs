//! The report as JSON.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

use super::{Finished, Report};
use crate::{Fault, Outcome};

/// Writes one document: machine, backends and every result.
pub(super) fn write(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    let (passed, failed, skipped) = report.totals();
    let backends = report.candidates.iter().map(|candidate| {
        let why = candidate.cases().err();
        json!({
            "name": candidate.name(),
            "note": candidate.note(),
            "runs_here": why.is_none(),
            "why_not": why,
            "faults": candidate.faults().map(|counts| {
                let kinds = Fault::ALL.map(|fault| (fault.name().into(), counts.of(fault).into()));
                Map::from_iter(kinds)
            }),
        })
    });
    let document = json!({
        "conformance": env!("CARGO_PKG_VERSION"),
        "machine": {
            "os": std::env::consts::OS,
            "kernel": kernel(),
            "arch": std::env::consts::ARCH,
            "cores": std::thread::available_parallelism().map_or(1, usize::from),
        },
        "backends": backends.collect::<Vec<_>>(),
        "results": report.finished.iter().map(result).collect::<Vec<_>>(),
        "totals": { "passed": passed, "failed": failed, "skipped": skipped },
        "seconds": report.time.as_secs_f64(),
    });
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}

fn result(one: &Finished) -> Value {
    let (outcome, why) = match &one.outcome {
        Outcome::Pass => ("pass", None),
        Outcome::Fail(why) => ("fail", Some(why)),
        Outcome::Skip(why) => ("skip", Some(why)),
    };
    json!({
        "point": one.point,
        "case": one.case,
        "backend": one.backend,
        "outcome": outcome,
        "why": why,
        "seconds": one.time.as_secs_f64(),
    })
}

/// The kernel's name and version.
#[cfg(unix)]
pub(super) fn kernel() -> String {
    use std::ffi::CStr;
    // SAFETY: `utsname` is plain data; all zeros are empty strings.
    let mut name: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: `name` outlives the call, which writes it.
    if unsafe { libc::uname(&mut name) } < 0 {
        return String::new();
    }
    // SAFETY: the kernel terminates its strings with NUL, and `name` outlives this reference.
    let system = unsafe { CStr::from_ptr(name.sysname.as_ptr()) };
    // SAFETY: as above.
    let release = unsafe { CStr::from_ptr(name.release.as_ptr()) };
    format!("{} {}", system.to_string_lossy(), release.to_string_lossy())
}

/// The kernel's name and version.
#[cfg(windows)]
pub(super) fn kernel() -> String {
    use windows_sys::Wdk::System::SystemServices::RtlGetVersion;
    use windows_sys::Win32::System::SystemInformation::OSVERSIONINFOW;

    let mut version = OSVERSIONINFOW {
        dwOSVersionInfoSize: std::mem::size_of::<OSVERSIONINFOW>() as u32,
        ..Default::default()
    };
    // SAFETY: `version` has the size in its first field and outlives the call.
    unsafe { RtlGetVersion(&mut version) };
    let OSVERSIONINFOW { dwMajorVersion, dwMinorVersion, dwBuildNumber, .. } = version;
    format!("Windows {dwMajorVersion}.{dwMinorVersion}.{dwBuildNumber}")
}
