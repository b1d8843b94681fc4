//! The report as a table.

use std::io::{self, IsTerminal, Write};

use console::Style as Paint;

use super::options::Selection;
use super::{Finished, Report};
use crate::{Outcome, POINTS};

/// Lists of names wrap at this column.
const WIDTH: usize = 96;

/// The style of the report, according to the terminal.
#[derive(Clone, Copy, Debug, Default)]
pub struct Style {
    /// Use colours.
    pub colour: bool,
    /// Use characters beyond ASCII.
    pub unicode: bool,
}

impl Style {
    /// The capabilities of `out`. Colours need a terminal, unless `NO_COLOR` is set or `TERM` is
    /// `dumb`; symbols need a UTF-8 locale.
    pub fn of(out: &impl IsTerminal) -> Style {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let plain = variable("NO_COLOR").is_some() || variable("TERM").as_deref() == Some("dumb");
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(variable);
        let utf8 = locale.is_some_and(|locale| {
            let locale = locale.to_ascii_lowercase();
            locale.contains("utf-8") || locale.contains("utf8")
        });
        Style {
            colour: out.is_terminal() && !plain,
            // A Windows console accepts any character from Rust's standard streams.
            unicode: utf8 || cfg!(windows) && out.is_terminal(),
        }
    }

    fn paint(self, paint: Paint, text: &str) -> String {
        paint.force_styling(self.colour).apply_to(text).to_string()
    }

    fn title(self, text: &str) -> String {
        self.paint(Paint::new().bold(), text)
    }

    fn faint(self, text: &str) -> String {
        self.paint(Paint::new().dim(), text)
    }

    /// The mark of an outcome, centred in a column.
    fn mark(self, outcome: Option<&Outcome>, width: usize) -> String {
        let (unicode, ascii, paint) = match outcome {
            None => ("", "", Paint::new()),
            Some(Outcome::Pass) => ("✓", "ok", Paint::new().green()),
            Some(Outcome::Fail(_)) => ("✗", "FAIL", Paint::new().red().bold()),
            Some(Outcome::Skip(_)) => ("–", "-", Paint::new().yellow()),
        };
        let mark = if self.unicode { unicode } else { ascii };
        self.paint(paint, &format!("{mark:^width$}"))
    }
}

/// Lists the cases of a selection, by point.
pub(super) fn list(selection: &Selection<'_>, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let mut cases: Vec<_> = selection.iter().flat_map(|(_, cases)| cases).copied().collect();
    // The cases are the same for every backend.
    let mut seen = std::collections::HashSet::new();
    cases.retain(|case| seen.insert(case.path()));
    let mut point = 0;
    for case in &cases {
        if case.point() != point {
            point = case.point();
            writeln!(out, "{}", heading(point, style))?;
        }
        writeln!(out, "  {}", case.path())?;
    }
    let backends: Vec<_> = selection.iter().map(|(candidate, _)| candidate.name()).collect();
    writeln!(out, "\n{} cases for {}", cases.len(), backends.join(", "))
}

fn heading(point: u8, style: Style) -> String {
    style.title(&format!("{point}. {}", POINTS[usize::from(point) - 1]))
}

/// Writes the matrix, then the skips, notes on backends, faults, failures and totals.
pub(super) fn write(report: &Report<'_>, style: Style, out: &mut dyn Write) -> io::Result<()> {
    matrix(report, style, out)?;
    skips(report, style, out)?;
    notes(report, style, out)?;
    faults(report, style, out)?;
    failures(report, style, out)?;
    let (passed, failed, skipped) = report.totals();
    let failed = match failed {
        0 => "0 failed".into(),
        _ => style.paint(Paint::new().red().bold(), &format!("{failed} failed")),
    };
    let seconds = report.time.as_secs_f64();
    writeln!(out, "\n{passed} passed, {failed}, {skipped} skipped in {seconds:.1} s")
}

