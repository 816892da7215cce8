//! What was found.

use std::fmt;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    Well,
    /// It works, with less than it could.
    Weak,
    Wrong,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    pub level: Level,
    pub what: &'static str,
    pub said: String,
    pub mend: String,
}

impl Finding {
    pub(super) fn well(what: &'static str, said: impl Into<String>) -> Self {
        Self {
            level: Level::Well,
            what,
            said: said.into(),
            mend: String::new(),
        }
    }

    pub(super) fn weak(
        what: &'static str,
        said: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self {
            level: Level::Weak,
            mend: mend.into(),
            ..Self::well(what, said)
        }
    }

    pub(super) fn wrong(
        what: &'static str,
        said: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self {
            level: Level::Wrong,
            ..Self::weak(what, said, mend)
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Well => "ok",
            Level::Weak => "weak",
            Level::Wrong => "wrong",
        };
        writeln!(f, "{level:<6} {:<12} {}", self.what, self.said)?;
        match self.mend.as_str() {
            "" => Ok(()),
            mend => writeln!(f, "{:<19} mend: {mend}", ""),
        }
    }
}
