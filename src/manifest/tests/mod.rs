//! What a manifest may say, what is refused, and where the refusal points.
//!
//! A `«` in a test's text marks where a problem must point; it isn't part of the text.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod accepted;
mod app;
mod order;
mod properties;
mod quantities;
mod service;
mod shape;
mod text;
mod unsupported;

use super::{App, ManifestError, ServiceSpec, parse_all};

const MARK: char = '«';

/// A whole document for the app `blog`, from the lines of its `spec`.
fn app(spec: &[&str]) -> String {
    let mut text =
        String::from("apiVersion: podherd/v1\nkind: App\nmetadata: {name: blog}\nspec:\n");
    for line in spec {
        text.push_str("  ");
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// A whole document for an app with one service `web`, from the lines of the service.
fn web(service: &[&str]) -> String {
    let mut spec = vec!["services:".to_owned(), "  web:".to_owned()];
    if !service
        .iter()
        .any(|line| line.replace(MARK, "").starts_with("image:"))
    {
        spec.push("    image: registry.example.com/team/web:1".to_owned());
    }
    spec.extend(service.iter().map(|line| format!("    {line}")));
    app(&spec.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The text without its marks, and the line and column of each.
fn marks(text: &str) -> (String, Vec<(usize, usize)>) {
    let mut places = Vec::new();
    for (line, content) in text.lines().enumerate() {
        let columns = content.chars().enumerate().filter(|(_, c)| *c == MARK);
        let places_here = columns
            .enumerate()
            .map(|(before, (at, _))| (line + 1, at + 1 - before));
        places.extend(places_here);
    }
    (text.replace(MARK, ""), places)
}

/// Asserts that exactly these problems are found, each at its mark.
fn assert_refused(text: &str, expected: &[(&str, &str)]) {
    let (text, places) = marks(text);
    let error = refusal(&text);
    let found: Vec<_> = error
        .problems()
        .iter()
        .map(|p| (p.path.as_str(), p.line, p.column))
        .collect();
    let wanted: Vec<_> = expected
        .iter()
        .zip(&places)
        .map(|((path, _), at)| (*path, at.0, at.1))
        .collect();
    assert_eq!(expected.len(), places.len(), "a mark for each problem");
    assert_eq!(found, wanted, "in\n{text}\nfound\n{error}");
    for (problem, (_, message)) in error.problems().iter().zip(expected) {
        assert!(
            problem.message.contains(message),
            "{message:?} is not in {:?}",
            problem.message
        );
    }
}

fn refusal(text: &str) -> ManifestError {
    match parse_all("blog", text.as_bytes()) {
        Ok(_) => panic!("accepted\n{text}"),
        Err(error) => error,
    }
}

fn accepted(text: &str) -> App {
    match parse_all("blog", text.as_bytes()) {
        Ok(app) => app,
        Err(error) => panic!("{error}\nin\n{text}"),
    }
}

fn accepted_web(service: &[&str]) -> ServiceSpec {
    accepted(&web(service)).spec.services.remove("web").unwrap()
}

/// Tests that refuse one thing each: the marked lines, the path, words of the message.
macro_rules! refusals {
    ($of:ident, $prefix:literal:
     $($name:ident: [$($line:expr),+ $(,)?] at $path:literal says $message:literal;)+) => {
        $(#[test]
        fn $name() {
            $crate::manifest::tests::assert_refused(
                &$crate::manifest::tests::$of(&[$($line),+]),
                &[(concat!($prefix, $path), $message)],
            );
        })+
    };
}
use refusals;
