//! What the servers among the examples share: their command line, and the choice of a backend.

use std::io;
use std::str::FromStr;

use uv_core::backends::Auto;

/// What a program was told: names, each with a value.
pub(crate) struct Arguments(Vec<(String, String)>);

impl Arguments {
    /// Those of this program, which knows these names.
    pub(crate) fn read(known: &[&str]) -> io::Result<Arguments> {
        let (mut all, mut given) = (Vec::new(), std::env::args().skip(1));
        while let Some(name) = given.next() {
            if !known.contains(&name.as_str()) {
                return Err(wrong(format!("{name}: try {}", known.join(", "))));
            }
            let value = given.next().ok_or_else(|| wrong(format!("{name} needs a value")))?;
            all.push((name, value));
        }
        Ok(Arguments(all))
    }

    /// The value that `name` was given last, or what it has otherwise.
    pub(crate) fn get<V: FromStr>(&self, name: &str, otherwise: V) -> io::Result<V> {
        let Some((_, value)) = self.0.iter().rev().find(|(given, _)| given == name) else {
            return Ok(otherwise);
        };
        value.parse().map_err(|_| wrong(format!("{name} cannot be {value}")))
    }
}

/// The backend of this name, or the best one if that is `auto`.
pub(crate) fn backend(name: &str) -> io::Result<Auto> {
    if name == "auto" { Auto::new() } else { Auto::named(name) }
}

fn wrong(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}
