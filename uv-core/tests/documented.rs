//! Every public item is used by an example that runs as a test.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Public items that are not exported.
const UNREACHABLE: [&str; 4] = ["PrepareListen", "Sealed", "StaysInItsThread", "StreamKey"];

/// An item of a source file.
struct Item {
    name: String,
    is_function: bool,
    /// Its documentation has an example.
    has_example: bool,
}

/// The public items of a source file, and the text of the examples in its documentation.
#[derive(Default)]
struct Source {
    items: Vec<Item>,
    examples: String,
}

#[test]
fn public_items_are_used_by_an_example() {
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
            // Several functions share a name such as `stop`: only examples in the same file count.
            let is_ambiguous = item.is_function && functions_named(&sources, &item.name) > 1;
            let examples = if is_ambiguous { &source.examples } else { &all };
            if !has_word(examples, &item.name) && !UNREACHABLE.contains(&&*item.name) {
                missing.push(format!("{}: {}", path.display(), item.name));
            }
        }
    }
    assert!(missing.is_empty(), "no example uses these items:\n{}", missing.join("\n"));
}

/// All source files that export items. Those of `fuzzing` do with `--cfg fuzzing` only.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if ["src/sys", "src/fuzzing", "pool/task.rs"].iter().any(|end| entry.ends_with(end)) {
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
    // `Some` in a code block: whether it is an example.
    let mut block = None;
    let (mut in_trait, mut has_example, mut is_hidden) = (false, false, false);
    for line in fs::read_to_string(path).unwrap().lines() {
        let text = line.trim();
        let doc = text.strip_prefix("///").or_else(|| text.strip_prefix("//!"));
        // A conditional code block starts with attributes, of which the first counts.
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

/// The name of the public item that starts in this line, and whether it is a function.
fn item(line: &str, is_method: bool) -> Option<(String, bool)> {
    let line = if is_method { line } else { line.strip_prefix("pub ")? };
    let line = line.strip_prefix("unsafe ").unwrap_or(line);
    let kinds = ["fn ", "const fn ", "struct ", "enum ", "trait ", "type ", "const "];
    let (kind, rest) = kinds.iter().find_map(|kind| Some((kind, line.strip_prefix(kind)?)))?;
    let name: String = rest.chars().take_while(|&c| is_part_of_word(c)).collect();
    (!name.is_empty()).then_some((name, kind.ends_with("fn ")))
}

/// The number of functions with this name.
fn functions_named(sources: &BTreeMap<PathBuf, Source>, name: &str) -> usize {
    let items = sources.values().flat_map(|source| &source.items);
    items.filter(|item| item.is_function && item.name == name).count()
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|c| !is_part_of_word(c)).any(|found| found == word)
}

fn is_part_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}
