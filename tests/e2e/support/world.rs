//! One sandbox with a Podman and an etcd in it, and the questions that tests ask.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::etcd::Etcd;
use super::podherd::{Options, Podherd, Response};
use super::podman::Podman;
use super::sandbox::{Net, Sandbox};
use super::wait::within;

/// The longest wait for an app to get where it should.
pub const LIMIT: Duration = Duration::from_secs(60);

/// A test's own host.
///
/// Fields are dropped in this order; the sandbox, which ends whatever is left, last.
#[derive(Debug)]
pub struct World {
    /// Podman's service.
    pub podman: Podman,
    /// The store.
    pub etcd: Etcd,
    /// Where both run.
    pub sandbox: Sandbox,
}

impl World {
    /// A network of its own: several worlds live side by side.
    pub fn start() -> Self {
        Self::start_on(Net::Own)
    }

    /// The same on the network that is asked for.
    pub fn start_on(net: Net) -> Self {
        Self::inside(Sandbox::new(net))
    }

    /// One in which everything is an ordinary user's, and nothing root's.
    pub fn of_user() -> Self {
        Self::inside(Sandbox::of_user())
    }

    fn inside(sandbox: Sandbox) -> Self {
        let etcd = Etcd::start(&sandbox, "etcd");
        let podman = Podman::start(&sandbox);
        Self {
            podman,
            etcd,
            sandbox,
        }
    }

    /// Starts `podherd run` and waits until it is ready.
    #[track_caller]
    pub fn podherd(&self) -> Podherd {
        let mut podherd = Podherd::start(self, Options::default());
        podherd.wait_serving(self);
        podherd
    }

    /// `etcdctl put /podherd/apps/APP < YAML`; answers the key's new revision.
    #[track_caller]
    pub fn apply(&self, app: &str, yaml: &str) -> i64 {
        self.etcd.put(
            &self.sandbox,
            &format!("/podherd/apps/{app}"),
            yaml.as_bytes(),
        )
    }

    /// Deletes the manifest's key.
    #[track_caller]
    pub fn delete(&self, app: &str) {
        self.etcd
            .delete(&self.sandbox, &format!("/podherd/apps/{app}"));
    }

    /// The record under `/podherd/KEY`.
    #[track_caller]
    pub fn record(&self, key: &str) -> Option<Value> {
        self.etcd
            .get_json(&self.sandbox, &format!("/podherd/{key}"))
    }

    /// The records under `/podherd/PREFIX`, by key, in the keys' order.
    #[track_caller]
    pub fn records(&self, prefix: &str) -> Vec<(String, Value)> {
        self.etcd
            .keys(&self.sandbox, &format!("/podherd/{prefix}"))
            .into_iter()
            .filter_map(|key| {
                let value = self.etcd.get_json(&self.sandbox, &key)?;
                Some((key, value))
            })
            .collect()
    }

    /// The status of an app.
    #[track_caller]
    pub fn status(&self, app: &str) -> Option<Value> {
        self.record(&format!("status/{app}"))
    }

    /// Waits until the status at `revision` or later has this condition; answers the status.
    #[track_caller]
    pub fn wait_condition(&self, app: &str, revision: i64, kind: &str, wanted: &str) -> Value {
        let what = format!("{kind}={wanted} of {app} at {revision}");
        within(LIMIT, &what, || {
            let status = self.status(app).ok_or_else(|| "no status".to_owned())?;
            let seen = status["observedRevision"].as_i64().unwrap_or_default();
            let state = condition(&status, kind).map(|it| it["status"].clone());
            if seen >= revision && state == Some(Value::from(wanted)) {
                Ok(status)
            } else {
                Err(status.to_string())
            }
        })
    }

    /// Waits for Ready=True at `revision` or later.
    #[track_caller]
    pub fn wait_ready(&self, app: &str, revision: i64) -> Value {
        self.wait_condition(app, revision, "Ready", "True")
    }

