//! etcd away, silent, compacted, empty, or another one.

use std::time::Duration;

use crate::support::{Etcd, Image, Options, Podherd, Store, World, manifest, until};

#[test]
fn without_etcd_workloads_and_traffic_go_on_and_it_converges_afterwards() {
    let mut world = World::start();
    let mut podherd = world.podherd();
    world.deploy("blog", &manifest("blog", Image::Web1));
    let before = world.running();

    world.etcd.stop();
    for _ in 0..16 {
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(podherd.get(&world, "blog.test", "/").code, 200);
        assert!(podherd.process().ended().is_none());
    }
    assert_eq!(world.running(), before);
    world.etcd.start_again(&world.sandbox);

    world.deploy("blog", &manifest("blog", Image::Web2));
    assert_eq!(
        podherd.get(&world, "blog.test", "/").body,
        "demo-web version 2\n"
    );
    world.assert_only_active(&["blog"]);
}

#[test]
fn an_etcd_that_falls_silent_is_survived() {
    let mut world = World::start();
    let podherd = world.podherd();
    world.deploy("blog", &manifest("blog", Image::Web1));
    let before = world.running();

    world.etcd.pause();
    std::thread::sleep(Duration::from_secs(8));
    assert_eq!(podherd.get(&world, "blog.test", "/").code, 200);
    assert_eq!(world.running(), before);
    world.etcd.resume();

    until("etcd answers", || {
        world
            .etcd
            .output(&world.sandbox, &["endpoint", "health"], b"")
            .status
            .success()
    });
    world.deploy("blog", &manifest("blog", Image::Web2));
    world.assert_only_active(&["blog"]);
}

#[test]
fn a_compaction_past_the_watch_is_survived() {
    let world = World::start();
    let mut podherd = world.podherd();
    world.deploy("blog", &manifest("blog", Image::Web1));

    podherd.process().pause();
    let revision = world.apply("blog", &manifest("blog", Image::Web2));
    for round in 0..20 {
        world
            .etcd
            .put(&world.sandbox, "/elsewhere", format!("{round}").as_bytes());
    }
    world.etcd.compact(&world.sandbox);
    podherd.process().resume();

    world.wait_ready("blog", revision);
    world.assert_only_active(&["blog"]);
}

#[test]
fn an_empty_store_is_refused_until_adopted_and_stops_nothing() {
    let world = World::start();
    let mut podherd = world.podherd();
    world.deploy("blog", &manifest("blog", Image::Web1));
    let before = world.running();
    podherd.term();
    let empty = Etcd::start(&world.sandbox, "another");

    let options = Options {
        store: Store::At(empty.url()),
        ..Options::default()
    };
    let mut refused = Podherd::start(&world, options.clone());
    let code = refused.wait_end(Duration::from_secs(20));
    assert!(code.is_some_and(|code| code != 0), "{code:?}");
    assert_eq!(world.running(), before);
    assert!(
        refused.log().contains("--adopt"),
        "it says what to do: {}",
        refused.log()
    );

    // Adopted, it reports the containers that no record knows, and leaves them alone.
    let arguments = vec!["--adopt".to_owned()];
    let mut adopted = Podherd::start(
        &world,
        Options {
            arguments,
            ..options
        },
    );
    adopted.wait_serving(&world);
    let other = manifest("other", Image::Web2);
    empty.put(&world.sandbox, "/podherd/apps/other", other.as_bytes());
    until("the adopted store works", || world.running().len() == 2);
    assert!(before.iter().all(|id| world.running().contains(id)));
}

#[test]
fn one_program_is_enough_with_an_etcd_of_its_own() {
    let world = World::start();
    let options = Options {
        store: Store::Unnamed,
        arguments: vec!["--local-etcd".to_owned()],
        ..Options::default()
    };
    let mut podherd = Podherd::start(&world, options);
    podherd.wait_serving(&world);
    let put = |image| {
        let mut command = world.sandbox.command("sh");
        command.args([
            "-c",
            "printf %s \"$0\" | ETCDCTL_API=3 etcdctl put /podherd/apps/blog",
        ]);
        assert!(
            command
                .arg(manifest("blog", image))
                .status()
                .unwrap()
                .success()
        );
    };
    put(Image::Web1);
    until("it answers", || {
        podherd.get(&world, "blog.test", "/").code == 200
    });

    podherd.term();
    podherd.start_again(&world).wait_serving(&world);
    put(Image::Web2);
    until("it answers with version 2", || {
        podherd.get(&world, "blog.test", "/").body == "demo-web version 2\n"
    });
    podherd.kill_9();
    podherd.start_again(&world).wait_serving(&world);
    until("it answers again", || {
        podherd.get(&world, "blog.test", "/").code == 200
    });
}

#[test]
fn the_password_of_etcd_is_used_and_never_logged() {
    const PASSWORD: &str = "a-password-to-look-for";
    let mut world = World::start();
    world.etcd.require_password(&world.sandbox, PASSWORD);
    let file = world.sandbox.dir().join("password");
    std::fs::write(&file, format!("{PASSWORD}\n")).unwrap();
    let file = file.display().to_string();
    let arguments = ["--etcd-user", "root", "--etcd-password-file", &file].map(str::to_owned);
    let environment = vec![("RUST_LOG".to_owned(), "debug".to_owned())];
    let options = Options {
        arguments: arguments.to_vec(),
        environment,
        ..Options::default()
    };
    let mut podherd = Podherd::start(&world, options);
    podherd.wait_serving(&world);

    world.deploy("blog", &manifest("blog", Image::Web1));

    assert!(!podherd.log().contains(PASSWORD));
}
