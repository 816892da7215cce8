//! Logs, user IDs and limits: what reaches Podman, and what it makes of it.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::world::text;
use crate::support::{Image, World, condition, manifest, until, with};

fn inspect(world: &World) -> Value {
    let id = &world.active("blog")["web"];
    let told = world.podman.run(&world.sandbox, &["inspect", id]);
    serde_json::from_str::<Value>(&told).expect("JSON")[0].take()
}

#[test]
fn a_log_driver_and_its_size_reach_podman() {
    let world = World::start();
    let podherd = world.podherd();
    for (logging, driver, size) in [
        ("{driver: k8s-file, maxSize: 10M}", "k8s-file", "10MB"),
        ("{driver: json-file, maxSize: 1M}", "json-file", "1MB"),
        ("{driver: none}", "none", "0B"),
    ] {
        let line = format!("logging: {logging}");
        world.deploy("blog", &with("blog", Image::Web1.reference(), &line));
        let config = inspect(&world)["HostConfig"]["LogConfig"].take();
        assert_eq!(config["Type"], driver);
        assert_eq!(config["Size"], size);
        assert_eq!(podherd.get(&world, "blog.test", "/").code, 200);
    }
    // A log in the driver's file is found by a probe.
    let probed = with(
        "blog",
        Image::Web1.reference(),
        "logging: {driver: json-file}",
    )
    .replace(
        "http: {path: /healthz, port: http}",
        "log: {contains: serving}",
    );
    world.deploy("blog", &probed);
}

#[test]
fn a_failure_without_a_log_is_told_all_the_same() {
    let world = World::start();
    let _podherd = world.podherd();
    let silent = with(
        "blog",
        Image::ExitsAtOnce.reference(),
        "logging: {driver: none}",
    );
    let revision = world.apply("blog", &silent);
    let status = world.wait_refused("blog", revision);
    let ready = condition(&status, "Ready").expect("Ready");
    assert_eq!(ready["reason"], "ContainerExited", "{ready}");
    let operation = world.last_operation("blog").expect("an operation");
    let steps = operation["steps"].as_array().expect("steps");
    let failed = steps.iter().find(|step| step["state"] == "failed");
    let diagnostics = &failed.expect("a failed step")["diagnostics"];
    assert_eq!(diagnostics["exitCode"], 3, "{diagnostics}");
}

#[test]
fn user_ids_of_its_own_are_given_or_the_host_is_found_lacking_before_anything_is_touched() {
    let world = World::start();
    let podherd = world.podherd();
    let ranges = world.sandbox.dir().join("ranges");
    fs::write(&ranges, "somebody:100000:65536\n").expect("the ranges");
    for file in ["/etc/subuid", "/etc/subgid"] {
        let ranges = ranges.to_str().expect("UTF-8");
        world.sandbox.run("mount", ["--bind", ranges, file]);
    }
    world.deploy("blog", &manifest("blog", Image::Web1));
    let before = world.running();
    let own = with("blog", Image::Web1.reference(), "security: {userns: auto}");

    let revision = world.apply("blog", &own);
    let status = world.wait_refused("blog", revision);
    let ready = condition(&status, "Ready").expect("Ready");
    assert_eq!(ready["reason"], "NoUserIds", "{ready}");
    assert!(text(&ready["message"]).contains("/etc/subuid"));
    assert_eq!(world.running(), before);
    assert_eq!(podherd.get(&world, "blog.test", "/").code, 200);

    fs::write(&ranges, "containers:2147483647:2147483648\n").expect("the ranges");
    world.deploy("blog", &own);
    assert_eq!(podherd.get(&world, "blog.test", "/").code, 200);
    let id = &world.active("blog")["web"];
    let map = ["exec", id, "cat", "/proc/self/uid_map"];
    let map = world.podman.run(&world.sandbox, &map);
    assert!(map.contains("2147483647"), "{map}");
}

/// On a host with the unified cgroups no controller can be hidden from Podman alone.
#[test]
fn a_limit_that_podman_ignores_is_told() {
    if !Path::new("/sys/fs/cgroup/pids").exists() {
        return;
    }
    let world = World::start();
    let podherd = world.podherd();
    world.sandbox.run("umount", ["/sys/fs/cgroup/pids"]);
    let limited = with(
        "blog",
        Image::Web1.reference(),
        "resources: {cpus: \"0.5\", memory: 64Mi, pids: 50}",
    );
    world.deploy("blog", &limited);
    assert_eq!(podherd.get(&world, "blog.test", "/").code, 200);
    until("it is told", || {
        let status = world.status("blog").unwrap_or_default();
        let degraded = condition(&status, "Degraded").cloned().unwrap_or_default();
        degraded["reason"] == "ResourceLimitIgnored"
            && text(&degraded["message"]).contains("without resources.pids:")
    });
    until("an event says so", || {
        let events = world.records("events/blog/");
        events
            .iter()
            .any(|(_, event)| event["reason"] == "ResourceLimitIgnored")
    });
}
