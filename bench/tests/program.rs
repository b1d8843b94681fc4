//! The command-line interface.

use std::path::PathBuf;
use std::process::{Command, Output};

fn bench(args: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_bench");
    Command::new(program).args(args).env("NO_COLOR", "1").output().expect("the program runs")
}

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_list_names_suites_and_contestants() {
    let output = bench(&["--list"]);
    assert!(output.status.success());
    let list = text(&output.stdout);
    for name in bench::suites::NAMES.iter().chain(&["uv-core poll", "bare select", "polling"]) {
        assert!(list.contains(name), "no {name} in {list}");
    }
}

#[test]
fn a_mistake_is_reported_and_has_a_status() {
    let output = bench(&["--suite", "tea"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("unknown suite 'tea': use timers, iterations"));
}

/// One quick suite, its table, its file, and the comparison of that file with itself and with one
/// in which every value is halved.
#[test]
fn results_are_shown_written_and_compared() {
    let (now, before) = (file("now.json"), file("before.json"));
    let (now, before) = (now.to_str().unwrap(), before.to_str().unwrap());
    let output =
        bench(&["-s", "iterations", "-b", "poll", "-p", "polling,libuv,hand", "--json", now]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    for part in ["iterations: iterations", "uv-core poll", "polling", "again", "a quiet socket"] {
        assert!(table.contains(part), "no {part} in {table}");
    }
    assert!(!table.contains('\u{1b}'), "NO_COLOR was set");

    let same = bench(&["compare", now, now]);
    assert!(same.status.success());
    assert!(text(&same.stdout).starts_with("0 of "), "{}", text(&same.stdout));

    let mut results: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(now).unwrap()).unwrap();
    for row in results["rows"].as_array_mut().unwrap() {
        // Remove the noise.
        for part in ["median", "low", "high"] {
            row["again"]["ratio"][part] = 1.0.into();
        }
        for entry in row["entries"].as_array_mut().unwrap() {
            for part in ["median", "low", "high"] {
                entry["ratio"][part] = 1.0.into();
            }
        }
    }
    std::fs::write(now, results.to_string()).unwrap();
    for row in results["rows"].as_array_mut().unwrap() {
        for entry in row["entries"].as_array_mut().unwrap() {
            for part in ["median", "low", "high"] {
                entry["ratio"][part] = 2.0.into();
            }
        }
    }
    std::fs::write(before, results.to_string()).unwrap();
    let worse = bench(&["compare", before, now]);
    assert_eq!(worse.status.code(), Some(1), "{}", text(&worse.stdout));
    assert!(text(&worse.stdout).contains("worse   0.50×"), "{}", text(&worse.stdout));
    let better = bench(&["compare", now, before]);
    assert!(better.status.success());
    assert!(text(&better.stdout).contains("better  2.00×"), "{}", text(&better.stdout));
}

#[test]
fn a_file_that_is_no_result_is_refused_by_name() {
    let path = file("nothing.json");
    std::fs::write(&path, "{}").unwrap();
    let output = bench(&["compare", path.to_str().unwrap(), path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("nothing.json: no benchmark results"));
}

/// A page and a chart are drawn from results; a chart without its data is an error.
#[test]
fn results_are_drawn() {
    let folder = file("drawn");
    let out = folder.to_str().unwrap();
    let only = ["-s", "wait", "--scenario", "10 sources,300 sources", "-b", "poll", "-p", "hand"];
    let args = [&only[..], &["-o", out]].concat();
    let output = bench(&args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let page = std::fs::read_to_string(folder.join("report.html")).unwrap();
    for part in [
        "<svg",
        "Scoreboard",
        "Where we lose",
        "Rust build",
        "bare poll",
        "hand select",
        "prefers-color-scheme: dark",
    ] {
        assert!(page.contains(part), "no {part} in the page");
    }
    for part in ["<script", "http://", "https://"] {
        assert!(!page.contains(part), "{part} in a self-contained page");
    }
    let (results, chart) = (folder.join("results.json"), folder.join("wait.svg"));
    let draw = ["report", results.to_str().unwrap(), "--chart", chart.to_str().unwrap()];
    let output = bench(&draw);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(std::fs::read_to_string(&chart).unwrap().starts_with("<svg xmlns="));

    let mut nothing: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&results).unwrap()).unwrap();
    nothing["rows"] = serde_json::json!([]);
    std::fs::write(&results, nothing.to_string()).unwrap();
    let output = bench(&draw);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("without the suite 'wait'"));
}