    /// Waits until the manifest of this revision has been tried and isn't served.
    #[track_caller]
    pub fn wait_refused(&self, app: &str, revision: i64) -> Value {
        within(LIMIT, &format!("{app} is refused at {revision}"), || {
            let status = self.wait_condition(app, revision, "Ready", "False");
            let ready = condition(&status, "Ready").map(|it| it["reason"].clone());
            if ready == Some(Value::from("Deploying")) {
                Err(ready)
            } else {
                Ok(status)
            }
        })
    }

    /// Applies a manifest and waits until it is ready; answers the status.
    #[track_caller]
    pub fn deploy(&self, app: &str, yaml: &str) -> Value {
        let revision = self.apply(app, yaml);
        self.wait_ready(app, revision)
    }

    /// The newest operation of an app in the journal.
    #[track_caller]
    pub fn last_operation(&self, app: &str) -> Option<Value> {
        self.operations(app).pop()
    }

    /// The journal of an app, oldest first.
    #[track_caller]
    pub fn operations(&self, app: &str) -> Vec<Value> {
        let records = self.records(&format!("state/operations/{app}/"));
        let mut operations: Vec<_> = records.into_iter().map(|(_, value)| value).collect();
        operations.sort_by_key(|operation| operation["startedAt"].to_string());
        operations
    }

    /// The containers that ACTIVE names, by service.
    #[track_caller]
    pub fn active(&self, app: &str) -> BTreeMap<String, String> {
        let Some(active) = self.record(&format!("state/active/{app}")) else {
            return BTreeMap::new();
        };
        let services = active["services"].as_object().expect("services in ACTIVE");
        services
            .iter()
            .map(|(name, it)| (name.clone(), text(&it["container"])))
            .collect()
    }

    /// Asserts that Podman runs the containers that the ACTIVE records of these apps name,
    /// and has no others.
    #[track_caller]
    pub fn assert_only_active(&self, apps: &[&str]) {
        let mut wanted: Vec<_> = apps
            .iter()
            .flat_map(|app| self.active(app).into_values())
            .collect();
        wanted.sort();
        let mut all: Vec<_> = self.containers().iter().map(|it| text(&it["Id"])).collect();
        all.sort();
        assert_eq!(all, wanted, "all containers, and those that ACTIVE names");
        assert_eq!(
            self.running(),
            wanted,
            "running containers, and those that ACTIVE names"
        );
    }

    /// All containers, running or not, as `podman ps` describes them.
    #[track_caller]
    pub fn containers(&self) -> Vec<Value> {
        self.podman.containers(&self.sandbox)
    }

    /// The IDs of all running containers, sorted.
    #[track_caller]
    pub fn running(&self) -> Vec<String> {
        let mut ids: Vec<_> = self
            .containers()
            .iter()
            .filter(|container| container["State"] == "running")
            .filter_map(|container| container["Id"].as_str().map(str::to_owned))
            .collect();
        ids.sort();
        ids
    }

    /// `GET url` with a Host header, from inside.
    pub fn get(&self, url: &str, host: &str) -> Response {
        let mut command = self.sandbox.command("curl");
        command.args([
            "--silent",
            "--max-time",
            "5",
            "--write-out",
            "\n%{http_code}",
        ]);
        command.args(["--header", &format!("Host: {host}"), url]);
        let output = command.output().expect("curl starts");
        let text = String::from_utf8_lossy(&output.stdout);
        let (body, code) = text.rsplit_once('\n').unwrap_or(("", "0"));
        Response {
            code: code.parse().unwrap_or(0),
            body: body.to_owned(),
        }
    }
}

/// The condition of this type.
pub fn condition<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    status["conditions"]
        .as_array()?
        .iter()
        .find(|it| it["type"] == kind)
}

/// A JSON string's text.
pub fn text(value: &Value) -> String {
    value
        .as_str()
        .unwrap_or_else(|| panic!("not a string: {value}"))
        .to_owned()
}
