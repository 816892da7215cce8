//! Images from a registry: which digest is pinned, who may pull, and what a registry
//! can do wrong.

use std::time::Duration;

use serde_json::Value;

use crate::support::registry::base64;
use crate::support::world::text;
use crate::support::{
    Fault, Image, Options, Podherd, Registry, Scheme, World, condition, until, with,
};

const PASSWORD: &str = "hunter2-hunter2";

/// An app whose image is `name` of the tests' registry.
fn app(name: &str, policy: &str) -> String {
    let pulled = format!("pullPolicy: {policy}");
    with("blog", &Registry::reference(name), "").replace("pullPolicy: Never", &pulled)
}

fn world() -> (World, Registry) {
    let world = World::start();
    let registry = Registry::start(&world.sandbox);
    (world, registry)
}

/// A Podherd with more arguments.
fn podherd_with(world: &World, arguments: &[&str]) -> Podherd {
    let options = Options {
        arguments: arguments.iter().map(|it| (*it).to_owned()).collect(),
        ..Options::default()
    };
    let mut podherd = Podherd::start(world, options);
    podherd.wait_serving(world);
    podherd
}

fn digest(world: &World) -> String {
    let status = world.status("blog").expect("a status");
    text(&status["services"]["web"]["digest"])
}

fn revision(world: &World) -> Option<i64> {
    world.status("blog")?["revision"].as_i64()
}

fn page(world: &World, podherd: &Podherd) -> String {
    podherd.get(world, "blog.test", "/").body
}

fn reason(status: &Value, kind: &str) -> String {
    condition(status, kind).map_or_else(String::new, |it| text(&it["reason"]))
}

fn message(status: &Value, kind: &str) -> String {
    condition(status, kind).map_or_else(String::new, |it| text(&it["message"]))
}

/// `{verb: deploy}` under this ID, answered; the operation.
fn deploy_again(world: &World, id: &str) -> Value {
    let key = format!("/podherd/requests/blog/{id}");
    world.etcd.put(&world.sandbox, &key, b"{verb: deploy}");
    let key = format!("state/operations/blog/{id}");
    let ended = || world.record(&key).filter(|it| it["outcome"].is_object());
    until("the request is answered", || ended().is_some());
    ended().expect("answered")
}

/// The reasons of all events, oldest first.
fn events(world: &World) -> Vec<String> {
    let events = world.records("events/blog/");
    events.iter().map(|(_, it)| text(&it["reason"])).collect()
}

/// Forgets the image that serves, with its container.
fn prune(world: &World) {
    let images = ["images", "--quiet", "--no-trunc", "--filter"];
    let reference = format!(
        "reference={}/*",
        Registry::reference("").trim_end_matches('/')
    );
    let listed = world.podman.run(
        &world.sandbox,
        &[&images[..], &[reference.as_str()]].concat(),
    );
    for image in listed.lines() {
        let remove = ["rmi", "--force", "--ignore", image];
        world.podman.run(&world.sandbox, &remove);
    }
}

#[test]
fn a_tag_is_pinned_to_its_digest_as_the_pull_policy_says() {
    let (world, registry) = world();
    let podherd = world.podherd();
    let one = registry.push("web:1", Image::Web1, 1);
    world.deploy("blog", &app("web:1", "IfNotPresent"));
    assert_eq!(digest(&world), one);
    assert_eq!(page(&world, &podherd), "demo-web version 1\n");
    let first = revision(&world);
    let before = world.running();

    // The tag moves on.
    let two = registry.push("web:1", Image::Web2, 1);
    let again = deploy_again(&world, "not-asked");
    assert_eq!(again["outcome"]["result"], "success", "{again}");
    assert_eq!((digest(&world), world.running()), (one.clone(), before));
    world.deploy("blog", &app("web:1", "Never"));
    assert_eq!(digest(&world), one);
    assert_eq!(page(&world, &podherd), "demo-web version 1\n");
    world.deploy("blog", &app("web:1", "IfTagChanged"));
    assert_eq!(digest(&world), two);
    assert_eq!(page(&world, &podherd), "demo-web version 2\n");
    assert!(
        revision(&world) > first,
        "another digest is another revision"
    );

    // Asked again, and nothing moved: nothing is done.
    let before = world.running();
    let second = revision(&world);
    let again = deploy_again(&world, "again");
    assert_eq!(again["outcome"]["result"], "success", "{again}");
    assert_eq!(
        (world.running(), revision(&world)),
        (before.clone(), second)
    );

    // Without the registry the local image serves on, where the policy allows it.
    registry.set_fault("web", Some(Fault::Status(500)));
    let again = deploy_again(&world, "without-registry");
    assert_eq!(again["outcome"]["result"], "success", "{again}");
    let refused = world.apply("blog", &app("web:1", "Always"));
    let status = world.wait_refused("blog", refused);
    assert_eq!(reason(&status, "Ready"), "ImagePullFailed", "{status}");
    assert_eq!(world.running(), before);

    registry.set_fault("web", None);
    let three = registry.push("web:1", Image::Web1, 1);
    world.deploy("blog", &app("web:1", "Always"));
    assert_eq!(digest(&world), three);
    assert_eq!(page(&world, &podherd), "demo-web version 1\n");
    world.assert_only_active(&["blog"]);

    let absent = world.apply("blog", &app("web:9", "Never"));
    let status = world.wait_refused("blog", absent);
    assert_eq!(reason(&status, "Ready"), "ImageAbsent", "{status}");
}