#[test]
fn one_run_is_one_flat_line() {
    let output = bench(&["once", "iterations", "--backend", "poll", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let line = text(&output.stdout);
    assert_eq!(line.lines().count(), 1, "{line}");
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["contestant"], "uv-core poll");
    assert_eq!(line["iterations_count"], 100_000);
    assert!(line["iterations_per_cpu_second"].as_f64().unwrap() > 0.0);
    assert!(line.as_object().unwrap().values().all(|value| !value.is_object()));

    let output = bench(&["once", "iterations", "--backend", "tea"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("uv-core poll"), "{}", text(&output.stderr));
}

/// A server for other tools: it prints its address, echoes, and survives connection resets.
#[test]
fn a_server_serves_until_it_is_killed() {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpStream;
    use std::process::Stdio;

    let mut backends = vec!["select", "poll"];
    if cfg!(target_os = "linux") {
        backends.extend(["epoll", "uring"]);
    }
    for backend in backends {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bench"));
        command.args(["serve", "echo", "--backend", backend, "--port", "0"]);
        let mut server = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let Some((_, address)) = line.trim().rsplit_once(' ') else {
            // The kernel may forbid io_uring.
            assert_eq!((backend, server.wait().unwrap().code()), ("uring", Some(2)));
            continue;
        };
        for size in [1, 100_000] {
            let mut peer = TcpStream::connect(address).unwrap();
            let sent = vec![7; size];
            peer.write_all(&sent).unwrap();
            let mut received = vec![0; size];
            peer.read_exact(&mut received).unwrap();
            assert_eq!(received, sent);
            // Closing with unread data resets the connection.
            peer.write_all(&sent).unwrap();
        }
        assert!(server.try_wait().unwrap().is_none(), "{backend}: the server has exited");
        server.kill().unwrap();
        server.wait().unwrap();
    }
}

/// A server for other hosts, and the clients of another process: tables, a page, and histograms.
#[cfg(target_os = "linux")]
#[test]
fn a_server_is_driven_from_another_process() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    let mut command = Command::new(env!("CARGO_BIN_EXE_bench"));
    command.args(["serve", "http", "--contestant", "hand epoll", "--port", "0"]);
    let mut server = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().rsplit_once(' ').unwrap().1.to_string();
    let folder = file("driven");
    let out = folder.to_str().unwrap();
    let small = ["--connections", "3", "--window", "20", "--rounds", "2", "--out", out];
    let args = ["drive", "--to", &address, "--http"];
    let output = bench(&[&args[..], &small].concat());
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    for part in ["drive: p99.9", "closed loop", "constant, 30 %", "Poisson, 90 %"] {
        assert!(shown.contains(part), "no {part} in {shown}");
    }
    let page = std::fs::read_to_string(folder.join("report.html")).unwrap();
    assert!(page.contains(&format!("to {address}")), "the page names the network");
    let log = std::fs::read_to_string(folder.join("hdr/drive-Poisson-90-percent.hlog")).unwrap();
    assert!(log.contains("Tag=remote"), "{log}");
}

/// Runs a small suite in namespaces; returns its errors and results, or `None` where that needs
/// rights or programs that are not there.
#[cfg(target_os = "linux")]
fn in_namespaces(name: &str, more: &[&str]) -> Option<(String, serde_json::Value)> {
    let path = file(name);
    let json = path.to_str().unwrap();
    let only = ["-s", "connect", "-b", "poll", "-p", "none", "--json", json, "--namespaces"];
    let output = bench(&[&only[..], more].concat());
    let errors = text(&output.stderr);
    if !output.status.success() && (errors.contains("need root") || errors.contains("\"ip\"")) {
        eprintln!("SKIPPED: {errors}");
        return None;
    }
    assert!(output.status.success(), "{errors}");
    let results = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    Some((errors, results))
}

/// Clients and servers in two namespaces, which are gone afterwards.
#[cfg(target_os = "linux")]
#[test]
fn namespaces_are_joined_and_disappear() {
    let Some((_, results)) = in_namespaces("namespaces.json", &[]) else { return };
    assert_eq!(results["settings"]["network"]["namespaces"]["delay_us"], 0, "{results}");
    let interfaces = std::fs::read_to_string("/proc/net/dev").unwrap();
    assert!(!interfaces.contains("bench0"), "{interfaces}");
}

/// A kernel that cannot delay packets is named, and the run goes on without a delay.
#[cfg(target_os = "linux")]
#[test]
fn a_delay_is_there_or_its_absence_is_reported() {
    let Some((errors, results)) = in_namespaces("delay.json", &["--delay", "200"]) else { return };
    let delay = &results["settings"]["network"]["namespaces"]["delay_us"];
    let reported = results["notes"].to_string().contains("No delay between the namespaces");
    assert_eq!(errors.contains("No delay between the namespaces"), reported, "{errors}");
    assert_eq!(delay, if reported { 0 } else { 200 }, "{errors}");
}

/// One real path: counted, stored, compared with itself and with a smaller number.
#[cfg(target_os = "linux")]
#[test]
fn a_hot_path_is_counted_kept_and_compared() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("SKIPPED: valgrind is not installed, so nothing can be counted");
        return;
    }
    let (kept, profiles) = (file("counts.json"), file("profiles"));
    let _ = std::fs::remove_file(&kept);
    let (path, folder) = (kept.to_str().unwrap(), profiles.to_str().unwrap());
    let count = |more: &[&str]| {
        let args = ["count", "-p", "try-write", "-l", "epoll", "--rounds", "20", "--kept", path];
        bench(&[&args[..], more].concat())
    };
    let output = count(&["--accept", "--profiles", folder]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(profiles.join("try-write-epoll-60-0.callgrind").exists());
    let numbers: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&kept).unwrap()).unwrap();
    let cost = &numbers[std::env::consts::ARCH]["costs"]["try-write/epoll"];
    let instructions = cost["instructions"].as_f64().unwrap();
    assert!((50.0..50_000.0).contains(&instructions), "{cost}");
    // Null where tracing is not permitted.
    assert!(cost["calls"].is_null() || cost["calls"] == 1.0, "{cost}");

    let output = count(&[]);
    assert!(output.status.success(), "{}", text(&output.stdout));
    assert!(text(&output.stdout).contains("try-write          epoll"), "{}", text(&output.stdout));

    let mut less = numbers.clone();
    let arch = std::env::consts::ARCH;
    less[arch]["costs"]["try-write/epoll"]["instructions"] = (instructions * 0.9).into();
    std::fs::write(&kept, less.to_string()).unwrap();
    let output = count(&[]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    assert!(text(&output.stdout).contains("try-write/epoll: "), "{}", text(&output.stdout));
}

