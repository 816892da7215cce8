//! Networks, with the DNS that is in them.

use std::time::Duration;

use serde_json::Value;

use crate::support::world::text;
use crate::support::{Image, World, condition, manifest, until, within};

/// The manifest with this line in its spec.
fn spec(manifest: &str, line: &str) -> String {
    manifest.replace("spec:\n", &format!("spec:\n  {line}\n"))
}

/// One web service in the network `db-shared`.
fn sharing(app: &str) -> String {
    spec(&manifest(app, Image::Web1), "networks: [{name: db-shared}]")
}

/// Runs a shell command in the container of the app's service.
#[track_caller]
fn inside(world: &World, app: &str, service: &str, command: &str) -> String {
    let id = &world.active(app)[service];
    let arguments = ["exec", id, "sh", "-c", &format!("{command}; true")];
    world.podman.run(&world.sandbox, &arguments)
}

/// The addresses that the name has there.
#[track_caller]
fn addresses(world: &World, app: &str, service: &str, name: &str) -> Vec<String> {
    let told = inside(world, app, service, &format!("nslookup {name} 2>&1"));
    // The first address is the server's.
    let answer = told.split_once("\n\n").map_or("", |(_, answer)| answer);
    let mut found: Vec<_> = answer
        .lines()
        .filter_map(|line| line.strip_prefix("Address: "))
        .map(str::to_owned)
        .collect();
    found.dedup();
    found
}

/// Waits until the name has one address there, and answers it.
#[track_caller]
fn address(world: &World, app: &str, service: &str, name: &str) -> String {
    let what = format!("{app}'s {service} finds {name}");
    within(Duration::from_secs(10), &what, || {
        match addresses(world, app, service, name).as_slice() {
            [one] => Ok(one.clone()),
            other => Err(other.to_vec()),
        }
    })
}

/// The container's address in a network whose name begins like this.
#[track_caller]
fn address_in(world: &World, app: &str, service: &str, network: &str) -> String {
    let inspected = inspect(world, &["inspect", &world.active(app)[service]]);
    let networks = inspected["NetworkSettings"]["Networks"].as_object();
    let found = networks
        .expect("networks")
        .iter()
        .find(|(name, _)| name.starts_with(network));
    text(&found.expect("the network").1["IPAddress"])
}

#[track_caller]
fn inspect(world: &World, arguments: &[&str]) -> Value {
    let told = world.podman.run(&world.sandbox, arguments);
    serde_json::from_str::<Value>(&told).expect("JSON")[0].take()
}

fn networks(world: &World) -> Vec<String> {
    let listed = world
        .podman
        .run(&world.sandbox, &["network", "ls", "--format", "{{.Name}}"]);
    listed.lines().map(str::to_owned).collect()
}

fn gone(world: &World, app: &str) -> bool {
    world.record(&format!("state/ownership/{app}")).is_none()
}

#[test]
fn two_apps_reach_each_other_on_a_shared_network_that_goes_with_the_last() {
    let world = World::start();
    let podherd = world.podherd();
    let before = networks(&world);
    for app in ["blog", "shop"] {
        world.deploy(app, &sharing(app));
    }
    world.deploy("alone", &manifest("alone", Image::Web1));

    for (from, to) in [("blog", "shop"), ("shop", "blog")] {
        let found = address(&world, from, "web", &format!("web.{to}"));
        assert_eq!(found, address_in(&world, to, "web", "db-shared"));
        let page = inside(
            &world,
            from,
            "web",
            &format!("wget -qO- http://{found}:8080/"),
        );
        assert_eq!(page, "demo-web version 1");
        // A short name is its own app's, on whichever of the networks.
        let own = address(&world, from, "web", "web");
        let both = ["podherd-", "db-shared"].map(|it| address_in(&world, from, "web", it));
        assert!(both.contains(&own), "{own}, {both:?}");
        assert_eq!(podherd.get(&world, &format!("{to}.test"), "/").code, 200);
    }
    let stranger = addresses(&world, "alone", "web", "web.blog");
    assert_eq!(stranger, Vec::<String>::new());

    world.delete("blog");
    until("blog is gone", || gone(&world, "blog"));
    assert!(networks(&world).contains(&"db-shared".to_owned()));
    assert_eq!(podherd.get(&world, "shop.test", "/").code, 200);
    world.delete("shop");
    world.delete("alone");
    until("all are gone", || {
        gone(&world, "shop") && gone(&world, "alone")
    });
    assert_eq!(networks(&world), before);
}

