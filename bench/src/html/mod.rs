//! The report as one self-contained HTML file without scripts.

mod bars;
mod curves;
mod heat;
mod svg;
mod tables;

use std::fmt::Write;

use self::svg::escaped;
use crate::losses::Losses;
use crate::report::{self, times};
use crate::results::{Distribution, Results, Row};
use crate::scoreboard::Scoreboard;

/// Colours and strokes of all charts, for light and dark mode.
const STYLE: &str = include_str!("style.css");
const PAGE: &str = include_str!("page.css");

/// The title and introduction of each suite.
const SUITES: [(&str, &str, &str); 22] = [
    (
        "wait",
        "Waiting",
        "The cost of a poller by the number of registered sources. select and poll scan all of them in \
     each wait; epoll and io_uring process only ready ones. Hand is hand-written code on the \
     system call, bare a backend through its trait, loop uv-core's loop on that backend.",
    ),
    (
        "echo",
        "Echo over TCP",
        "An echo server pinned to one core, with the clients on another. \
     Connections × request size × requests in flight per connection.",
    ),
    ("connect", "Connections", "Connect, one request of 64 bytes, reset."),
    ("pump", "One-way pump", "Bytes that a server reads and discards."),
    (
        "open",
        "Latency under load",
        "Requests at times that do not depend on the server, at shares of its own maximum. Latency \
     counts from the intended time: there is no coordinated omission.",
    ),
    ("drive", "Another host", "A server that 'bench serve' runs elsewhere, closed and open loop."),
    ("http", "HTTP/1.1", "A short text for each request, by the same parser in every server."),
    (
        "mixed",
        "Unequal connections",
        "Many idle connections, slow readers, or a bulk transfer beside the measured ones.",
    ),
    ("handlers", "Handlers", "Handlers that compute, or answer from a timer."),
    ("threads", "Threads", "A loop in each of several threads."),
    ("tasks", "Tasks", "Futures: spawn, join, and messages between tasks."),
    ("udp", "UDP", "Datagrams of 64 bytes, both ends in one loop."),
    ("timers", "Timers", "Created, started, stopped, restarted, fired."),
    ("iterations", "Loop iterations", "The cost of an iteration without events."),
    ("async", "Wake-ups", "Another thread wakes a loop."),
    ("pool", "Thread pool", "Empty jobs, to a pool thread and back."),
    ("files", "Files", "Read and stat of cached files."),
    (
        "reads",
        "File reads",
        "Reads of 4 KiB of a file that is cached, that is not, and past the cache (O_DIRECT), by the \
     number in flight.",
    ),
    ("spawn", "Processes", "Children that exit immediately."),
    ("memory", "Memory", "Memory of idle handles and connections."),
    (
        "instructions",
        "Instructions",
        "User instructions of a TCP server per request, counted by callgrind. The counts repeat.",
    ),
    (
        "calls",
        "System calls and allocations",
        "System calls and allocations of a TCP server per request. The counts are \
     deterministic.",
    ),
];

/// The chart of wait costs as a separate file; `None` if that was not measured.
pub fn wait_chart(results: &Results) -> Option<String> {
    let title = "Cost of one wait with one active source, CPU time";
    Some(curves::wait(&figure(results, "wait", "wait"), title, (760.0, 460.0))?.file())
}

/// Renders the page.
pub fn page(results: &Results) -> String {
    let board = Scoreboard::of(results);
    let mut html = String::from(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>One event loop, any poller: measured</title><style>",
    );
    html += STYLE;
    html += PAGE;
    html += "</style></head><body><main>";
    head(&mut html, results);
    tiles(&mut html, &board);
    html += "<h2 id=\"scoreboard\">Scoreboard</h2><p>Geometric mean of the ratios to the \
             baseline (1×) over a suite, and its interval by a bootstrap over the rounds; above 1 \
             is better. Grey: fewer than half of the comparisons allow a conclusion.</p>\
             <div class=\"card\">";
    html += &tables::scoreboard(&board);
    html += "</div>";
    for map in heat::charts(results) {
        html += "<div class=\"grid\"><div class=\"card wide\">";
        html += &map.element();
        html += "</div></div>";
    }
    html += "<h2 id=\"losses\">Where we lose</h2>";
    html += &tables::losses(&Losses::of(results));
    for (name, title, about) in SUITES {
        if results.rows.iter().any(|row| row.suite == name) {
            section(&mut html, results, (name, title, about));
        }
    }
    // Suites that this list does not contain.
    for (name, _) in &board.suites {
        if SUITES.iter().all(|(known, ..)| known != name) {
            section(&mut html, results, (name, name, ""));
        }
    }
    foot(&mut html, results);
    html + "</main></body></html>\n"
}