#[test]
fn a_pinned_image_that_was_pruned_is_pulled_again_by_its_digest() {
    let (world, registry) = world();
    let podherd = world.podherd();
    let one = registry.push("web:1", Image::Web1, 1);
    world.deploy("blog", &app("web:1", "IfNotPresent"));
    let old = world.running();
    registry.push("web:1", Image::Web2, 1);

    prune(&world);

    until("another one is active", || {
        let running = world.running();
        running.len() == 1 && running != old && world.active("blog")["web"] == running[0]
    });
    until("it answers", || {
        page(&world, &podherd) == "demo-web version 1\n"
    });
    assert_eq!(digest(&world), one);
    let by_digest = format!("GET /v2/web/manifests/{one}");
    assert!(registry.requests().contains(&by_digest));
    world.assert_only_active(&["blog"]);
}

#[test]
fn of_an_image_for_many_platforms_the_index_is_pinned_and_stays_so() {
    let (world, registry) = world();
    let podherd = world.podherd();
    let (index, of_host) = registry.push_index("web:1", Image::Web1);
    world.deploy("blog", &app("web:1", "Always"));
    assert_eq!(digest(&world), index);
    let (before, first) = (world.running(), revision(&world));

    let again = deploy_again(&world, "again");
    assert_eq!(again["outcome"]["result"], "success", "{again}");
    assert_eq!((world.running(), revision(&world)), (before.clone(), first));

    // Gone, it is pulled by the index' digest, and is the same again.
    prune(&world);
    until("another one serves", || {
        world.running() != before && page(&world, &podherd) == "demo-web version 1\n"
    });
    assert_eq!(digest(&world), index);
    let after = world.running();
    let again = deploy_again(&world, "once-more");
    assert_eq!(again["outcome"]["result"], "success", "{again}");
    assert_eq!(digest(&world), index);
    assert_eq!((world.running(), revision(&world)), (after, first));

    // The same image under its own digest is another pin, and that is stable too.
    registry.tag("alone:1", &of_host);
    world.deploy("blog", &app("alone:1", "Always"));
    let alone = digest(&world);
    let before = world.running();
    let again = deploy_again(&world, "alone");
    assert_eq!(again["outcome"]["result"], "success", "{again}");
    assert_eq!((digest(&world), world.running()), (alone, before));
}

