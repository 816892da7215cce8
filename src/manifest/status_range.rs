//! Ranges of HTTP status codes: `200`, `200-399`.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::quantity::{QuantityError, Written, WrittenVisitor, written};

/// Accepted HTTP status codes, written `200` or `200-399`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatusRange {
    /// Lowest accepted code.
    pub from: u16,
    /// Highest accepted code.
    pub to: u16,
}

impl StatusRange {
    /// Whether this code is accepted.
    pub const fn contains(self, code: u16) -> bool {
        self.from <= code && code <= self.to
    }
}

impl Default for StatusRange {
    /// Success and redirects.
    fn default() -> Self {
        Self { from: 200, to: 399 }
    }
}

impl Written for StatusRange {
    const EXPECTED: &'static str =
        "a range of HTTP status codes: write 200 or 200-399, within 100 to 599";

    fn read(text: &str) -> Option<Self> {
        let code = |text: &str| {
            let three_digits = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
            let code: u16 = three_digits.then(|| text.parse().ok())??;
            (100..=599).contains(&code).then_some(code)
        };
        let (from, to) = text.split_once('-').unwrap_or((text, text));
        let range = Self {
            from: code(from)?,
            to: code(to)?,
        };
        (range.from <= range.to).then_some(range)
    }

    fn read_integer(number: u64) -> Option<Self> {
        Self::read(&number.to_string())
    }
}

impl fmt::Display for StatusRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.from == self.to {
            write!(f, "{}", self.from)
        } else {
            write!(f, "{}-{}", self.from, self.to)
        }
    }
}

written!(StatusRange, {
    "type": ["string", "integer"],
    "minimum": 100,
    "maximum": 599,
    "pattern": "^[1-5][0-9]{2}(-[1-5][0-9]{2})?$",
});
