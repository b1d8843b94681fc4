//! The heat map: contestants in rows, scenarios in columns, the ratio to the baseline as a colour.

use super::svg::{Anchor, Svg};
use crate::report::times;
use crate::results::{Results, Row};
use crate::scoreboard::{self, family};
use crate::stats::Verdict;

const LEFT: f64 = 144.0;
/// Below the title and the legend.
const HEAD: f64 = 52.0;
/// The height of a row.
const STEP: f64 = 22.0;
const WIDTH: f64 = 1_100.0;
/// The height and the width of a character of a slanted label.
const RISE: f64 = 5.9;
const RUN: f64 = 4.6;
/// The most scenarios beside each other: more would be too narrow for their names.
const BESIDE: usize = 40;

/// One row of each scenario: that of its main figure.
fn columns(results: &Results) -> Vec<&Row> {
    let mut columns: Vec<&Row> = Vec::new();
    for row in results.rows.iter().filter(|row| scoreboard::counts(row)) {
        let same = |other: &&mut &Row| other.suite == row.suite && other.scenario == row.scenario;
        match columns.iter_mut().find(same) {
            None => columns.push(row),
            // The first figure of a scenario is its main one, except for the suite that is named
            // after another.
            Some(column) if row.figure == row.suite => *column = row,
            Some(_) => {}
        }
    }
    columns
}

/// Draws one figure of each scenario, on as many maps as that needs; none for a single scenario.
pub(super) fn charts(results: &Results) -> Vec<Svg> {
    let columns = columns(results);
    if columns.len() < 2 {
        return Vec::new();
    }
    let maps = columns.len().div_ceil(BESIDE);
    columns.chunks(columns.len().div_ceil(maps)).map(chart).collect()
}

fn chart(columns: &[&Row]) -> Svg {
    let mut ids: Vec<&str> = Vec::new();
    for entry in columns.iter().flat_map(|row| &row.entries) {
        if !ids.contains(&entry.id.as_str()) {
            ids.push(&entry.id);
        }
    }
    ids.sort_by_key(|id| family(id) as usize);
    let labels: Vec<String> = columns.iter().map(|row| label(row)).collect();
    let longest = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0) as f64;
    let last = labels.last().map_or(0, |label| label.chars().count()) as f64;
    let wide = ((WIDTH - LEFT - RUN * last.max(8.0)) / columns.len() as f64).min(40.0);
    let top = HEAD + RISE * longest + 10.0;
    let height = top + STEP * ids.len() as f64 + 16.0;
    let mut svg = Svg::new(WIDTH, height, "All contestants in all scenarios");
    let (first, end) = (&columns[0].suite, &columns[columns.len() - 1].suite);
    let title = format!("All contestants in all scenarios, {first} to {end}");
    svg.text("title", (0.0, 16.0), Anchor::Start, title);
    legend(&mut svg);
    for (index, label) in labels.iter().enumerate() {
        let x = LEFT + wide * (index as f64 + 0.5) + 4.0;
        svg.slanted("tick", (x, top - 6.0), label);
    }
    for (line, id) in ids.iter().enumerate() {
        let y = top + STEP * line as f64;
        let class = if id.starts_with("uv-") { "strong" } else { "name" };
        svg.text(class, (LEFT - 8.0, y + STEP - 6.0), Anchor::End, id);
        for (index, row) in columns.iter().enumerate() {
            let Some(entry) = row.entries.iter().find(|entry| entry.id == *id) else { continue };
            let place = (LEFT + wide * index as f64 + 0.5, y + 0.5);
            let size = (wide - 1.0, STEP - 1.0);
            let ratio = entry.ratio.median;
            let title = format!(
                "{id}, {}: {}, {}: {} of {}",
                row.suite,
                row.scenario,
                row.figure,
                times(ratio),
                row.baseline
            );
            // The colour saturates at a ratio of 4.
            let tone = (ratio.ln().abs() / 4_f64.ln()).min(1.0);
            let class = match () {
                () if *id == row.baseline => "h-base",
                () if ratio >= 1.0 => "h-up",
                () => "h-down",
            };
            let tone = if class == "h-base" { 0.3 } else { tone.max(0.04) };
            svg.cell(class, place, size, tone, &title);
            let unsure = entry.verdict == Verdict::NoConclusion && *id != row.baseline;
            if unsure {
                let middle = (place.0 + size.0 / 2.0, place.1 + STEP / 2.0 + 4.0);
                svg.text("name", middle, Anchor::Middle, "?");
            }
        }
    }
    svg
}

/// The name of a column.
fn label(row: &Row) -> String {
    format!("{}: {}", row.suite, row.scenario)
}

/// What the colours mean.
fn legend(svg: &mut Svg) {
    let mut x = 0.0;
    for (class, tone, name) in [
        ("h-down", 1.0, "¼ or less"),
        ("h-down", 0.4, "0.6"),
        ("h-base", 0.3, "1, the baseline"),
        ("h-up", 0.4, "1.7"),
        ("h-up", 1.0, "4 or more times"),
    ] {
        svg.cell(class, (x, 26.0), (14.0, 14.0), tone, name);
        svg.text("tick", (x + 19.0, 37.5), Anchor::Start, name);
        x += 40.0 + 7.6 * name.chars().count() as f64;
    }
    svg.text("tick", (x, 37.5), Anchor::Start, "? no conclusion");
}
