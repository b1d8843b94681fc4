//! Everything that can be awaited states what happens if it is dropped before it is done.

use std::fs;
use std::path::{Path, PathBuf};

fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

/// True if the comment above a line has the section.
fn has_section(lines: &[&str], item: usize) -> bool {
    let above = lines[..item].iter().rev().map(|line| line.trim_start());
    let mut comment = above.take_while(|line| line.starts_with("///") || line.starts_with("#["));
    comment.any(|line| line == "/// # Cancel safety")
}

/// True if a function that returns a future is declared there.
fn returns_future(lines: &[&str], item: usize) -> bool {
    let first = lines[item].trim_start();
    let mut signature = lines[item..].iter().take_while(|line| line.trim() != "}");
    let ends = |line: &&&str| line.ends_with('{');
    first.starts_with("pub async fn ")
        || first.starts_with("pub fn ")
            && signature.find(ends).is_some_and(|line| line.contains("-> impl Future"))
}

/// The name of the type that a line implements `Future` for.
fn future_type(line: &str) -> Option<&str> {
    let name = line.strip_prefix("impl")?.split_once(" Future for ")?.1;
    name.split(|c: char| !c.is_alphanumeric()).next()
}

#[test]
fn what_is_awaited_states_its_cancel_safety() {
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    let (mut checked, mut missing) = (0, Vec::new());
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let lines: Vec<_> = text.lines().collect();
        let futures: Vec<_> = lines.iter().filter_map(|line| future_type(line)).collect();
        for (at, line) in lines.iter().enumerate() {
            let of_struct = |name: &&str| {
                let rest =
                    line.strip_prefix("pub struct ").and_then(|rest| rest.strip_prefix(*name));
                rest.is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
            };
            if returns_future(&lines, at) || futures.iter().any(of_struct) {
                checked += 1;
                if !has_section(&lines, at) {
                    missing.push(format!("{}:{}: {}", file.display(), at + 1, line.trim()));
                }
            }
        }
    }
    assert!(missing.is_empty(), "no section \"Cancel safety\":\n{}", missing.join("\n"));
    assert!(checked > 40, "only {checked} items were found");
}
