//! CPU time and wall-clock time of runs.

use std::time::{Duration, Instant};

/// The cost of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// CPU time of the whole process: user and kernel time of every thread.
    pub cpu: Duration,
    /// Wall-clock time.
    pub wall: Duration,
    /// A cost other than time: bytes or calls.
    pub amount: u64,
}

/// Measures both times from start to end.
#[derive(Debug)]
pub struct Stopwatch {
    cpu: Duration,
    wall: Instant,
}

impl Stopwatch {
    /// Starts the clocks.
    pub fn start() -> Stopwatch {
        // The CPU clock is expensive to read: it is read first here and last below, so that the
        // wall clock does not include it.
        let cpu = process_cpu_time();
        Stopwatch { cpu, wall: Instant::now() }
    }

    /// The cost since the start.
    pub fn spent(&self) -> Spent {
        let wall = self.wall.elapsed();
        Spent { cpu: process_cpu_time().saturating_sub(self.cpu), wall, amount: 0 }
    }
}

/// The CPU time of this process. Zero where the system does not report it.
#[cfg(unix)]
pub fn process_cpu_time() -> Duration {
    read(libc::CLOCK_PROCESS_CPUTIME_ID).unwrap_or_default()
}

/// Reads a clock.
#[cfg(unix)]
pub(crate) fn read(clock: libc::clockid_t) -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes.
    let failed = unsafe { libc::clock_gettime(clock, &mut time) };
    (failed == 0)
        .then(|| Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32))
}

/// The CPU time of this process, with a resolution of 15.6 ms.
#[cfg(windows)]
pub fn process_cpu_time() -> Duration {
    use windows_sys::Win32::Foundation::FILETIME;
    use windows_sys::Win32::System::Threading::{GetCurrentProcess, GetProcessTimes};

    let zero = FILETIME { dwLowDateTime: 0, dwHighDateTime: 0 };
    let (mut created, mut exited, mut kernel, mut user) = (zero, zero, zero, zero);
    // SAFETY: no memory is passed: the call returns a constant pseudo handle.
    let process = unsafe { GetCurrentProcess() };
    // SAFETY: all four are valid for writes.
    let succeeded =
        unsafe { GetProcessTimes(process, &mut created, &mut exited, &mut kernel, &mut user) };
    if succeeded == 0 {
        return Duration::ZERO;
    }
    // In units of 100 ns.
    let units =
        |time: FILETIME| u64::from(time.dwHighDateTime) << 32 | u64::from(time.dwLowDateTime);
    Duration::from_nanos(100 * (units(kernel) + units(user)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleep_costs_wall_time_and_work_costs_both() {
        let watch = Stopwatch::start();
        std::thread::sleep(Duration::from_millis(20));
        let slept = watch.spent();
        assert!(slept.wall >= Duration::from_millis(20));
        let watch = Stopwatch::start();
        while watch.spent().cpu < Duration::from_millis(20) {
            std::hint::black_box(());
        }
        assert!(watch.spent().cpu >= Duration::from_millis(20));
    }
}
