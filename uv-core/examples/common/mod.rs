//! Shared by the servers among the examples: the command line and the choice of a backend.

use std::io;
use std::str::FromStr;

use uv_core::backends::Auto;

/// The command line: names, each with a value.
pub(crate) struct Arguments(Vec<(String, String)>);

impl Arguments {
    /// Parses the command line of this program, which accepts the names in `known`.
    pub(crate) fn read(known: &[&str]) -> io::Result<Arguments> {
        let (mut all, mut given) = (Vec::new(), std::env::args().skip(1));
        while let Some(name) = given.next() {
            if !known.contains(&name.as_str()) {
                return Err(wrong(format!("unknown argument {name}: use {}", known.join(", "))));
            }
            let value = given.next().ok_or_else(|| wrong(format!("{name} needs a value")))?;
            all.push((name, value));
        }
        Ok(Arguments(all))
    }

    /// The last value of `name`, or `otherwise` if it is not given.
    pub(crate) fn get<V: FromStr>(&self, name: &str, otherwise: V) -> io::Result<V> {
        let Some((_, value)) = self.0.iter().rev().find(|(given, _)| given == name) else {
            return Ok(otherwise);
        };
        value.parse().map_err(|_| wrong(format!("{value} is no valid value of {name}")))
    }
}

#[allow(dead_code, reason = "one example takes a name several times")]
impl Arguments {
    /// All values of `name`.
    pub(crate) fn all(&self, name: &str) -> Vec<String> {
        let given = self.0.iter().filter(|(given, _)| given == name);
        given.map(|(_, value)| value.clone()).collect()
    }
}

/// The backend of this name, or the best one if that is `auto`.
pub(crate) fn backend(name: &str) -> io::Result<Auto> {
    if name == "auto" { Auto::new() } else { Auto::named(name) }
}

fn wrong(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}
