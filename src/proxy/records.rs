//! The published records as this data plane last understood them. No I/O.

use std::collections::BTreeMap;

use crate::manifest::AppName;
use crate::state::{RecordError, decode};
use crate::store::{Change, Entry};
use crate::traffic::AppRoutes;

/// What one app's key says.
#[derive(Debug)]
struct Record {
    app: AppName,
    /// When the app was first published: the earlier app keeps a claim.
    create_revision: i64,
    /// The last version that could be read.
    routes: Option<AppRoutes>,
    /// The revision that a newer Podherd wrote, which can't be read here.
    newer: Option<i64>,
}

/// All apps' routes, by key.
///
/// A record that can't be read affects its own app alone, which keeps the routes
/// it had. One that is damaged wasn't written by a controller, so nobody relies on
/// it. One that a newer Podherd wrote is relied on: it is never acknowledged.
#[derive(Debug, Default)]
pub(super) struct Records(BTreeMap<String, Record>);

impl Records {
    /// Takes over a whole list.
    pub fn replace(&mut self, prefix: &str, entries: &[Entry]) {
        self.0
            .retain(|key, _| entries.iter().any(|entry| entry.key == *key));
        for entry in entries {
            self.put(prefix, entry);
        }
    }

    /// Takes over what a watch saw.
    pub fn change(&mut self, prefix: &str, changes: &[Change]) {
        for change in changes {
            match change {
                Change::Put(entry) => self.put(prefix, entry),
                Change::Delete { key, .. } => {
                    self.0.remove(key);
                }
            }
        }
    }

    fn put(&mut self, prefix: &str, entry: &Entry) {
        let name = entry.key.strip_prefix(prefix).unwrap_or_default();
        let Ok(app) = name.parse::<AppName>() else {
            tracing::warn!(
                key = entry.key,
                "no app has such a name: its routes are ignored"
            );
            return;
        };
        let (routes, newer) = match decode(&entry.value) {
            Ok(routes) => (Some(routes), None),
            Err(error) => {
                tracing::error!(%app, %error, "unreadable routes: this app keeps the last good ones");
                let last = self.0.get(&entry.key).and_then(|old| old.routes.clone());
                let newer = matches!(error, RecordError::Newer { .. });
                (last, newer.then_some(entry.mod_revision))
            }
        };
        let record = Record {
            app,
            create_revision: entry.create_revision,
            routes,
            newer,
        };
        self.0.insert(entry.key.clone(), record);
    }

    /// The apps with their routes, the one published first before the others.
    pub fn in_order(&self) -> Vec<(&AppName, &AppRoutes)> {
        let mut records: Vec<_> = self.0.values().collect();
        records.sort_by_key(|record| record.create_revision);
        records
            .into_iter()
            .filter_map(|record| Some((&record.app, record.routes.as_ref()?)))
            .collect()
    }

    /// How much of the graph up to `revision` these records stand for.
    pub fn understood(&self, revision: i64) -> i64 {
        let unread = self.0.values().filter_map(|record| record.newer).min();
        unread.map_or(revision, |newer| revision.min(newer - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{Incarnation, encode};

    fn routes(number: u128) -> AppRoutes {
        AppRoutes {
            incarnation: Incarnation(uuid::Uuid::from_u128(number)),
            http: Vec::new(),
            tcp: Vec::new(),
            udp: Vec::new(),
        }
    }

    fn entry(app: &str, revisions: (i64, i64), value: Vec<u8>) -> Entry {
        Entry {
            key: format!("/r/{app}"),
            value,
            create_revision: revisions.0,
            mod_revision: revisions.1,
        }
    }

    fn seen(records: &Records) -> Vec<(String, u128)> {
        let pairs = records.in_order().into_iter();
        pairs
            .map(|(app, routes)| (app.to_string(), routes.incarnation.0.as_u128()))
            .collect()
    }

    #[test]
    fn a_damaged_record_keeps_its_apps_last_good_routes_and_leaves_others_alone() {
        let mut records = Records::default();
        records.replace(
            "/r/",
            &[
                entry("a", (5, 5), encode(&routes(1)).unwrap()),
                entry("b", (3, 3), encode(&routes(2)).unwrap()),
            ],
        );
        records.change(
            "/r/",
            &[
                Change::Put(entry("a", (5, 8), b"{".to_vec())),
                Change::Put(entry("b", (3, 9), encode(&routes(3)).unwrap())),
                Change::Put(entry("Not A Name", (7, 7), b"{}".to_vec())),
            ],
        );
        assert_eq!(seen(&records), [("b".to_owned(), 3), ("a".to_owned(), 1)]);
        assert_eq!(records.understood(9), 9);
    }

    #[test]
    fn a_record_of_a_newer_podherd_is_not_acknowledged_until_it_is_gone() {
        let mut records = Records::default();
        let newer = br#"{"schema": 999}"#.to_vec();
        records.change("/r/", &[Change::Put(entry("a", (5, 5), newer))]);
        assert_eq!(records.understood(9), 4);
        let gone = Change::Delete {
            key: "/r/a".to_owned(),
            mod_revision: 12,
        };
        records.change("/r/", &[gone]);
        assert_eq!(records.understood(12), 12);
    }

    #[test]
    fn a_new_list_forgets_what_is_not_in_it() {
        let mut records = Records::default();
        records.replace("/r/", &[entry("a", (1, 1), encode(&routes(1)).unwrap())]);
        records.replace("/r/", &[entry("b", (2, 2), encode(&routes(2)).unwrap())]);
        assert_eq!(seen(&records), [("b".to_owned(), 2)]);
    }
}
