//! Tables: the scoreboard and the values of every chart.

use std::fmt::Write;

use super::svg::escaped;
use crate::losses::{Loss, Losses};
use crate::report::{times, value};
use crate::results::{Entry, Results, Row};
use crate::scoreboard::{Family, Scoreboard, family};
use crate::stats::Verdict;
use crate::suite::Unit;

/// The suites that fit beside each other.
const BESIDE: usize = 11;
/// The losses that are shown without a click.
const WORST: usize = 25;

/// The scoreboard: contestants in rows, suites in columns.
pub(super) fn scoreboard(board: &Scoreboard) -> String {
    // Tables of about the same width.
    let tables = board.suites.len().div_ceil(BESIDE).max(1);
    let beside = board.suites.len().div_ceil(tables).max(1);
    board.suites.chunks(beside).map(|suites| part(board, suites)).collect()
}

fn part(board: &Scoreboard, suites: &[(String, String)]) -> String {
    let mut html =
        String::from("<div class=\"scroll\"><table class=\"board\"><thead><tr><th></th>");
    for (suite, baseline) in suites {
        let (suite, baseline) = (escaped(suite), escaped(baseline));
        let _ = write!(html, "<th>{suite}<small>vs {baseline}</small></th>");
    }
    html += "</tr></thead><tbody>";
    let mut before = None;
    let has_any = |id: &&String| suites.iter().any(|(suite, _)| board.score(id, suite).is_some());
    for id in board.id.iter().filter(has_any) {
        let family = family(id);
        let core = if family == Family::Core { "core" } else { "" };
        let gap = if before.is_some_and(|before| before != family) { "gap" } else { "" };
        before = Some(family);
        let _ = write!(html, "<tr class=\"{core} {gap}\"><td>{}</td>", escaped(id));
        for (suite, baseline) in suites {
            html += &match board.score(id, suite) {
                None => "<td></td>".to_string(),
                Some(_) if id == baseline => "<td class=\"base\">1×</td>".to_string(),
                Some(score) => {
                    let side = if score.ratio >= 1.0 { "up" } else { "down" };
                    let unsure = if 2 * score.sure < score.of { " unsure" } else { "" };
                    // The tone saturates at a ratio of 4.
                    let tone = (score.ratio.ln().abs() / 4_f64.ln()).min(1.0) * 55.0;
                    let (of, sure) = (score.of, score.sure);
                    let ratio = times(score.ratio);
                    let (low, high) = (times(score.low), times(score.high));
                    let (low, high) = (low.trim_end_matches('×'), high.trim_end_matches('×'));
                    let spread = interval(low, high);
                    format!(
                        "<td class=\"score {side}{unsure}\" style=\"--t:{tone:.0}\" \
                         title=\"{sure} of {of} comparisons allow a conclusion\">{ratio}\
                         {spread}</td>"
                    )
                }
            };
        }
        html += "</tr>";
    }
    html + "</tbody></table></div>"
}

/// Where another contestant is better beyond the noise.
pub(super) fn losses(losses: &Losses<'_>) -> String {
    let Losses { losses, compared, doubtful } = losses;
    let mut html = format!(
        "<p>Each of ours (uv-core and uv-async on the platform's best pollers) against the best of \
         all others, hand-written code included, in each figure: {} of {compared} are worse beyond \
         the noise, and {doubtful} allow no conclusion.</p>",
        losses.len()
    );
    if losses.is_empty() {
        return html;
    }
    let (worst, others) = losses.split_at(losses.len().min(WORST));
    html += &losses_table(worst);
    if !others.is_empty() {
        let _ = write!(html, "<details><summary>{} smaller ones</summary>", others.len());
        html += &losses_table(others);
        html += "</details>";
    }
    html
}

/// An interval; nothing for one without an extent: that of a count, or of a single round.
fn interval(low: &str, high: &str) -> String {
    if low == high { String::new() } else { format!("<small>{low}–{high}</small>") }
}

