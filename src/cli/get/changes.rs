//! What one revision changed of the one before.

use serde_json::Value;

use crate::state::{PinnedService, Revision};

/// Most fields of a service that are named.
const NAMED: usize = 6;

/// One line a service that differs.
pub(in crate::cli) fn changes(before: Option<&Revision>, now: &Revision) -> Vec<String> {
    let none = std::collections::BTreeMap::new();
    let earlier = before.map_or(&none, |before| &before.services);
    let mut lines = Vec::new();
    for (name, service) in &now.services {
        match earlier.get(name) {
            None => lines.push(format!("{name}: new, {}", service.spec.image)),
            Some(earlier) if earlier == service => {}
            Some(earlier) => lines.push(format!("{name}: {}", difference(earlier, service))),
        }
    }
    let gone = earlier
        .keys()
        .filter(|name| !now.services.contains_key(*name));
    lines.extend(gone.map(|name| format!("{name}: removed")));
    lines
}

/// Values may be private, the names of fields aren't. An image is what people look for.
fn difference(before: &PinnedService, now: &PinnedService) -> String {
    let mut parts = Vec::new();
    if before.spec.image != now.spec.image {
        parts.push(format!("{} -> {}", before.spec.image, now.spec.image));
    } else if before.digest != now.digest {
        parts.push(format!("{} has a new digest", now.spec.image));
    }
    let object = |pinned: &PinnedService| serde_json::to_value(&pinned.spec).unwrap_or_default();
    if let (Value::Object(before), Value::Object(now)) = (object(before), object(now)) {
        let names = before
            .keys()
            .chain(now.keys().filter(|name| !before.contains_key(*name)));
        let differ = names.filter(|name| before.get(*name) != now.get(*name));
        let fields: Vec<_> = differ.filter(|name| *name != "image").cloned().collect();
        parts.extend(fields.iter().take(NAMED).cloned());
        if fields.len() > NAMED {
            parts.push("…".to_owned());
        }
    }
    if before.networks != now.networks {
        parts.push("networks".to_owned());
    }
    parts.join(", ")
}
