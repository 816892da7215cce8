//! Secrets on the real Podman: as environment and as files, missing, rotated, an app's
//! own, what a removed app leaves; and that no value is ever seen.

use std::fs;
use std::io::Write as _;
use std::process::Stdio;

use serde_json::Value;

use crate::support::{Image, Options, Podherd, World, condition, manifest, text, until, with};

/// What must never be seen anywhere: a part of each value, and of the printed line.
const CANARY: &str = "canary-7f3a91";

/// A controller that looks again soon: Podman tells nobody of a secret that changed.
fn podherd(world: &World) -> Podherd {
    let arguments = ["--resync", "10s"].map(str::to_owned).to_vec();
    let options = Options {
        arguments,
        ..Options::default()
    };
    let mut podherd = Podherd::start(world, options);
    podherd.wait_serving(world);
    podherd
}

/// `podherd …` on this world, with this on standard input; its code and all it said.
fn say(world: &World, arguments: &[&str], input: &str) -> (bool, String) {
    let mut command = world.sandbox.command(env!("CARGO_BIN_EXE_podherd"));
    command.args(arguments);
    command.args(["--etcd", &world.etcd.url()]);
    command.args(["--podman", &world.podman.url()]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("podherd starts");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(input.as_bytes()).expect("its input");
    drop(stdin);
    let output = child.wait_with_output().expect("podherd ends");
    let said = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&said).into_owned(),
    )
}

#[track_caller]
fn done(world: &World, arguments: &[&str], input: &str) -> String {
    let (success, said) = say(world, arguments, input);
    assert!(success, "{arguments:?}: {said}");
    said
}

#[track_caller]
fn refused(world: &World, arguments: &[&str], why: &str) {
    let (success, said) = say(world, arguments, "");
    assert!(!success && said.contains(why), "{arguments:?}: {said}");
}

/// `podman secret create`, in place of what there was.
fn set_by_hand(world: &World, name: &str, value: &str) {
    let file = world.sandbox.dir().join("value");
    fs::write(&file, value).expect("the value");
    let there = world.podman.run(
        &world.sandbox,
        &["secret", "ls", "--format", "{{.Name}}", "--noheading"],
    );
    if there.lines().any(|line| line.trim() == name) {
        delete_by_hand(world, name);
    }
    let path = file.to_str().expect("UTF-8");
    let create = ["secret", "create", name, path];
    _ = world.podman.run(&world.sandbox, &create);
    fs::remove_file(&file).expect("the value goes");
}

fn delete_by_hand(world: &World, name: &str) {
    _ = world.podman.run(&world.sandbox, &["secret", "rm", name]);
}

/// What a command in the app's container says.
fn inside(world: &World, app: &str, script: &str) -> String {
    let id = &world.active(app)["web"];
    let exec = ["exec", id, "/bin/sh", "-c", script];
    world.podman.run(&world.sandbox, &exec)
}

/// Asks, and waits for the operation's outcome.
#[track_caller]
fn ask(world: &World, id: &str, asked: &str) -> Value {
    let key = format!("/podherd/requests/blog/{id}");
    world.etcd.put(&world.sandbox, &key, asked.as_bytes());
    let operation = format!("state/operations/blog/{id}");
    until(asked, || {
        let record = world.record(&operation);
        record.is_some_and(|it| it["outcome"].is_object())
    });
    world.record(&operation).expect("an operation")["outcome"].take()
}

fn wait_outdated(world: &World, reason: &str) {
    until(reason, || {
        let status = world.status("blog").unwrap_or_default();
        condition(&status, "Outdated").is_some_and(|it| it["reason"] == reason)
    });
}