#[cfg(target_os = "linux")]
#[test]
fn counting_without_valgrind_names_the_remedy() {
    let program = env!("CARGO_BIN_EXE_bench");
    let args = ["count", "--kept", "nothing.json"];
    let output = Command::new(program).args(args).env("PATH", "/nowhere").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("apt-get install valgrind"), "{}", text(&output.stderr));
}

#[cfg(target_os = "linux")]
#[test]
fn an_unknown_path_is_refused_by_name() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("SKIPPED: valgrind is not installed, which is reported first");
        return;
    }
    let output = bench(&["count", "--path", "tea", "--kept", "nothing.json"]);
    assert_eq!(output.status.code(), Some(2));
    let words = text(&output.stderr);
    assert!(words.contains("unknown path 'tea': use echo-write, "), "{words}");
}

/// All kinds of traffic for a moment, on every backend of this machine.
#[test]
fn a_short_soak_is_clean() {
    let backends = match () {
        () if cfg!(target_os = "linux") => "select,poll,epoll,uring",
        () if cfg!(windows) => "select,poll,iocp",
        () => "select,poll,kqueue",
    };
    let output = bench(&["soak", "--minutes", "0.02", "--backend", backends]);
    let (shown, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{shown}{errors}");
    for backend in backends.split(',') {
        assert!(shown.contains(&format!("{backend}: clean")), "{shown}");
    }
    // Each kind has done something.
    let idle = |line: &&str| line.ends_with("compared") && line.contains("            0 ");
    assert!(!cfg!(unix) || !shown.lines().any(|line| idle(&line)), "{shown}");
}

#[test]
fn a_soak_names_an_unknown_backend() {
    let output = bench(&["soak", "--backend", "tea"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("tea"), "{}", text(&output.stderr));
}
