//! Probes beyond readiness, restart policies, and what is kept of a failure.

use serde_json::Value;

use crate::support::manifest::with;
use crate::support::world::text;
use crate::support::{Image, World, condition, manifest, until};

/// Lines of the service, beside those that every demo manifest has.
fn lines(lines: &[&str]) -> String {
    lines.join("\n      ")
}

/// How often `web` was restarted.
fn restarts(world: &World) -> i64 {
    let status = world.status("blog").unwrap_or_default();
    status["services"]["web"]["restarts"].as_i64().unwrap_or(0)
}

/// The reason of Ready, with its message.
fn ready(world: &World) -> (String, String) {
    let status = world.status("blog").expect("a status");
    let ready = condition(&status, "Ready").expect("Ready");
    (text(&ready["reason"]), text(&ready["message"]))
}

/// The newest operation that has a step of this kind.
fn operation_with(world: &World, kind: &str) -> Option<Value> {
    let mut operations = world.operations("blog").into_iter().rev();
    operations.find(|operation| {
        let steps = operation["steps"].as_array().expect("steps");
        steps.iter().any(|step| step["kind"] == kind)
    })
}

#[test]
fn a_server_that_hangs_is_withdrawn_and_restarted_in_place() {
    let world = World::start();
    let podherd = world.podherd();
    let liveness = "liveness: {http: {path: /healthz, port: http}, interval: 300ms, timeout: 300ms, failures: 2}";
    let yaml = with("blog", Image::Web1.reference(), liveness);
    world.deploy("blog", &yaml);
    let before = world.running();

    let stop = [
        "exec",
        &before[0],
        "/bin/busybox",
        "killall",
        "-STOP",
        "httpd",
    ];
    world.podman.run(&world.sandbox, &stop);

    until("it was restarted", || restarts(&world) == 1);
    until("it answers", || {
        podherd.get(&world, "blog.test", "/").code == 200
    });
    assert_eq!(world.running(), before, "the same container");
    let operation = operation_with(&world, "stop").expect("a restart");
    let steps = operation["steps"].as_array().unwrap();
    let kinds: Vec<String> = steps.iter().map(|step| text(&step["kind"])).collect();
    assert_eq!(
        kinds,
        ["withdraw", "stop", "start", "probe", "publish", "traffic"]
    );
    assert_eq!(operation["outcome"]["result"], "success");
    let diagnostics = &steps[1]["diagnostics"];
    assert_eq!(diagnostics["logTail"][0], "serving 1", "{diagnostics}");
    assert_eq!(diagnostics["probeAnswers"][0], "no answer in time");
    let events = world.records("events/blog/");
    let told = events.iter().any(|(_, event)| {
        event["reason"] == "Unhealthy" && text(&event["message"]).contains("liveness probe http")
    });
    assert!(told, "{events:?}");
    world.assert_only_active(&["blog"]);
}

#[test]
fn a_slow_starter_is_given_its_time_by_a_startup_probe() {
    let world = World::start();
    let podherd = world.podherd();
    let impatient = |line: &str| {
        with("blog", Image::SlowStart.reference(), line).replace("timeout: 10s", "timeout: 1s")
    };
    let startup = |timeout: &str| {
        impatient(&format!(
            "startup: {{http: {{path: /healthz, port: http}}, timeout: {timeout}}}"
        ))
    };

    for (yaml, probe) in [
        (impatient(""), "readiness probe http /healthz"),
        (startup("1s"), "startup probe http /healthz"),
    ] {
        let revision = world.apply("blog", &yaml);
        let status = world.wait_refused("blog", revision);
        let ready = condition(&status, "Ready").unwrap();
        assert!(text(&ready["message"]).contains(probe), "{ready}");
    }
    world.deploy("blog", &startup("30s"));
    assert_eq!(podherd.get(&world, "blog.test", "/").code, 200);
}

