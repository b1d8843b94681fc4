//! The table of counts.

use std::collections::BTreeMap;
use std::io::{self, Write};

use console::Style as Paint;

use super::kept::{Cost, Kept, Verdict, compare};
use super::paths::Subject;
use super::{Counted, key};
use crate::report::Style;

/// Writes the table; returns whether any count of uv-core is worse than the baseline.
///
/// # Errors
///
/// Those of writing.
pub(super) fn write(
    rows: &[Counted],
    kept: &Kept,
    style: Style,
    out: &mut dyn Write,
) -> io::Result<bool> {
    let header = format!(
        "{:<18} {:<6} {:>12} {:>9} {:>9} {:>9} {:>9} {:>7}",
        "path", "loop", "instructions", "kept", "change", "of libuv", "calls", "kept"
    );
    writeln!(out, "{}", style.title(&header))?;
    let costs: BTreeMap<String, Cost> = rows.iter().map(|row| (row.key(), row.cost)).collect();
    let (mut worse, mut better, mut unstable) = (0, 0, 0);
    let mut last = "";
    for row in rows {
        let before = kept.costs.get(&row.key()).copied();
        let verdicts = compare(row.cost, before);
        if row.subject != Subject::Libuv {
            let both = [verdicts.0, verdicts.1];
            worse += u32::from(both.contains(&Verdict::Worse));
            better += u32::from(both.contains(&Verdict::Better));
            unstable += u32::from(both.contains(&Verdict::Unstable));
        }
        let libuv = key(row.path, Subject::Libuv);
        let libuv = costs.get(&libuv).or_else(|| kept.costs.get(&libuv)).copied();
        let name = if row.path == last { "" } else { row.path };
        last = row.path;
        writeln!(out, "{}", line(name, row, before, libuv, verdicts, style))?;
    }
    if unstable > 0 {
        writeln!(out, "~ differs by more than 1 % between identical runs and is not compared")?;
    }
    if better > 0 {
        writeln!(
            out,
            "{better} of {} cost less than the baseline: '--accept' stores that",
            rows.len()
        )?;
    }
    if worse > 0 {
        writeln!(out, "{worse} of {} cost over 3 % more than the baseline", rows.len())?;
    }
    Ok(worse > 0)
}

fn line(
    name: &str,
    row: &Counted,
    before: Option<Cost>,
    libuv: Option<Cost>,
    verdicts: (Verdict, Verdict),
    style: Style,
) -> String {
    let none = || "-".to_string();
    let before = before.unwrap_or_default();
    let mark = |stable: bool, text: String| if stable { text } else { format!("~{text}") };
    let instructions = mark(row.cost.instructions.is_some(), grouped(row.measured.0));
    let calls = row
        .measured
        .1
        .map_or_else(none, |calls| mark(row.cost.calls.is_some(), format!("{calls:.2}")));
    let change = match (row.cost.instructions, before.instructions) {
        (Some(now), Some(before)) if before > 0.0 => {
            format!("{:+.1} %", (now / before - 1.0) * 100.0)
        }
        _ => none(),
    };
    let ratio = match libuv.and_then(|libuv| libuv.instructions) {
        Some(libuv) if row.subject != Subject::Libuv && libuv > 0.0 => {
            format!("{:.2}×", row.measured.0 / libuv)
        }
        _ => none(),
    };
    let kept = before.instructions.map_or_else(none, grouped);
    let kept_calls = before.calls.map_or_else(none, |calls| format!("{calls:.2}"));
    let judged = |verdict, text: String| match verdict {
        _ if row.subject == Subject::Libuv => style.faint(&text),
        Verdict::Worse => style.paint(Paint::new().red(), &text),
        Verdict::Better => style.paint(Paint::new().green(), &text),
        Verdict::Unstable => style.paint(Paint::new().yellow(), &text),
        Verdict::Same | Verdict::New => text,
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

    fn row(subject: Subject, instructions: f64, stable: bool) -> Counted {
        let cost = Cost { instructions: stable.then_some(instructions), calls: Some(3.0) };
        Counted { path: "echo-write", subject, cost, measured: (instructions, Some(3.0)) }
    }

    fn kept(instructions: f64) -> Kept {
        let cost = Cost { instructions: Some(instructions), calls: Some(3.0) };
        Kept { compiler: String::new(), costs: [("echo-write/epoll".into(), cost)].into() }
    }

    fn written(rows: &[Counted], kept: &Kept) -> (bool, String) {
        let mut out = Vec::new();
        let worse = write(rows, kept, Style::default(), &mut out).unwrap();
        (worse, String::from_utf8(out).unwrap())
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
        let rows = [row(Subject::Epoll, 1100.0, true), row(Subject::Libuv, 880.0, true)];
        let (worse, text) = written(&rows, &kept(1000.0));
        assert!(worse, "{text}");
        let expected = "echo-write         epoll         1,100     1,000   +10.0 %     1.25×      3.00    3.00";
        assert!(text.lines().any(|line| line == expected), "{text}");
        assert!(text.contains("1 of 2 cost over 3 % more than the baseline"), "{text}");
    }

    #[test]
    fn a_count_that_does_not_repeat_is_marked_and_not_compared() {
        let (worse, text) = written(&[row(Subject::Epoll, 9000.0, false)], &kept(1000.0));
        assert!(!worse, "{text}");
        assert!(text.contains("~9,000") && text.contains("not compared"), "{text}");
    }

    #[test]
    fn libuv_is_shown_and_not_judged() {
        let mut kept = kept(1000.0);
        let cost = kept.costs["echo-write/epoll"];
        kept.costs.insert("echo-write/libuv".into(), cost);
        let (worse, _) = written(&[row(Subject::Libuv, 9000.0, true)], &kept);
        assert!(!worse);
    }
}