fn head(html: &mut String, results: &Results) {
    let (machine, settings) = (&results.machine, &results.settings);
    *html += "<h1>One event loop, any poller: measured</h1><p class=\"lead\">select, poll, epoll \
              and io_uring, bare and under uv-core, beside hand-written loops and other \
              libraries, in interleaved rounds on one machine.</p><div class=\"facts\">";
    let mut fact = |name: &str, what: String| {
        let _ = write!(html, "<span>{name} <b>{}</b></span>", escaped(&what));
    };
    fact("Processor", machine.processor.clone());
    fact("Cores", machine.cores.to_string());
    fact("System", machine.system.clone());
    if let Some(load) = machine.load {
        fact("Load before", format!("{load:.1}"));
    }
    if let Some(share) = results.settings.foreign_share {
        fact("Other programs during the run", format!("{:.0} % of the machine", 100.0 * share));
    }
    for (name, what) in &machine.facts {
        fact(name, what.clone());
    }
    for (name, version) in &machine.versions {
        fact(name, version.trim_start_matches("rustc ").into());
    }
    fact("Run", format!("{}, {:.0} s", settings.scale, settings.seconds));
    let short = settings.budget.is_some();
    fact("Rounds", format!("{}{}", if short { "up to " } else { "" }, settings.rounds));
    if let Some((server, clients)) = settings.cores {
        fact("Pinned", format!("servers to core {server}, clients to core {clients}"));
    }
    fact("Seed", format!("{:#x}", settings.seed));
    *html += "</div>";
    for warning in report::warnings(results) {
        let _ = write!(html, "<p class=\"warn\">{}</p>", escaped(&warning));
    }
    for (why, id) in report::absent(results) {
        let (id, why) = (escaped(&id.join(", ")), escaped(why));
        let _ = write!(html, "<p class=\"absent\">Not run: <b>{id}</b> ({why})</p>");
    }
    *html += "<nav><a href=\"#scoreboard\">Scoreboard</a><a href=\"#losses\">Where we lose</a>";
    for (name, title, _) in SUITES {
        if results.rows.iter().any(|row| row.suite == name) {
            let _ = write!(html, "<a href=\"#{name}\">{title}</a>");
        }
    }
    *html += "</nav>";
}

/// The default backend compared with peers, as a few numbers.
fn tiles(html: &mut String, board: &Scoreboard) {
    let ours = ["uv-core epoll", "uv-core kqueue", "uv-core iocp", "uv-core poll"];
    let Some(ours) = ours.into_iter().find(|id| board.id.iter().any(|one| one == id)) else {
        return;
    };
    let _ = write!(html, "<h2>{ours}, against others</h2><div class=\"tiles\">");
    for (suite, baseline) in &board.suites {
        let Some(score) = board.score(ours, suite).filter(|_| ours != baseline) else { continue };
        let title = SUITES.iter().find(|(name, ..)| name == suite).map_or(&suite[..], |of| of.1);
        let is_unsure = 2 * score.sure < score.of;
        let _ = write!(
            html,
            "<div class=\"tile{}\"><div class=\"what\">{}</div><div class=\"times\">{}</div>\
             <div class=\"than\">compared with {}{}</div></div>",
            if is_unsure { " unsure" } else { "" },
            escaped(title),
            times(score.ratio),
            escaped(baseline),
            if is_unsure { ": no conclusion" } else { "" },
        );
    }
    *html += "</div>";
}

fn section(html: &mut String, results: &Results, (name, title, about): (&str, &str, &str)) {
    let (title, about) = (escaped(title), escaped(about));
    let _ = write!(html, "<h2 id=\"{}\">{title}</h2><p>{about}</p>", escaped(name));
    let _ = write!(html, "<p class=\"where\">{}</p>", escaped(&circumstances(results, name)));
    if !["wait", "open"].contains(&name) {
        *html += KEY;
    }
    *html += "<div class=\"grid\">";
    match name {
        "wait" => wait(html, results),
        "echo" => echo(html, results),
        "open" => open(html, results),
        _ => {
            for row in results.rows.iter().filter(|row| row.suite == name && is_charted(row)) {
                card(html, bars::chart(row).element());
            }
        }
    }
    *html += "</div>";
    *html += &tables::details(results, name);
}

const KEY: &str = "<div class=\"key\"><span><i style=\"background:var(--fam-core)\"></i>uv-core\
     </span><span><i style=\"background:var(--fam-bare)\"></i>backend alone</span>\
     <span><i style=\"background:var(--fam-libuv)\"></i>libuv</span>\
     <span><i style=\"background:var(--fam-hand)\"></i>hand-written</span>\
     <span><i style=\"background:var(--fam-other)\"></i>others</span>\
     <span>thin line: confidence interval of the median</span></div>";

