//! The example manifests and the published schema, as their users see them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};

use podherd::manifest::{self, App};
use serde_json::{Value, json};

fn examples() -> Vec<(String, String)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests");
    let mut files: Vec<PathBuf> = fs::read_dir(dir)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.retain(|file| {
        file.extension()
            .is_some_and(|extension| extension == "yaml")
    });
    files.sort();
    let read = |file: &PathBuf| {
        let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
        (name, fs::read_to_string(file).unwrap())
    };
    files.iter().map(read).collect()
}

fn parsed(name: &str, text: &str) -> App {
    manifest::parse(name, text.as_bytes()).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn the_examples_are_accepted_under_their_file_names() {
    let names: Vec<_> = examples()
        .iter()
        .map(|(name, text)| parsed(name, text).name)
        .collect();
    assert!(names.iter().any(|name| name.as_str() == "blog"));
    assert!(names.iter().any(|name| name.as_str() == "notes"));
}

#[test]
fn the_examples_fit_the_schema() {
    for (name, text) in examples() {
        let document: Value = serde_yaml::from_str(&text).unwrap();
        assert_fits(&document, &name);
        // With every default filled in.
        assert_fits(&serde_json::to_value(parsed(&name, &text)).unwrap(), &name);
    }
}

#[test]
fn the_schema_refuses_unknown_properties_everywhere() {
    let schema = manifest::schema();
    let mut all = vec![&schema];
    all.extend(schema["$defs"].as_object().unwrap().values());
    for object in all.iter().filter(|each| each["type"] == "object") {
        assert_eq!(object["additionalProperties"], false, "{object:#}");
    }
}

#[test]
fn the_schema_describes_every_property() {
    let schema = manifest::schema();
    let mut all = vec![&schema];
    all.extend(schema["$defs"].as_object().unwrap().values());
    for (name, property) in all
        .iter()
        .filter_map(|each| each["properties"].as_object())
        .flatten()
    {
        assert!(property["description"].is_string(), "{name}: {property}");
    }
}

#[test]
fn the_schema_is_of_draft_2020_12() {
    assert_eq!(
        manifest::schema()["$schema"],
        "https://json-schema.org/draft/2020-12/schema"
    );
}

#[test]
fn the_schema_finds_a_misspelled_property_and_a_second_check() {
    let schema = manifest::schema();
    let (_, text) = examples().remove(0);
    let mut document: Value = serde_yaml::from_str(&text).unwrap();
    document["spec"]["services"]["web"]["readiness"]["none"] = json!({});
    let reason = misfit(&document, &schema, &schema).unwrap();
    assert!(reason.contains("exactly one"), "{reason}");
    document["spec"]["service"] = Value::Null;
    let reason = misfit(&document, &schema, &schema).unwrap();
    assert!(reason.contains("unknown property service"), "{reason}");
}

fn assert_fits(document: &Value, name: &str) {
    let schema = manifest::schema();
    if let Some(reason) = misfit(document, &schema, &schema) {
        panic!("{name}: {reason}");
    }
}

/// Why a value doesn't fit a schema, for the words of JSON Schema that ours uses for shapes.
fn misfit(value: &Value, schema: &Value, root: &Value) -> Option<String> {
    let in_schema = |schema: &Value| misfit(value, schema, root);
    if let Some(reference) = schema["$ref"].as_str() {
        let definition = root
            .pointer(reference.trim_start_matches('#'))
            .expect(reference);
        if let Some(reason) = in_schema(definition) {
            return Some(reason);
        }
    }
    if let Some(only) = schema.get("const").filter(|only| *only != value) {
        return Some(format!("{value} is not {only}"));
    }
    if let Some(choices) = schema["enum"]
        .as_array()
        .filter(|choices| !choices.contains(value))
    {
        return Some(format!("{value} is none of {choices:?}"));
    }
    if let Some(choices) = schema["anyOf"].as_array() {
        let reasons: Vec<_> = choices.iter().filter_map(in_schema).collect();
        if reasons.len() == choices.len() {
            return Some(reasons.join(", and "));
        }
    }
    if let Some(choices) = schema["oneOf"].as_array()
        && choices
            .iter()
            .filter(|choice| in_schema(choice).is_none())
            .count()
            != 1
    {
        return Some(format!(
            "{value} doesn't fit exactly one of oneOf {choices:?}"
        ));
    }
    if let Some(reason) = mistyped(value, &schema["type"]) {
        return Some(reason);
    }
    if let Some(missing) = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|key| value.get(key.as_str().unwrap()).is_none())
    {
        return Some(format!("{missing} is missing"));
    }
    if let Some(items) = value.as_array().filter(|_| schema["items"].is_object()) {
        return items
            .iter()
            .find_map(|item| misfit(item, &schema["items"], root));
    }
    let entries = value.as_object()?;
    entries.iter().find_map(|(key, value)| {
        let patterns = schema["patternProperties"].as_object();
        let known = schema["properties"]
            .get(key)
            .or_else(|| patterns?.values().next());
        match (known, &schema["additionalProperties"]) {
            (Some(schema), _) => misfit(value, schema, root),
            (None, Value::Bool(false)) => Some(format!("unknown property {key}")),
            (None, rest) => misfit(value, rest, root),
        }
    })
}

fn mistyped(value: &Value, types: &Value) -> Option<String> {
    let is = |name: &str| match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("unknown type {other}"),
    };
    let fits = match types {
        Value::String(name) => is(name),
        Value::Array(names) => names.iter().any(|name| is(name.as_str().unwrap())),
        _ => true,
    };
    (!fits).then(|| format!("{value} is not of type {types}"))
}
