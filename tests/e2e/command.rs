//! The commands that only look, and the listener for metrics and health.

use std::fs;

use serde_json::Value;

use crate::support::{Image, Options, Podherd, World, manifest, podherd, until};

#[test]
fn metrics_and_health_are_served() {
    let world = World::start();
    let podherd = world.podherd();
    world.deploy("blog", &manifest("blog", Image::Web1));

    assert_eq!(podherd.listen(&world, "/healthz").code, 200);
    let metrics = podherd.listen(&world, "/metrics");
    assert_eq!(metrics.code, 200);
    for name in [
        "podherd_reconciles_total",
        "podherd_step_seconds",
        "podherd_leader",
    ] {
        assert!(metrics.body.contains(name), "{name} in:\n{}", metrics.body);
    }
    let container = &world.active("blog")["web"];
    assert!(
        !metrics.body.contains(&container[..12]),
        "no container IDs in labels"
    );
}

#[test]
fn plan_says_what_would_be_done_and_touches_nothing() {
    let world = World::start();
    let mut running = world.podherd();
    world.deploy("blog", &manifest("blog", Image::Web1));
    running.term();
    world.apply("blog", &manifest("blog", Image::Web2));
    let before = (world.running(), world.etcd.revision(&world.sandbox));

    let etcd = world.etcd.url();
    let podman = world.podman.url();
    let output = podherd(
        &world,
        &[
            "plan", "--etcd", &etcd, "--podman", &podman, "--node", "host-a",
        ],
    );

    let said = String::from_utf8_lossy(&output.stdout).to_lowercase();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let mut last = 0;
    for step in ["withdraw", "retire", "create", "start", "probe", "publish"] {
        let at = said[last..].find(step);
        last += at.unwrap_or_else(|| panic!("{step} in its order in:\n{said}"));
    }
    assert_eq!(
        (world.running(), world.etcd.revision(&world.sandbox)),
        before
    );
}

#[test]
fn validate_and_schema_work_offline() {
    let world = World::start();
    let file = world.sandbox.dir().join("blog.yaml");
    let path = file.display().to_string();
    fs::write(&file, manifest("blog", Image::Web1)).unwrap();
    assert!(podherd(&world, &["validate", &path]).status.success());

    fs::write(
        &file,
        manifest("blog", Image::Web1).replace("stopGrace", "stopGrase"),
    )
    .unwrap();
    let refused = podherd(&world, &["validate", &path]);
    assert!(!refused.status.success());
    let said = [refused.stdout, refused.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(
        said.contains("blog.yaml") && said.contains("stopGrase"),
        "{said}"
    );

    fs::write(&file, "x".repeat(2 << 20)).unwrap();
    assert!(!podherd(&world, &["validate", &path]).status.success());

    let schema = podherd(&world, &["schema"]);
    let schema: Value = serde_json::from_slice(&schema.stdout).expect("JSON");
    assert!(schema["$schema"].is_string());
}

#[test]
fn a_flag_wins_over_the_environment_and_the_environment_over_the_file() {
    let world = World::start();
    let file = world.sandbox.dir().join("podherd.yaml");
    fs::write(&file, "prefix: /file\nlog: info\n").expect("the settings file");
    let config = vec!["--config".to_owned(), file.display().to_string()];
    let environment = vec![("PODHERD_PREFIX".to_owned(), "/environment".to_owned())];
    let mut flags = config.clone();
    flags.extend(["--prefix".to_owned(), "/flag".to_owned()]);

    let cases = [
        ("/file", config.clone(), Vec::new()),
        ("/environment", config, environment.clone()),
        ("/flag", flags, environment),
    ];
    for (number, (prefix, arguments, environment)) in (0..).zip(cases) {
        let mut running = Podherd::start(
            &world,
            Options {
                number,
                arguments,
                environment,
                ..Options::default()
            },
        );
        until(prefix, || {
            let leader = format!("{prefix}/leader/");
            !world.etcd.keys(&world.sandbox, &leader).is_empty()
        });
        assert_eq!(running.term(), Some(0));
    }
}