#[test]
fn an_image_behind_a_login_is_pulled_once_podman_is_logged_in() {
    for (scheme, own_file) in [(Scheme::Basic, false), (Scheme::Token, true)] {
        let (world, registry) = world();
        registry.push("web:1", Image::Web1, 1);
        registry.require_login("web", &format!("ada:{PASSWORD}"), scheme);
        let file = world.sandbox.dir().join("logins.json");
        let file = file.to_str().expect("a path");
        let more: &[&str] = if own_file {
            &["--auth-file", file]
        } else {
            &[]
        };
        let login = |password: &str| {
            let arguments = ["login", "--username", "ada", "--password", password];
            let place: &[&str] = if own_file { &["--authfile", file] } else { &[] };
            let registry = ["--tls-verify=false", crate::support::registry::ADDRESS];
            let arguments = [&arguments, place, &registry].concat();
            world.podman.output(&world.sandbox, &arguments).status
        };
        if own_file {
            let key = crate::support::registry::ADDRESS;
            let wrong = base64("ada:wrong-password");
            let entry = serde_json::json!({"auths": {key: {"auth": wrong}}});
            std::fs::write(file, entry.to_string()).expect("the file of logins");
        }
        let podherd = podherd_with(&world, more);
        let revision = world.apply("blog", &app("web:1", "IfNotPresent"));

        let status = world.wait_refused("blog", revision);
        assert_eq!(reason(&status, "Ready"), "ImageDenied", "{status}");
        assert!(
            message(&status, "Ready").contains("podman login"),
            "{status}"
        );
        until("it says when it is tried again", || {
            let status = world.status("blog").expect("a status");
            reason(&status, "Progressing") == "RetryScheduled"
        });
        let again = deploy_again(&world, "too-early");
        assert_eq!(again["outcome"]["reason"], "ImageDenied", "{again}");

        assert!(!login("wrong").success());
        assert!(login(PASSWORD).success());
        let again = deploy_again(&world, "logged-in");
        assert_eq!(again["outcome"]["result"], "success", "{again}");
        assert_eq!(page(&world, &podherd), "demo-web version 1\n");

        let all = world
            .etcd
            .ctl(&world.sandbox, &["get", "--prefix", "/podherd/"]);
        for secret in [
            PASSWORD,
            "wrong-password",
            &base64(&format!("ada:{PASSWORD}")),
        ] {
            assert!(!all.contains(secret), "{scheme:?}");
            assert!(!podherd.log().contains(secret), "{scheme:?}");
        }
    }
}

#[test]
fn a_file_of_credentials_that_can_not_be_read_is_named() {
    let (world, registry) = world();
    registry.push("web:1", Image::Web1, 1);
    let _podherd = podherd_with(&world, &["--auth-file", "/does/not/exist.json"]);
    let revision = world.apply("blog", &app("web:1", "IfNotPresent"));
    let status = world.wait_refused("blog", revision);
    assert_eq!(reason(&status, "Ready"), "AuthFileUnusable", "{status}");
    assert!(message(&status, "Ready").contains("/does/not/exist.json"));
}

#[test]
fn a_long_pull_is_told_of_while_it_runs_and_in_few_words() {
    let (world, registry) = world();
    let podherd = world.podherd();
    registry.push("web:1", Image::Web1, 4 * 1024);
    registry.set_fault("web", Some(Fault::Slow(Duration::from_secs(1))));
    let revision = world.apply("blog", &app("web:1", "IfNotPresent"));

    until("the status tells how far it is", || {
        let status = world.status("blog").expect("a status");
        reason(&status, "Progressing") == "Pulling"
            && message(&status, "Progressing").contains("MiB")
    });
    world.wait_ready("blog", revision);

    assert_eq!(events(&world), ["Pulling", "Pulled", "Completed"]);
    assert_eq!(page(&world, &podherd), "demo-web version 1\n");
    let told = &world.records("events/blog/")[1].1;
    let told = text(&told["message"]);
    assert!(told.contains(" s, ") && told.ends_with("MiB"), "{told}");
}

#[test]
fn a_pull_that_stalls_is_ended_and_tried_again() {
    let (world, registry) = world();
    let podherd = podherd_with(&world, &["--pull-stall", "2s"]);
    registry.push("web:1", Image::Web1, 64);
    for fault in [Fault::Stalled, Fault::Silent] {
        registry.set_fault("web", Some(fault));
        let revision = world.apply("blog", &app("web:1", "Always"));
        let status = world.wait_refused("blog", revision);
        assert_eq!(reason(&status, "Ready"), "ImagePullFailed", "{status}");
        let said = message(&status, "Ready");
        assert!(
            said.contains("for 2 s") && said.contains("--pull-stall"),
            "{said}"
        );
        until("the registry is left alone", || registry.sending() == 0);

        registry.set_fault("web", None);
        // Without anybody's help.
        world.wait_ready("blog", revision);
        assert_eq!(page(&world, &podherd), "demo-web version 1\n");
        world.delete("blog");
        until("it is gone", || world.containers().is_empty());
        prune(&world);
    }
}

