//! What is wrong with a document, and where.

use std::fmt;

use super::path::Path;
use super::positions::{Place, Positions};

/// Most problems that one error lists; the rest are counted.
pub(super) const MAX_PROBLEMS: usize = 100;

/// Longest message of one problem, in characters: a document must not be able to
/// make its own error as large as itself.
const MAX_MESSAGE: usize = 600;

/// One thing that is wrong with a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where in the document, such as `spec.services.web.ports[0]`; empty for all of it.
    pub path: String,
    /// Line of the text, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong and what to do about it.
    pub message: String,
}

impl Problem {
    pub(super) fn new(path: &Path, place: Place, message: &str) -> Self {
        let message = match message.char_indices().nth(MAX_MESSAGE) {
            Some((end, _)) => format!("{}…", &message[..end]),
            None => message.to_owned(),
        };
        Self {
            path: path.to_string(),
            line: place.line,
            column: place.column,
            message,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: ", self.line, self.column)?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

/// Why a text is not a manifest: every problem that could be found, by line and column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestError {
    problems: Vec<Problem>,
    omitted: usize,
}

impl ManifestError {
    /// The problems in the order of the text; never empty.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl From<Problem> for ManifestError {
    fn from(problem: Problem) -> Self {
        Self {
            problems: vec![problem],
            omitted: 0,
        }
    }
}

impl From<Vec<Problem>> for ManifestError {
    fn from(problems: Vec<Problem>) -> Self {
        Self {
            problems,
            omitted: 0,
        }
    }
}

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut newline = "";
        for problem in &self.problems {
            write!(f, "{newline}{problem}")?;
            newline = "\n";
        }
        if self.omitted > 0 {
            write!(f, "{newline}and {} more", self.omitted)?;
        }
        Ok(())
    }
}

impl std::error::Error for ManifestError {}

/// Gathers the problems of one document while it is checked.
pub(super) struct Report<'a> {
    positions: &'a Positions,
    problems: Vec<(Path, Problem)>,
    omitted: usize,
}

impl<'a> Report<'a> {
    pub(super) fn new(positions: &'a Positions) -> Self {
        Self {
            positions,
            problems: Vec::new(),
            omitted: 0,
        }
    }

    /// A problem with the value at this path.
    pub(super) fn at(&mut self, path: &Path, message: impl AsRef<str>) {
        self.push(path, self.positions.value(path), message.as_ref());
    }

    /// A problem with the key that this path ends with.
    pub(super) fn at_key(&mut self, path: &Path, message: impl AsRef<str>) {
        self.push(path, self.positions.key(path), message.as_ref());
    }

    fn push(&mut self, path: &Path, place: Place, message: &str) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems
                .push((path.clone(), Problem::new(path, place, message)));
        } else {
            self.omitted += 1;
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.problems.len() == MAX_PROBLEMS
    }

    /// The number of problems so far, as a mark for [`Report::retain_after`].
    pub(super) fn len(&self) -> usize {
        self.problems.len()
    }

    /// Drops the problems after `mark` that `keep` refuses.
    pub(super) fn retain_after(&mut self, mark: usize, keep: impl Fn(&Path) -> bool) {
        let late = self.problems.split_off(mark);
        self.problems
            .extend(late.into_iter().filter(|(path, _)| keep(path)));
    }

    /// The result of the checks: what they looked at, if there is nothing to report.
    pub(super) fn finish<T>(mut self, checked: Option<T>) -> Result<T, ManifestError> {
        match checked {
            Some(checked) if self.problems.is_empty() => return Ok(checked),
            None if self.problems.is_empty() => self.at(&Path::root(), "not a manifest"),
            _ => {}
        }
        let mut problems: Vec<_> = self
            .problems
            .into_iter()
            .map(|(_, problem)| problem)
            .collect();
        problems.sort_by_key(|problem| (problem.line, problem.column));
        Err(ManifestError {
            problems,
            omitted: self.omitted,
        })
    }
}
