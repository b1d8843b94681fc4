//! The report for terminals.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};

use console::{Style as Paint, Term};

use crate::losses::Losses;
use crate::plan::Timing;
use crate::results::{Entry, Results, Row};
use crate::runner::LEAST_ROUNDS;
use crate::scoreboard::Scoreboard;
use crate::stats::Verdict;
use crate::suite::{Suite, Unit};

/// The width of a cell: value, ratio, spread and mark, with the gap before them.
const CELL: usize = 26;

/// The style of a report.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Use colours.
    pub colour: bool,
    /// The width of a line, in characters.
    pub width: usize,
}

impl Default for Style {
    fn default() -> Style {
        Style { colour: false, width: 120 }
    }
}

impl Style {
    /// The style for `out`. Colours are used on terminals, unless `NO_COLOR` is set or `TERM`
    /// is `dumb`.
    pub fn of(out: &impl IsTerminal) -> Style {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let plain = variable("NO_COLOR").is_some() || variable("TERM").as_deref() == Some("dumb");
        let width = Term::stdout().size_checked().map(|(_, columns)| usize::from(columns));
        let width = width.filter(|_| out.is_terminal()).unwrap_or(Style::default().width);
        Style { colour: out.is_terminal() && !plain, width }
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

/// Lists the suites, their scenarios and contestants.
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
            let id: Vec<_> = contestants.map(|contestant| contestant.id.to_string()).collect();
            writeln!(out, "  {}: {}", scenario.name, figures.join(", "))?;
            writeln!(out, "    {}", style.faint(&id.join(", ")))?;
        }
    }
    Ok(())
}

/// Writes a table for each figure: contestants in rows, scenarios in columns.
///
/// # Errors
///
/// Those of writing.
pub fn write(results: &Results, style: Style, out: &mut dyn Write) -> io::Result<()> {
    for rows in tables(&results.rows) {
        table(&rows, style, out)?;
    }
    ["open", "drive"].into_iter().try_for_each(|suite| tails(results, suite, style, out))
}

/// Writes p99.99 of a suite over all rounds, since a run has too few requests for it.
fn tails(results: &Results, suite: &str, style: Style, out: &mut dyn Write) -> io::Result<()> {
    const WIDE: usize = 16;
    let of = || results.distributions.iter().filter(|of| of.suite == suite);
    let (mut scenarios, mut ids) = (Vec::new(), Vec::new());
    for one in of().filter(|of| of.quantile(0.9999).is_some()) {
        for (list, name) in [(&mut scenarios, &one.scenario), (&mut ids, &one.id)] {
            if !list.contains(&name) {
                list.push(name);
            }
        }
    }
    let margin = ids.iter().map(|id| id.len()).max().unwrap_or(0) + 2;
    for scenarios in scenarios.chunks((style.width.saturating_sub(margin) / WIDE).max(1)) {
        writeln!(out, "\n{}", style.title(&format!("{suite}: p99.99 of all rounds")))?;
        let heads: String = scenarios.iter().map(|name| format!("{name:>WIDE$}")).collect();
        writeln!(out, "{:margin$}{}", "", style.title(&heads))?;
        for id in &ids {
            let cell = |scenario: &&String| {
                let one = of().find(|of| of.scenario == **scenario && of.id == **id)?;
                Some(value(one.quantile(0.9999)?, Unit::WallTimeEach))
            };
            let cells = scenarios.iter().map(|name| cell(name).unwrap_or_else(|| "-".into()));
            let cells: String = cells.map(|text| format!("{text:>WIDE$}")).collect();
            writeln!(out, "  {id:<width$}{cells}", width = margin - 2)?;
        }
    }
    Ok(())
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
    let margin = contestants_of(rows).iter().map(|id| id.len()).max().unwrap_or(0) + 2;
    let fit = (style.width.saturating_sub(margin) / CELL).max(1);
    rows.chunks(fit).try_for_each(|rows| part(rows, margin, style, out))
}

