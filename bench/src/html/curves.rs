//! Line charts: the cost of a wait by the number of sources, latency distributions, and latencies by
//! load.

use super::svg::{Anchor, LogAxis, Shape, Svg};
use crate::report::value;
use crate::results::{Distribution, Row};
use crate::suite::Unit;

/// The margins around the lines.
const LEFT: f64 = 70.0;
const TOP: f64 = 60.0;
const RIGHT: f64 = 132.0;
const BOTTOM: f64 = 48.0;
/// The minimum distance between the labels of lines.
const APART: f64 = 16.5;

/// One line: the contestant and its points.
struct Series {
    id: String,
    points: Vec<(f64, f64)>,
}

/// The style class of a line: the colour is that of the facility or of the library, the dash that of
/// what is built on it.
fn class(id: &str) -> String {
    let last = id.split(' ').next_back().unwrap_or(id);
    let known = [
        "select", "poll", "epoll", "uring", "mio", "polling", "tokio", "smol", "compio", "monoio",
        "glommio", "libuv",
    ];
    let known = known.into_iter().find(|name| *name == last).unwrap_or("libuv");
    format!("s-{known}")
}

/// The shape of the points of a line: select and poll cost about the same, so that their lines
/// cross and cover each other.
fn shape(id: &str) -> Shape {
    match id.split(' ').next_back() {
        Some("select") => Shape::Square,
        Some("poll") => Shape::Triangle,
        Some("uring") => Shape::Diamond,
        _ => Shape::Circle,
    }
}

/// The dash of a line: solid for loops and libraries.
fn dash(id: &str) -> &'static str {
    match id.split(' ').next() {
        Some("hand") => " dash-hand",
        Some("bare") => " dash-bare",
        Some("uv-async") => " dash-async",
        _ => "",
    }
}

/// Draws the costs of one figure by the number of sources; one row for each number.
pub(super) fn wait(rows: &[&Row], title: &str, size: (f64, f64)) -> Option<Svg> {
    const SHOWN: [&str; 14] = [
        "uv-core select",
        "uv-core poll",
        "uv-core epoll",
        "uv-core uring",
        "bare select",
        "bare poll",
        "bare epoll",
        "bare uring",
        "hand select",
        "hand poll",
        "hand epoll",
        "hand uring",
        "mio",
        "polling",
    ];
    let series = series(&SHOWN, rows, median);
    let first = rows.first().filter(|_| !series.is_empty())?;
    let mut chart = Chart::new(title, size, &series);
    let unit = first.unit;
    for tick in chart.y.ticks() {
        chart.row(tick, &short(tick, unit));
    }
    for tick in chart.x.ticks() {
        chart.column(tick, &thousands(tick));
    }
    chart.foot("registered sources");
    chart.dashes(&["loop", "bare", "hand"]);
    let describe = |(x, y)| format!("{} sources: {}", thousands(x), value(y, unit));
    chart.series(&series, Some(&describe));
    Some(chart.svg)
}

/// The label of a round value, without trailing zeros.
fn short(tick: f64, unit: Unit) -> String {
    value(tick, unit).replace(".00", "").replace(".0 ", " ")
}

fn thousands(number: f64) -> String {
    match number as u64 {
        number @ 1_000.. => format!("{},{:03}", number / 1_000, number % 1_000),
        number => number.to_string(),
    }
}

/// The contestants of latency charts.
const LIBRARIES: [&str; 14] = [
    "uv-core epoll",
    "uv-core uring",
    "uv-async epoll",
    "uv-async uring",
    "hand epoll",
    "hand uring",
    "libuv",
    "mio",
    "tokio",
    "smol",
    "compio",
    "monoio",
    "glommio",
    "remote",
];

/// What their dashes mean: several of them are on the same facility, and so in one colour.
const STYLES: [&str; 3] = ["loop", "uv-async", "hand"];

/// The median of a contestant in a row.
pub(super) fn median(row: &Row, id: &str) -> Option<f64> {
    Some(row.entries.iter().find(|entry| entry.id == id)?.value.median)
}

/// The lines of contestants that have more than one point: a row is a column of the chart.
fn series(ids: &[&str], rows: &[&Row], value: impl Fn(&Row, &str) -> Option<f64>) -> Vec<Series> {
    let line = |id: &&str| {
        let point = |row: &&Row| Some((row.parameter? as f64, value(row, id)?));
        let points: Vec<_> = rows.iter().filter_map(point).collect();
        (points.len() > 1).then(|| Series { id: id.to_string(), points })
    };
    ids.iter().filter_map(line).collect()
}

/// Draws a latency by the load: one row for each share of the maximum rate.
pub(super) fn loads(
    rows: &[&Row],
    value_of: impl Fn(&Row, &str) -> Option<f64>,
    title: &str,
    size: (f64, f64),
) -> Option<Svg> {
    let series = series(&LIBRARIES, rows, value_of);
    if series.is_empty() {
        return None;
    }
    let mut chart = Chart::new(title, size, &series);
    for tick in chart.y.ticks() {
        chart.row(tick, &short(tick, Unit::WallTimeEach));
    }
    for load in rows.iter().filter_map(|row| row.parameter) {
        chart.column(load as f64, &format!("{load} %"));
    }
    chart.foot("share of the rate that the server answers in a closed loop");
    chart.dashes(&STYLES);
    let describe = |(x, y)| format!("{x:.0} %: {}", value(y, Unit::WallTimeEach));
    chart.series(&series, Some(&describe));
    Some(chart.svg)
}

