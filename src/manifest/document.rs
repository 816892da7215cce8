//! Text to a plain tree of values, strictly.
//!
//! YAML and JSON both become a JSON value: one set of deserializers then serves
//! manifests and the records kept in etcd. What JSON can't hold is refused here:
//! tags, keys that aren't texts, numbers that aren't finite.

use std::cell::{Cell, RefCell};
use std::fmt;

use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::error::{ManifestError, Problem};
use super::limits::{self, MAX_DEPTH, MAX_GROWTH, TOO_DEEP, TOO_LARGE, VALUE_COST};
use super::path::{Path, Segment};
use super::positions::{self, Place, Positions};

/// A document's values and where they stand in the text.
pub(super) struct Tree {
    pub(super) value: Value,
    pub(super) positions: Positions,
}

/// Reads one document of YAML or JSON.
pub(super) fn read(bytes: &[u8]) -> Result<Tree, ManifestError> {
    let text = limits::text(bytes)?;
    // JSON's own parser first: YAML's doesn't know all of JSON's escapes. What it
    // refuses may still be YAML's flow style, and YAML's errors serve for both.
    if text.trim_start().starts_with('{')
        && let Some(value) = read_json(text)
    {
        let positions = positions::walk(text)
            .map(|walk| walk.positions)
            .unwrap_or_default();
        return Ok(Tree { value, positions });
    }
    let walk = positions::walk(text)?;
    let positions = walk.positions;
    if !walk.duplicates.is_empty() {
        return Err(walk.duplicates.into());
    }
    let value = read_yaml(text, &positions)?;
    if value.is_null() {
        let message = "the document is empty: write apiVersion, kind, metadata and spec";
        return Err(Problem::new(&Path::root(), Place::START, message).into());
    }
    Ok(Tree { value, positions })
}

fn read_json(text: &str) -> Option<Value> {
    let progress = Progress::default();
    let mut json = serde_json::Deserializer::from_str(text);
    let value = Strict(&progress).deserialize(&mut json).ok()?;
    json.end().ok()?;
    Some(value)
}

fn read_yaml(text: &str, positions: &Positions) -> Result<Value, Problem> {
    let progress = Progress::default();
    let yaml = serde_yaml::Deserializer::from_str(text);
    Strict(&progress).deserialize(yaml).map_err(|error| {
        let path = Path(progress.path.take());
        match (progress.refusal.take(), error.location()) {
            (Some(refusal), _) => {
                let place = match refusal.of {
                    Part::Key => positions.key(&path),
                    Part::Value => positions.value(&path),
                };
                Problem::new(&path, place, &refusal.message)
            }
            (None, Some(at)) => {
                let place = Place {
                    line: at.line(),
                    column: at.column(),
                };
                Problem::new(&path, place, &plain(&error))
            }
            (None, None) => Problem::new(&path, positions.value(&path), &plain(&error)),
        }
    })
}

/// The parser's message without the path and the place: a problem has its own.
fn plain(error: &serde_yaml::Error) -> String {
    let message = error.to_string();
    if message.contains("repetition limit exceeded") {
        return TOO_LARGE.to_owned();
    }
    message
        .split(" at line ")
        .next()
        .unwrap_or(&message)
        .to_owned()
}

/// Where the reading is, how much it has built, and why it stopped.
#[derive(Default)]
struct Progress {
    /// Left as it is when a value fails, so that it then names that value.
    path: RefCell<Vec<Segment>>,
    grown: Cell<usize>,
    refusal: RefCell<Option<Refusal>>,
}

struct Refusal {
    of: Part,
    message: String,
}

/// What of an entry is refused.
enum Part {
    Key,
    Value,
}

impl Progress {
    fn refuse<E: de::Error>(&self, of: Part, message: impl Into<String>) -> E {
        let message = message.into();
        let error = E::custom(&message);
        self.refusal
            .borrow_mut()
            .get_or_insert(Refusal { of, message });
        error
    }

