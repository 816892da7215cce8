//! What the node's policy file allows, on the real Podman and the real file system.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use serde_json::Value;

use crate::support::world::text;
use crate::support::{Image, Options, Podherd, World, condition, manifest, podherd, until};

/// A host with a policy file, and a folder `media` in a root of its own.
struct Host {
    world: World,
    podherd: Podherd,
    root: PathBuf,
    file: PathBuf,
}

impl Host {
    fn start() -> Self {
        let world = World::start();
        let root = world.sandbox.dir().join("srv");
        let file = world.sandbox.dir().join("policy.yaml");
        fs::create_dir_all(root.join("media")).unwrap();
        let policy = Self::allowing(&root);
        fs::write(&file, policy).unwrap();
        let options = Options {
            arguments: vec!["--policy".to_owned(), file.display().to_string()],
            ..Options::default()
        };
        let mut podherd = Podherd::start(&world, options);
        podherd.wait_serving(&world);
        Self {
            world,
            podherd,
            root,
            file,
        }
    }

    fn allowing(root: &std::path::Path) -> String {
        format!(
            "images: {{allowed: [localhost]}}\n\
             binds:\n  srv: {{path: {root}, apps: [blog]}}\n  \
             fixed: {{path: {root}/fixed, readOnly: true, apps: [blog]}}\n\
             devices:\n  sink: {{path: /dev/null, access: rw, apps: [blog/web]}}\n",
            root = root.display()
        )
    }

    fn policy(&self, text: &str) {
        fs::write(&self.file, text).unwrap();
    }

    fn allow(&self) {
        self.policy(&Self::allowing(&self.root));
    }

    /// A manifest that mounts `source` of the root at /data.
    fn with_bind(&self, image: Image, source: &str) -> String {
        let source = self.root.join(source);
        with(image, &bind(&source.display().to_string(), ""))
    }

    /// The manifest is refused before anything: no operation begins.
    #[track_caller]
    fn refused(&self, yaml: &str, says: &str) {
        let (operations, running) = (self.world.operations("blog"), self.world.running());
        let revision = self.world.apply("blog", yaml);
        let status = self
            .world
            .wait_condition("blog", revision, "Accepted", "False");
        assert_condition(&status, "Accepted", "PolicyDenied", says);
        assert_condition(&status, "Ready", "PolicyDenied", says);
        assert_eq!(self.world.operations("blog"), operations);
        assert_eq!(self.world.running(), running);
    }

    /// Asks, and waits for the outcome.
    #[track_caller]
    fn ask(&self, id: &str, verb: &str) -> Value {
        let key = format!("/podherd/requests/blog/{id}");
        let asked = format!("verb: {verb}");
        let world = &self.world;
        world.etcd.put(&world.sandbox, &key, asked.as_bytes());
        let operation = format!("state/operations/blog/{id}");
        let outcome = || world.record(&operation).map(|it| it["outcome"].clone());
        until(verb, || outcome().is_some_and(|it| it.is_object()));
        outcome().unwrap()
    }

    #[track_caller]
    fn wait_degraded(&self, reason: &str) {
        until("Degraded says so", || {
            let status = self.world.status("blog").unwrap_or_default();
            condition(&status, "Degraded").is_some_and(|it| it["reason"] == reason)
        });
    }

    fn serves(&self, version: &str) -> bool {
        let body = format!("demo-web version {version}\n");
        self.podherd.get(&self.world, "blog.test", "/").body == body
    }
}

fn bind(source: &str, more: &str) -> String {
    format!("binds: [{{source: {source}, path: /data{more}}}]")
}

fn with(image: Image, line: &str) -> String {
    manifest("blog", image) + &format!("      {line}\n")
}

#[track_caller]
fn assert_condition(status: &Value, kind: &str, reason: &str, says: &str) {
    let condition = condition(status, kind).unwrap();
    assert_eq!(condition["reason"], reason, "{status}");
    assert!(text(&condition["message"]).contains(says), "{status}");
}

