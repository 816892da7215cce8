//! The routing table: from a host and a path to whatever is routed there. Pure.

use std::collections::HashMap;

use crate::traffic::{normal_host, normal_path};

/// What is routed where; never changed once it serves.
#[derive(Debug, Clone)]
pub(super) struct Table<T> {
    /// By host; of each, the longest path prefix first.
    hosts: HashMap<String, Vec<(String, T)>>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            hosts: HashMap::new(),
        }
    }
}

impl<T> Table<T> {
    /// Routes a host and path prefix to `target`, unless it is routed already:
    /// then the target comes back.
    pub fn insert(&mut self, host: &str, path: &str, target: T) -> Result<(), T> {
        let path = normal_path(path);
        let prefixes = self.hosts.entry(normal_host(host)).or_default();
        if prefixes.iter().any(|(taken, _)| *taken == path) {
            return Err(target);
        }
        let place = prefixes.partition_point(|(other, _)| other.len() > path.len());
        prefixes.insert(place, (path, target));
        Ok(())
    }

    /// What a request leads to: the host exactly, and the longest prefix that
    /// covers whole segments of the path. The path is compared as it was sent:
    /// neither dots nor escapes are resolved.
    pub fn find(&self, host: &str, path: &str) -> Option<&T> {
        self.hosts
            .get(&normal_host(host))?
            .iter()
            .find(|(prefix, _)| covers(prefix, path))
            .map(|(_, target)| target)
    }

    /// Everything that is routed to.
    pub fn targets(&self) -> impl Iterator<Item = &T> {
        self.hosts.values().flatten().map(|(_, target)| target)
    }
}

fn covers(prefix: &str, path: &str) -> bool {
    prefix == "/"
        || path
            .strip_prefix(prefix)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn table(rules: &[(&str, &str)]) -> Table<String> {
        let mut table = Table::default();
        for (host, path) in rules {
            table.insert(host, path, format!("{host} {path}")).unwrap();
        }
        table
    }

    #[test]
    fn a_prefix_covers_whole_segments_only() {
        let table = table(&[("a.test", "/api")]);
        assert!(table.find("a.test", "/api").is_some());
        assert!(table.find("a.test", "/api/").is_some());
        assert!(table.find("a.test", "/api/x").is_some());
        assert!(table.find("a.test", "/apix").is_none());
        assert!(table.find("a.test", "/").is_none());
    }

    #[test]
    fn the_longest_prefix_wins_in_whatever_order_they_came() {
        let table = table(&[("a.test", "/api/v2"), ("a.test", "/"), ("a.test", "/api/")]);
        assert_eq!(table.find("a.test", "/api/v2/x").unwrap(), "a.test /api/v2");
        assert_eq!(table.find("a.test", "/api/v1").unwrap(), "a.test /api/");
        assert_eq!(table.find("a.test", "/other").unwrap(), "a.test /");
        assert_eq!(table.find("a.test", "*").unwrap(), "a.test /");
    }

    #[test]
    fn hosts_are_exact_but_for_case_and_the_roots_dot() {
        let table = table(&[("A.test", "/")]);
        assert!(table.find("a.TEST", "/").is_some());
        assert!(table.find("a.test.", "/").is_some());
        assert!(table.find("b.a.test", "/").is_none());
        assert!(table.find("", "/").is_none());
    }

    #[test]
    fn what_is_taken_stays_with_the_first() {
        let mut table = table(&[("a.test", "/x")]);
        let second = table.insert("A.TEST", "/x/", "second".to_owned());
        assert_eq!(second, Err("second".to_owned()));
        assert_eq!(table.find("a.test", "/x").unwrap(), "a.test /x");
    }

    /// The same by segments, with no order and no cleverness.
    fn naive<'r>(rules: &'r [(String, String)], host: &str, path: &str) -> Option<&'r str> {
        let segments = |path: &str| -> Vec<String> {
            let path = path.trim_end_matches('/');
            path.split('/').skip(1).map(str::to_owned).collect()
        };
        let mut best: Option<(usize, &str)> = None;
        for (rule_host, rule_path) in rules {
            let (prefix, wanted) = (segments(rule_path), path.split('/').skip(1));
            let wanted: Vec<_> = wanted.map(str::to_owned).collect();
            if rule_host == host
                && wanted.starts_with(&prefix)
                && best.is_none_or(|(length, _)| prefix.len() > length)
            {
                best = Some((prefix.len(), rule_path));
            }
        }
        best.map(|(_, path)| path)
    }

    proptest! {
        #[test]
        fn it_routes_as_the_naive_model_does(
            rules in prop::collection::vec(("[ab]", "(/[ab]{1,2}){0,3}/?"), 0..12),
            requests in prop::collection::vec(("[abc]", "/([ab]{0,2}(/[ab]{0,2}){0,4})"), 1..20),
        ) {
            let mut table = Table::default();
            let mut known: Vec<(String, String)> = Vec::new();
            for (host, path) in rules {
                if table.insert(&host, &path, path.clone()).is_ok() {
                    known.push((host, path));
                }
            }
            for (host, path) in requests {
                let found = table.find(&host, &path).map(String::as_str);
                prop_assert_eq!(found, naive(&known, &host, &path), "{} {}", host, path);
            }
        }
    }
}