    /// Counts what is built: aliases can make a short text a huge document.
    fn grow<E: de::Error>(&self, bytes: usize) -> Result<(), E> {
        let grown = self
            .grown
            .get()
            .saturating_add(VALUE_COST)
            .saturating_add(bytes);
        self.grown.set(grown);
        if grown > MAX_GROWTH {
            return Err(self.refuse(Part::Value, TOO_LARGE));
        }
        Ok(())
    }

    fn enter<E: de::Error>(&self, segment: Segment) -> Result<(), E> {
        let mut path = self.path.borrow_mut();
        path.push(segment);
        if path.len() > MAX_DEPTH {
            return Err(self.refuse(Part::Value, TOO_DEEP));
        }
        Ok(())
    }

    fn leave(&self) {
        self.path.borrow_mut().pop();
    }
}

/// Reads any value, refusing what isn't plain.
#[derive(Clone, Copy)]
struct Strict<'a>(&'a Progress);

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a plain value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        self.0.grow(0)?;
        Ok(Value::Null)
    }

    /// A text without any value in it.
    fn visit_none<E: de::Error>(self) -> Result<Value, E> {
        self.visit_unit()
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        self.0.grow(0)?;
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        self.0.grow(0)?;
        Ok(value.into())
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        self.0.grow(0)?;
        Ok(value.into())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        self.0.grow(0)?;
        Number::from_f64(value).map(Value::Number).ok_or_else(|| {
            self.0
                .refuse(Part::Value, "not a finite number: put a text in quotes")
        })
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        self.0.grow(value.len())?;
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        self.0.grow(0)?;
        let mut list = Vec::new();
        loop {
            self.0.enter(Segment::Index(list.len()))?;
            let Some(item) = items.next_element_seed(self)? else {
                break;
            };
            self.0.leave();
            list.push(item);
        }
        self.0.leave();
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        self.0.grow(0)?;
        let mut map = Map::new();
        while let Some(key) = entries.next_key_seed(Key(self.0))? {
            self.0.enter(Segment::Key(key.clone()))?;
            if map.contains_key(&key) {
                return Err(self
                    .0
                    .refuse(Part::Key, "this key is here twice: keep one of the two"));
            }
            let value = entries.next_value_seed(self)?;
            self.0.leave();
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }

    fn visit_enum<A: de::EnumAccess<'de>>(self, _: A) -> Result<Value, A::Error> {
        Err(self.0.refuse(
            Part::Value,
            "YAML tags (`!word`) mean nothing here: write a plain value",
        ))
    }
}

/// Reads a key, which must be a text.
struct Key<'a>(&'a Progress);

impl Key<'_> {
    fn refuse<E: de::Error>(&self, key: &dyn fmt::Display) -> E {
        let key = key.to_string();
        self.0.path.borrow_mut().push(Segment::Key(key.clone()));
        self.0.refuse(
            Part::Key,
            format!("the key {key} isn't a text: put it in quotes"),
        )
    }
}

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = String;

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Key<'_> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key that is a text")
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<String, E> {
        self.0.grow(key.len())?;
        Ok(key.to_owned())
    }

    fn visit_unit<E: de::Error>(self) -> Result<String, E> {
        Err(self.refuse(&"null"))
    }

    fn visit_bool<E: de::Error>(self, key: bool) -> Result<String, E> {
        Err(self.refuse(&key))
    }

    fn visit_i64<E: de::Error>(self, key: i64) -> Result<String, E> {
        Err(self.refuse(&key))
    }

    fn visit_u64<E: de::Error>(self, key: u64) -> Result<String, E> {
        Err(self.refuse(&key))
    }

    fn visit_f64<E: de::Error>(self, key: f64) -> Result<String, E> {
        Err(self.refuse(&key))
    }

    fn visit_enum<A: de::EnumAccess<'de>>(self, _: A) -> Result<String, A::Error> {
        Err(self.0.refuse(
            Part::Key,
            "YAML tags (`!word`) mean nothing here: write a plain key",
        ))
    }
}
