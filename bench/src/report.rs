//! Results, for people.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};

use console::Style as Paint;

use crate::results::{Entry, Results, Row};
use crate::stats::Verdict;
use crate::suite::{Suite, Unit};

/// How wide a value, its ratio, its spread and its mark are, with the gap before them.
const CELL: usize = 25;

/// How a report may look.
#[derive(Clone, Copy, Debug, Default)]
pub struct Style {
    /// With colours.
    pub colour: bool,
}

impl Style {
    /// What `out` can show. Colours are for terminals, unless `NO_COLOR` is set or `TERM`
    /// is `dumb`.
    pub fn of(out: &impl IsTerminal) -> Style {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let plain = variable("NO_COLOR").is_some() || variable("TERM").as_deref() == Some("dumb");
        Style { colour: out.is_terminal() && !plain }
    }

    pub(crate) fn paint(self, paint: Paint, text: &str) -> String {
        paint.force_styling(self.colour).apply_to(text).to_string()
    }

    pub(crate) fn title(self, text: &str) -> String {
        self.paint(Paint::new().bold(), text)
    }

    pub(crate) fn faint(self, text: &str) -> String {
        self.paint(Paint::new().dim(), text)
    }

    fn verdict(self, verdict: Verdict, text: &str) -> String {
        let paint = match verdict {
            Verdict::Ahead => Paint::new().green(),
            Verdict::Level => Paint::new(),
            Verdict::Behind => Paint::new().red(),
            Verdict::NoConclusion => Paint::new().yellow(),
        };
        self.paint(paint, text)
    }
}

/// Names the suites, their scenarios, and who runs them.
///
/// # Errors
///
/// Those of writing.
pub fn list(suites: &[Suite], style: Style, out: &mut dyn Write) -> io::Result<()> {
    for suite in suites {
        writeln!(out, "{}: {}", style.title(suite.name), suite.about)?;
        for scenario in &suite.scenarios {
            let figures: Vec<_> = scenario.figures.iter().map(|figure| figure.name).collect();
            let contestants = scenario.entrants.contestants.iter();
            let who: Vec<_> = contestants.map(|contestant| contestant.who.to_string()).collect();
            writeln!(out, "  {}: {}", scenario.name, figures.join(", "))?;
            writeln!(out, "    {}", style.faint(&who.join(", ")))?;
        }
    }
    Ok(())
}

/// Writes a table for each figure: contestants down, scenarios across.
///
/// # Errors
///
/// Those of writing.
pub fn write(results: &Results, style: Style, out: &mut dyn Write) -> io::Result<()> {
    for rows in tables(&results.rows) {
        table(&rows, style, out)?;
    }
    legend(results, style, out)
}

/// The rows by suite and figure, in their order.
fn tables(rows: &[Row]) -> Vec<Vec<&Row>> {
    let mut tables: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        let same =
            |table: &&mut Vec<&Row>| table[0].suite == row.suite && table[0].figure == row.figure;
        match tables.iter_mut().find(same) {
            Some(table) => table.push(row),
            None => tables.push(vec![row]),
        }
    }
    tables
}

fn table(rows: &[&Row], style: Style, out: &mut dyn Write) -> io::Result<()> {
    let first = rows[0];
    let unit = first.unit.words();
    writeln!(out, "\n{} ({unit})", style.title(&format!("{}: {}", first.suite, first.figure)))?;
    for line in wrapped(&first.about, 96) {
        writeln!(out, "  {}", style.faint(&line))?;
    }
    let margin = who_of(rows).iter().map(|who| who.len()).max().unwrap_or(0) + 2;
    let heads = rows.iter().map(|row| format!("{:>CELL$}", row.scenario));
    writeln!(out, "{:margin$}{}", "", style.title(&heads.collect::<String>()))?;
    for who in who_of(rows) {
        let mut line = format!("  {who:<width$}", width = margin - 2);
        for row in rows {
            let is_baseline = row.baseline == who;
            let entry = row.entries.iter().find(|entry| entry.who == who);
            line += &match entry.or((row.again.who == who).then_some(&row.again)) {
                Some(entry) => cell(entry, row.unit, is_baseline, style),
                None => format!("{:>CELL$}", "-"),
            };
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// Everyone in a table: ours first, as they come, and each baseline before its second run.
fn who_of<'a>(rows: &[&'a Row]) -> Vec<&'a str> {
    let mut all: Vec<&str> = Vec::new();
    for row in rows {
        for entry in &row.entries {
            let mut names = vec![entry.who.as_str()];
            if entry.who == row.baseline {
                names.push(&row.again.who);
            }
            all.extend(names.into_iter().filter(|name| !all.contains(name)).collect::<Vec<_>>());
        }
    }
    all
}