#[test]
fn two_apps_removed_at_once_leave_no_network() {
    let world = World::start();
    let _podherd = world.podherd();
    let before = networks(&world);
    for app in ["blog", "shop"] {
        world.deploy(app, &sharing(app));
    }
    world.delete("blog");
    world.delete("shop");
    until("both are gone", || {
        gone(&world, "blog") && gone(&world, "shop")
    });
    assert_eq!(networks(&world), before);
    for app in ["blog", "shop"] {
        let removal = world.last_operation(app).expect("a removal");
        assert_eq!(removal["outcome"]["result"], "success");
        assert_eq!(removal.get("warnings"), None, "{removal}");
    }
}

#[test]
fn services_of_an_app_find_each_other_by_name_also_after_a_replacement() {
    let world = World::start();
    let _podherd = world.podherd();
    let pair = |tag: &str| {
        let more = "    db:\n      image: IMAGE\n      pullPolicy: Never\n      \
                    ports: [{name: http, container: 8080}]\n      \
                    readiness: {tcp: {port: http}}\n      stopGrace: 2s\n";
        manifest("blog", Image::Web1) + &more.replace("IMAGE", &format!("localhost/demo-web:{tag}"))
    };
    for version in ["1", "2"] {
        world.deploy("blog", &pair(version));
        within(Duration::from_secs(10), "web reaches the new db", || {
            let found = addresses(&world, "blog", "web", "db");
            let current = address_in(&world, "blog", "db", "podherd-blog-");
            if found == [current.clone()] {
                let page = inside(
                    &world,
                    "blog",
                    "web",
                    &format!("wget -qO- http://{current}:8080/"),
                );
                assert_eq!(page, format!("demo-web version {version}"));
                Ok(())
            } else {
                Err((found, current))
            }
        });
    }
}

#[test]
fn an_internal_network_has_names_and_no_way_out() {
    let world = World::start();
    let podherd = world.podherd();
    let internal = |app: &str| sharing(app).replace("db-shared}", "db-shared, internal: true}");
    for app in ["blog", "shop"] {
        world.deploy(app, &internal(app));
        assert_eq!(podherd.get(&world, &format!("{app}.test"), "/").code, 200);
    }
    let found = address(&world, "blog", "web", "web.shop");
    assert_eq!(found, address_in(&world, "shop", "web", "db-shared"));
    let network = inspect(&world, &["network", "inspect", "db-shared"]);
    assert_eq!(network["internal"], true);
    let routes_in = |network: &str| {
        let image = Image::Web1.reference();
        let arguments = ["run", "--rm", "--network", network, image, "ip", "route"];
        world.podman.run(&world.sandbox, &arguments)
    };
    assert!(!routes_in("db-shared").contains("default"));
    let private = networks(&world)
        .into_iter()
        .find(|name| name.starts_with("podherd-blog-"))
        .expect("the private network");
    assert!(routes_in(&private).contains("default"));

    // The other kind is refused while it is there.
    let revision = world.apply("shop", &sharing("shop"));
    let status = world.wait_refused("shop", revision);
    let ready = condition(&status, "Ready").expect("Ready");
    assert_eq!(ready["reason"], "NetworkConflict", "{ready}");
}

#[test]
fn a_network_that_somebody_else_made_is_refused_and_stays() {
    let world = World::start();
    let _podherd = world.podherd();
    world
        .podman
        .run(&world.sandbox, &["network", "create", "db-shared"]);
    let revision = world.apply("blog", &sharing("blog"));
    let status = world.wait_refused("blog", revision);
    let ready = condition(&status, "Ready").expect("Ready");
    assert_eq!(ready["reason"], "ForeignResource");
    assert!(text(&ready["message"]).contains("podman network rm db-shared"));
    assert!(world.containers().is_empty());
    assert!(networks(&world).contains(&"db-shared".to_owned()));
}
