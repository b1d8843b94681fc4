//! The two clocks that runs are charged by.

use std::time::{Duration, Instant};

/// What a run took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// CPU time of the whole process: every thread, the kernel's part included.
    pub cpu: Duration,
    /// Time on the wall.
    pub wall: Duration,
    /// How much of something that is no time: bytes, or calls.
    pub amount: u64,
}

/// Reads both clocks, twice.
#[derive(Debug)]
pub struct Stopwatch {
    cpu: Duration,
    wall: Instant,
}

impl Stopwatch {
    /// Starts.
    pub fn start() -> Stopwatch {
        // The clock that is dear to read is read first here and last below, so that the
        // other one does not count it.
        let cpu = process_cpu_time();
        Stopwatch { cpu, wall: Instant::now() }
    }

    /// What has been spent since.
    pub fn spent(&self) -> Spent {
        let wall = self.wall.elapsed();
        Spent { cpu: process_cpu_time().saturating_sub(self.cpu), wall, amount: 0 }
    }
}

/// The CPU time that this process has used. Zero where the system does not tell.
#[cfg(unix)]
pub fn process_cpu_time() -> Duration {
    read(libc::CLOCK_PROCESS_CPUTIME_ID).unwrap_or_default()
}

/// What a clock shows.
#[cfg(unix)]
pub(crate) fn read(clock: libc::clockid_t) -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes.
    let failed = unsafe { libc::clock_gettime(clock, &mut time) };
    (failed == 0)
        .then(|| Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32))
}

/// The CPU time that this process has used, in steps of a clock tick (15.6 ms).
#[cfg(windows)]
pub fn process_cpu_time() -> Duration {
    use windows_sys::Win32::Foundation::FILETIME;
    use windows_sys::Win32::System::Threading::{GetCurrentProcess, GetProcessTimes};

    let zero = FILETIME { dwLowDateTime: 0, dwHighDateTime: 0 };
    let (mut created, mut exited, mut kernel, mut user) = (zero, zero, zero, zero);
    // SAFETY: takes nothing and cannot fail.
    let process = unsafe { GetCurrentProcess() };
    // SAFETY: all four are valid for writes.
    let told =
        unsafe { GetProcessTimes(process, &mut created, &mut exited, &mut kernel, &mut user) };
    if told == 0 {
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
