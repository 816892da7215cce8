//! What may show up nowhere, or only in diagnostics (invariant 16).

use podherd::store::Entry;

/// What containers of these tests print. It may show up nowhere but in diagnostics,
/// and the secret in it nowhere at all.
pub const PRINTED: &str = "printed password=hunter2";
/// The secret in it.
pub const PASSWORD: &str = "hunter2";

/// What the values of these tests' secrets contain; it may show up nowhere at all.
pub const SECRET: &str = "s3cr3t";

/// What the store shows of them.
pub fn leaks(entries: &[Entry]) -> Vec<String> {
    let mut found = Vec::new();
    for entry in entries {
        let text = String::from_utf8(entry.value.clone()).unwrap();
        if [SECRET, PASSWORD]
            .iter()
            .any(|secret| text.contains(secret))
        {
            found.push(format!("16: {} shows a secret", entry.key));
        }
        let shown = if entry.key.contains("/state/operations/") {
            without_diagnostics(&entry.value)
        } else {
            text
        };
        if shown.contains("printed") {
            found.push(format!("16: {} shows a log", entry.key));
        }
    }
    found
}

fn without_diagnostics(operation: &[u8]) -> String {
    let mut json: serde_json::Value = serde_json::from_slice(operation).unwrap();
    for step in json["steps"].as_array_mut().unwrap() {
        step.as_object_mut().unwrap().remove("diagnostics");
    }
    json.to_string()
}
