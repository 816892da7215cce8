//! `podherd validate`: the controller's own checks, offline.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;

use super::manifests::{Document, documents};
use super::{FAILED, WELL};
use crate::manifest;

/// Its options.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Manifests, YAML or JSON: files with one or more documents, folders, or - for
    /// standard input. What is wrong is printed as
    /// FILE:LINE:COLUMN: PATH: MESSAGE
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Last part of the key that the manifest is meant for [default: the name it
    /// has itself]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

pub(super) fn run(arguments: &Arguments, out: &mut impl Write) -> anyhow::Result<u8> {
    let mut code = WELL;
    for file in &arguments.files {
        // One that can't be read ends it all: it may be the one that matters.
        for document in documents(file)? {
            if !check(&document, arguments.name.as_deref(), out)? {
                code = FAILED;
            }
        }
    }
    Ok(code)
}

/// Whether the document is a manifest; says it, or why it isn't.
fn check(document: &Document, name: Option<&str>, out: &mut impl Write) -> anyhow::Result<bool> {
    let name = name.map_or_else(|| document.own_name(), str::to_owned);
    match manifest::parse(&name, &document.text) {
        Ok(app) => {
            let services = app.spec.services.len();
            let noun = if services == 1 { "service" } else { "services" };
            let file = &document.file;
            writeln!(out, "{file}: app {name}, {services} {noun}: valid")
                .context("standard output")?;
            Ok(true)
        }
        Err(error) => {
            for problem in document.problems(&error) {
                writeln!(out, "{problem}")?;
            }
            Ok(false)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "\
apiVersion: podherd/v1
kind: App
metadata: {name: blog}
spec:
  services:
    web:
      image: registry.example.com/web:1
      ports: [{name: http, container: 8080}]
      http: [{host: blog.example.com, path: /, port: http}]
";

    fn validate(text: &str, name: Option<&str>) -> (u8, String) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("other.yaml");
        std::fs::write(&file, text).unwrap();
        let arguments = Arguments {
            files: vec![file],
            name: name.map(str::to_owned),
        };
        let mut out = Vec::new();
        let code = run(&arguments, &mut out).unwrap();
        let folder = format!("{}/", dir.path().display());
        (code, String::from_utf8(out).unwrap().replace(&folder, ""))
    }

    #[test]
    fn a_good_manifest_is_valid_under_its_own_name() {
        assert_eq!(
            validate(GOOD, None),
            (WELL, "other.yaml: app blog, 1 service: valid\n".to_owned())
        );
    }

    #[test]
    fn another_key_than_its_name_is_wrong() {
        let (code, said) = validate(GOOD, Some("shop"));

        assert_eq!(code, FAILED);
        assert!(said.starts_with("other.yaml:3:"), "{said}");
    }

    #[test]
    fn each_problem_has_a_line_of_its_own_with_its_place() {
        let wrong = GOOD
            .replace("container: 8080", "container: 0, speed: 9")
            .replace("port: http}", "port: htp}");

        let (code, said) = validate(&wrong, None);

        assert_eq!(code, FAILED);
        for line in said.lines() {
            let place: Vec<&str> = line.splitn(4, ':').collect();
            assert_eq!(place[0], "other.yaml");
            assert!(
                place[1].parse::<usize>().is_ok() && place[2].parse::<usize>().is_ok(),
                "{line}"
            );
        }
        assert!(said.contains("spec.services.web"), "{said}");
    }

    #[test]
    fn what_is_no_manifest_at_all_is_wrong_and_nothing_worse() {
        for text in ["", "{", "- 1", "a: &a [*a]", &"x".repeat(2 << 20)] {
            assert_eq!(validate(text, None).0, FAILED);
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_another_matter() {
        let arguments = Arguments {
            files: vec!["/does/not/exist.yaml".into()],
            name: None,
        };
        let error = run(&arguments, &mut Vec::new()).unwrap_err();
        assert_eq!(super::super::explain(&error, FAILED), super::super::USAGE);
    }
}
