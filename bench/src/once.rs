//! `bench once`: one scenario, one contestant, one run, for use by other tools.

use std::io::{self, Write};

use serde_json::{Map, Value};

use crate::report;
use crate::suite::{Contestant, ContestantId, Scenario, Unit};
use crate::suites::{self, Scale};

/// The arguments.
#[derive(Debug)]
pub(crate) struct Once<'a> {
    pub(crate) suite: &'a str,
    pub(crate) scenario: Option<&'a str>,
    pub(crate) backend: Option<&'a str>,
    pub(crate) id: Option<&'a str>,
    pub(crate) scale: Scale,
    pub(crate) json: bool,
}

/// Runs it, and prints its figures.
///
/// # Errors
///
/// `InvalidInput` for unknown names, and those of the run.
pub(crate) fn run(once: &Once<'_>, out: &mut dyn Write) -> io::Result<()> {
    let suites = suites::all(once.scale, crate::backends::Which::All);
    let suite = suites.iter().find(|suite| suite.name == once.suite);
    let suite = suite.ok_or_else(|| invalid("suite", once.suite, &suites::NAMES))?;
    let scenarios = &suite.scenarios;
    let part = once.scenario.unwrap_or_default();
    let scenario = scenarios.iter().find(|scenario| scenario.name.contains(part));
    let names: Vec<&str> = scenarios.iter().map(|scenario| scenario.name.as_str()).collect();
    let scenario = scenario.ok_or_else(|| invalid("scenario", part, &names))?;
    let contestant = once.contestant(scenario)?;
    let sample = contestant.run(&scenario.figures)?;

    let mut line = Map::new();
    line.insert("suite".into(), suite.name.into());
    line.insert("scenario".into(), scenario.name.as_str().into());
    line.insert("contestant".into(), contestant.id.to_string().into());
    line.insert("backend".into(), contestant.id.backend().map_or(Value::Null, Value::from));
    for (figure, reading) in scenario.figures.iter().zip(&sample.readings) {
        let Some(reading) = reading else { continue };
        let value = figure.unit.value(*reading);
        if once.json {
            let key = key(figure.name);
            line.insert(format!("{key}_{}", suffix(figure.unit)), value.into());
            line.insert(format!("{key}_count"), reading.count.into());
        } else {
            let (name, value, unit) =
                (figure.name, report::value(value, figure.unit), figure.unit.words());
            writeln!(out, "{}, {}: {name} {value} ({unit})", suite.name, scenario.name)?;
        }
    }
    for note in &sample.notes {
        // A note is optional: a closed stderr is no error.
        let _ = writeln!(io::stderr(), "{note}");
    }
    if once.json {
        writeln!(out, "{}", Value::Object(line))?;
    }
    Ok(())
}

impl Once<'_> {
    fn contestant<'s>(&self, scenario: &'s Scenario) -> io::Result<&'s Contestant> {
        let all = &scenario.entrants.contestants;
        let named = |wanted: &dyn Fn(ContestantId) -> bool| all.iter().find(|one| wanted(one.id));
        let found = match (self.id, self.backend) {
            (Some(id), _) => named(&|one| one.to_string() == id),
            (None, Some(backend)) => {
                named(&|one| matches!(one, ContestantId::Core(b) if b == backend))
                    .or_else(|| named(&|one| one.backend() == Some(backend)))
            }
            (None, None) => all.first(),
        };
        found.ok_or_else(|| {
            let wanted = self.id.or(self.backend).unwrap_or("any");
            let absent = scenario.entrants.absent.iter();
            let mut absent =
                absent.filter(|absent| absent.id.ends_with(wanted)).map(|absent| &absent.why);
            match absent.next_back() {
                Some(why) => io::Error::new(io::ErrorKind::Unsupported, format!("{wanted}: {why}")),
                None => {
                    let names: Vec<_> = all.iter().map(|one| one.id.to_string()).collect();
                    let names: Vec<&str> = names.iter().map(String::as_str).collect();
                    invalid("contestant", wanted, &names)
                }
            }
        })
    }
}

/// The JSON key of a figure.
fn key(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("_").to_lowercase()
}

fn suffix(unit: Unit) -> &'static str {
    match unit {
        Unit::CpuTimeEach => "cpu_ns",
        Unit::WallTimeEach => "ns",
        Unit::PerCpuSecond => "per_cpu_second",
        Unit::PerSecond => "per_second",
        Unit::BytesPerCpuSecond => "bytes_per_cpu_second",
        Unit::BytesPerSecond => "bytes_per_second",
        Unit::BytesEach => "bytes",
        Unit::CallsEach | Unit::InstructionsEach => "each",
    }
}

fn invalid(what: &str, wanted: &str, names: &[&str]) -> io::Error {
    let why = format!("unknown {what} '{wanted}': use {}", names.join(", "));
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_words() {
        assert_eq!(key("p99.9"), "p99_9");
        assert_eq!(key("wait, 10 % active"), "wait_10_active");
        assert_eq!(key("TCP handle"), "tcp_handle");
    }
}
