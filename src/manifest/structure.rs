//! A tree of values to the typed document, with every error of shape.
//!
//! A deserializer stops at its first error. To find the others too, the value it
//! failed on is cut out of the tree and the rest is tried again, as long as that
//! makes sense. Where something was cut is remembered, because later checks say
//! nothing sensible about it.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use serde_path_to_error::Segment as Step;

use super::envelope::Metadata;
use super::error::Report;
use super::path::{Path, Segment};
use super::spec::AppSpec;

/// The fields of the document itself.
const FIELDS: [&str; 4] = ["apiVersion", "kind", "metadata", "spec"];

/// What could be typed, and what had to be left out for it.
pub(super) struct Typed {
    pub(super) metadata: Option<Metadata>,
    pub(super) spec: Option<AppSpec>,
    pub(super) damage: Damage,
}

/// Where values were cut out, in the paths of the original text.
#[derive(Debug, Default)]
pub(super) struct Damage {
    cut: Vec<Path>,
}

impl Damage {
    /// Whether a later check may be believed about this path: what it looked at is
    /// whole, and nothing that it may refer to was cut out.
    fn spares_one(cut: &Path, path: &Path) -> bool {
        let refers_to_a_port =
            matches!(path.0.last(), Some(Segment::Key(key)) if key == "port" || key == "udp");
        !(path.is_within(&head(cut, FIELD))
            || refers_to_a_port && path.is_within(&head(cut, SERVICE)))
    }

    /// The same for all that was cut out.
    pub(super) fn spares(&self, path: &Path) -> bool {
        let is_about_all = path.0.len() < SERVICE;
        let refers_to_a_service = path.0.contains(&Segment::Key("dependsOn".to_owned()));
        self.cut.is_empty()
            || !is_about_all
                && !refers_to_a_service
                && self.cut.iter().all(|cut| Self::spares_one(cut, path))
    }

    /// Whether this error only follows from a cut: a field that now is missing, or
    /// no check in a probe whose check was cut out.
    fn explains(&self, path: &Path, message: &str) -> bool {
        match message
            .strip_prefix("missing field `")
            .and_then(|rest| rest.strip_suffix('`'))
        {
            Some(field) => self.cut.contains(&path.key(field)),
            None => self.cut.iter().any(|cut| cut.is_within(path)),
        }
    }
}

/// Steps to a service: `spec.services.web`.
const SERVICE: usize = 3;

/// Steps to a field of a service: `spec.services.web.readiness`.
const FIELD: usize = 4;

/// The first steps of a path.
fn head(path: &Path, steps: usize) -> Path {
    Path(path.0.iter().take(steps).cloned().collect())
}

/// Types the tree; every error of shape goes into the report.
pub(super) fn typed(tree: &Value, report: &mut Report<'_>) -> Typed {
    let mut typed = Typed {
        metadata: None,
        spec: None,
        damage: Damage::default(),
    };
    let Some(parts) = envelope(tree, report) else {
        return typed;
    };
    // Apart, so that a wrong name doesn't hide what is wrong with the services.
    let root = Path::root();
    if let Some(tree) = parts.get("metadata") {
        typed.metadata = salvage(tree, &root.key("metadata"), report, &mut typed.damage);
    }
    if let Some(tree) = parts.get("spec") {
        typed.spec = salvage(tree, &root.key("spec"), report, &mut typed.damage);
    }
    typed
}

/// The document's parts. One of another kind or version has none: checking it
/// further would only mislead.
fn envelope<'a>(tree: &'a Value, report: &mut Report<'_>) -> Option<&'a Map<String, Value>> {
    let root = Path::root();
    let Some(parts) = tree.as_object() else {
        report.at(
            &root,
            "a manifest is a map: write apiVersion, kind, metadata and spec",
        );
        return None;
    };
    let before = report.len();
    for (key, only) in [("apiVersion", "podherd/v1"), ("kind", "App")] {
        match parts.get(key) {
            Some(value) if value == only => {}
            Some(_) => report.at(
                &root.key(key),
                format!("the only {key} known here is `{only}`"),
            ),
            None => report.at(
                &root,
                format!("missing field `{key}`: write `{key}: {only}`"),
            ),
        }
    }
    if report.len() > before {
        return None;
    }
    for key in parts.keys().filter(|key| !FIELDS.contains(&key.as_str())) {
        let message = format!(
            "unknown field `{key}`, expected one of `{}`",
            FIELDS.join("`, `")
        );
        report.at_key(&root.key(key), message);
    }
    for key in ["metadata", "spec"]
        .iter()
        .filter(|key| !parts.contains_key(**key))
    {
        report.at(&root, format!("missing field `{key}`"));
    }
    Some(parts)
}