/// The suites whose clients and servers are joined by the network of the run.
const NETWORKED: [&str; 9] =
    ["echo", "connect", "pump", "open", "drive", "http", "mixed", "handlers", "threads"];

/// The network and the load of the machine, beside the numbers.
fn circumstances(results: &Results, suite: &str) -> String {
    let mut words = Vec::new();
    if NETWORKED.contains(&suite) {
        words.push(format!("Network: {}.", results.settings.network));
    }
    let is_exact = |row: &Row| row.unit.is_exact();
    if results.rows.iter().filter(|row| row.suite == suite).all(is_exact) {
        words.push("Counts, which do not depend on the load of the machine.".into());
    } else if let Some(share) = results.settings.foreign_share {
        words.push(format!(
            "Other programs used {:.0} % of the machine during the run.",
            100.0 * share
        ));
    }
    words.join(" ")
}

/// Charts show the main figures and the 99th percentile; the table has all.
fn is_charted(row: &Row) -> bool {
    !row.figure.ends_with(", wall") && !["p50", "p99.9"].contains(&row.figure.as_str())
        || row.suite == "drive"
}

fn card(html: &mut String, content: String) {
    let _ = write!(html, "<div class=\"card\">{content}</div>");
}

/// The rows of one figure.
fn figure<'a>(results: &'a Results, suite: &str, figure: &str) -> Vec<&'a Row> {
    results.rows.iter().filter(|row| row.suite == suite && row.figure == figure).collect()
}

fn wait(html: &mut String, results: &Results) {
    const FIGURES: [(&str, &str); 7] = [
        ("wait", "One wait, one source active"),
        ("wait, 10 % active", "Per event, a tenth of the sources active"),
        ("wait, all active", "Per event, all sources active"),
        ("cycle", "One wait, with the write and the read"),
        ("register", "Register, per source"),
        ("modify", "Modify, per source"),
        ("deregister", "Deregister, per source"),
    ];
    for (index, (name, title)) in FIGURES.iter().enumerate() {
        let rows = figure(results, "wait", name);
        let size = if index == 0 { (1_100.0, 460.0) } else { (560.0, 400.0) };
        if let Some(chart) = curves::wait(&rows, &format!("{title} (CPU time)"), size) {
            let class = if index == 0 { "card wide" } else { "card" };
            let _ = write!(html, "<div class=\"{class}\">{}</div>", chart.element());
        }
    }
}

fn echo(html: &mut String, results: &Results) {
    for row in figure(results, "echo", "requests") {
        card(html, bars::chart(row).element());
    }
    let mut scenarios: Vec<&str> = Vec::new();
    for of in results.distributions.iter().filter(|of| of.suite == "echo") {
        if !scenarios.contains(&of.scenario.as_str()) {
            scenarios.push(&of.scenario);
        }
    }
    for scenario in scenarios {
        let of = |of: &&Distribution| of.suite == "echo" && of.scenario == scenario;
        let of: Vec<_> = results.distributions.iter().filter(of).collect();
        let title = format!("Latency, {scenario}");
        if let Some(chart) = curves::latencies(&of, &title, (560.0, 380.0)) {
            card(html, chart.element());
        }
    }
}

fn open(html: &mut String, results: &Results) {
    for kind in ["constant", "Poisson"] {
        let size = (560.0, 380.0);
        let title = |what: &str| format!("{what}, {kind} arrivals");
        let rows = |name| {
            let mut rows = figure(results, "open", name);
            rows.retain(|row| row.scenario.starts_with(kind));
            rows
        };
        let mut charts = Vec::new();
        for name in ["p50", "p99", "p99.9"] {
            charts.push(curves::loads(&rows(name), curves::median, &title(name), size));
        }
        // A run has too few requests for this one: that of all rounds.
        let of_all = |row: &Row, id: &str| {
            let same = |of: &&Distribution| {
                of.suite == row.suite && of.scenario == row.scenario && of.id == id
            };
            results.distributions.iter().find(same)?.quantile(0.9999)
        };
        let name = title("p99.99 of all rounds");
        charts.push(curves::loads(&rows("p99.9"), of_all, &name, size));
        for chart in charts.into_iter().flatten() {
            card(html, chart.element());
        }
    }
}

fn foot(html: &mut String, results: &Results) {
    *html += "<footer><p>In each round every contestant runs once, in an order that changes \
              from round to round; a warm-up round is not counted. A ratio is the median over \
              the rounds of the value against the baseline's in the same round; a spread is its \
              confidence interval (bootstrap). The baseline runs twice in each round, and its ratio to \
              itself is the noise: + is better beyond the noise, − worse, = within 5 %, ? no \
              conclusion.</p>";
    for note in &results.notes {
        let _ = write!(html, "<p>{}</p>", escaped(note));
    }
    *html += "</footer>";
}
