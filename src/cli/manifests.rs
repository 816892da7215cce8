//! Manifests in files: several documents a file, all files of a folder, or standard input.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use anyhow::bail;

use crate::manifest::{self, App, ManifestError, says_nothing};
use crate::settings::SettingsError;

/// The name that stands for standard input.
const STDIN: &str = "-";
/// The name of an app that has none, or none that can be found.
const UNNAMED: &str = "app";
/// More than any file of manifests has.
const LARGEST: u64 = 64 * 1024 * 1024;
/// The files of a folder that are read.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// One document of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Document {
    /// Its file, as it is shown.
    pub file: String,
    /// How many lines of the file come before it.
    pub lines_before: usize,
    /// The text, as it goes under the key.
    pub text: Vec<u8>,
}

/// A document that is a manifest.
#[derive(Debug)]
pub(super) struct Manifest {
    pub app: App,
    pub document: Document,
}

impl Document {
    /// The name that the manifest gives itself. Where that can't be found the file's
    /// name will do: the check then says what is wrong.
    pub(super) fn own_name(&self) -> String {
        let stem = Path::new(&self.file).file_stem();
        let stem = stem.and_then(|stem| stem.to_str());
        let stem = stem
            .filter(|stem| !stem.starts_with('<'))
            .unwrap_or(UNNAMED);
        manifest::own_name(&self.text).unwrap_or_else(|| stem.to_owned())
    }

    /// What is wrong, a line each: FILE:LINE:COLUMN: PATH: MESSAGE.
    pub(super) fn problems(&self, error: &ManifestError) -> Vec<String> {
        let problems = error.problems().iter();
        let said = problems.map(|problem| {
            let line = self.lines_before + problem.line;
            let place = format!("{}:{line}:{}: ", self.file, problem.column);
            match problem.path.as_str() {
                "" => format!("{place}{}", problem.message),
                path => format!("{place}{path}: {}", problem.message),
            }
        });
        said.collect()
    }
}

/// The documents of a file, of a folder's files, or of standard input (`-`).
pub(super) fn documents(path: &Path) -> Result<Vec<Document>, SettingsError> {
    let unreadable = |path: &Path, source| SettingsError::Unreadable {
        setting: "manifest",
        path: path.to_owned(),
        source,
    };
    if path == Path::new(STDIN) {
        let mut text = Vec::new();
        let read = io::stdin().lock().take(LARGEST).read_to_end(&mut text);
        _ = read.map_err(|source| unreadable(Path::new("<stdin>"), source))?;
        return Ok(split("<stdin>", text));
    }
    let files = if path.is_dir() {
        files_of(path).map_err(|source| unreadable(path, source))?
    } else {
        vec![path.to_owned()]
    };
    let mut documents = Vec::new();
    for file in files {
        let mut text = Vec::new();
        let opened = fs::File::open(&file);
        let read = opened.and_then(|opened| opened.take(LARGEST).read_to_end(&mut text));
        _ = read.map_err(|source| unreadable(&file, source))?;
        documents.extend(split(&file.display().to_string(), text));
    }
    Ok(documents)
}

fn files_of(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let extension = path.extension().and_then(|it| it.to_str());
        if extension.is_some_and(|it| EXTENSIONS.contains(&it)) && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    if files.is_empty() {
        let kinds = EXTENSIONS.join(", .");
        return Err(io::Error::other(format!("no file in it ends in .{kinds}")));
    }
    Ok(files)
}

/// Splits a text at the lines that begin a YAML document. One that says nothing is left
/// out, unless it is all there is.
fn split(file: &str, bytes: Vec<u8>) -> Vec<Document> {
    let document = |lines_before, text| Document {
        file: file.to_owned(),
        lines_before,
        text,
    };
    let Ok(text) = std::str::from_utf8(&bytes) else {
        return vec![document(0, bytes)];
    };
    let mut parts: Vec<(usize, String)> = vec![(0, String::new())];
    for (number, line) in text.split_inclusive('\n').enumerate() {
        if let Some(rest) = line
            .strip_prefix("---")
            .filter(|it| it.trim_start() != *it || it.is_empty())
        {
            // What stands behind the mark keeps its column.
            let rest = if rest.trim().is_empty() {
                String::new()
            } else {
                format!("   {rest}")
            };
            let before = number + usize::from(rest.is_empty());
            parts.push((before, rest));
        } else if let Some((_, part)) = parts.last_mut() {
            part.push_str(line);
        }
    }
    parts.retain(|(_, part)| !says_nothing(part));
    if parts.is_empty() {
        return vec![document(0, bytes)];
    }
    let parts = parts.into_iter();
    parts
        .map(|(before, part)| document(before, part.into_bytes()))
        .collect()
}

/// All manifests of these files, each of another app. What is wrong in any of them is
/// told, and is an error: all or nothing.
pub(super) fn load(paths: &[PathBuf]) -> anyhow::Result<Vec<Manifest>> {
    let mut manifests = Vec::new();
    let mut wrong = 0_usize;
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    for path in paths {
        for document in documents(path)? {
            let name = document.own_name();
            if let Some(first) = seen.insert(name.clone(), document.file.clone()) {
                bail!(
                    "app {name} is in {first} and in {}: keep one of them",
                    document.file
                );
            }
            match manifest::parse(&name, &document.text) {
                Ok(app) => manifests.push(Manifest { app, document }),
                Err(error) => {
                    wrong += 1;
                    for problem in document.problems(&error) {
                        super::tell(&problem);
                    }
                }
            }
        }
    }
    match wrong {
        0 => Ok(manifests),
        1 => bail!("a manifest is wrong: mend it at the places above; nothing was done"),
        wrong => {
            bail!("{wrong} manifests are wrong: mend them at the places above; nothing was done")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Vec<(usize, String)> {
        let documents = split("x.yaml", text.as_bytes().to_vec()).into_iter();
        let text = |document: Document| String::from_utf8(document.text).unwrap();
        documents.map(|it| (it.lines_before, text(it))).collect()
    }

    #[test]
    fn a_file_is_split_where_its_documents_begin() {
        assert_eq!(parts("a: 1\n"), [(0, "a: 1\n".to_owned())]);
        assert_eq!(
            parts("# head\n---\na: 1\n---\n\n---\nb: 2"),
            [(2, "a: 1\n".to_owned()), (6, "b: 2".to_owned())]
        );
        assert_eq!(parts("--- {a: 1}\n"), [(0, "    {a: 1}\n".to_owned())]);
        assert_eq!(parts("a: ---\n----\n").len(), 1, "no mark");
    }

    #[test]
    fn what_says_nothing_is_left_for_the_check_to_refuse() {
        for text in ["", "# nothing\n", "---\n---\n"] {
            assert_eq!(parts(text).len(), 1, "{text:?}");
        }
    }

    #[test]
    fn a_problem_of_a_later_document_has_its_line_in_the_file() {
        let documents = split("x.yaml", b"a: 1\n---\nkind: Ap\n".to_vec());
        let error = manifest::parse("app", &documents[1].text).unwrap_err();
        let said = documents[1].problems(&error);
        assert!(said[0].starts_with("x.yaml:3:"), "{said:?}");
    }

    #[test]
    fn one_app_in_two_files_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let text = "\
apiVersion: podherd/v1
kind: App
metadata: {name: blog}
spec: {services: {web: {image: registry.example.com/web:1, readiness: none}}}
";
        for name in ["a.yaml", "b.yaml", "c.txt"] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let error = load(&[folder.path().to_owned()]).unwrap_err().to_string();
        assert!(
            error.contains("a.yaml") && error.contains("b.yaml"),
            "{error}"
        );
    }
}
