//! fio beside the others: what the disk and the kernel can do by the tool that everybody knows.
//!
//! It measures itself, in whole milliseconds. Its order of reads is random, and it may not check what
//! it has read.

use std::ffi::OsString;
use std::io;
use std::process::Command;
use std::time::Duration;

use super::job::{Job, PIECE, State};
use crate::clock::Spent;
use crate::suite::{ContestantId, Entrants, Sample};

const FIO: ContestantId = ContestantId::Peer("fio");

pub(super) fn enter(entrants: &mut Entrants, job: &Job) {
    match Command::new("fio").arg("--version").output() {
        Ok(_) => job.enter(entrants, FIO, run),
        Err(_) => entrants.skip(FIO, "not installed: apt-get install fio"),
    }
}

pub(super) fn leave_out(entrants: &mut Entrants) {
    entrants.skip(FIO, "its start takes longer than all reads of a quick run: use '--full'");
}

fn run(job: &Job) -> io::Result<Sample> {
    let output = Command::new("fio").args(arguments(job)?).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let complaint = || {
        let words = String::from_utf8_lossy(&output.stderr);
        io::Error::other(format!("fio: {}", words.lines().next().unwrap_or("no result")))
    };
    let (done, spent) = reading(&said).ok_or_else(complaint)?;
    let (times, each) = (repeats(job), 1.0 / repeats(job) as f64);
    let spent = Spent { cpu: spent.cpu.mul_f64(each), wall: spent.wall.mul_f64(each), amount: 0 };
    Ok(job.sample(done / times, spent))
}

/// How often it repeats the reads of the others: those alone would take too few of its
/// milliseconds. A file that is not cached can be read once only.
fn repeats(job: &Job) -> u64 {
    if job.state == State::Cold { 1 } else { 8 }
}

fn arguments(job: &Job) -> io::Result<Vec<OsString>> {
    let mut name = OsString::from("--filename=");
    name.push(job.path()?);
    let size = job.pieces * PIECE as u64;
    // More reads than pieces are several passes.
    let passes = job.count.div_ceil(job.pieces) * repeats(job);
    let direct = u8::from(job.state == State::Direct);
    let invalidate = u8::from(job.state == State::Cold);
    let rest = format!(
        "--name=reads --ioengine=io_uring --rw=randread --bs={PIECE} --size={size} \
         --loops={passes} --iodepth={} --direct={direct} --invalidate={invalidate} \
         --fadvise_hint=random --output-format=json",
        job.depth
    );
    Ok(rest.split(' ').map(OsString::from).chain([name]).collect())
}

/// The number of reads and their cost in fio's report.
fn reading(report: &str) -> Option<(u64, Spent)> {
    // Remarks may precede it.
    let report: serde_json::Value = serde_json::from_str(&report[report.find('{')?..]).ok()?;
    let job = &report["jobs"][0];
    let done = job["read"]["total_ios"].as_u64()?;
    // The rate is over the time of the reads alone.
    let wall = done as f64 / job["read"]["iops"].as_f64()?;
    let busy = (job["usr_cpu"].as_f64()? + job["sys_cpu"].as_f64()?) / 100.0;
    let wall = Duration::try_from_secs_f64(wall).ok()?;
    Some((done, Spent { cpu: wall.mul_f64(busy), wall, amount: 0 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_and_a_complaint_is_none() {
        let report = r#"fio: a remark
            {"jobs": [{"read": {"total_ios": 500, "iops": 1000.0}, "usr_cpu": 5.0, "sys_cpu": 15.0}]}"#;
        let (done, spent) = reading(report).unwrap();
        assert_eq!((done, spent.wall), (500, Duration::from_millis(500)));
        assert_eq!(spent.cpu, Duration::from_millis(100));
        assert!(reading("fio: no such file").is_none());
        assert!(reading("{}").is_none());
    }
}