/// Writes as many columns as fit on a line.
fn part(rows: &[&Row], margin: usize, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let heads = rows.iter().map(|row| format!("{:>CELL$}", row.scenario));
    writeln!(out, "{:margin$}{}", "", style.title(&heads.collect::<String>()))?;
    for id in contestants_of(rows) {
        let mut line = format!("  {id:<width$}", width = margin - 2);
        for row in rows {
            let is_baseline = row.baseline == id;
            let entry = row.entries.iter().find(|entry| entry.id == id);
            line += &match entry.or((row.again.id == id).then_some(&row.again)) {
                Some(entry) => cell(entry, row.unit, is_baseline, style),
                None => format!("{:>CELL$}", "-"),
            };
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// The contestants of a table: ours first, in their order, and each baseline before its second run.
fn contestants_of<'a>(rows: &[&'a Row]) -> Vec<&'a str> {
    let mut all: Vec<&str> = Vec::new();
    for row in rows {
        for entry in &row.entries {
            let mut names = vec![entry.id.as_str()];
            if entry.id == row.baseline {
                names.push(&row.again.id);
            }
            all.extend(names.into_iter().filter(|name| !all.contains(name)).collect::<Vec<_>>());
        }
    }
    all
}

/// A value and its comparison: `26.1 ns  6.95× ±4% +`.
fn cell(entry: &Entry, unit: Unit, is_baseline: bool, style: Style) -> String {
    let value = value(entry.value.median, unit);
    let spread = if is_baseline { entry.value.relative() } else { entry.ratio.relative() };
    let spread = match 100.0 * spread {
        _ if entry.values.len() == 1 && !unit.is_exact() => "once".into(),
        percent @ ..1_000.0 => format!("±{percent:.0}%"),
        _ => "±∞".into(),
    };
    let spread = style.faint(&format!("{spread:>6}"));
    if is_baseline {
        return format!("{value:>10}{:>8}{spread}  ", "1×");
    }
    let mark = match entry.verdict {
        Verdict::Ahead => '+',
        Verdict::Level => '=',
        Verdict::Behind => '-',
        Verdict::NoConclusion => '?',
    };
    let ratio = style.verdict(entry.verdict, &format!("{:>8}", times(entry.ratio.median)));
    let mark = style.verdict(entry.verdict, &format!(" {mark}"));
    format!("{value:>10}{ratio}{spread}{mark}")
}

/// A ratio with its significant digits.
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

/// A value with three significant digits.
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
        Unit::BytesEach => &[(1e6, "MB"), (1e3, "kB"), (1.0, "B")],
        Unit::CallsEach | Unit::InstructionsEach => &[(1.0, "")],
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

/// Writes the legend, the missing contestants and warnings.
///
/// # Errors
///
/// Those of writing.
pub fn legend(results: &Results, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let machine = &results.machine;
    writeln!(
        out,
        "\n×: factor against the baseline (1×, more is better), the median of {}{} rounds; ±: its spread; \
         \"again\": the baseline\nagainst itself, which is noise. {} beyond the noise, {} \
         within 5 %, {} worse beyond the noise, {} no conclusion.",
        if results.timings.iter().all(|timing| timing.enough) { "" } else { "up to " },
        results.settings.rounds,
        style.verdict(Verdict::Ahead, "+ better"),
        style.verdict(Verdict::Level, "= level"),
        style.verdict(Verdict::Behind, "-"),
        style.verdict(Verdict::NoConclusion, "?"),
    )?;
    let versions: Vec<_> =
        machine.versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
    let versions = versions.join(", ").replace("rustc rustc", "rustc");
    let mut load = machine.load.map_or(String::new(), |load| format!(", load {load:.1}"));
    if let Some(share) = results.settings.foreign_share {
        load += &format!(", others used {:.0} %", 100.0 * share);
    }
    let (processor, cores, system) = (&machine.processor, machine.cores, &machine.system);
    writeln!(out, "{processor}, {cores} cores{load}; {system}; {versions}")?;
    for note in &results.notes {
        writeln!(out, "{}", style.paint(Paint::new().yellow(), note))?;
    }
    for (why, id) in absent(results) {
        writeln!(out, "{}", style.faint(&format!("not run: {} ({why})", id.join(", "))))?;
    }
    for warning in warnings(results) {
        writeln!(out, "{}", style.paint(Paint::new().yellow(), &warning))?;
    }
    Ok(())
}

