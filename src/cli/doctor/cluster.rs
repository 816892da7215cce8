//! etcd, what we may do there, and who else is there.

use super::finding::Finding;
use crate::cli::client::Client;
use crate::manifest::NodeName;
use crate::state::Node;
use crate::store::{Range, StoreError, Target, Txn};
use crate::traffic::DataPlane;

/// A revision that no key was ever created at: what is compared with it is never written.
const NEVER: i64 = i64::MAX;

/// What somebody may have to write, and who needs that.
const WRITES: [(&str, &str, &str); 3] = [
    ("apps/", "manifests", "podherd apply and delete"),
    (
        "requests/",
        "requests",
        "podherd restart and the other verbs",
    ),
    ("state/", "records", "the controller"),
];

pub(super) async fn check(client: &Client, node: Option<&NodeName>) -> Vec<Finding> {
    let mut findings = vec![match client.store.identity().await {
        Ok((cluster, revision)) => Finding::well(
            "etcd",
            format!(
                "cluster {cluster:x} answers, revision {revision}, prefix {}",
                client.keys.prefix()
            ),
        ),
        Err(error) => Finding::wrong("etcd", error.to_string(), "see etcd's own log"),
    }];
    for (below, what, who) in WRITES {
        findings.push(may_write(client, below, what, who).await);
    }
    match members(client, node).await {
        Ok(found) => findings.extend(found),
        Err(error) => findings.push(Finding::wrong(
            "controller",
            error.to_string(),
            "give this user's role read access below the prefix",
        )),
    }
    findings
}

/// etcd checks the rights of a transaction before its comparisons: one that can't come
/// true shows them, and writes nothing.
async fn may_write(client: &Client, below: &str, what: &str, who: &str) -> Finding {
    let key = format!("{}/{below}doctor", client.keys.prefix());
    let txn = Txn::default()
        .when(key.clone(), Target::CreateRevision(NEVER))
        .put(key, Vec::new());
    match client.store.commit(txn).await {
        Ok(_) => Finding::well("rights", format!("may write {what}")),
        Err(StoreError::Denied { .. }) => Finding::weak(
            "rights",
            format!("may not write {what}: {who} can't work as this user"),
            format!(
                "if it should, grant its role readwrite below {}/{below}",
                client.keys.prefix()
            ),
        ),
        Err(error) => Finding::wrong("rights", error.to_string(), "see etcd's own log"),
    }
}

async fn members(client: &Client, node: Option<&NodeName>) -> anyhow::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    findings.push(match client.leader().await? {
        Some(leader) => Finding::well("controller", format!("leads on {}", leader.node)),
        None => Finding::wrong(
            "controller",
            "none leads: nothing is changed",
            "start podherd run or podherd controller (systemctl start podherd)",
        ),
    });
    let nodes = client.list::<Node>(client.keys.nodes()).await?;
    if let Some(node) = node {
        let found = nodes.iter().find(|found| found.record.node == *node);
        findings.push(match found {
            Some(found) => Finding::well(
                "node",
                format!("{node} is there, podherd {}", found.record.version),
            ),
            None => Finding::weak(
                "node",
                format!("{node} isn't registered"),
                "start podherd on it, or say its name with --node",
            ),
        });
    }
    let routes = client.entries(Range::Prefix(client.keys.routes())).await?;
    let newest = routes
        .iter()
        .map(|entry| entry.mod_revision)
        .max()
        .unwrap_or_default();
    let planes = client.list::<DataPlane>(client.keys.proxies()).await?;
    if planes.is_empty() {
        findings.push(Finding::wrong(
            "proxy",
            "none is registered: nothing is served",
            "start podherd run or podherd proxy",
        ));
    }
    findings.extend(planes.iter().map(|found| of_plane(&found.record, newest)));
    Ok(findings)
}

fn of_plane(plane: &DataPlane, newest: i64) -> Finding {
    let name = format!("{}/{}", plane.node, plane.name);
    if let Some(failed) = plane.failed.first() {
        return Finding::wrong(
            "proxy",
            format!("{name} can't serve {}: {}", failed.listener, failed.why),
            "free the port on that host (ss -lntup), or choose another in the manifest",
        );
    }
    if plane.applied < newest {
        return Finding::wrong(
            "proxy",
            format!(
                "{name} serves revision {} of the routes, {newest} is the newest",
                plane.applied
            ),
            "see that it reaches etcd; it goes on with its last routes meanwhile",
        );
    }
    Finding::well("proxy", format!("{name} serves the newest routes"))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::super::finding::Level;
    use super::*;

    #[test]
    fn a_proxy_that_lags_behind_is_wrong() {
        let plane = |applied| DataPlane {
            node: "host-a".parse().unwrap(),
            name: "default".to_owned(),
            since: jiff::Timestamp::UNIX_EPOCH,
            applied,
            draining: BTreeMap::new(),
            reserved: BTreeSet::new(),
            failed: Vec::new(),
        };
        assert_eq!(of_plane(&plane(6), 7).level, Level::Wrong);
        assert_eq!(of_plane(&plane(7), 7).level, Level::Well);
    }
}
