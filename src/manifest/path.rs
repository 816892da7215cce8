//! A place in a document, as its keys and indexes: `spec.services.web.ports[0]`.

use std::fmt;

/// Longest key that a path shows in full.
const SHOWN_KEY: usize = 80;

/// One step into a document.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Segment {
    Key(String),
    Index(usize),
}

/// The steps from the document's root to a place in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Path(pub(super) Vec<Segment>);

impl Path {
    /// The document itself.
    pub(super) const fn root() -> Self {
        Self(Vec::new())
    }

    /// The entry of this map under `key`.
    pub(super) fn key(&self, key: impl AsRef<str>) -> Self {
        self.with(Segment::Key(key.as_ref().to_owned()))
    }

    /// The item of this list at `index`, from 0.
    pub(super) fn index(&self, index: usize) -> Self {
        self.with(Segment::Index(index))
    }

    pub(super) fn with(&self, segment: Segment) -> Self {
        let mut segments = Vec::with_capacity(self.0.len() + 1);
        segments.extend_from_slice(&self.0);
        segments.push(segment);
        Self(segments)
    }

    /// Whether this is `other` or inside it.
    pub(super) fn is_within(&self, other: &Self) -> bool {
        self.0.starts_with(&other.0)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for segment in &self.0 {
            match segment {
                Segment::Index(index) => write!(f, "[{index}]")?,
                Segment::Key(key) if is_plain(key) => write!(f, "{separator}{key}")?,
                // A key with a dot in it must not look like two keys.
                Segment::Key(key) => match key.char_indices().nth(SHOWN_KEY) {
                    Some((end, _)) => write!(f, "[{:?}…]", &key[..end])?,
                    None => write!(f, "[{key:?}]")?,
                },
            }
            separator = ".";
        }
        Ok(())
    }
}

fn is_plain(key: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (1..=SHOWN_KEY).contains(&key.len()) && key.bytes().all(plain)
}