/// The missing contestants, by reason.
pub(crate) fn absent(results: &Results) -> BTreeMap<&str, Vec<&str>> {
    let mut absent: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for one in &results.absent {
        absent.entry(&one.why).or_default().push(&one.id);
    }
    absent
}

/// The reasons not to trust the numbers.
pub(crate) fn warnings(results: &Results) -> Vec<String> {
    let mut warnings = Vec::new();
    if !results.settings.optimised {
        warnings.push("This is a debug build: its numbers are meaningless. Use --release.".into());
    }
    if results.machine.is_busy() || results.settings.foreign_share.is_some_and(|share| share > 0.1)
    {
        warnings.push(
            "Other programs use this machine: trust ratios more than absolute values.".into(),
        );
    }
    if results.machine.cores < 2 {
        warnings
            .push("Servers and clients share one core: wall-clock rates are unreliable.".into());
    }
    let judged = results.rows.iter().flat_map(|row| row.entries.iter().map(move |one| (row, one)));
    let judged = judged.filter(|(row, entry)| entry.id != row.baseline);
    let (doubtful, all) = judged.fold((0, 0), |(doubtful, all), (_, entry)| {
        (doubtful + usize::from(entry.verdict == Verdict::NoConclusion), all + 1)
    });
    warnings.extend(short(results));
    if doubtful * 4 > all {
        warnings.push(format!(
            "{doubtful} of {all} comparisons allow no conclusion: the machine is too noisy. Use a \
             quieter one, '--full' or more '--rounds'."
        ));
    }
    warnings
}

/// The scenarios whose time was too short for a conclusion: by name if they are few, else by suite.
fn short(results: &Results) -> Option<String> {
    const FEW: usize = 6;
    let short: Vec<_> = results.timings.iter().filter(|timing| !timing.enough).collect();
    let runs = |rounds: usize| if rounds == 1 { "once".into() } else { format!("{rounds} rounds") };
    let names: Vec<String> = if short.len() <= FEW {
        let name = |one: &&Timing| format!("{} {} ({})", one.suite, one.scenario, runs(one.rounds));
        short.iter().map(name).collect()
    } else {
        let mut suites: Vec<&str> = short.iter().map(|timing| timing.suite.as_str()).collect();
        suites.dedup();
        let name = |suite: &str| {
            let of = || results.timings.iter().filter(move |timing| timing.suite == suite);
            let few = of().filter(|timing| !timing.enough).count();
            match of().count() {
                all if all == few => suite.to_string(),
                all => format!("{suite} ({few} of {all})"),
            }
        };
        suites.into_iter().map(name).collect()
    };
    (!short.is_empty()).then(|| {
        let fewest = short.iter().map(|timing| timing.rounds).min().unwrap_or(0);
        format!(
            "{} of {} scenarios had too little time for a conclusion: {}. They ran fewer than \
             {LEAST_ROUNDS} rounds, at least {}: use '--suite', or a larger '--budget'.",
            short.len(),
            results.timings.len(),
            names.join(", "),
            if fewest == 1 { "one".into() } else { fewest.to_string() },
        )
    })
}

/// Writes the scoreboard: contestants in rows, suites in columns.
///
/// # Errors
///
/// Those of writing.
pub fn scoreboard(results: &Results, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let board = Scoreboard::of(results);
    let margin = board.id.iter().map(|id| id.len()).max().unwrap_or(0) + 2;
    let longest = board.suites.iter().map(|(suite, _)| suite.len()).max().unwrap_or(0);
    let wide = (longest + 1).max(8);
    let room = style.width.saturating_sub(margin) / wide;
    for suites in board.suites.chunks(room.max(1)) {
        let heads: String = suites.iter().map(|(suite, _)| format!("{suite:>wide$}")).collect();
        writeln!(out, "\n{:margin$}{}", "", style.title(&heads))?;
        for id in &board.id {
            if suites.iter().all(|(suite, _)| board.score(id, suite).is_none()) {
                continue;
            }
            let mut line = format!("  {id:<width$}", width = margin - 2);
            for (suite, baseline) in suites {
                line += &match board.score(id, suite) {
                    None => format!("{:>wide$}", ""),
                    Some(_) if id == baseline => style.faint(&format!("{:>wide$}", "1×")),
                    Some(score) => {
                        let text = format!("{:>wide$}", times(score.ratio));
                        let verdict = match score.ratio {
                            _ if 2 * score.sure < score.of => Verdict::NoConclusion,
                            ratio if ratio > 1.05 => Verdict::Ahead,
                            ratio if ratio < 0.95 => Verdict::Behind,
                            _ => Verdict::Level,
                        };
                        style.verdict(verdict, &text)
                    }
                };
            }
            writeln!(out, "{}", line.trim_end())?;
        }
    }
    let line = "Geometric mean of each suite: factor against the baseline (1×), more is better. Yellow: \
                fewer than half of the comparisons allow a conclusion.";
    writeln!(out, "{}", style.faint(line))
}