const BOTH: &str = "user: \"1000:1000\"
      secrets: {DB: {podman: db-url}}
      files: [{path: /run/keys/tls.key, podman: tls-key, mode: \"0440\"}]";
const READ_BOTH: &str =
    "echo $DB; cat /run/keys/tls.key; /bin/busybox stat -c ' %a %u %g' /run/keys/tls.key";

#[test]
fn secrets_arrive_and_what_was_rotated_is_taken_by_a_restart() {
    let world = World::start();
    let podherd = podherd(&world);
    set_by_hand(&world, "db-url", "url-1");
    set_by_hand(&world, "tls-key", "key-1");
    world.deploy("blog", &with("blog", Image::Web1.reference(), BOTH));
    assert_eq!(
        inside(&world, "blog", READ_BOTH),
        "url-1\nkey-1 440 1000 1000"
    );

    let before = world.running();
    set_by_hand(&world, "db-url", "url-2");
    wait_outdated(&world, "SecretRotated");
    assert_eq!(world.running(), before, "nothing happens by itself");
    assert_eq!(ask(&world, "r-1", "verb: restart")["result"], "success");
    assert_eq!(world.running(), before, "in place");
    assert_eq!(
        inside(&world, "blog", READ_BOTH),
        "url-2\nkey-1 440 1000 1000"
    );
    wait_outdated(&world, "UpToDate");

    set_by_hand(&world, "tls-key", "key-2");
    wait_outdated(&world, "SecretRotated");
    let digest = world.status("blog").expect("a status")["services"]["web"]["digest"].take();
    assert_eq!(ask(&world, "r-2", "verb: restart")["result"], "success");
    assert_ne!(world.running(), before, "built again");
    assert_eq!(
        inside(&world, "blog", READ_BOTH),
        "url-2\nkey-2 440 1000 1000"
    );
    wait_outdated(&world, "UpToDate");
    let status = world.status("blog").expect("a status");
    assert_eq!(status["services"]["web"]["digest"], digest);
    assert_eq!(podherd.get(&world, "blog.test", "/").code, 200);
    world.assert_only_active(&["blog"]);
}

#[test]
fn without_its_secret_nothing_is_touched_and_the_message_says_which() {
    let world = World::start();
    let podherd = podherd(&world);
    world.deploy("blog", &manifest("blog", Image::Web1));
    let before = world.running();
    let revision = world.apply("blog", &with("blog", Image::Web2.reference(), BOTH));
    let status = world.wait_refused("blog", revision);
    let ready = condition(&status, "Ready").expect("Ready");
    assert_eq!(ready["reason"], "SecretMissing");
    let message = text(&ready["message"]);
    assert!(message.contains("podman secret create"), "{message}");
    assert_eq!(world.running(), before);
    assert_eq!(
        podherd.get(&world, "blog.test", "/").body,
        "demo-web version 1\n"
    );

    set_by_hand(&world, "db-url", "url-1");
    set_by_hand(&world, "tls-key", "key-1");
    assert_eq!(ask(&world, "d-1", "verb: deploy")["result"], "success");
    delete_by_hand(&world, "db-url");
    let outcome = ask(&world, "r-1", "verb: restart");
    assert_eq!(outcome["reason"], "SecretMissing", "refused beforehand");
    assert_eq!(
        podherd.get(&world, "blog.test", "/").body,
        "demo-web version 2\n"
    );
}

const OWN: &str = "secrets: {TOKEN: {app: token}}
      volumes: [{name: data, path: /data}]";

#[test]
fn an_apps_own_secret_is_set_before_its_first_deployment_and_stays_its_own() {
    let world = World::start();
    let _podherd = podherd(&world);
    let yaml = with("blog", Image::Web1.reference(), OWN);
    refused(&world, &["secret", "list", "blog"], "neither an app");
    let (success, said) = say(&world, &["secret", "set", "blog", "token"], "t-0");
    assert!(
        !success && said.contains("put its manifest first"),
        "{said}"
    );

    let revision = world.apply("blog", &yaml);
    world.wait_refused("blog", revision);
    let said = done(&world, &["secret", "set", "blog", "token"], "\"t-1\"");
    assert!(said.contains("its deployment is asked for"), "{said}");
    world.wait_ready("blog", revision);
    assert_eq!(inside(&world, "blog", "echo $TOKEN"), "\"t-1\"");

    let said = done(&world, &["secret", "set", "blog", "token"], "t-2");
    assert!(said.contains("until a restart"), "{said}");
    wait_outdated(&world, "SecretRotated");
    assert_eq!(ask(&world, "r-1", "verb: restart")["result"], "success");
    assert_eq!(inside(&world, "blog", "echo $TOKEN"), "t-2");

    refused(
        &world,
        &["secret", "delete", "blog", "token"],
        "used by web",
    );
    done(&world, &["secret", "set", "blog", "spare"], "t-3");
    let listed = done(&world, &["secret", "list", "blog"], "");
    assert!(
        listed.contains("token") && listed.contains("spare"),
        "{listed}"
    );
    assert!(!listed.contains("t-2"), "{listed}");
    done(&world, &["secret", "delete", "blog", "spare"], "");
    refused(
        &world,
        &["secret", "delete", "blog", "spare"],
        "no secret spare",
    );

    world.delete("blog");
    until("it is gone", || world.containers().is_empty());
    until("it has ended", || {
        world.record("state/ownership/blog").is_none()
    });
    // The name again: another incarnation, which inherits nothing.
    let revision = world.apply("blog", &yaml);
    let status = world.wait_refused("blog", revision);
    let ready = condition(&status, "Ready").expect("Ready");
    assert_eq!(ready["reason"], "SecretMissing");
    let listed = done(&world, &["secret", "list", "blog"], "");
    assert!(listed.contains("retained"), "{listed}");
    assert!(listed.contains("not set"), "{listed}");
}

#[test]
fn what_a_removed_app_left_is_listed_and_purged_one_by_one() {
    let world = World::start();
    let _podherd = podherd(&world);
    let yaml = with("blog", Image::Web1.reference(), OWN);
    let revision = world.apply("blog", &yaml);
    done(&world, &["secret", "set", "blog", "token"], "t-1");
    world.wait_ready("blog", revision);
    let ownership = world.record("state/ownership/blog").expect("ownership");
    let uuid = text(&ownership["incarnation"]);

    let listed = done(&world, &["volumes"], "");
    let row = |listed: &str, state: &str| {
        let mut rows = listed.lines().filter(|row| row.starts_with(state));
        rows.next().unwrap_or_default().to_owned()
    };
    let live = row(&listed, "live");
    assert!(live.contains(&uuid) && live.contains(" web "), "{listed}");
    assert!(live.ends_with("yes"), "{listed}");
    let purge = ["purge", &uuid, "--volume", "data", "--yes"];
    refused(&world, &purge, "app blog lives");

    world.delete("blog");
    until("it has ended", || {
        world.record(&format!("state/retained/{uuid}")).is_some()
    });
    let listed = done(&world, &["volumes", &uuid], "");
    let retained = row(&listed, "retained");
    assert!(retained.contains(" web "), "{listed}");
    assert!(retained.ends_with("no"), "{listed}");
    let volume = world.podman.volumes(&world.sandbox).remove(0);

    refused(&world, &["purge", &uuid, "--volume", "data"], "say --yes");
    refused(&world, &["purge", &uuid, "--volume", "x", "--yes"], &volume);
    // Somebody mounts it: never forced.
    let run = ["run", "--detach", "--name", "user", "--volume"];
    let mount = format!("{volume}:/data");
    let image = Image::Web1.reference();
    let run = [&run[..], &[mount.as_str(), image]].concat();
    _ = world.podman.run(&world.sandbox, &run);
    refused(&world, &purge, "in use");
    let remove = ["rm", "--force", "--time", "0", "user"];
    _ = world.podman.run(&world.sandbox, &remove);

    done(&world, &purge, "");
    assert_eq!(world.podman.volumes(&world.sandbox), Vec::<String>::new());
    let record = world.record(&format!("state/retained/{uuid}"));
    let record = record.expect("the incarnation is still known");
    assert_eq!(record["volumes"], Value::Array(Vec::new()));
    assert_eq!(record["secrets"].as_array().map(Vec::len), Some(1));
    refused(&world, &purge, "retains no volume");

    done(&world, &["purge", &uuid, "--secret", "token", "--yes"], "");
    let secrets = world.podman.run(&world.sandbox, &["secret", "ls", "-q"]);
    assert_eq!(secrets, "");
    let record = world.record(&format!("state/retained/{uuid}"));
    assert_eq!(
        record.expect("a record")["secrets"],
        Value::Array(Vec::new())
    );
}

#[test]
fn a_purge_checks_the_labels_and_mends_the_record_of_what_is_gone() {
    let world = World::start();
    let _podherd = podherd(&world);
    let volume = "volumes: [{name: data, path: /data}]";
    world.deploy("blog", &with("blog", Image::Web1.reference(), volume));
    let ownership = world.record("state/ownership/blog").expect("ownership");
    let uuid = text(&ownership["incarnation"]);
    world.delete("blog");
    until("it has ended", || {
        world.record(&format!("state/retained/{uuid}")).is_some()
    });
    let name = world.podman.volumes(&world.sandbox).remove(0);
    let (sandbox, podman) = (&world.sandbox, &world.podman);
    _ = podman.run(sandbox, &["volume", "rm", &name]);
    _ = podman.run(sandbox, &["volume", "create", &name]);
    let purge = ["purge", &uuid, "--volume", "data", "--yes"];
    refused(&world, &purge, "left alone");
    assert_eq!(podman.volumes(sandbox), std::slice::from_ref(&name));

    _ = podman.run(sandbox, &["volume", "rm", &name]);
    let listed = done(&world, &["volumes", &uuid], "");
    assert!(listed.contains("not in Podman"), "{listed}");
    done(&world, &purge, "");
    let listed = done(&world, &["volumes", &uuid], "");
    assert!(!listed.contains(&name), "{listed}");
}

/// An app that has the canaries in its secrets, and prints another, which its manifest
/// says in two parts.
fn singing(then: &str) -> String {
    let (head, tail) = CANARY.split_at(6);
    let line = format!(
        "command: [/bin/sh, -c, 'echo \"sung-{head}\"\"{tail}\"; {then}']
      secrets: {{DB: {{podman: db-url}}, TOKEN: {{app: token}}}}
      files: [{{path: /run/keys/tls.key, app: token}}]"
    );
    with("blog", Image::Web1.reference(), &line)
}

#[test]
fn neither_a_secret_nor_a_printed_line_is_seen_anywhere() {
    let world = World::start();
    let arguments = ["--resync", "10s", "--log", "debug", "--log-format", "json"];
    let mut podherd = Podherd::start(
        &world,
        Options {
            arguments: arguments.map(str::to_owned).to_vec(),
            ..Options::default()
        },
    );
    podherd.wait_serving(&world);
    let secret = |text: &str| format!("secret-{CANARY}-{text}");
    let mut said = String::new();
    set_by_hand(&world, "db-url", &secret("url"));
    let revision = world.apply("blog", &singing("exec /bin/demo web 1"));
    said += &done(
        &world,
        &["secret", "set", "blog", "token"],
        &secret("token"),
    );
    world.wait_ready("blog", revision);
    assert_eq!(inside(&world, "blog", "echo $DB"), secret("url"));
    let printed = world
        .podman
        .run(&world.sandbox, &["logs", &world.active("blog")["web"]]);
    assert!(printed.contains(CANARY), "{printed}");
    assert_eq!(
        inside(&world, "blog", "cat /run/keys/tls.key"),
        secret("token")
    );
    said += &done(
        &world,
        &["secret", "set", "blog", "token"],
        &secret("token-2"),
    );
    wait_outdated(&world, "SecretRotated");
    assert_eq!(ask(&world, "r-1", "verb: restart")["result"], "success");
    // One that fails, and is diagnosed.
    let revision = world.apply("blog", &singing("exit 3"));
    world.wait_refused("blog", revision);
    // Errors of Podman's that speak of secrets, and of a value that it refuses.
    delete_by_hand(&world, "db-url");
    let revision = world.apply("blog", &singing("exit 4"));
    world.wait_refused("blog", revision);
    let large = secret("large").repeat(30_000);
    let (_, refusal) = say(&world, &["secret", "set", "blog", "token"], &large);
    assert!(refusal.contains("bytes"), "{refusal:.200}");
    said += &refusal;
    for arguments in [
        &["secret", "list", "blog"][..],
        &["volumes"],
        &["plan", "--node", "host-a", "--log", "debug"],
    ] {
        said += &done(&world, arguments, "");
    }

    let metrics = podherd.listen(&world, "/metrics").body;
    assert!(metrics.contains("podherd_"), "{metrics}");
    podherd.term();
    let log = podherd.log();
    assert!(log.contains("\"DEBUG\""), "it was verbose");
    let state = Podherd::state_dir_of(&world, 0);
    let mut places = vec![
        ("the commands' output".to_owned(), said),
        ("/metrics".to_owned(), metrics),
        ("the log".to_owned(), log),
    ];
    for file in files(&state) {
        let bytes = fs::read(&file).expect("a file of the state directory");
        let text = String::from_utf8_lossy(&bytes).into_owned();
        places.push((file.display().to_string(), text));
    }
    for key in world.etcd.keys(&world.sandbox, "") {
        let value = world.etcd.get(&world.sandbox, &key).unwrap_or_default();
        places.push((key, value));
    }
    let diagnosed = |(key, value): &(String, String)| {
        key.contains("/state/operations/") && value.contains("podman logs")
    };
    assert!(places.iter().any(diagnosed), "the failure was diagnosed");
    for (place, text) in places {
        assert!(!text.contains(CANARY), "{place} shows a canary");
    }
}

fn files(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).expect("the state directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.is_file() {
            found.push(path);
        }
    }
    found
}
