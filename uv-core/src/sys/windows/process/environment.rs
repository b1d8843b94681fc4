//! The environment block of a child.

use std::cmp::Ordering;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::windows::ffi::OsStrExt;

use windows_sys::Win32::Globalization::{
    CSTR_EQUAL, CSTR_GREATER_THAN, CSTR_LESS_THAN, CompareStringOrdinal,
};

use super::has_nul;
use crate::handles::Environment;

/// Variables that every child gets: system libraries do not work without them.
const REQUIRED: [&str; 11] = [
    "HOMEDRIVE",
    "HOMEPATH",
    "LOGONSERVER",
    "PATH",
    "SYSTEMDRIVE",
    "SYSTEMROOT",
    "TEMP",
    "USERDOMAIN",
    "USERNAME",
    "USERPROFILE",
    "WINDIR",
];

pub(super) type Variable = (OsString, OsString);

/// The child's variables in the sort order of Windows; `None` if it inherits this process's.
pub(super) fn variables(environment: &Environment) -> io::Result<Option<Vec<Variable>>> {
    if environment.is_inherited() {
        return Ok(None);
    }
    let mut variables: Vec<Variable> = match environment.cleared {
        false => std::env::vars_os().collect(),
        true => REQUIRED
            .iter()
            .filter_map(|name| Some((OsString::from(name), std::env::var_os(name)?)))
            .collect(),
    };
    for (name, value) in &environment.changes {
        // A name may start with `=`: Windows keeps the current directory of each drive so.
        let has_sign = name.encode_wide().skip(1).any(|unit| unit == u16::from(b'='));
        if name.is_empty() || has_sign {
            let why = format!("{name:?} is no valid variable name: it is empty or contains '='");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        variables.retain(|(other, _)| compare(other, name) != Ordering::Equal);
        variables.extend(value.iter().map(|value| (name.clone(), value.clone())));
    }
    variables.sort_by(|(one, _), (other, _)| compare(one, other));
    Ok(Some(variables))
}

/// The value of a variable.
pub(super) fn value_of<'a>(variables: &'a [Variable], name: &str) -> Option<&'a OsStr> {
    let is_it = |other: &OsStr| compare(other, OsStr::new(name)) == Ordering::Equal;
    variables.iter().find(|(other, _)| is_it(other)).map(|(_, value)| &**value)
}

/// Builds the block: NUL-terminated variables, and one more NUL at the end.
pub(super) fn block(variables: Vec<Variable>) -> io::Result<Vec<u16>> {
    let mut block = Vec::new();
    for (mut variable, value) in variables {
        variable.push("=");
        variable.push(value);
        let start = block.len();
        block.extend(variable.encode_wide());
        if block[start..].contains(&0) {
            return Err(has_nul(&variable));
        }
        block.push(0);
    }
    if block.is_empty() {
        block.push(0);
    }
    block.push(0);
    Ok(block)
}

/// Compares names by UTF-16 units, without regard to case.
fn compare(one: &OsStr, other: &OsStr) -> Ordering {
    let (one, other): (Vec<u16>, Vec<u16>) =
        (one.encode_wide().collect(), other.encode_wide().collect());
    let lengths = (one.len() as i32, other.len() as i32);
    // SAFETY: pointers and lengths describe two slices that live across the call.
    match unsafe { CompareStringOrdinal(one.as_ptr(), lengths.0, other.as_ptr(), lengths.1, 1) } {
        CSTR_LESS_THAN => Ordering::Less,
        CSTR_EQUAL => Ordering::Equal,
        CSTR_GREATER_THAN => Ordering::Greater,
        _ => one.cmp(&other), // The call fails only for strings above the maximum length.
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Command;

    #[test]
    fn names_are_sorted_and_compared_without_case() {
        let command = Command::new("x").env_clear().env("b", "1").env("A", "2").env("B", "3");
        let variables = variables(&command.environment).expect("variables").expect("some");
        assert_eq!(value_of(&variables, "b"), Some(OsStr::new("1")), "one of the two");
        assert!(variables.is_sorted_by(|(one, _), (other, _)| compare(one, other).is_lt()));
        assert!(value_of(&variables, "SystemRoot").is_some(), "no program runs without");
    }

    #[test]
    fn a_block_ends_with_two_nuls() {
        let text = |block: Vec<u16>| String::from_utf16(&block).expect("UTF-16");
        assert_eq!(text(block(Vec::new()).expect("a block")), "\0\0");
        let one = vec![(OsString::from("A"), OsString::from("1"))];
        assert_eq!(text(block(one).expect("a block")), "A=1\0\0");
        assert!(block(vec![("A".into(), "\0".into())]).is_err());
    }
}