#[test]
fn an_allowed_bind_and_device_are_mounted_and_one_writer_follows_another() {
    let host = Host::start();
    symlink(host.root.join("media"), host.root.join("link")).unwrap();
    let devices = "      devices: [/dev/null:/dev/zilch:rw]\n";
    let yaml = host.with_bind(Image::Writer1, "link") + devices;
    host.world.deploy("blog", &yaml);
    assert!(host.serves("1"));
    let log = host.root.join("media/log");
    until("it writes", || log.exists());

    let id = &host.world.active("blog")["web"];
    let shown = host.world.podman.run(&host.world.sandbox, &["inspect", id]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let mount = &shown[0]["Mounts"][0];
    let real = host.root.join("media").display().to_string();
    assert_eq!(mount["Source"], real, "the path without symlinks");
    assert_eq!(
        (&mount["Type"], &mount["RW"]),
        (&"bind".into(), &true.into())
    );
    let exec = [
        "exec",
        id,
        "sh",
        "-c",
        "echo gone > /dev/zilch && test -c /dev/zilch",
    ];
    host.world.podman.run(&host.world.sandbox, &exec);

    host.world
        .deploy("blog", &host.with_bind(Image::Writer2, "link"));
    assert!(host.serves("2"));
    let log = fs::read_to_string(log).unwrap();
    let mut owner = "";
    for line in log.lines() {
        let mut words = line.split(' ');
        match (words.next(), words.next()) {
            (Some("start"), Some(id)) => owner = id,
            (_, id) => assert_eq!(id, Some(owner), "one writer at a time"),
        }
    }
}

#[test]
fn a_read_only_root_is_mounted_without_write_access_or_not_at_all() {
    let host = Host::start();
    let fixed = host.root.join("fixed");
    fs::create_dir(&fixed).unwrap();
    fs::write(fixed.join("page"), "old").unwrap();
    let source = fixed.display().to_string();
    let writable = with(Image::Web1, &bind(&source, ""));
    host.refused(&writable, "say readOnly: true");

    host.world.deploy(
        "blog",
        &with(Image::Web1, &bind(&source, ", readOnly: true")),
    );
    let id = &host.world.active("blog")["web"];
    let write = [
        "exec",
        id,
        "sh",
        "-c",
        "cat /data/page; echo new > /data/page || echo refused",
    ];
    let said = host.world.podman.run(&host.world.sandbox, &write);
    assert!(said.contains("old") && said.contains("refused"), "{said}");
    assert_eq!(fs::read_to_string(fixed.join("page")).unwrap(), "old");
}

#[test]
fn what_is_not_allowed_is_refused_before_anything_is_touched() {
    let host = Host::start();
    host.world.deploy("blog", &manifest("blog", Image::Web1));
    symlink("/etc", host.root.join("out")).unwrap();
    fs::create_dir(host.root.join("in")).unwrap();
    symlink("../../..", host.root.join("in/up")).unwrap();
    fs::write(host.root.join("in/late"), "").unwrap();

    let etc = with(Image::Web2, &bind("/etc", ""));
    host.refused(&etc, "in no root");
    for source in ["out", "in/up", "out/ssl"] {
        host.refused(&host.with_bind(Image::Web2, source), "by a symlink");
    }
    host.refused(&host.with_bind(Image::Web2, "gone"), "doesn't exist");
    host.refused(&with(Image::Web2, "devices: [/dev/null]"), "less access");
    host.refused(&with(Image::Web2, "devices: [/dev/zero]"), "isn't allowed");
    host.refused(
        &with(Image::Web2, "security: {capAdd: [SYS_ADMIN]}"),
        "SYS_ADMIN",
    );
    let elsewhere = manifest("blog", Image::Web2)
        .replace(Image::Web2.reference(), "registry.example.com/web:1");
    host.refused(&elsewhere, "its registry isn't allowed");
    let short = manifest("blog", Image::Web2).replace(Image::Web2.reference(), "web:1");
    host.refused(&short, "write the image's registry out");
    assert!(host.serves("1"));
    host.world.assert_only_active(&["blog"]);
}

#[test]
fn a_revoked_bind_runs_on_and_is_not_started_again_until_it_is_allowed() {
    let host = Host::start();
    host.world
        .deploy("blog", &host.with_bind(Image::Writer1, "media"));
    let before = host.world.running();

    // The policy is read again by itself.
    host.policy("images: {allowed: [localhost]}\n");
    host.wait_degraded("PolicyRevoked");
    for verb in ["restart", "deploy"] {
        let outcome = host.ask(&format!("no-{verb}"), verb);
        assert_eq!(outcome["reason"], "PolicyDenied", "{outcome}");
    }
    assert_eq!(host.world.running(), before);
    assert!(host.serves("1"));
    let ready = host.world.status("blog").unwrap();
    assert_eq!(condition(&ready, "Ready").unwrap()["status"], "True");

    // A broken one allows nothing either, and is told of.
    host.policy("binds: {srv: {path: /}}\n");
    until("the status has the place", || {
        let status = host.world.status("blog").unwrap_or_default();
        condition(&status, "Accepted").is_some_and(|it| {
            it["reason"] == "PolicyUnreadable" && it["message"].to_string().contains("line 1")
        })
    });
    assert_eq!(host.world.running(), before);

    // What dies now isn't started.
    host.world
        .podman
        .run(&host.world.sandbox, &["kill", &before[0]]);
    until("it is withdrawn", || {
        host.podherd.get(&host.world, "blog.test", "/").code == 503
    });
    let outcome = host.ask("no-start", "start");
    assert_eq!(outcome["reason"], "PolicyUnreadable", "{outcome}");
    assert!(host.world.running().is_empty());

    host.allow();
    until("it is started again", || host.serves("1"));
    assert_eq!(host.world.running(), before, "the same container");
}

#[test]
fn a_policy_that_is_wrong_at_the_start_is_refused_with_its_place() {
    let world = World::start();
    let file = world.sandbox.dir().join("policy.yaml");
    fs::write(&file, "binds:\n  srv: {path: /srv, app: [blog]}\n").unwrap();
    let path = file.display().to_string();
    let output = podherd(
        &world,
        &["plan", "--etcd", &world.etcd.url(), "--policy", &path],
    );
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    for part in [
        "--policy",
        &path,
        "line 2, column 21",
        "binds.srv.app",
        "unknown field",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
}

#[test]
fn a_cdi_name_gives_what_its_specification_on_the_host_says() {
    let host = Host::start();
    let spec = r#"{"cdiVersion": "0.3.0", "kind": "example.com/card", "devices": [{"name": "one",
        "containerEdits": {"env": ["CARD=one"]}}]}"#;
    let script = "mkdir -p /run/cdi && printf '%s' \"$1\" >/run/cdi/card.json";
    let sandbox = &host.world.sandbox;
    sandbox.run("sh", ["-c", script, "sh", spec]);
    let yaml = with(Image::Web1, "devices: [example.com/card=one]");
    host.refused(&yaml, "device example.com/card=one");

    let card = "  card: {cdi: example.com/card=one, apps: [blog]}\n";
    host.policy(&(Host::allowing(&host.root) + card));
    until("it is deployed by itself", || host.serves("1"));
    let id = &host.world.active("blog")["web"];
    let exec = ["exec", id, "cat", "/proc/1/environ"];
    let environment = host.world.podman.run(sandbox, &exec);
    assert!(environment.contains("CARD=one"), "{environment:?}");
}
