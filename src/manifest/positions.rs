//! Where each node of a document stands in its text.
//!
//! The deserializer knows positions only of what it fails on. Checks that come
//! later (a probe on a port that isn't declared) need them for any path, so the
//! text's events are walked once and the place of every key and value kept. The
//! walk comes first, and so also enforces the limits on depth and size before
//! anything is built from the text.

use std::collections::BTreeMap;

use saphyr_parser::{Event, Marker, Parser, ScanError};

use super::error::{MAX_PROBLEMS, Problem};
use super::limits::{MAX_DEPTH, MAX_NODES, TOO_DEEP};
use super::path::{Path, Segment};

/// A line and a column of a text, both from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) line: usize,
    pub(super) column: usize,
}

impl Place {
    pub(super) const START: Self = Self { line: 1, column: 1 };
}

impl From<Marker> for Place {
    fn from(marker: Marker) -> Self {
        Self {
            line: marker.line().max(1),
            column: marker.col() + 1,
        }
    }
}

/// The place of every node of one document.
#[derive(Debug, Default)]
pub(super) struct Positions {
    nodes: Vec<Node>,
    /// By parent node and step. A flat map: no recursion when it is dropped.
    children: BTreeMap<(usize, Segment), usize>,
}

#[derive(Debug)]
struct Node {
    key: Option<Place>,
    value: Place,
    is_scalar: bool,
}

impl Positions {
    /// Where to point for the value at this path: at a scalar itself, at the key of
    /// a map or list, and at the nearest node above for what isn't written.
    pub(super) fn value(&self, path: &Path) -> Place {
        self.nearest(path)
            .map_or(Place::START, |node| match node.key {
                Some(key) if !node.is_scalar => key,
                _ => node.value,
            })
    }

    /// Where to point for the key that this path ends with.
    pub(super) fn key(&self, path: &Path) -> Place {
        self.nearest(path)
            .map_or(Place::START, |node| node.key.unwrap_or(node.value))
    }

    fn nearest(&self, path: &Path) -> Option<&Node> {
        let mut id = 0;
        for segment in &path.0 {
            match self.children.get(&(id, segment.clone())) {
                Some(&child) => id = child,
                None => break,
            }
        }
        self.nodes.get(id)
    }
}

/// What one walk over a text finds.
#[derive(Debug, Default)]
pub(super) struct Walk {
    pub(super) positions: Positions,
    /// Keys that a map has already had.
    pub(super) duplicates: Vec<Problem>,
    stack: Vec<Frame>,
    documents: usize,
}

#[derive(Debug)]
struct Frame {
    node: usize,
    /// The step to it from the frame below; the lowest one is the root.
    step: Option<Segment>,
    open: Open,
}

#[derive(Debug)]
enum Open {
    Sequence { next: usize },
    Mapping { key: Option<(String, Place)> },
}

/// Walks a text's events; the first thing that makes it no single, plain document ends it.
pub(super) fn walk(text: &str) -> Result<Walk, Problem> {
    let mut walk = Walk::default();
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| walk.syntax(&error))?;
        walk.take(event, Place::from(span.start))?;
    }
    Ok(walk)
}

impl Walk {
    fn take(&mut self, event: Event<'_>, place: Place) -> Result<(), Problem> {
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err(self.refuse(
                        place,
                        "a second document starts here: keep one document, and put each app \
                         under a key of its own",
                    ));
                }
                Ok(())
            }
            Event::Scalar(text, ..) => {
                if self.expects_key() {
                    self.begin_key(text.into_owned(), place);
                    return Ok(());
                }
                self.node(place, true).map(|_| ())
            }
            Event::Alias(_) if self.expects_key() => {
                Err(self.refuse(place, "an alias can't be a key: write the key out"))
            }
            // What an alias stands for is located at the alias.
            Event::Alias(_) => self.node(place, true).map(|_| ()),
            Event::SequenceStart(..) => self.open(place, Open::Sequence { next: 0 }),
            Event::MappingStart(..) => self.open(place, Open::Mapping { key: None }),
            Event::SequenceEnd | Event::MappingEnd => {
                self.stack.pop();
                Ok(())
            }
        }
    }

    fn expects_key(&self) -> bool {
        matches!(
            self.stack.last(),
            Some(Frame {
                open: Open::Mapping { key: None },
                ..
            })
        )
    }

    fn begin_key(&mut self, text: String, place: Place) {
        let Some(Frame {
            node,
            open: Open::Mapping { key },
            ..
        }) = self.stack.last_mut()
        else {
            return;
        };
        let earlier = self
            .positions
            .children
            .get(&(*node, Segment::Key(text.clone())));
        *key = Some((text, place));
        if let Some(earlier) = earlier.and_then(|&id| self.positions.nodes.get(id))
            && self.duplicates.len() < MAX_PROBLEMS
        {
            let line = earlier.key.unwrap_or(earlier.value).line;
            let message = format!("this key is already on line {line}: keep one of the two");
            self.duplicates.push(self.refuse(place, &message));
        }
    }

    fn open(&mut self, place: Place, open: Open) -> Result<(), Problem> {
        if self.expects_key() {
            return Err(self.refuse(place, "a key must be a text, not a map or a list"));
        }
        if self.stack.len() >= MAX_DEPTH {
            return Err(self.refuse(place, TOO_DEEP));
        }
        let step = self.next_step();
        let node = self.node(place, false)?;
        self.stack.push(Frame { node, step, open });
        Ok(())
    }

    /// Adds a node under the innermost open map or list.
    fn node(&mut self, value: Place, is_scalar: bool) -> Result<usize, Problem> {
        let id = self.positions.nodes.len();
        if id >= MAX_NODES {
            let message = format!("more than {MAX_NODES} values in one document: split the app");
            return Err(self.refuse(value, &message));
        }
        let mut place_of_key = None;
        if let Some(Frame { node, open, .. }) = self.stack.last_mut() {
            let segment = match open {
                Open::Sequence { next } => {
                    *next += 1;
                    Segment::Index(*next - 1)
                }
                Open::Mapping { key } => {
                    let (text, place) = key.take().unwrap_or((String::new(), value));
                    place_of_key = Some(place);
                    Segment::Key(text)
                }
            };
            // The first of two equal keys stays, so that later places match it.
            self.positions
                .children
                .entry((*node, segment))
                .or_insert(id);
        }
        self.positions.nodes.push(Node {
            key: place_of_key,
            value,
            is_scalar,
        });
        Ok(id)
    }

    fn syntax(&self, error: &ScanError) -> Problem {
        // The scanner reads ahead, and has a limit of its own on open brackets.
        let message = match error.info() {
            "recursion limit exceeded" => TOO_DEEP,
            info => info,
        };
        Problem::new(&self.here(), Place::from(*error.marker()), message)
    }

    /// The path of the map or list that is being read.
    fn here(&self) -> Path {
        Path(
            self.stack
                .iter()
                .filter_map(|frame| frame.step.clone())
                .collect(),
        )
    }

    /// The step to the node that comes next; none to the root.
    fn next_step(&self) -> Option<Segment> {
        self.stack.last().and_then(|frame| match &frame.open {
            Open::Sequence { next } => Some(Segment::Index(*next)),
            Open::Mapping { key } => key.as_ref().map(|(text, _)| Segment::Key(text.clone())),
        })
    }

    fn refuse(&self, place: Place, message: &str) -> Problem {
        let mut path = self.here();
        path.0.extend(self.next_step());
        Problem::new(&path, place, message)
    }
}
