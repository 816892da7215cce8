//! What the manifest's language has and Podherd doesn't do yet.
//!
//! A field that would be ignored is refused instead: nobody should have to find out
//! at run time. Whoever makes one work takes its line out of the table.

use serde_json::Value;

use super::error::Report;
use super::path::Path;

/// Where the fields are: `*` is any key, `[*]` any item, and `=` asks for one value only.
const NOT_YET: &[&str] = &["spec.placement", "spec.services.*.http.[*].tls=auto"];

/// Reports every field in the tree that the table names.
pub(super) fn refuse(tree: &Value, report: &mut Report<'_>) {
    for row in NOT_YET {
        let (steps, only) = row
            .split_once('=')
            .map_or((*row, None), |(at, only)| (at, Some(only)));
        let steps: Vec<&str> = steps.split('.').collect();
        search(tree, &steps, only, &Path::root(), report);
    }
}

fn search(value: &Value, steps: &[&str], only: Option<&str>, at: &Path, report: &mut Report<'_>) {
    let Some((step, rest)) = steps.split_first() else {
        match only {
            None if says_something(value) => report.at_key(at, "not supported yet: leave it out"),
            Some(word) if value == word => {
                report.at(at, format!("`{word}` is not supported yet: leave it out"));
            }
            _ => {}
        }
        return;
    };
    match (*step, value) {
        ("*", Value::Object(map)) => {
            for (key, value) in map {
                search(value, rest, only, &at.key(key), report);
            }
        }
        ("[*]", Value::Array(list)) => {
            for (index, value) in list.iter().enumerate() {
                search(value, rest, only, &at.index(index), report);
            }
        }
        (key, Value::Object(map)) => {
            if let Some(value) = map.get(key) {
                search(value, rest, only, &at.key(key), report);
            }
        }
        _ => {}
    }
}

/// An empty list asks for nothing, and null is the same as leaving the field out.
fn says_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Array(list) => !list.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => true,
    }
}
