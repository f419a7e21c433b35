//! The rules of the house that a compiler does not check: which crate may use which, and where
//! `unsafe` may stand.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The one crate that may hold `unsafe`.
const UNSAFE_IN: &str = "uring";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The crates in the order of ARCHITECTURE.md's table: its first column.
fn table() -> Vec<String> {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let mut lines = text.lines().skip_while(|l| !l.starts_with("| crate |")).skip(2);
    let mut names = Vec::new();
    for line in lines.by_ref().take_while(|l| l.starts_with('|')) {
        let first = line.split('|').nth(1).unwrap();
        names.extend(first.split(',').map(|n| n.trim().trim_matches('`').to_owned()));
    }
    assert!(names.len() > 10, "the table was not found: {names:?}");
    names
}

/// A crate: its folder, and those of ours that it uses (not only its tests).
struct Room {
    folder: PathBuf,
    uses: Vec<String>,
}

fn rooms() -> BTreeMap<String, Room> {
    let out = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let all: Value = serde_json::from_slice(&out.stdout).unwrap();
    let packages = all["packages"].as_array().unwrap();
    let room = |p: &Value| {
        let manifest = Path::new(p["manifest_path"].as_str().unwrap());
        let ours = |d: &&Value| d["path"].is_string() && d["kind"] != "dev";
        let used = p["dependencies"].as_array().unwrap().iter().filter(ours);
        Room {
            folder: manifest.parent().unwrap().to_owned(),
            uses: used.map(|d| d["name"].as_str().unwrap().to_owned()).collect(),
        }
    };
    packages.iter().map(|p| (p["name"].as_str().unwrap().to_owned(), room(p))).collect()
}

#[test]
fn a_crate_uses_only_crates_above_it() {
    let order = table();
    let place = |name: &str| {
        let at = order.iter().position(|n| n == name);
        at.unwrap_or_else(|| panic!("`{name}` is not in the table of ARCHITECTURE.md"))
    };
    let rooms = rooms();
    for (name, room) in &rooms {
        for used in &room.uses {
            assert!(place(used) < place(name), "`{name}` uses `{used}`, which stands below it");
        }
        let folder = room.folder.file_name().unwrap();
        assert_eq!(folder, name.as_str(), "a crate's folder bears its name");
    }
    for name in &order {
        assert!(rooms.contains_key(name), "ARCHITECTURE.md names `{name}`, which does not exist");
    }
}

fn sources(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

/// Whether code (not a comment, not a text) of a file has the keyword.
fn has_keyword(text: &str, word: &str) -> bool {
    const FOLLOWED_BY: [&str; 6] = ["{", "fn ", "impl ", "extern ", "trait ", "("];
    let code = text.lines().map(|l| l.split("//").next().unwrap_or_default());
    let is_keyword = |line: &str| {
        line.match_indices(word).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            let after = &line[at + word.len()..];
            let apart = before.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != '"');
            apart && FOLLOWED_BY.iter().any(|f| after.trim_start().starts_with(f))
        })
    };
    code.into_iter().any(is_keyword)
}

#[test]
fn unsafe_is_in_one_crate_only() {
    // Not as one word, or this file would have it.
    let word = ["un", "safe"].concat();
    let mut found = Vec::new();
    for (name, room) in rooms() {
        let manifest = std::fs::read_to_string(room.folder.join("Cargo.toml")).unwrap();
        let forbidden = manifest.contains("[lints]\nworkspace = true");
        assert!(forbidden || name == UNSAFE_IN, "`{name}` has not the lints of the workspace");
        let mut files = Vec::new();
        sources(&room.folder, &mut files);
        assert!(!files.is_empty(), "`{name}` has no sources");
        let bad = |f: &PathBuf| has_keyword(&std::fs::read_to_string(f).unwrap(), &word);
        found.extend(files.into_iter().filter(bad).map(|f| (name.clone(), f)));
    }
    assert!(found.iter().any(|(name, _)| name == UNSAFE_IN), "the search finds nothing");
    found.retain(|(name, _)| name != UNSAFE_IN);
    assert!(found.is_empty(), "{found:?}");
    let lints = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    assert!(lints.contains(&format!("{word}_code = \"forbid\"")));
}
