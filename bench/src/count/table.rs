//! The table of counts.

use std::collections::BTreeMap;
use std::io::{self, Write};

use console::Style as Paint;

use super::kept::{Cost, Kept, Verdict};
use super::paths::Subject;
use super::{Counted, key};
use crate::report::Style;

/// The command that stores new numbers.
const ACCEPT: &str = "cargo run --release -p bench -- count --accept";

/// Writes the table.
///
/// # Errors
///
/// Those of writing.
pub(super) fn write(
    rows: &[Counted],
    kept: &Kept,
    style: Style,
    out: &mut dyn Write,
) -> io::Result<()> {
    let header = format!(
        "{:<18} {:<6} {:>12} {:>9} {:>9} {:>9} {:>9} {:>7}",
        "path", "loop", "instructions", "kept", "change", "of libuv", "calls", "kept"
    );
    writeln!(out, "{}", style.title(&header))?;
    let costs: BTreeMap<String, Cost> = rows.iter().map(|row| (row.key(), row.cost)).collect();
    let mut last = "";
    for row in rows {
        let libuv = key(row.path, Subject::Libuv);
        let libuv = costs.get(&libuv).or_else(|| kept.costs.get(&libuv)).copied();
        let name = if row.path == last { "" } else { row.path };
        last = row.path;
        writeln!(out, "{}", line(name, row, kept, libuv, style))?;
    }
    if rows.iter().any(|row| row.unsteady) {
        let note = "~ differs by more than 1 % between identical runs: the least is compared";
        writeln!(out, "{note}")?;
    }
    Ok(())
}

/// Names what differs from the baseline, and what to do; returns whether any count of uv-core is
/// worse than the baseline, or has nothing to be compared with.
///
/// # Errors
///
/// Those of writing.
pub(super) fn judge(
    rows: &[Counted],
    kept: &Kept,
    style: Style,
    out: &mut dyn Write,
) -> io::Result<bool> {
    let ours = || rows.iter().filter(|row| row.subject != Subject::Libuv);
    if kept.costs.is_empty() {
        let arch = std::env::consts::ARCH;
        writeln!(out, "The baseline has no numbers of {arch}: nothing is compared.")?;
        writeln!(out, "To store these: {ACCEPT}")?;
        return Ok(false);
    }
    let (mut worse, mut missing, mut better) = (Vec::new(), Vec::new(), 0);
    for row in ours() {
        let before = kept.costs.get(&row.key()).copied().unwrap_or_default();
        let (instructions, calls) = kept.compare(&row.key(), row.cost);
        if instructions == Verdict::Worse {
            worse.push(changed(row, "instructions", row.cost.instructions, before.instructions));
        }
        if calls == Verdict::Worse {
            worse.push(changed(row, "system calls", row.cost.calls, before.calls));
        }
        if [instructions, calls].contains(&Verdict::New) {
            missing.push(row.key());
        }
        better += u32::from([instructions, calls].contains(&Verdict::Better));
    }
    let percent = 100.0 * kept.tolerance();
    if better > 0 {
        writeln!(
            out,
            "{better} of {} cost over {percent:.0} % less than the baseline; to keep them there: {ACCEPT}",
            ours().count()
        )?;
    }
    if kept.is_of_another_compiler() {
        let (then, now) = (kept.compiler.as_str(), env!("VERSION_OF_RUSTC"));
        writeln!(
            out,
            "The baseline is of another compiler: {then}; this is {now}.\nThat generates other \
             code, and a difference may be the compiler's: up to {percent:.0} % pass. To judge a \
             change,\ncount with the same compiler, or first store the numbers of this one without \
             the change."
        )?;
    }
    let bad = |text: &str| style.paint(Paint::new().red(), text);
    for line in &worse {
        writeln!(out, "{}", bad(line))?;
    }
    if !missing.is_empty() {
        writeln!(out, "{}", bad(&format!("not in the baseline: {}", missing.join(", "))))?;
    }
    let failed = !worse.is_empty() || !missing.is_empty();
    if failed {
        if !worse.is_empty() {
            let why = "The profiles of '--profiles FOLDER' show where, by callgrind_annotate.";
            writeln!(out, "More than {percent:.0} % above the baseline is a failure. {why}")?;
        }
        writeln!(out, "If it is intended: {ACCEPT}")?;
    }
    Ok(failed)
}

/// One number that is too high: the path, both numbers and the difference.
fn changed(row: &Counted, what: &str, now: Option<f64>, before: Option<f64>) -> String {
    let (now, before) = (now.unwrap_or_default(), before.unwrap_or_default());
    let text = |value: f64| if value < 100.0 { format!("{value:.2}") } else { grouped(value) };
    let percent = match before > 0.0 {
        true => format!(" ({:+.1} %)", (now / before - 1.0) * 100.0),
        false => String::new(),
    };
    format!("{}: {} {what}, kept {}{percent}", row.key(), text(now), text(before))
}

