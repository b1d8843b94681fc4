//! Every published package of the workspace is complete.

use std::fs;
use std::path::{Path, PathBuf};

/// The lines that the manifest of a published package has.
const LINES: [&str; 8] = [
    "description = ",
    "license.workspace = true",
    "rust-version.workspace = true",
    "readme = \"README.md\"",
    "keywords = [",
    "categories = [",
    "[package.metadata.docs.rs]",
    "all-features = true",
];

/// The most keywords, and the most categories, that the registry accepts.
const WORDS: usize = 5;

#[test]
fn published_packages_are_complete() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let Ok(workspace) = fs::read_to_string(root.join("Cargo.toml")) else {
        eprintln!("skip: the sources are not where these tests run");
        return;
    };
    let mut faults = Vec::new();
    let published = published(&root, &workspace);
    assert!(published.len() >= 11, "{published:?}");
    for folder in published {
        check(&root, &folder, &mut faults);
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The folders of the members of the workspace that are published.
fn published(root: &Path, workspace: &str) -> Vec<PathBuf> {
    let members = workspace.split("members = [").nth(1).unwrap().split(']').next().unwrap();
    members
        .split('"')
        .skip(1)
        .step_by(2)
        .map(|member| root.join(member))
        .filter(|folder| !manifest(folder).contains("publish = false"))
        .collect()
}

fn manifest(folder: &Path) -> String {
    fs::read_to_string(folder.join("Cargo.toml")).unwrap()
}

fn check(root: &Path, folder: &Path, faults: &mut Vec<String>) {
    let manifest = manifest(folder);
    let mut fault = |what: &str| faults.push(format!("{}: {what}", folder.display()));
    for line in LINES {
        if !manifest.lines().any(|of_package| of_package.starts_with(line)) {
            fault(&format!("the manifest has no `{line}`"));
        }
    }
    for list in ["keywords = [", "categories = ["] {
        let words = manifest.split(list).nth(1).and_then(|rest| rest.split(']').next());
        if words.is_some_and(|words| words.split(',').count() > WORDS) {
            fault(&format!("more than {WORDS} in `{list}`"));
        }
    }
    if !folder.join("README.md").exists() {
        fault("README.md is missing");
    }
    for license in ["LICENSE-MIT", "LICENSE-APACHE"] {
        // A link would be a file with a path in it where the system has no links.
        if fs::read(folder.join(license)).ok() != fs::read(root.join(license)).ok() {
            fault(&format!("{license} differs from that of the workspace"));
        }
    }
}
