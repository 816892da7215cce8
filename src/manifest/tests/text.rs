//! Texts that are no single, plain, moderate document.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use super::{app, assert_refused, refusal, web};
use crate::manifest::{MAX_BYTES, parse_all};

/// Far above what any refusal takes, and far below what a bomb would.
const AT_ONCE: Duration = Duration::from_secs(10);

fn assert_refused_at_once(text: &str, message: &str) {
    let start = Instant::now();
    let error = refusal(text);
    assert!(error.to_string().contains(message), "{error}");
    assert!(
        error.to_string().len() < 5_000,
        "an error as large as its cause"
    );
    assert!(start.elapsed() < AT_ONCE, "took {:?}", start.elapsed());
}

#[test]
fn an_empty_text_is_refused() {
    for text in ["", "\n\n", "# nothing yet\n", "---\n", "null\n"] {
        let error = refusal(text).to_string();
        assert!(error.contains("the document is empty"), "{text:?}: {error}");
    }
}

#[test]
fn a_value_of_two_mebibytes_is_refused() {
    let error = parse_all("blog", &vec![b'#'; 2 * MAX_BYTES]).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("line 1, column 1: the manifest has 2097152 bytes")
    );
}

#[test]
fn a_text_that_is_not_utf_8_is_refused_where_it_stops_being_so() {
    let error = parse_all("blog", b"apiVersion: podherd/v1\nkind: \xc3\xa9\xff").unwrap_err();
    assert_eq!(
        error.to_string(),
        "line 2, column 8: not UTF-8 from here on: save the file as UTF-8"
    );
}

#[test]
fn a_byte_order_mark_is_no_hindrance() {
    let text = format!("\u{feff}{}", web(&[]));
    parse_all("blog", text.as_bytes()).unwrap();
}

#[test]
fn a_second_document_is_refused() {
    let text = format!("{}«---\n{}", web(&[]), web(&[]));
    assert_refused(&text, &[("", "a second document starts here")]);
}

#[test]
fn broken_yaml_is_refused_where_it_breaks() {
    assert_refused("kind: App\nspec: «]\n", &[("", "misplaced bracket")]);
}

#[test]
fn a_list_is_no_manifest() {
    assert_refused("«- kind: App\n", &[("", "a manifest is a map")]);
}

#[test]
fn a_key_that_is_there_twice_is_refused_with_the_place_of_both() {
    assert_refused(
        &web(&["env: {A: x}", "«env: {B: y, «B: z}"]),
        &[
            ("spec.services.web.env", "this key is already on line 8"),
            ("spec.services.web.env.B", "this key is already on line 9"),
        ],
    );
}

#[test]
fn a_key_that_is_there_twice_in_json_is_refused() {
    assert_refused(
        r#"{"kind": "App", «"kind": "App"}"#,
        &[("kind", "this key is already on line 1")],
    );
}

#[test]
fn a_key_that_is_no_text_is_refused() {
    assert_refused(
        &app(&["env: {«8080: x}"]),
        &[("spec.env.8080", "the key 8080 isn't a text")],
    );
    assert_refused(
        &app(&["env: {«true: x}"]),
        &[("spec.env.true", "put it in quotes")],
    );
    assert_refused(
        &app(&["env: {? «[a] : x}"]),
        &[("spec.env", "a key must be a text")],
    );
}

#[test]
fn an_alias_as_a_key_is_refused() {
    assert_refused(
        &app(&["env: {a: &a x, «*a : y}"]),
        &[("spec.env", "an alias can't be a key")],
    );
}

#[test]
fn a_tag_is_refused() {
    assert_refused(
        &app(&["env: {A: «!secret x}"]),
        &[("spec.env.A", "YAML tags")],
    );
}

#[test]
fn aliases_are_followed_and_located_where_they_are_used() {
    let lines = [
        "volumes: [{name: a, path: &path /data}]",
        "tmpfs: [{path: «*path}]",
    ];
    assert_refused(
        &web(&lines),
        &[("spec.services.web.tmpfs[0].path", "already mounted")],
    );
}

#[test]
fn an_alias_bomb_is_refused_at_once() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..20 {
        let nine = vec![format!("*a{}", level - 1); 9].join(", ");
        writeln!(text, "a{level}: &a{level} [{nine}]").unwrap();
    }
    assert_refused_at_once(&text, "grows too large here: use fewer aliases");
}

#[test]
fn a_long_text_repeated_by_aliases_is_refused_at_once() {
    let text = format!(
        "a: &a {}\nb: [{}]\n",
        "x".repeat(900_000),
        vec!["*a"; 20_000].join(", ")
    );
    assert_refused_at_once(&text, "grows too large here: use fewer aliases");
}

#[test]
fn an_alias_to_what_it_is_in_is_refused_at_once() {
    assert_refused_at_once("a: &a [*a]\n", "nested deeper than 32 levels");
}

#[test]
fn deep_nesting_is_refused_at_once() {
    for open in ["[", "{a: ", "- ", r#"{"a":"#, "? "] {
        let text = open.repeat(MAX_BYTES / open.len());
        let start = Instant::now();
        let error = refusal(&text).to_string();
        let is_told = error.contains("nested deeper") || error.contains("a key must be a text");
        assert!(is_told, "{open:?}: {error}");
        assert!(
            start.elapsed() < AT_ONCE,
            "{open:?} took {:?}",
            start.elapsed()
        );
    }
}

#[test]
fn too_many_values_are_refused_at_once() {
    assert_refused_at_once(
        &format!("[{}]", "a,".repeat(500_000)),
        "more than 50000 values",
    );
    assert_refused_at_once(&"a: 1\n".repeat(100_000), "more than 50000 values");
}

#[test]
fn a_thousand_problems_are_not_all_listed() {
    let mut text = web(&["env:"]);
    for number in 0..1_000 {
        writeln!(text, "        {number}x: y").unwrap();
    }
    let error = refusal(&text);
    assert_eq!(error.problems().len(), 100);
    assert!(error.to_string().ends_with("\nand 900 more"));
}

#[test]
fn a_problem_with_a_huge_value_is_short() {
    let error = refusal(&web(&[&format!("user: {}", "x".repeat(500_000))]));
    assert!(error.to_string().len() < 1_000);
}
