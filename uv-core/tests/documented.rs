//! Whatever is public has an example that calls or names it, and that runs as a test.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Public in name only: nobody can reach these from outside.
const UNREACHABLE: [&str; 2] = ["Sealed", "StreamKey"];

/// An item of a source file.
struct Item {
    name: String,
    is_function: bool,
    /// Its own documentation has an example.
    has_example: bool,
}

/// What a source file has: public items, and the words of the examples in its documentation.
#[derive(Default)]
struct Source {
    items: Vec<Item>,
    examples: String,
}

#[test]
fn each_item_has_an_example() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    if !root.exists() {
        eprintln!("skip: the sources are not where these tests run");
        return;
    }
    let sources: BTreeMap<PathBuf, Source> =
        files(&root).into_iter().map(|path| (path.clone(), read(&path))).collect();
    assert!(sources.values().map(|source| source.items.len()).sum::<usize>() > 400);
    let all: String = sources.values().map(|source| source.examples.as_str()).collect();

    let mut missing = Vec::new();
    for (path, source) in &sources {
        for item in source.items.iter().filter(|item| !item.has_example) {
            // There are many called `stop`: only examples beside it are likely to mean this one.
            let is_one_of_many = item.is_function && bearers(&sources, &item.name) > 1;
            let examples = if is_one_of_many { &source.examples } else { &all };
            if !has_word(examples, &item.name) && !UNREACHABLE.contains(&&*item.name) {
                missing.push(format!("{}: {}", path.display(), item.name));
            }
        }
    }
    assert!(missing.is_empty(), "no example has these:\n{}", missing.join("\n"));
}

/// All sources, but for those of which nothing can be reached from outside.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.ends_with("src/sys") || entry.ends_with("pool/task.rs") {
            continue;
        }
        if entry.is_dir() {
            all.extend(files(&entry));
        } else if entry.extension().is_some_and(|ending| ending == "rs") {
            all.push(entry);
        }
    }
    all
}

fn read(path: &Path) -> Source {
    let mut source = Source::default();
    // Within a block of code, whether that is an example.
    let mut block = None;
    let (mut in_trait, mut has_example, mut is_hidden) = (false, false, false);
    for line in fs::read_to_string(path).unwrap().lines() {
        let text = line.trim();
        let doc = text.strip_prefix("///").or_else(|| text.strip_prefix("//!"));
        // One that is not for all systems begins within attributes, of which the first counts.
        let begins = text.starts_with("#[cfg_attr") && text.contains("doc = \"```\"");
        if begins || doc.is_some_and(|doc| doc.trim().starts_with("```")) {
            block = match block {
                Some(_) => None,
                None => Some(begins || matches!(doc.unwrap().trim(), "```" | "```no_run")),
            };
            has_example |= block == Some(true);
        } else if let Some(doc) = doc {
            if block == Some(true) {
                source.examples.push_str(doc);
                source.examples.push('\n');
            }
        } else if text.starts_with("#[") {
            is_hidden |= text == "#[doc(hidden)]";
        } else {
            let is_method = in_trait && line.starts_with("    fn ");
            if let Some((name, is_function)) = item(text, is_method).filter(|_| !is_hidden) {
                source.items.push(Item { name, is_function, has_example });
            }
            let begins_trait = line.starts_with("pub ") && line.contains("trait ");
            in_trait = begins_trait || (in_trait && line != "}");
            (has_example, is_hidden) = (false, false);
        }
    }
    source
}

/// The name of the public item that this line begins, and whether that is a function.
fn item(line: &str, is_method: bool) -> Option<(String, bool)> {
    let line = if is_method { line } else { line.strip_prefix("pub ")? };
    let line = line.strip_prefix("unsafe ").unwrap_or(line);
    let kinds = ["fn ", "const fn ", "struct ", "enum ", "trait ", "type ", "const "];
    let (kind, rest) = kinds.iter().find_map(|kind| Some((kind, line.strip_prefix(kind)?)))?;
    let name: String = rest.chars().take_while(|&c| is_part_of_word(c)).collect();
    (!name.is_empty()).then_some((name, kind.ends_with("fn ")))
}

/// How many functions have this name.
fn bearers(sources: &BTreeMap<PathBuf, Source>, name: &str) -> usize {
    let items = sources.values().flat_map(|source| &source.items);
    items.filter(|item| item.is_function && item.name == name).count()
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|c| !is_part_of_word(c)).any(|found| found == word)
}

fn is_part_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}