fn matrix(report: &Report<'_>, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let columns = backends_of(&report.finished);
    let name_of = |one: &Finished| one.case.split("::").last().unwrap_or_default().to_string();
    let margin = report.finished.iter().map(|one| name_of(one).len()).max().unwrap_or(0) + 4;
    let names = columns.iter().map(|backend| format!("{backend:^width$}", width = width(backend)));
    writeln!(out, "{:margin$}{}", "", style.title(names.collect::<String>().trim_end()))?;
    let mut point = 0;
    for row in report.finished.chunk_by(|one, next| one.case == next.case) {
        if row[0].point != point {
            point = row[0].point;
            writeln!(out, "{}", heading(point, style))?;
        }
        let mut line = format!("  {:<width$}", name_of(&row[0]), width = margin - 2);
        for backend in &columns {
            let cell = row.iter().find(|one| one.backend == *backend);
            line += &style.mark(cell.map(|one| &one.outcome), width(backend));
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

fn backends_of(finished: &[Finished]) -> Vec<&'static str> {
    let mut columns = Vec::new();
    for one in finished {
        if !columns.contains(&one.backend) {
            columns.push(one.backend);
        }
    }
    columns
}

/// A column is two characters wider than its backend's name.
fn width(backend: &str) -> usize {
    backend.len().max(4) + 2
}

/// Writes each reason once, with its backends and cases.
fn skips(report: &Report<'_>, style: Style, out: &mut dyn Write) -> io::Result<()> {
    // For each reason, the cases that the same backends skip.
    type Lists<'a> = Vec<(Vec<&'a str>, Vec<&'a str>)>;
    let mut reasons: Vec<(&str, Lists<'_>)> = Vec::new();
    for row in report.finished.chunk_by(|one, next| one.case == next.case) {
        for (why, backends) in skipped(row) {
            let about = entry(&mut reasons, why);
            entry(about, backends).push(&row[0].case);
        }
    }
    if !reasons.is_empty() {
        writeln!(out, "\n{}", style.title("Skipped"))?;
    }
    for (reason, about) in reasons {
        writeln!(out, "  {reason}")?;
        for (backends, cases) in about {
            let backends = format!("    {}:", backends.join(", "));
            writeln!(out, "{backends}{}", style.faint(&wrapped(backends.len(), &cases)))?;
        }
    }
    Ok(())
}

/// The reasons why a case was skipped, and the backends of each.
fn skipped(row: &[Finished]) -> Vec<(&str, Vec<&str>)> {
    let mut skipped = Vec::new();
    for one in row {
        if let Outcome::Skip(why) = &one.outcome {
            entry(&mut skipped, why.as_str()).push(one.backend);
        }
    }
    skipped
}

/// The list under `key`, in the order of first occurrence.
fn entry<K: PartialEq, T>(lists: &mut Vec<(K, Vec<T>)>, key: K) -> &mut Vec<T> {
    let known = lists.iter().position(|(known, _)| *known == key);
    let place = known.unwrap_or_else(|| {
        lists.push((key, Vec::new()));
        lists.len() - 1
    });
    &mut lists[place].1
}

/// Names on the current line, which is filled up to `column`, if they fit; otherwise on further
/// lines.
fn wrapped(column: usize, names: &[&str]) -> String {
    let joined = format!(" {}", names.join(", "));
    if column + joined.len() <= WIDTH {
        return joined;
    }
    let (mut text, mut column) = (String::new(), WIDTH);
    for (index, name) in names.iter().enumerate() {
        let comma = if index + 1 < names.len() { "," } else { "" };
        if column + name.len() + 2 > WIDTH {
            text += "\n     ";
            column = 5;
        }
        text += &format!(" {name}{comma}");
        column += name.len() + 2;
    }
    text
}

/// Notes on each backend: why it cannot run here, or a remark on its results.
fn notes(report: &Report<'_>, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let notes = report.candidates.iter().filter_map(|candidate| match candidate.cases() {
        Err(why) => Some((candidate.name(), format!("not run: {why}"))),
        Ok(_) => Some((candidate.name(), candidate.note()?.into())),
    });
    let mut notes = notes.peekable();
    if notes.peek().is_some() {
        writeln!(out, "\n{}", style.title("Backends"))?;
    }
    for (backend, note) in notes {
        writeln!(out, "  {backend}: {note}")?;
    }
    Ok(())
}

/// The numbers of the faults that the cases of each backend have met.
fn faults(report: &Report<'_>, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let met =
        report.candidates.iter().filter_map(|candidate| Some((candidate, candidate.faults()?)));
    let mut met = met.filter(|(_, counts)| counts.total() > 0).peekable();
    if met.peek().is_some() {
        writeln!(out, "\n{}", style.title("Faults"))?;
    }
    for (candidate, counts) in met {
        writeln!(out, "  {}: {counts}", candidate.name())?;
    }
    Ok(())
}

fn failures(report: &Report<'_>, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let failed: Vec<_> = report
        .finished
        .iter()
        .filter_map(|one| match &one.outcome {
            Outcome::Fail(why) => Some((one, why)),
            _ => None,
        })
        .collect();
    if !failed.is_empty() {
        writeln!(out, "\n{}", style.title("Failed"))?;
    }
    for (one, why) in failed {
        let name = format!("{} {}", one.backend, one.case);
        writeln!(out, "  {}", style.paint(Paint::new().red().bold(), &name))?;
        for line in why.lines() {
            writeln!(out, "    {line}")?;
        }
    }
    Ok(())
}