/// Types one part at the path `base`, cutting out of it what can't be typed.
pub(super) fn salvage<T: DeserializeOwned>(
    tree: &Value,
    base: &Path,
    report: &mut Report<'_>,
    damage: &mut Damage,
) -> Option<T> {
    let mut tree = Cow::Borrowed(tree);
    let mut items_cut = BTreeSet::new();
    loop {
        let error = match serde_path_to_error::deserialize::<_, T>(tree.as_ref()) {
            Ok(part) => return Some(part),
            Err(error) => error,
        };
        let found = steps(error.path());
        let message = explain(&error.inner().to_string());
        let path = original(base, &found, &items_cut);
        if message.starts_with("unknown field") {
            report.at_key(&path, message);
        } else if !damage.explains(&path, &message) {
            report.at(&path, message);
        }
        if report.is_full() || !cut(tree.to_mut(), &found) {
            return None;
        }
        if let Some((Segment::Index(index), list)) = path.0.split_last() {
            items_cut.insert((list.to_vec(), *index));
        }
        damage.cut.push(path);
    }
}

fn steps(path: &serde_path_to_error::Path) -> Path {
    let steps = path.iter().filter_map(|step| match step {
        Step::Seq { index } => Some(Segment::Index(*index)),
        Step::Map { key } | Step::Enum { variant: key } => Some(Segment::Key(key.clone())),
        Step::Unknown => None,
    });
    Path(steps.collect())
}

/// The path in the text of a path in the tree, from whose lists items were cut.
fn original(base: &Path, found: &Path, items_cut: &BTreeSet<(Vec<Segment>, usize)>) -> Path {
    let mut path = base.clone();
    for segment in &found.0 {
        let segment = match segment {
            Segment::Key(key) => Segment::Key(key.clone()),
            Segment::Index(index) => {
                let earlier = items_cut.range((path.0.clone(), 0)..=(path.0.clone(), usize::MAX));
                Segment::Index(
                    earlier.fold(*index, |at, (_, cut)| if *cut <= at { at + 1 } else { at }),
                )
            }
        };
        path.0.push(segment);
    }
    path
}

/// Cuts the value at this path out of the tree; false when it isn't there.
fn cut(tree: &mut Value, path: &Path) -> bool {
    let Some((step, parents)) = path.0.split_last() else {
        return false;
    };
    let parent = parents
        .iter()
        .try_fold(tree, |value, segment| match segment {
            Segment::Key(key) => value.get_mut(key),
            Segment::Index(index) => value.get_mut(index),
        });
    match (parent, step) {
        (Some(Value::Object(map)), Segment::Key(key)) => map.remove(key).is_some(),
        (Some(Value::Array(list)), Segment::Index(index)) if *index < list.len() => {
            list.remove(*index);
            true
        }
        _ => false,
    }
}

/// Says in the words of a manifest what the deserializer says in those of Rust.
fn explain(message: &str) -> String {
    const WORDS: [(&str, &str); 5] = [
        ("expected u16", "expected a port number from 1 to 65535"),
        (
            "expected u32",
            "expected a whole number from 0 to 4294967295",
        ),
        ("expected a sequence", "expected a list"),
        ("invalid type: sequence", "invalid type: list"),
        ("invalid type: null", "invalid type: nothing"),
    ];
    let message = WORDS
        .iter()
        .fold(message.to_owned(), |text, (rust, plain)| {
            text.replace(rust, plain)
        });
    let is_bare_word = ["integer", "floating point", "boolean"]
        .iter()
        .any(|kind| message.starts_with(&format!("invalid type: {kind}")));
    if is_bare_word && message.ends_with("expected a string") {
        return format!("{message}: put it in quotes");
    }
    message
}