#[test]
fn what_is_wrong_with_a_registry_is_told_with_what_to_do() {
    let (world, registry) = world();
    let podherd = world.podherd();
    let good = registry.push("web:1", Image::Web1, 64);
    for (repository, fault) in [
        ("broken", Fault::Status(500)),
        ("cut", Fault::CutOff),
        ("secret", Fault::Status(403)),
    ] {
        registry.push(&format!("{repository}:1"), Image::Web2, 64);
        registry.set_fault(repository, Some(fault));
    }
    world.deploy("blog", &app("web:1", "Always"));
    let before = world.running();
    let here = Registry::reference("");
    for (image, wanted, says, again) in [
        (
            "127.0.0.1:5999/web:1",
            "ImagePullFailed",
            "nobody listens there",
            true,
        ),
        (
            "no-such-host.invalid/web:1",
            "ImagePullFailed",
            "no-such-host.invalid",
            true,
        ),
        (
            "localhost.localdomain:5000/web:1",
            "ImagePullFailed",
            "",
            true,
        ),
        (
            &format!("{here}web:nope"),
            "ImageUnknown",
            "check its name",
            false,
        ),
        (&format!("{here}broken:1"), "ImagePullFailed", "500", true),
        (&format!("{here}cut:1"), "ImagePullFailed", "EOF", true),
    ] {
        let manifest = with("blog", image, "").replace("Policy: Never", "Policy: Always");
        let revision = world.apply("blog", &manifest);
        let status = world.wait_refused("blog", revision);
        assert_eq!(reason(&status, "Ready"), wanted, "{image}: {status}");
        let said = message(&status, "Ready");
        assert!(said.contains(says), "{image}: {said}");
        let operation = world.last_operation("blog").expect("an operation");
        assert_eq!(operation["outcome"]["retryable"], again, "{image}");
        assert_eq!(world.running(), before, "{image}");
        assert_eq!(page(&world, &podherd), "demo-web version 1\n");
    }
    world.deploy("blog", &app("web:1", "Always"));
    assert_eq!((digest(&world), world.running()), (good, before));
}

#[test]
fn a_newer_manifest_and_a_stop_end_a_running_pull() {
    let (world, registry) = world();
    let mut podherd = world.podherd();
    registry.push("web:1", Image::Web1, 64);
    registry.push("slow:1", Image::Web2, 64);
    registry.set_fault("slow", Some(Fault::Stalled));
    world.apply("blog", &app("slow:1", "Always"));
    until("the pull runs", || registry.sending() > 0);

    world.deploy("blog", &app("web:1", "Always"));

    assert_eq!(page(&world, &podherd), "demo-web version 1\n");
    until("the other pull is over", || registry.sending() == 0);
    world.apply("blog", &app("slow:1", "Always"));
    until("the pull runs", || registry.sending() > 0);
    assert_eq!(podherd.term(), Some(0));
    until("the pull is over", || registry.sending() == 0);
    world.assert_only_active(&["blog"]);
}

#[test]
fn a_recovery_that_has_to_pull_holds_up_nothing_else() {
    let (world, registry) = world();
    let podherd = world.podherd();
    let one = registry.push("web:1", Image::Web1, 64);
    registry.push("web:2", Image::Web2, 64);
    let api = format!(
        "api: {{image: {}, pullPolicy: Never, ports: [{{name: http, container: 8080}}], \
         http: [{{host: api.test, port: http}}], stopGrace: 2s}}",
        Image::Web2.reference()
    );
    let two_services = |name: &str| {
        let manifest = app(name, "IfNotPresent");
        manifest.replace("  services:\n", &format!("  services:\n    {api}\n"))
    };
    world.deploy("blog", &two_services("web:1"));
    let container = |service: &str| world.active("blog")[service].clone();
    let (web, old) = (container("web"), container("api"));
    registry.set_fault("web", Some(Fault::Stalled));

    prune(&world);
    until("the recovery pulls", || registry.sending() > 0);
    assert_eq!(podherd.get(&world, "blog.test", "/").code, 503);

    world.podman.run(&world.sandbox, &["rm", "--force", &old]);
    until("the other one is back", || {
        container("api") != old && podherd.get(&world, "api.test", "/").code == 200
    });
    assert_eq!(container("web"), web, "and the first still waits");
    until("the recovery pulls again", || registry.sending() > 0);

    registry.set_fault("web", None);
    world.deploy("blog", &two_services("web:2"));
    assert_eq!(page(&world, &podherd), "demo-web version 2\n");
    assert_ne!(digest(&world), one);
    world.assert_only_active(&["blog"]);
}
