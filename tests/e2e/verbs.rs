//! Verbs that people ask for by `etcdctl put /podherd/requests/<app>/<id>`.

use serde_json::Value;

use crate::support::{Image, World, condition, manifest, until, with_volume};

/// Asks, and waits for the operation's outcome.
#[track_caller]
fn ask(world: &World, id: &str, asked: &str) -> Value {
    let key = format!("/podherd/requests/blog/{id}");
    world.etcd.put(&world.sandbox, &key, asked.as_bytes());
    let operation = format!("state/operations/blog/{id}");
    until(asked, || {
        world
            .record(&operation)
            .is_some_and(|it| it["outcome"].is_object())
    });
    until("the request's key is gone", || {
        world.etcd.get(&world.sandbox, &key).is_none()
    });
    world.record(&operation).expect("an operation")
}

fn result(operation: &Value) -> &str {
    operation["outcome"]["result"].as_str().unwrap_or("none")
}

#[test]
fn an_app_is_stopped_started_restarted_rolled_back_and_removed() {
    let world = World::start();
    let podherd = world.podherd();
    let serves = |version: &str| {
        let body = format!("demo-web version {version}\n");
        podherd.get(&world, "blog.test", "/").body == body
    };
    world.deploy("blog", &manifest("blog", Image::Web1));
    world.deploy("blog", &manifest("blog", Image::Web2));

    assert_eq!(result(&ask(&world, "stop-1", "verb: stop")), "success");
    assert_eq!(podherd.get(&world, "blog.test", "/").code, 503);
    assert!(world.containers().is_empty());

    assert_eq!(result(&ask(&world, "start-1", "verb: start")), "success");
    assert!(serves("2"));

    let before = world.running();
    let restart = ask(&world, "restart-1", "{verb: restart, service: web}");
    assert_eq!(result(&restart), "success");
    assert_eq!(world.running(), before, "in place");
    assert!(serves("2"));
    assert_eq!(ask(&world, "restart-1", "verb: {restart: 1}"), restart);
    assert_eq!(
        ask(&world, "restart-1", "{verb: restart, service: web}"),
        restart
    );

    let rollback = ask(&world, "back-1", "{verb: rollback, revision: 1}");
    assert_eq!(result(&rollback), "success");
    assert!(serves("1"));
    until("status says so", || {
        let status = world.status("blog").unwrap_or_default();
        condition(&status, "Ready").is_some_and(|it| it["reason"] == "RolledBack")
    });

    assert_eq!(result(&ask(&world, "gone-1", "verb: remove")), "success");
    assert!(world.containers().is_empty());
    assert_eq!(world.record("apps/blog"), None);
    assert_eq!(podherd.get(&world, "blog.test", "/").code, 404);
}

#[test]
fn killed_in_the_middle_of_a_restart_the_app_serves_again_with_one_writer() {
    let world = World::start();
    let mut podherd = world.podherd();
    world.deploy("blog", &with_volume("blog", Image::Writer1));
    for (number, millis) in (0..).zip([5, 40, 120, 250]) {
        let key = format!("/podherd/requests/blog/r-{number}");
        world.etcd.put(&world.sandbox, &key, b"verb: restart");
        std::thread::sleep(std::time::Duration::from_millis(millis));
        podherd.kill_9();
        podherd.start_again(&world).wait_serving(&world);
        until("it is answered", || {
            let record = world.record(&format!("state/operations/blog/r-{number}"));
            record.is_some_and(|it| it["outcome"].is_object())
        });
        until("it answers", || {
            podherd.get(&world, "blog.test", "/").code == 200
        });
        world.assert_only_active(&["blog"]);
    }
}