/// Writes the worst losses against the best of the others; the page has all of them.
///
/// # Errors
///
/// Those of writing.
pub fn losses(results: &Results, style: Style, out: &mut dyn Write) -> io::Result<()> {
    const SHOWN: usize = 5;
    let Losses { losses, compared, doubtful } = Losses::of(results);
    writeln!(
        out,
        "\n{}: in {} of {compared} comparisons with the best of the others; {doubtful} allow no \
         conclusion.",
        style.title("Where we lose"),
        losses.len(),
    )?;
    for loss in losses.iter().take(SHOWN) {
        let (row, ours, best) = (loss.row, loss.ours, loss.best);
        let ratio = style.verdict(Verdict::Behind, &format!("{:>8}", times(loss.ratio.median)));
        let what = format!("{}, {}, {}", row.suite, row.scenario, row.figure);
        let number = |entry: &Entry| value(entry.value.median, row.unit);
        let (our_number, best_number) = (number(ours), number(best));
        writeln!(out, "{ratio}  {what}: {} {our_number}, {} {best_number}", ours.id, best.id)?;
    }
    if losses.len() > SHOWN {
        writeln!(out, "{}", style.faint("          and others, which the page has"))?;
    }
    Ok(())
}

fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("the list starts with one line");
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
    fn scenarios_that_were_short_of_time_are_named() {
        use crate::machine::Machine;
        use crate::network::Network;
        use crate::results::Settings;
        use crate::runner::Measured;

        let settings = Settings {
            scale: "quick".into(),
            rounds: 7,
            budget: Some(60.0),
            seed: 1,
            cores: None,
            network: Network::Loopback,
            foreign_share: None,
            optimised: true,
            seconds: 60.0,
        };
        let timing = |scenario: &str, rounds| Timing {
            suite: "echo".into(),
            scenario: scenario.into(),
            rounds,
            enough: rounds == 7,
            seconds: 1.0,
        };
        let measured =
            Measured { timings: vec![timing("1", 7), timing("2", 3)], ..Measured::default() };
        let mut results = Results::new(settings, Machine::here(), Vec::new(), measured);
        let words = short(&results).unwrap();
        assert!(words.starts_with("1 of 2 scenarios") && words.contains(": echo 2 (3 rounds)."));
        results.timings.pop();
        assert_eq!(short(&results), None);
        // Many are summed up by suite.
        results.timings.extend((0..9).map(|number| timing(&number.to_string(), 1)));
        let words = short(&results).unwrap();
        assert!(words.contains(": echo (9 of 10).") && words.contains("at least one"), "{words}");
    }

    #[test]
    fn values_have_three_digits() {
        assert_eq!(value(6.294, Unit::CpuTimeEach), "6.29 ns");
        assert_eq!(value(1_684.0, Unit::WallTimeEach), "1.68 µs");
        assert_eq!(value(0.5, Unit::WallTimeEach), "0.50 ns");
        assert_eq!(value(3_660_000.0, Unit::PerCpuSecond), "3.66 M/s");
        assert_eq!(value(669.4, Unit::CpuTimeEach), "669 ns");
        assert_eq!(value(63_300.0, Unit::BytesEach), "63.3 kB");
    }
}
