//! The command line of a child: Windows passes arguments as one string that the program parses.

use std::ffi::OsStr;
use std::io;
use std::os::windows::ffi::OsStrExt;

use super::has_nul;
use crate::handles::{Command, CommandFlags};

const SPACE: u16 = b' ' as u16;
const TAB: u16 = b'\t' as u16;
const QUOTE: u16 = b'"' as u16;
const BACKSLASH: u16 = b'\\' as u16;

/// Builds the NUL-terminated command line.
pub(super) fn command_line(command: &Command<'_>) -> io::Result<Vec<u16>> {
    let is_verbatim = command.flags.contains(CommandFlags::VERBATIM_ARGUMENTS);
    let name = command.arg0.as_ref().unwrap_or(&command.program);
    let mut line = Vec::new();
    for (at, argument) in [name].into_iter().chain(&command.args).enumerate() {
        if argument.encode_wide().any(|unit| unit == 0) {
            return Err(has_nul(argument));
        }
        if at > 0 {
            line.push(SPACE);
        }
        if is_verbatim {
            line.extend(argument.encode_wide());
        } else {
            push_quoted(&mut line, argument);
        }
    }
    line.push(0);
    Ok(line)
}

/// Quotes an argument by the rules of the C runtime, which most programs use to parse.
fn push_quoted(line: &mut Vec<u16>, argument: &OsStr) {
    let units: Vec<u16> = argument.encode_wide().collect();
    let is_plain = !units.iter().any(|unit| [SPACE, TAB, QUOTE].contains(unit));
    if is_plain && !units.is_empty() {
        line.extend(units);
        return;
    }
    line.push(QUOTE);
    // A backslash is an escape only before a quote: there each is doubled.
    let mut backslashes = 0;
    for unit in units {
        match unit {
            BACKSLASH => backslashes += 1,
            QUOTE => {
                line.extend(std::iter::repeat_n(BACKSLASH, backslashes + 1));
                backslashes = 0;
            }
            _ => backslashes = 0,
        }
        line.push(unit);
    }
    line.extend(std::iter::repeat_n(BACKSLASH, backslashes));
    line.push(QUOTE);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(command: &Command<'_>) -> String {
        let line = command_line(command).expect("a line");
        String::from_utf16(&line).expect("UTF-16").trim_end_matches('\0').into()
    }

    #[test]
    fn arguments_are_quoted_where_they_must_be() {
        for (argument, quoted) in [
            ("plain", "plain"),
            ("", r#""""#),
            ("two words", r#""two words""#),
            (r#"a"b"#, r#""a\"b""#),
            (r"a\b", r"a\b"),
            (r"a b\", r#""a b\\""#),
            (r#"a\\"b"#, r#""a\\\\\"b""#),
            (r"\\share\x y", r#""\\share\x y""#),
        ] {
            assert_eq!(line(&Command::new("x").arg(argument)), format!("x {quoted}"));
        }
    }

    #[test]
    fn verbatim_arguments_stay_as_they_are() {
        let command = Command::new("x y").arg("a b").windows_verbatim_arguments(true);
        assert_eq!(line(&command), "x y a b");
    }
}