fn line(name: &str, row: &Counted, kept: &Kept, libuv: Option<Cost>, style: Style) -> String {
    let none = || "-".to_string();
    let before = kept.costs.get(&row.key()).copied().unwrap_or_default();
    let verdicts = kept.compare(&row.key(), row.cost);
    let mark = if row.unsteady { "~" } else { "" };
    let counted = |value: Option<f64>, text: &dyn Fn(f64) -> String| value.map_or_else(none, text);
    let instructions = counted(row.cost.instructions, &|count| format!("{mark}{}", grouped(count)));
    // Adding zero turns a negative one into zero.
    let hundredths = |calls: f64| format!("{:.2}", (100.0 * calls).round() / 100.0 + 0.0);
    let calls = counted(row.cost.calls, &hundredths);
    let change = match (row.cost.instructions, before.instructions) {
        (Some(now), Some(before)) if before > 0.0 => {
            format!("{:+.1} %", (now / before - 1.0) * 100.0)
        }
        _ => none(),
    };
    let ratio = match (row.cost.instructions, libuv.and_then(|libuv| libuv.instructions)) {
        (Some(now), Some(libuv)) if row.subject != Subject::Libuv && libuv > 0.0 => {
            format!("{:.2}×", now / libuv)
        }
        _ => none(),
    };
    let kept = counted(before.instructions, &grouped);
    let kept_calls = counted(before.calls, &hundredths);
    let judged = |verdict, text: String| match verdict {
        _ if row.subject == Subject::Libuv => style.faint(&text),
        Verdict::Worse => style.paint(Paint::new().red(), &text),
        Verdict::Better => style.paint(Paint::new().green(), &text),
        Verdict::New => style.paint(Paint::new().yellow(), &text),
        Verdict::Same | Verdict::NotCounted => text,
    };
    format!(
        "{name:<18} {:<6} {} {kept:>9} {} {ratio:>9} {} {kept_calls:>7}",
        row.subject.name(),
        judged(verdicts.0, format!("{instructions:>12}")),
        judged(verdicts.0, format!("{change:>9}")),
        judged(verdicts.1, format!("{calls:>9}")),
    )
}

/// A whole number with a comma before each group of three digits.
fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    if value < -0.5 { format!("-{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(subject: Subject, instructions: f64) -> Counted {
        let cost = Cost { instructions: Some(instructions), calls: Some(3.0) };
        Counted { path: "echo-write", subject, cost, unsteady: false }
    }

    fn kept(instructions: f64) -> Kept {
        let cost = Cost { instructions: Some(instructions), calls: Some(3.0) };
        Kept { compiler: String::new(), costs: [("echo-write/epoll".into(), cost)].into() }
    }

    fn written(rows: &[Counted], kept: &Kept) -> (bool, String) {
        let mut out = Vec::new();
        write(rows, kept, Style::default(), &mut out).unwrap();
        let failed = judge(rows, kept, Style::default(), &mut out).unwrap();
        (failed, String::from_utf8(out).unwrap())
    }

    #[test]
    fn digits_are_grouped() {
        let numbers = [(0.2, "0"), (999.6, "1,000"), (1_234_567.0, "1,234,567"), (-2.0, "-2")];
        for (number, text) in numbers {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn a_row_has_the_change_and_the_ratio_to_libuv() {
        let rows = [row(Subject::Epoll, 1010.0), row(Subject::Libuv, 808.0)];
        let (failed, text) = written(&rows, &kept(1000.0));
        assert!(!failed, "{text}");
        let expected = "echo-write         epoll         1,010     1,000    +1.0 %     1.25×      3.00    3.00";
        assert!(text.lines().any(|line| line == expected), "{text}");
    }

    #[test]
    fn a_failure_names_the_path_both_numbers_and_the_command() {
        let (failed, text) = written(&[row(Subject::Epoll, 1100.0)], &kept(1000.0));
        assert!(failed, "{text}");
        let expected = "echo-write/epoll: 1,100 instructions, kept 1,000 (+10.0 %)";
        assert!(text.lines().any(|line| line == expected), "{text}");
        assert!(text.contains("-- count --accept"), "{text}");
    }

    #[test]
    fn what_differs_between_identical_runs_is_marked_and_compared() {
        let row = Counted { unsteady: true, ..row(Subject::Epoll, 9000.0) };
        let (failed, text) = written(&[row], &kept(1000.0));
        assert!(failed, "{text}");
        assert!(text.contains("~9,000") && text.contains("the least is compared"), "{text}");
    }

    #[test]
    fn a_path_without_a_kept_number_is_a_failure() {
        let row = Counted { path: "read", ..row(Subject::Uring, 9000.0) };
        let (failed, text) = written(std::slice::from_ref(&row), &kept(1000.0));
        assert!(failed && text.contains("not in the baseline: read/uring"), "{text}");
        // Another architecture has no numbers at all.
        let (failed, text) = written(&[row], &Kept::default());
        assert!(!failed && text.contains("nothing is compared"), "{text}");
    }

    #[test]
    fn another_compiler_is_named_with_what_it_means() {
        let kept = Kept { compiler: "rustc 1.0.0".into(), ..kept(1000.0) };
        let (failed, text) = written(&[row(Subject::Epoll, 1080.0)], &kept);
        assert!(!failed, "{text}");
        assert!(text.contains("another compiler: rustc 1.0.0"), "{text}");
    }

    #[test]
    fn libuv_is_shown_and_not_judged() {
        let mut kept = kept(1000.0);
        let cost = kept.costs["echo-write/epoll"];
        kept.costs.insert("echo-write/libuv".into(), cost);
        let (failed, _) = written(&[row(Subject::Libuv, 9000.0)], &kept);
        assert!(!failed);
    }
}
