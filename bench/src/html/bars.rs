//! Bar charts: the contestants in one figure of one scenario, the best first.

use super::svg::{Anchor, Svg};
use crate::report::{times, value};
use crate::results::{Entry, Row};
use crate::scoreboard::{Family, family};
use crate::stats::Verdict;

const WIDTH: f64 = 560.0;
/// The area of the bars; the numbers are to its right.
const LEFT: f64 = 138.0;
const LONGEST: f64 = 250.0;
const TOP: f64 = 50.0;
const STEP: f64 = 23.0;
const THICK: f64 = 14.0;

pub(super) fn class(id: &str) -> &'static str {
    match family(id) {
        Family::Core => "f-core",
        Family::Bare => "f-bare",
        Family::Libuv => "f-libuv",
        Family::Hand => "f-hand",
        Family::Other => "f-other",
    }
}

/// Draws all contestants of a row. The unit has a line of its own: with it some titles would be wider
/// than the chart.
pub(super) fn chart(row: &Row) -> Svg {
    let (title, unit) = (format!("{}, {}", row.figure, row.scenario), row.unit.words());
    let mut entries: Vec<&Entry> = row.entries.iter().collect();
    entries.sort_by(|one, other| {
        let order = one.value.median.total_cmp(&other.value.median);
        if row.unit.less_is_better() { order } else { order.reverse() }
    });
    let height = TOP + STEP * entries.len() as f64 + 8.0;
    let mut svg = Svg::new(WIDTH, height, format!("{title} ({unit})"));
    svg.text("title", (0.0, 14.0), Anchor::Start, title);
    svg.text("note", (0.0, 33.0), Anchor::Start, unit);
    let longest = entries.iter().map(|entry| entry.value.median).fold(0.0, f64::max);
    let length = |value: f64| (LONGEST * value / longest.max(f64::MIN_POSITIVE)).max(1.0);
    svg.line("axis", (LEFT, TOP - 4.0), (LEFT, height - 8.0));
    for (index, entry) in entries.iter().enumerate() {
        let y = TOP + STEP * index as f64;
        let base = y + THICK - 2.0;
        let name = if family(&entry.id) == Family::Core { "strong" } else { "name" };
        svg.text(name, (LEFT - 8.0, base), Anchor::End, &entry.id);
        let number = value(entry.value.median, row.unit);
        let is_baseline = entry.id == row.baseline;
        let ratio = if is_baseline { "1×".into() } else { times(entry.ratio.median) };
        let title = format!(
            "{}: {number}, {ratio} of {} (from {} to {})",
            entry.id,
            row.baseline,
            times(entry.ratio.low),
            times(entry.ratio.high),
        );
        let long = length(entry.value.median);
        svg.bar(class(&entry.id), (LEFT, y), (long, THICK), &title);
        // The confidence interval of the median, clipped to the area.
        let (low, high) = (length(entry.value.low), length(entry.value.high).min(LONGEST * 1.06));
        if high - low > 3.0 {
            let middle = y + THICK / 2.0;
            svg.line("whisker", (LEFT + low, middle), (LEFT + high, middle));
        }
        svg.text("value", (WIDTH - 76.0, base), Anchor::End, number);
        let mark = match entry.verdict {
            _ if is_baseline => "",
            Verdict::Ahead => " +",
            Verdict::Behind => " −",
            Verdict::Level => " =",
            Verdict::NoConclusion => " ?",
        };
        svg.text("value", (WIDTH - 18.0, base), Anchor::End, ratio);
        svg.text("value", (WIDTH - 16.0, base), Anchor::Start, mark);
    }
    svg
}
