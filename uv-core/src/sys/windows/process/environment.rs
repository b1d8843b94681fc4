//! A child's environment, as one block.

use std::cmp::Ordering;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::windows::ffi::OsStrExt;

use windows_sys::Win32::Globalization::{
    CSTR_EQUAL, CSTR_GREATER_THAN, CSTR_LESS_THAN, CompareStringOrdinal,
};

use super::has_nul;
use crate::handles::Environment;

/// What a child gets even if it gets nothing else: system libraries do not work without.
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

/// The child's variables in the order that Windows wants, unless they are just this process's.
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
        // A name may begin with the sign: so Windows keeps the directories of drives.
        let has_sign = name.encode_wide().skip(1).any(|unit| unit == u16::from(b'='));
        if name.is_empty() || has_sign {
            let why = format!("{name:?} cannot be the name of a variable");
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

/// Each variable with a NUL at its end, and one more at the end of all.
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

/// Names are compared unit by unit, as capitals.
fn compare(one: &OsStr, other: &OsStr) -> Ordering {
    let (one, other): (Vec<u16>, Vec<u16>) =
        (one.encode_wide().collect(), other.encode_wide().collect());
    let lengths = (one.len() as i32, other.len() as i32);
    // SAFETY: both texts are of the lengths that are said.
    match unsafe { CompareStringOrdinal(one.as_ptr(), lengths.0, other.as_ptr(), lengths.1, 1) } {
        CSTR_LESS_THAN => Ordering::Less,
        CSTR_EQUAL => Ordering::Equal,
        CSTR_GREATER_THAN => Ordering::Greater,
        _ => one.cmp(&other), // It fails for texts that are too long to be compared only.
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Command;

    #[test]
    fn names_are_sorted_and_told_apart_as_capitals() {
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