#[test]
fn the_health_check_of_an_image_is_run_without_timers() {
    let world = World::start();
    let podherd = world.podherd();
    let by_health = |image: Image| {
        manifest("blog", image)
            .replace("{http: {path: /healthz, port: http}", "{health: {}")
            .replace(
                "      stopGrace",
                "      tmpfs: [{path: /tmp}]\n      stopGrace",
            )
    };
    world.deploy("blog", &by_health(Image::WithHealthcheck));
    assert_eq!(podherd.get(&world, "blog.test", "/").code, 200);

    let revision = world.apply("blog", &by_health(Image::Web1));
    world.wait_refused("blog", revision);
    let (reason, message) = ready(&world);
    assert_eq!(reason, "ImageWithoutHealthcheck", "{message}");
    assert_eq!(podherd.get(&world, "blog.test", "/").code, 200);

    let watched = by_health(Image::WithHealthcheck)
        + "      liveness: {health: {}, interval: 500ms, failures: 2}\n";
    world.deploy("blog", &watched);
    let before = world.running();
    let sicken = ["exec", &before[0], "/bin/busybox", "touch", "/tmp/sick"];
    world.podman.run(&world.sandbox, &sicken);
    until("it was restarted", || restarts(&world) == 1);
    until("it answers", || {
        podherd.get(&world, "blog.test", "/").code == 200
    });
    assert_eq!(world.running(), before);
}

#[test]
fn the_restart_policy_says_what_comes_back() {
    let world = World::start();
    let podherd = world.podherd();
    let end = |signal: &str| {
        let running = world.running();
        world
            .podman
            .run(&world.sandbox, &["kill", "--signal", signal, &running[0]]);
    };
    world.deploy(
        "blog",
        &with("blog", Image::Web1.reference(), "restart: OnFailure"),
    );
    end("KILL");
    until("it is restarted", || restarts(&world) == 1);
    until("it answers", || {
        podherd.get(&world, "blog.test", "/").code == 200
    });
    // It leaves with exit code 0.
    end("TERM");
    until("it is done", || ready(&world).0 == "Completed");
    assert_eq!(
        ready(&world).1,
        "service web ended with exit code 0, and restart: OnFailure leaves it down"
    );
    assert_eq!(podherd.get(&world, "blog.test", "/").code, 503);

    world.deploy(
        "blog",
        &with("blog", Image::Web1.reference(), "restart: Never"),
    );
    end("KILL");
    until("it stays down", || ready(&world).0 == "Exited");
    assert_eq!(world.running(), Vec::<String>::new());
    assert_eq!(
        ready(&world).1,
        "service web ended with exit code 137, and restart: Never leaves it down"
    );
}

#[test]
fn the_journal_alone_keeps_what_a_failed_container_printed_and_no_secret_of_it() {
    const CANARY: &str = "canary-5c2f";
    let world = World::start();
    let podherd = world.podherd();
    let script = "i=0; while [ $i -lt 70 ]; do echo line $i; i=$((i+1)); done; \
                  echo connects with $API_TOKEN; echo password=hunter2; exit 3";
    let yaml = with(
        "blog",
        Image::Web1.reference(),
        &lines(&[
            &format!("env: {{API_TOKEN: {CANARY}}}"),
            &format!("command: [/bin/sh, -c, \"{script}\"]"),
        ]),
    );
    let revision = world.apply("blog", &yaml);
    let status = world.wait_refused("blog", revision);

    let operation = operation_with(&world, "probe").expect("a deployment");
    let steps = operation["steps"].as_array().unwrap();
    let failed = steps.iter().find(|step| step["state"] == "failed").unwrap();
    let diagnostics = &failed["diagnostics"];
    assert_eq!(diagnostics["exitCode"], 3, "{diagnostics}");
    assert_eq!(diagnostics["oomKilled"], false);
    let log = diagnostics["logTail"].as_array().unwrap();
    assert_eq!(log.len(), 50);
    assert_eq!(log[47], "line 69");
    assert_eq!(log[48], "connects with [redacted]");
    assert_eq!(log[49], "password=[redacted]");
    assert!(!operation.to_string().contains(CANARY));

    let events = world.records("events/blog/");
    let metrics = podherd.listen(&world, "/metrics").body;
    let shown = format!("{status} {events:?} {metrics} {}", podherd.log());
    for secret in [CANARY, "hunter2", "line 69"] {
        assert!(!shown.contains(secret), "{secret} is shown");
    }
}
