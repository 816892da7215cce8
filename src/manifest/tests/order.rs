//! The order of an app's services.

use super::{accepted, app};
use crate::manifest::{AppSpec, ServiceName};

fn order(spec: &AppSpec) -> Vec<String> {
    spec.order().iter().map(ServiceName::to_string).collect()
}

#[test]
fn without_dependencies_services_go_by_name() {
    let app = accepted(&app(&[
        "services: {b: {image: a}, c: {image: a}, a: {image: a}}",
    ]));
    assert_eq!(order(&app.spec), ["a", "b", "c"]);
}

#[test]
fn dependencies_go_first_and_ties_by_name() {
    let app = accepted(&app(&[
        "services:",
        "  api: {image: a, dependsOn: [queue, db]}",
        "  db: {image: a}",
        "  queue: {image: a, dependsOn: [store]}",
        "  store: {image: a}",
        "  admin: {image: a}",
        "  web: {image: a, dependsOn: [api]}",
    ]));
    assert_eq!(
        order(&app.spec),
        ["admin", "db", "store", "queue", "api", "web"]
    );
}

#[test]
fn a_long_chain_is_ordered_whole() {
    let mut lines = vec!["services:".to_owned()];
    lines.extend((0..49).map(|n| format!("  s{n}: {{image: a, dependsOn: [s{}]}}", n + 1)));
    lines.push("  s49: {image: a}".to_owned());
    let app = accepted(&app(&lines.iter().map(String::as_str).collect::<Vec<_>>()));
    assert_eq!(order(&app.spec).first().map(String::as_str), Some("s49"));
}

#[test]
fn a_spec_that_was_never_checked_still_names_every_service_once() {
    let spec: AppSpec = serde_json::from_str(
        r#"{"services": {
            "a": {"image": "a", "dependsOn": ["b"]},
            "b": {"image": "a", "dependsOn": ["a", "nobody"]},
            "c": {"image": "a"}
        }}"#,
    )
    .unwrap();
    assert_eq!(order(&spec), ["c", "a", "b"]);
}
