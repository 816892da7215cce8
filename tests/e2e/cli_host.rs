//! What is generated, what is wrong with a host, and what a person answers for.

use crate::support::{Image, World, ask, cli, until, with_volume};

/// The lines of `doctor` about one thing.
fn about<'t>(said: &'t str, what: &str) -> Vec<&'t str> {
    let lines = said.lines();
    lines
        .filter(|line| line.split_whitespace().nth(1) == Some(what))
        .collect()
}

#[test]
fn doctor_says_what_is_wrong_and_how_to_mend_it() {
    let world = World::start();
    let (code, said, _) = cli(
        &world,
        &["doctor", "--node", "host-a", "--http", "127.0.0.1:8000"],
        "",
    );
    assert_eq!(code, 1, "nobody leads: {said}");
    assert!(
        said.contains("wrong  controller") && said.contains("mend: start podherd run"),
        "{said}"
    );

    let _podherd = world.podherd();
    until("the proxy is registered", || {
        !world.records("proxies/").is_empty()
    });
    let revision = world.etcd.revision(&world.sandbox);
    let (_, said, err) = cli(
        &world,
        &["doctor", "--node", "host-a", "--http", "127.0.0.1:8000"],
        "",
    );
    for what in [
        "etcd",
        "controller",
        "node",
        "proxy",
        "podman",
        "network",
        "policy",
        "port",
    ] {
        let found = about(&said, what);
        assert!(
            !found.is_empty() && found.iter().all(|line| line.starts_with("ok")),
            "{what} in\n{said}{err}"
        );
    }
    let now = world.etcd.revision(&world.sandbox);
    assert!(now - revision < 5, "it writes nothing itself");
    assert!(world.records("apps/").is_empty());

    let away = [
        "doctor",
        "--podman",
        "unix:///does/not/exist",
        "--port-range",
        "33000-34000",
    ];
    let (code, said, _) = cli(&world, &away, "");
    assert_eq!(code, 1);
    assert!(
        said.contains("wrong  podman") && said.contains("podman.socket"),
        "{said}"
    );
    assert!(said.contains("ip_local_reserved_ports"), "{said}");
}

#[test]
fn scripts_and_pages_are_generated() {
    let world = World::start();
    assert!(ask(&world, &["completion", "bash"]).contains("_podherd"));
    assert!(ask(&world, &["man"]).contains(".TH podherd 1"));
}

#[test]
fn an_inhibition_is_cleared_by_hand_and_the_journal_says_by_whom() {
    let world = World::start();
    let _podherd = world.podherd();
    let blog = |image| with_volume("blog", image).replace("timeout: 10s", "timeout: 1s");
    world.deploy("blog", &blog(Image::Writer1));
    let before = world.active("blog")["web"].clone();
    let revision = world.apply("blog", &blog(Image::WriterNeverReady));
    world.wait_refused("blog", revision);
    let said = ask(&world, &["get", "inhibitions", "blog"]);
    assert!(
        said.contains(&before[..12]) && said.contains("ReplacementPending"),
        "{said}"
    );

    let (code, _, err) = cli(&world, &["inhibitions", "clear", "blog", &before[..12]], "");
    assert_eq!(code, 1);
    assert!(err.contains("--yes"), "{err}");
    let why = ["--yes", "--why", "the data is a copy", "--id", "c-1"];
    let clear = [&["inhibitions", "clear", "blog", &before[..12]], &why[..]].concat();
    let said = ask(&world, &clear);
    assert!(said.contains("success"), "{said}");
    let note = world
        .record("state/operations/blog/c-1")
        .expect("an operation");
    let note = note["request"]["note"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    assert!(
        note.contains('@') && note.ends_with("the data is a copy"),
        "{note}"
    );
    let inhibited = || {
        world
            .record(&format!("state/inhibitions/blog/web/{before}"))
            .is_some()
    };
    until("it isn't inhibited", || !inhibited());
}