fn losses_table(losses: &[Loss<'_>]) -> String {
    let mut html = String::from(
        "<div class=\"card\"><div class=\"scroll\"><table class=\"losses\"><thead><tr><th>scenario\
         </th><th>figure</th><th>ours</th><th></th><th>the best</th><th></th><th>ratio</th></tr>\
         </thead><tbody>",
    );
    for Loss { row, ours, best, ratio } in losses {
        let number = |entry: &Entry| escaped(&value(entry.value.median, row.unit));
        let _ = write!(
            html,
            "<tr><td>{}: {}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
             <td class=\"behind\">{} {}</td></tr>",
            escaped(&row.suite),
            escaped(&row.scenario),
            escaped(&row.figure),
            escaped(&ours.id),
            number(ours),
            escaped(&best.id),
            number(best),
            times(ratio.median),
            interval(&format!("{:.2}", ratio.low), &format!("{:.2}", ratio.high)),
        );
    }
    html + "</tbody></table></div></div>"
}

/// Every figure of a suite: contestants in rows, scenarios in columns.
pub(super) fn details(results: &Results, suite: &str) -> String {
    let mut html = String::from("<details><summary>All numbers</summary>");
    let mut figures: Vec<&str> = Vec::new();
    let rows: Vec<&Row> = results.rows.iter().filter(|row| row.suite == suite).collect();
    for row in &rows {
        if !figures.contains(&row.figure.as_str()) {
            figures.push(&row.figure);
        }
    }
    for figure in figures {
        let rows: Vec<&&Row> = rows.iter().filter(|row| row.figure == figure).collect();
        html += &table(&rows);
    }
    html += &distributions(results, suite);
    html + "</details>"
}

/// The percentiles over all rounds: contestants in rows, a table for each scenario.
fn distributions(results: &Results, suite: &str) -> String {
    const SHARES: [(f64, &str); 5] =
        [(0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (0.999, "p99.9"), (0.9999, "p99.99")];
    let of = results.distributions.iter().filter(|of| of.suite == suite);
    let (mut html, mut scenario) = (String::new(), None);
    for one in of {
        if scenario != Some(&one.scenario) {
            html += if scenario.is_some() { "</tbody></table></div>" } else { "" };
            scenario = Some(&one.scenario);
            let _ = write!(
                html,
                "<h3>Latency of all rounds together, {}</h3><div class=\"scroll\"><table><thead>\
                 <tr><th></th><th>requests</th>",
                escaped(&one.scenario)
            );
            for (_, name) in SHARES {
                let _ = write!(html, "<th>{name}</th>");
            }
            html += "<th>maximum</th></tr></thead><tbody>";
        }
        let _ = write!(html, "<tr><td>{}</td><td>{}</td>", escaped(&one.id), one.count);
        let times = SHARES.iter().map(|(share, _)| one.quantile(*share));
        for time in times.chain([one.curve.last().map(|(_, time)| *time)]) {
            let text = time.map_or("–".into(), |time| value(time, Unit::WallTimeEach));
            let _ = write!(html, "<td>{text}</td>");
        }
        html += "</tr>";
    }
    html + if scenario.is_some() { "</tbody></table></div>" } else { "" }
}

fn table(rows: &[&&Row]) -> String {
    let first = rows[0];
    let mut html = String::new();
    let (figure, unit, about) = (escaped(&first.figure), first.unit.words(), escaped(&first.about));
    let _ = write!(html, "<h3>{figure} ({unit})</h3><p class=\"about\">{about}</p>");
    html += "<div class=\"scroll\"><table><thead><tr><th></th>";
    let mut all: Vec<&str> = Vec::new();
    for row in rows {
        let _ = write!(html, "<th>{}</th>", escaped(&row.scenario));
        let names = row.entries.iter().chain([&row.again]).map(|entry| entry.id.as_str());
        all.extend(names.filter(|name| !all.contains(name)).collect::<Vec<_>>());
    }
    html += "</tr></thead><tbody>";
    for id in all {
        let _ = write!(html, "<tr><td>{}</td>", escaped(id));
        for row in rows {
            let entry = row.entries.iter().chain([&row.again]).find(|entry| entry.id == id);
            let Some(entry) = entry else {
                html += "<td></td>";
                continue;
            };
            let number = value(entry.value.median, row.unit);
            let (class, mark) = match entry.verdict {
                _ if id == row.baseline => ("", ""),
                Verdict::Ahead => ("ahead", " +"),
                Verdict::Behind => ("behind", " −"),
                Verdict::Level => ("", " ="),
                Verdict::NoConclusion => ("", " ?"),
            };
            let (ratio, spread) = (times(entry.ratio.median), 100.0 * entry.ratio.relative());
            let _ = write!(
                html,
                "<td>{number} <span class=\"{class}\">{ratio}{mark}</span> \
                 <span class=\"spread\">±{spread:.0}%</span></td>"
            );
        }
        html += "</tr>";
    }
    html + "</tbody></table></div>"
}
