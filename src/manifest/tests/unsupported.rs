//! What the language has and Podherd doesn't do yet is refused, not ignored.

use super::{app, marks, parse_all, web};
use crate::manifest::parse;

/// Asserts that only `parse` refuses, at the mark.
fn assert_not_yet(text: &str, path: &str) {
    let (text, places) = marks(text);
    parse_all("blog", text.as_bytes()).unwrap();
    let error = parse("blog", text.as_bytes()).unwrap_err();
    let [problem] = error.problems() else {
        panic!("{error}")
    };
    assert_eq!(
        (problem.path.as_str(), vec![(problem.line, problem.column)]),
        (path, places)
    );
    assert!(problem.message.contains("not supported yet"), "{error}");
}

#[test]
fn fields_of_the_app() {
    let services = "services: {web: {image: a}}";
    assert_not_yet(&app(&[services, "«placement: {node: a}"]), "spec.placement");
}

#[test]
fn fields_of_a_service() {
    const PORTS: &str = "ports: [{name: a, container: 1}]";
    let rows: &[(&[&str], &str)] = &[(
        &[PORTS, "http: [{host: a.example.com, port: a, tls: «auto}]"],
        "http[0].tls",
    )];
    for (lines, path) in rows {
        assert_not_yet(&web(lines), &format!("spec.services.web.{path}"));
    }
}

#[test]
fn what_says_nothing_is_no_use_of_a_field() {
    let lines = ["tcp: []", "logging:"];
    parse("blog", web(&lines).as_bytes()).unwrap();
}

#[test]
fn what_an_app_writes_of_itself_is_supported() {
    let app = parse("blog", web(&[]).as_bytes()).unwrap();
    assert_eq!(
        parse("blog", &serde_json::to_vec(&app).unwrap()).unwrap(),
        app
    );
}

#[test]
fn they_are_reported_beside_other_problems() {
    let error = parse(
        "blog",
        web(&["logging: {driver: journald}", "user: \":\""]).as_bytes(),
    )
    .unwrap_err();
    assert_eq!(error.problems().len(), 2);
}
