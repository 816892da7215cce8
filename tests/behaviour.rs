//! docs/behaviour.md stays true: every row names a test, and every test that it names is
//! there and is run.

// A test says what went wrong by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};

const SUITES: [&str; 5] = ["scenarios", "e2e", "proxy", "runtime", "store"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The rows of all tables, without their heads, each with its number in the file.
fn rows() -> Vec<(usize, Vec<String>)> {
    let text = fs::read_to_string(root().join("docs/behaviour.md")).unwrap();
    let lines = text.lines().zip(1..);
    let cells = lines.filter_map(|(line, number)| {
        let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
        let cells = inner.split('|').map(|cell| cell.trim().to_owned());
        Some((number, cells.collect::<Vec<_>>()))
    });
    cells
        .filter(|(_, cells)| cells[0] != "behaviour" && !cells[0].starts_with("---"))
        .collect()
}

/// The tests that a cell names: what stands in backticks.
fn named(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// The file of a module: of a suite below `tests`, else of the library, where `tests` may
/// be a module within the file.
fn file_of(module: &[&str]) -> PathBuf {
    if SUITES.contains(&module[0]) {
        return root().join("tests").join(module.join("/") + ".rs");
    }
    let of = |module: &[&str]| root().join("src").join(module.join("/") + ".rs");
    match module.split_last() {
        Some((&"tests", outer)) if !of(module).exists() => of(outer),
        _ => of(module),
    }
}

/// What is wrong with the name of a test, if anything.
fn wrong(test: &str) -> Option<String> {
    let path: Vec<&str> = test.split("::").collect();
    let (name, module) = path.split_last()?;
    if module.is_empty() {
        return Some(format!("`{test}` has no module"));
    }
    let file = file_of(module);
    let Ok(source) = fs::read_to_string(&file) else {
        return Some(format!("`{test}`: there is no {}", file.display()));
    };
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let is_it = |line: &&str| line.contains(&format!("fn {name}("));
    let Some(at) = lines.iter().position(is_it) else {
        return Some(format!("`{test}`: no such function in {}", file.display()));
    };
    let attributes = lines[..at]
        .iter()
        .rev()
        .take_while(|line| line.starts_with("#["));
    let is_test = |line: &&str| line.starts_with("#[test]") || line.starts_with("#[tokio::test");
    if !attributes.into_iter().any(is_test) {
        return Some(format!("`{test}` isn't a test"));
    }
    let main = root().join("tests").join(module[0]).join("main.rs");
    let runs = |main: &str| module[1] == "main" || main.contains(&format!("\nmod {};", module[1]));
    let run = !SUITES.contains(&module[0]) || runs(&fs::read_to_string(main).unwrap());
    (!run).then(|| format!("`{test}` isn't run: tests/{}/main.rs lacks it", module[0]))
}

#[test]
fn every_row_of_the_table_is_held_by_tests_that_are_there() {
    let rows = rows();
    assert!(rows.len() > 100, "only {} rows were found", rows.len());
    let mut found = Vec::new();
    for (number, cells) in &rows {
        let tests = cells.get(2).map(|cell| named(cell)).unwrap_or_default();
        if cells.len() != 3 || cells[0].is_empty() || tests.is_empty() {
            found.push(format!(
                "line {number}: not three cells with a test in the last"
            ));
        }
        let wrong = tests.into_iter().filter_map(wrong);
        found.extend(wrong.map(|what| format!("line {number}: {what}")));
    }
    assert!(found.is_empty(), "docs/behaviour.md:\n{}", found.join("\n"));
}