/// Draws latency distributions: for each share of requests, the time within which they completed.
pub(super) fn latencies(of: &[&Distribution], title: &str, size: (f64, f64)) -> Option<Svg> {
    /// Ticks by the number of nines.
    const MARKS: [(f64, &str); 5] =
        [(0.0, "0"), (0.9, "90 %"), (0.99, "99 %"), (0.999, "99.9 %"), (0.9999, "99.99 %")];
    let nines = |share: f64| 1.0 / (1.0 - share.min(0.9999));
    let series = LIBRARIES.iter().filter_map(|id| {
        let of = of.iter().find(|of| of.id == *id)?;
        let curve = of.curve.iter().filter(|(share, _)| of.holds(*share));
        let points = curve.map(|(share, time)| (nines(*share), *time)).collect();
        Some(Series { id: id.to_string(), points })
    });
    let series: Vec<Series> = series.collect();
    if series.is_empty() {
        return None;
    }
    let mut chart = Chart::new(title, size, &series);
    for tick in chart.y.ticks() {
        chart.row(tick, &short(tick, Unit::WallTimeEach));
    }
    let ends = series.iter().filter_map(|one| Some(one.points.last()?.0));
    let end = ends.fold(0.0, f64::max);
    // Few requests end before the last of the marks.
    for (share, name) in MARKS.into_iter().filter(|(share, _)| nines(*share) <= 1.01 * end) {
        chart.column(nines(share), name);
    }
    chart.foot("share of requests answered within this time");
    chart.dashes(&STYLES);
    chart.series(&series, None);
    Some(chart.svg)
}

/// A chart with axes.
struct Chart {
    svg: Svg,
    x: LogAxis,
    y: LogAxis,
    right: f64,
    bottom: f64,
}

impl Chart {
    fn new(title: &str, (width, height): (f64, f64), series: &[Series]) -> Chart {
        let all: Vec<(f64, f64)> =
            series.iter().flat_map(|series| series.points.iter().copied()).collect();
        let (right, bottom) = (width - RIGHT, height - BOTTOM);
        let x = LogAxis::holding(all.iter().map(|(x, _)| *x), LEFT, right);
        let y = LogAxis::holding(all.iter().map(|(_, y)| *y), bottom, TOP);
        let mut svg = Svg::new(width, height, title);
        svg.text("title", (LEFT - 54.0, 22.0), Anchor::Start, title);
        Chart { svg, x, y, right, bottom }
    }

    fn row(&mut self, at: f64, name: &str) {
        let y = self.y.at(at);
        self.svg.line("grid", (LEFT, y), (self.right, y));
        self.svg.text("tick", (LEFT - 8.0, y + 4.0), Anchor::End, name);
    }

    fn column(&mut self, at: f64, name: &str) {
        let x = self.x.at(at);
        self.svg.line("grid", (x, TOP), (x, self.bottom));
        self.svg.text("tick", (x, self.bottom + 18.0), Anchor::Middle, name);
    }

    fn foot(&mut self, text: &str) {
        let middle = (LEFT + self.right) / 2.0;
        self.svg.text("note", (middle, self.bottom + 38.0), Anchor::Middle, text);
    }

    /// The meaning of the dashes, above the lines.
    fn dashes(&mut self, names: &[&str]) {
        let wide = |name: &str| 52.0 + 7.6 * name.len() as f64;
        let mut x = self.right - names.iter().map(|name| wide(name)).sum::<f64>();
        for name in names {
            let class = format!("curve sample{}", dash(&format!("{name} ")));
            self.svg.path(&class, &[(x, TOP - 12.0), (x + 26.0, TOP - 12.0)], name);
            self.svg.text("note", (x + 32.0, TOP - 8.0), Anchor::Start, name);
            x += wide(name);
        }
    }

    /// Draws the lines, their points if `describe` is given, and their labels.
    fn series(&mut self, all: &[Series], describe: Option<&dyn Fn((f64, f64)) -> String>) {
        let place = |(x, y): (f64, f64)| (self.x.at(x), self.y.at(y));
        let mut ends = Vec::new();
        for Series { id, points } in all {
            let places: Vec<_> = points.iter().map(|point| place(*point)).collect();
            self.svg.path(&format!("curve {}{}", class(id), dash(id)), &places, id);
            if let Some(describe) = describe.filter(|_| dash(id).is_empty()) {
                for (point, at) in points.iter().zip(&places) {
                    let title = format!("{id}, {}", describe(*point));
                    self.svg.point(&class(id), shape(id), *at, &title);
                }
            }
            if let Some((_, y)) = places.last() {
                ends.push((*y, id));
            }
        }
        ends.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut above = f64::MIN;
        let total = APART * ends.len() as f64;
        for (index, (y, id)) in ends.iter().enumerate() {
            // Keep space for the labels below.
            let room = self.bottom + APART - (total - APART * index as f64);
            let at = y.min(room).max(above + APART);
            above = at;
            let name = (self.right + 10.0, at + 4.0);
            self.svg.text(&class(id), name, Anchor::Start, id);
        }
    }
}