/// A value, and how it compares: `26.1 ns  6.95× ±4% +`.
fn cell(entry: &Entry, unit: Unit, is_baseline: bool, style: Style) -> String {
    let value = value(entry.value.median, unit);
    let spread = if is_baseline { entry.value.relative() } else { entry.ratio.relative() };
    let spread = match 100.0 * spread {
        percent @ ..1_000.0 => format!("±{percent:.0}%"),
        _ => "±∞".into(),
    };
    let spread = style.faint(&format!("{spread:>6}"));
    if is_baseline {
        return format!("{value:>9}{:>8}{spread}  ", "1×");
    }
    let mark = match entry.verdict {
        Verdict::Ahead => '+',
        Verdict::Level => '=',
        Verdict::Behind => '-',
        Verdict::NoConclusion => '?',
    };
    let ratio = style.verdict(entry.verdict, &format!("{:>8}", times(entry.ratio.median)));
    let mark = style.verdict(entry.verdict, &format!(" {mark}"));
    format!("{value:>9}{ratio}{spread}{mark}")
}

/// A ratio, in as few digits as tell something.
pub(crate) fn times(ratio: f64) -> String {
    let digits = match ratio {
        ..0.001 => 4,
        ..0.01 => 3,
        ..10.0 => 2,
        ..100.0 => 1,
        _ => 0,
    };
    format!("{ratio:.digits$}×")
}

/// A value with three digits that count.
pub(crate) fn value(value: f64, unit: Unit) -> String {
    let steps: &[(f64, &str)] = match unit {
        Unit::CpuTimeEach | Unit::WallTimeEach => {
            &[(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")]
        }
        Unit::PerCpuSecond | Unit::PerSecond => {
            &[(1e9, "G/s"), (1e6, "M/s"), (1e3, "k/s"), (1.0, "/s")]
        }
        Unit::BytesPerCpuSecond | Unit::BytesPerSecond => {
            &[(1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")]
        }
        Unit::BytesEach => &[(1e6, "MB"), (1e4, "kB"), (1.0, "B")],
        Unit::CallsEach => &[(1.0, "")],
    };
    let (scale, name) =
        steps.iter().find(|(scale, _)| value >= *scale).unwrap_or(&steps[steps.len() - 1]);
    let value = value / scale;
    let digits = match value {
        ..10.0 => 2,
        ..100.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {name}").trim_end().into()
}

/// What the marks mean, who was missing, and whether any of it can be trusted.
fn legend(results: &Results, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let machine = &results.machine;
    writeln!(
        out,
        "\n×: times as good as the baseline (1×), the median of {} rounds; ±: its spread; \
         \"again\": the baseline\nagainst itself, which is noise. {} beyond the noise, {} \
         within 5 %, {} worse beyond the noise, {} no conclusion.",
        results.settings.rounds,
        style.verdict(Verdict::Ahead, "+ better"),
        style.verdict(Verdict::Level, "= level"),
        style.verdict(Verdict::Behind, "-"),
        style.verdict(Verdict::NoConclusion, "?"),
    )?;
    let versions: Vec<_> =
        machine.versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
    let versions = versions.join(", ").replace("rustc rustc", "rustc");
    let load = machine.load.map_or(String::new(), |load| format!(", load {load:.1}"));
    let (processor, cores, system) = (&machine.processor, machine.cores, &machine.system);
    writeln!(out, "{processor}, {cores} cores{load}; {system}; {versions}")?;
    let mut absent: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for one in &results.absent {
        absent.entry(&one.why).or_default().push(&one.who);
    }
    for (why, who) in absent {
        writeln!(out, "{}", style.faint(&format!("not run: {} ({why})", who.join(", "))))?;
    }
    let warn = |text: String| style.paint(Paint::new().yellow(), &text);
    if !results.settings.optimised {
        writeln!(
            out,
            "{}",
            warn("This is a debug build: its numbers mean nothing. Use --release.".into())
        )?;
    }
    if machine.is_busy() {
        writeln!(
            out,
            "{}",
            warn("Others use this machine: trust ratios more than numbers.".into())
        )?;
    }
    let judged = results.rows.iter().flat_map(|row| &row.entries);
    let (doubtful, all) = judged.fold((0, 0), |(doubtful, all), entry| {
        (doubtful + usize::from(entry.verdict == Verdict::NoConclusion), all + 1)
    });
    if doubtful * 4 > all {
        let text = format!(
            "{doubtful} of {all} comparisons allow no conclusion: the machine is too noisy."
        );
        writeln!(out, "{}", warn(text))?;
    }
    Ok(())
}

fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("there is one from the start");
        if !last.is_empty() && last.len() + 1 + word.len() > width {
            lines.push(word.into());
        } else {
            *last += if last.is_empty() { "" } else { " " };
            *last += word;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_three_digits() {
        assert_eq!(value(6.294, Unit::CpuTimeEach), "6.29 ns");
        assert_eq!(value(1_684.0, Unit::WallTimeEach), "1.68 µs");
        assert_eq!(value(0.5, Unit::WallTimeEach), "0.50 ns");
        assert_eq!(value(3_660_000.0, Unit::PerCpuSecond), "3.66 M/s");
        assert_eq!(value(669.4, Unit::CpuTimeEach), "669 ns");
    }
}
