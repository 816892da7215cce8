//! Who waits for whom: dependencies exist, and nobody waits for themselves.

use std::collections::{BTreeMap, BTreeSet};

use crate::manifest::error::Report;
use crate::manifest::names::ServiceName;
use crate::manifest::path::Path;
use crate::manifest::spec::AppSpec;

pub(super) fn check(spec: &AppSpec, at: &Path, report: &mut Report<'_>) {
    for (name, service) in &spec.services {
        let at = at.key(name).key("dependsOn");
        let mut seen = BTreeSet::new();
        for (index, dependency) in service.depends_on.iter().enumerate() {
            let at = at.index(index);
            if !spec.services.contains_key(dependency) {
                report.at(
                    &at,
                    format!("no service `{dependency}`: add it, or correct the name"),
                );
            } else if !seen.insert(dependency) {
                report.at(
                    &at,
                    format!("service `{dependency}` is already listed: keep one"),
                );
            }
        }
    }
    cycles(spec, at, report);
}

/// A service that a walk has entered, and the next of its dependencies to follow.
struct Visit<'a> {
    name: &'a ServiceName,
    next: usize,
}

/// Walks depth first, without recursion: a chain may be as long as the document.
fn cycles(spec: &AppSpec, at: &Path, report: &mut Report<'_>) {
    // False while a service is being walked, true once all behind it is known.
    let mut done: BTreeMap<&ServiceName, bool> = BTreeMap::new();
    for start in spec.services.keys() {
        if done.contains_key(start) {
            continue;
        }
        done.insert(start, false);
        let mut walk = vec![Visit {
            name: start,
            next: 0,
        }];
        while let Some(visit) = walk.last_mut() {
            let (name, index) = (visit.name, visit.next);
            visit.next += 1;
            let Some(dependency) = spec
                .services
                .get(name)
                .and_then(|service| service.depends_on.get(index))
            else {
                done.insert(name, true);
                walk.pop();
                continue;
            };
            match done.get(dependency) {
                Some(false) => {
                    let message = format!(
                        "{} wait for each other: take one of these dependencies out",
                        circle(&walk, dependency)
                    );
                    report.at(&at.key(name).key("dependsOn").index(index), message);
                }
                None if spec.services.contains_key(dependency) => {
                    done.insert(dependency, false);
                    walk.push(Visit {
                        name: dependency,
                        next: 0,
                    });
                }
                Some(true) | None => {}
            }
        }
    }
}

/// `db → web → db`: the part of the walk that comes back to `first`.
fn circle(walk: &[Visit<'_>], first: &ServiceName) -> String {
    let names = walk
        .iter()
        .map(|visit| visit.name)
        .skip_while(|name| *name != first);
    let names: Vec<&str> = names.chain([first]).map(ServiceName::as_str).collect();
    names.join(" → ")
}
