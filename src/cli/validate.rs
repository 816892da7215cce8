//! `podherd validate`: the controller's own checks, offline.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::{FAILED, WELL};
use crate::manifest::{self, MAX_BYTES};

/// The name that stands for standard input.
const STDIN: &str = "-";
/// The name of an app that has none, or none that can be found.
const UNNAMED: &str = "app";

/// Its options.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Manifests, YAML or JSON; - is standard input. What is wrong is printed as
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
        let text = read(file).map_err(|source| crate::settings::SettingsError::Unreadable {
            setting: "validate",
            path: file.clone(),
            source,
        })?;
        if !check(file, &text, arguments.name.as_deref(), out)? {
            code = FAILED;
        }
    }
    Ok(code)
}

fn read(file: &Path) -> std::io::Result<Vec<u8>> {
    // One byte more than is accepted shows that it is too large.
    let limit = u64::try_from(MAX_BYTES)
        .unwrap_or(u64::MAX)
        .saturating_add(1);
    let mut text = Vec::new();
    if file == Path::new(STDIN) {
        _ = std::io::stdin().lock().take(limit).read_to_end(&mut text)?;
    } else {
        _ = std::fs::File::open(file)?
            .take(limit)
            .read_to_end(&mut text)?;
    }
    Ok(text)
}

/// Whether the text is a manifest; says it, or why it isn't.
fn check(
    file: &Path,
    text: &[u8],
    name: Option<&str>,
    out: &mut impl Write,
) -> anyhow::Result<bool> {
    let shown = if file == Path::new(STDIN) {
        "<stdin>".into()
    } else {
        file.display().to_string()
    };
    let own_name = name.map_or_else(|| own_name(file, text), str::to_owned);
    match manifest::parse(&own_name, text) {
        Ok(app) => {
            let services = app.spec.services.len();
            let noun = if services == 1 { "service" } else { "services" };
            writeln!(out, "{shown}: app {own_name}, {services} {noun}: valid")
                .context("standard output")?;
            Ok(true)
        }
        Err(error) => {
            for problem in error.problems() {
                write!(out, "{shown}:{}:{}: ", problem.line, problem.column)?;
                if !problem.path.is_empty() {
                    write!(out, "{}: ", problem.path)?;
                }
                writeln!(out, "{}", problem.message)?;
            }
            Ok(false)
        }
    }
}

/// The name that the manifest gives itself. Where that can't be found the file's
/// name will do: the check then says what is wrong.
fn own_name(file: &Path, text: &[u8]) -> String {
    let stem = file.file_stem().and_then(std::ffi::OsStr::to_str);
    let stem = stem.filter(|stem| *stem != STDIN).unwrap_or(UNNAMED);
    manifest::own_name(text).unwrap_or_else(|| stem.to_owned())
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
        assert_eq!(super::super::explain(&error), super::super::USAGE);
    }
}
