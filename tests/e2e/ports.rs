//! Host ports that the manifest fixes.

use crate::support::{Image, Process, World, condition, manifest, until};

/// The web service on this host port, without a route.
fn fixed(image: Image, host: u16) -> String {
    let declared = "ports: [{name: http, container: 8080}]";
    let published = format!("ports: [{{name: http, container: 8080, host: {host}}}]");
    let text = manifest("blog", image).replace(declared, &published);
    assert!(text.contains(&published));
    text
}

#[test]
fn a_fixed_port_answers_on_every_address_of_the_host() {
    let world = World::start();
    let _podherd = world.podherd();
    let mut second_address = world.sandbox.command("busybox");
    second_address.args(["ip", "address", "add", "192.0.2.1/32", "dev", "lo"]);
    assert!(second_address.status().expect("busybox starts").success());
    let answer = |host: &str| world.get(&format!("http://{host}:7779/"), host).body;
    world.deploy("blog", &fixed(Image::Web1, 7779));
    assert_eq!(answer("127.0.0.1"), "demo-web version 1\n");
    assert_eq!(answer("192.0.2.1"), "demo-web version 1\n");

    // One after the other: both want it.
    world.deploy("blog", &fixed(Image::Web2, 7779));
    assert_eq!(answer("127.0.0.1"), "demo-web version 2\n");
    world.assert_only_active(&["blog"]);
}

#[test]
fn a_port_that_another_process_holds_is_seen_before_anything_is_touched() {
    let world = World::start();
    let podherd = world.podherd();
    world.deploy("blog", &manifest("blog", Image::Web1));
    let before = world.running();
    let mut listen = world.sandbox.command("busybox");
    listen.args(["nc", "-ll", "-p", "7777", "-e", "/bin/cat"]);
    let mut holder = Process::spawn(listen, &world.sandbox.dir().join("holder.log"));
    until("it listens", || {
        let mut sockets = world.sandbox.command("cat");
        let sockets = sockets.args(["/proc/net/tcp", "/proc/net/tcp6"]).output();
        let listening = format!(":{:04X} ", 7777);
        String::from_utf8_lossy(&sockets.expect("cat starts").stdout).contains(&listening)
    });

    let revision = world.apply("blog", &fixed(Image::Web2, 7777));
    let status = world.wait_refused("blog", revision);
    let ready = condition(&status, "Ready").expect("a condition");
    assert_eq!(ready["reason"], "PortInUse", "{ready}");
    assert_eq!(world.running(), before);
    assert_eq!(podherd.get(&world, "blog.test", "/").code, 200);

    holder.kill_9();
    until("it is tried again", || {
        podherd.get(&world, "blog.test", "/").body == "demo-web version 2\n"
    });
}
