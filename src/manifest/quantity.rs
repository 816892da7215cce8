//! Durations and quantities as people write them: `500ms`, `1m30s`, `64Mi`, `0.5`.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A span of time, written `500ms`, `10s`, `1m30s` or `2h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timespan(Duration);

impl Timespan {
    /// A span of whole seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// A span of milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    /// The span as the standard library's type.
    pub const fn get(self) -> Duration {
        self.0
    }

    /// Whether it is no time at all.
    pub const fn is_zero(self) -> bool {
        self.0.is_zero()
    }
}

/// A number of bytes, written `1024`, `64Ki`, `10Mi`, `1Gi`, or with `k`, `M`, `G`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(u64);

impl Bytes {
    /// That many bytes.
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// CPU time, written `0.5`, `2` or `500m`; kept in thousandths of a core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cpus(u32);

impl Cpus {
    /// That many thousandths of a core.
    pub const fn from_millis(millis: u32) -> Self {
        Self(millis)
    }

    /// Thousandths of a core.
    pub const fn millis(self) -> u32 {
        self.0
    }
}

/// Why a text is not the quantity that it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {expected}")]
pub struct QuantityError {
    text: String,
    expected: &'static str,
}

/// A small value that people write as a text, or as a number where that is unmistakable.
pub(super) trait Written: Sized {
    /// Completes "… is not" and "expected …".
    const EXPECTED: &'static str;

    fn read(text: &str) -> Option<Self>;

    fn read_integer(_: u64) -> Option<Self> {
        None
    }

    fn read_float(_: f64) -> Option<Self> {
        None
    }

    fn from_text(text: &str) -> Result<Self, QuantityError> {
        Self::read(text).ok_or_else(|| QuantityError {
            text: text.to_owned(),
            expected: Self::EXPECTED,
        })
    }
}

pub(super) struct WrittenVisitor<T>(pub(super) PhantomData<T>);

impl<T: Written> Visitor<'_> for WrittenVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        T::from_text(text).map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        T::read_integer(number)
            .ok_or_else(|| E::invalid_type(de::Unexpected::Unsigned(number), &self))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<T, E> {
        T::read_float(number).ok_or_else(|| E::invalid_type(de::Unexpected::Float(number), &self))
    }
}

/// Text in, text out, for a type that is [`Written`] and has `Display`.
macro_rules! written {
    ($name:ident, $schema:tt) => {
        impl FromStr for $name {
            type Err = QuantityError;

            fn from_str(text: &str) -> Result<Self, QuantityError> {
                Self::from_text(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = QuantityError;

            fn try_from(text: String) -> Result<Self, QuantityError> {
                Self::from_text(&text)
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.to_string()
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(WrittenVisitor(PhantomData))
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    };
}
pub(super) use written;

written!(Timespan, {
    "type": "string",
    "minLength": 2,
    "pattern": "^([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$",
});
written!(Bytes, {
    "type": ["string", "integer"],
    "minimum": 0,
    "pattern": "^[0-9]+(Ki|Mi|Gi|Ti|k|M|G|T)?$",
});
written!(Cpus, {
    "type": ["string", "number"],
    "minimum": 0,
    "pattern": "^([0-9]+m|[0-9]+(\\.[0-9]{1,3})?)$",
});

/// Digits only: `u64`'s own parser would also take a leading `+`.
fn digits(text: &str) -> Option<u64> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        text.parse().ok()
    } else {
        None
    }
}

const TIME_UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

impl Written for Timespan {
    const EXPECTED: &'static str =
        "a duration: write whole numbers with units, such as 500ms, 10s, 1m30s or 2h";

    fn read(text: &str) -> Option<Self> {
        let mut rest = text;
        let mut units = TIME_UNITS.iter();
        let mut total: u64 = 0;
        while !rest.is_empty() {
            let number = rest.find(|c: char| !c.is_ascii_digit())?;
            let (count, tail) = rest.split_at(number);
            let end = tail
                .find(|c: char| c.is_ascii_digit())
                .unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(end);
            // The units only go down, so that each is used at most once.
            let (_, millis) = units.by_ref().find(|(name, _)| *name == unit)?;
            total = total.checked_add(digits(count)?.checked_mul(*millis)?)?;
            rest = tail;
        }
        (!text.is_empty()).then_some(Self::from_millis(total))
    }
}

impl fmt::Display for Timespan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_zero() {
            return f.write_str("0s");
        }
        let mut rest = self.0.as_millis();
        for (unit, millis) in TIME_UNITS {
            let count = rest / u128::from(millis);
            rest %= u128::from(millis);
            if count > 0 {
                write!(f, "{count}{unit}")?;
            }
        }
        Ok(())
    }
}

const BINARY_UNITS: [(&str, u64); 4] = [
    ("Ti", 1 << 40),
    ("Gi", 1 << 30),
    ("Mi", 1 << 20),
    ("Ki", 1 << 10),
];
const DECIMAL_UNITS: [(&str, u64); 4] = [
    ("T", 1_000_000_000_000),
    ("G", 1_000_000_000),
    ("M", 1_000_000),
    ("k", 1_000),
];

impl Written for Bytes {
    const EXPECTED: &'static str =
        "a number of bytes: write a whole number with a unit, such as 64Mi, 1Gi or 500k";

    fn read(text: &str) -> Option<Self> {
        let end = text
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let factor = if unit.is_empty() {
            1
        } else {
            BINARY_UNITS
                .iter()
                .chain(&DECIMAL_UNITS)
                .find(|(name, _)| *name == unit)?
                .1
        };
        digits(number)?.checked_mul(factor).map(Self)
    }

    fn read_integer(number: u64) -> Option<Self> {
        Some(Self(number))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = BINARY_UNITS
            .iter()
            .find(|(_, factor)| self.0 > 0 && self.0.is_multiple_of(*factor));
        match exact {
            Some((unit, factor)) => write!(f, "{}{unit}", self.0 / factor),
            None => write!(f, "{}", self.0),
        }
    }
}

impl Written for Cpus {
    const EXPECTED: &'static str =
        "CPU time: write cores with at most three decimals, such as 2, 0.5 or 500m";

    fn read(text: &str) -> Option<Self> {
        if let Some(millis) = text.strip_suffix('m') {
            return u32::try_from(digits(millis)?).ok().map(Self);
        }
        let (cores, decimals) = text.split_once('.').unwrap_or((text, "0"));
        if !(1..=3).contains(&decimals.len()) {
            return None;
        }
        let thousandths = digits(&format!("{decimals:0<3}"))?;
        let millis = digits(cores)?
            .checked_mul(1_000)?
            .checked_add(thousandths)?;
        u32::try_from(millis).ok().map(Self)
    }

    fn read_integer(number: u64) -> Option<Self> {
        Self::read(&number.to_string())
    }

    fn read_float(number: f64) -> Option<Self> {
        Self::read(&number.to_string())
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cores, thousandths) = (self.0 / 1_000, self.0 % 1_000);
        if thousandths == 0 {
            return write!(f, "{cores}");
        }
        let decimals = format!("{thousandths:03}");
        write!(f, "{cores}.{}", decimals.trim_end_matches('0'))
    }
}
