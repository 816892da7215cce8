//! TCP and UDP services through the proxy.

use crate::support::world::text;
use crate::support::{Image, Options, Podherd, Process, World, condition, until};

/// A web server that is reached by a plain TCP listener; its readiness is the default.
fn tcp(image: Image, listen: u16) -> String {
    let image = image.reference();
    format!(
        "apiVersion: podherd/v1\nkind: App\nmetadata: {{name: db}}\nspec:\n  services:\n    \
         db: {{image: '{image}', pullPolicy: Never, ports: [{{name: pg, container: 8080}}], \
         tcp: [{{listen: {listen}, port: pg}}], stopGrace: 2s}}\n"
    )
}

/// A server that answers datagrams with this name before what they say.
fn udp(name: &str) -> String {
    let image = Image::UdpEcho.reference();
    format!(
        "apiVersion: podherd/v1\nkind: App\nmetadata: {{name: dns}}\nspec:\n  services:\n    \
         dns: {{image: '{image}', pullPolicy: Never, env: {{NAME: {name}}}, \
         ports: [{{name: dns, container: 5353, protocol: udp}}], \
         udp: [{{listen: 53, port: dns}}], \
         readiness: {{log: {{contains: serving}}, timeout: 10s}}, stopGrace: 2s}}\n"
    )
}

/// What a TCP listener's service answers to a request; nothing without one.
fn page(world: &World, port: u16) -> String {
    world
        .get(&format!("http://127.0.0.1:{port}/"), "any.test")
        .body
}

/// What comes back for one datagram.
fn ask(world: &World, port: u16, said: &str) -> String {
    let script = format!(
        "exec 3<>/dev/udp/127.0.0.1/{port} && echo {said} >&3 && \
         timeout 2 dd bs=2048 count=1 <&3 2>/dev/null"
    );
    let output = world.sandbox.command("bash").args(["-c", &script]).output();
    let output = output.expect("bash starts");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Whether somebody listens on this address and port, as the kernel writes them.
fn listens(world: &World, protocol: &str, at: &str) -> bool {
    let table = world.sandbox.run("cat", [format!("/proc/net/{protocol}")]);
    table.contains(&format!("{at} 00000000:0000"))
}

#[test]
fn a_tcp_service_is_reached_through_its_listener_replaced_and_removed() {
    let world = World::start();
    let _podherd = world.podherd();
    world.deploy("db", &tcp(Image::Web1, 5432));
    assert_eq!(page(&world, 5432), "demo-web version 1\n");
    let old = world.active("db");

    world.deploy("db", &tcp(Image::Web2, 5432));
    assert_eq!(page(&world, 5432), "demo-web version 2\n");
    assert_ne!(world.active("db"), old);
    world.assert_only_active(&["db"]);

    world.deploy("db", &tcp(Image::Web2, 5433));
    assert_eq!(page(&world, 5433), "demo-web version 2\n");
    assert!(!listens(&world, "tcp", "00000000:1538"));
    assert!(listens(&world, "tcp", "00000000:1539"));

    world.delete("db");
    until("the app is gone", || world.containers().is_empty());
    assert!(!listens(&world, "tcp", "00000000:1539"));
}

#[test]
fn a_udp_service_is_reached_through_its_listener_replaced_and_removed() {
    let world = World::start();
    // Podman's own DNS has the port on its networks.
    let options = Options {
        arguments: ["--l4-bind", "127.0.0.1"].map(str::to_owned).to_vec(),
        ..Options::default()
    };
    let mut podherd = Podherd::start(&world, options);
    podherd.wait_serving(&world);
    world.deploy("dns", &udp("one"));
    assert_eq!(ask(&world, 53, "hello"), "one:hello");
    assert!(listens(&world, "udp", "0100007F:0035"));

    world.deploy("dns", &udp("two"));
    assert_eq!(ask(&world, 53, "hello"), "two:hello");
    world.assert_only_active(&["dns"]);

    world.delete("dns");
    until("the app is gone", || world.containers().is_empty());
    assert!(!listens(&world, "udp", "0100007F:0035"));
    assert_eq!(ask(&world, 53, "hello"), "");
}

#[test]
fn a_listener_whose_port_is_taken_is_said_and_served_once_it_is_free() {
    let world = World::start();
    let podherd = world.podherd();
    let mut command = world.sandbox.command("busybox");
    command.args(["nc", "-l", "-p", "5432"]);
    let mut foreign = Process::spawn(command, &world.sandbox.dir().join("nc.log"));
    until("the port is taken", || {
        world
            .sandbox
            .run("cat", ["/proc/net/tcp", "/proc/net/tcp6"])
            .contains(":1538 ")
    });

    let revision = world.apply("db", &tcp(Image::Web1, 5432));
    let status = world.wait_refused("db", revision);
    let ready = condition(&status, "Ready").expect("Ready");
    assert_eq!(ready["reason"], "ListenerUnavailable");
    let message = text(&ready["message"]);
    assert!(
        message.contains("can't serve TCP listener 5432: Address already in use"),
        "{message}"
    );
    let metrics = podherd.listen(&world, "/metrics").body;
    assert!(
        metrics.contains("podherd_proxy_listeners{state=\"failed\"} 1"),
        "{metrics}"
    );

    foreign.kill_9();
    world.wait_ready("db", revision);
    assert_eq!(page(&world, 5432), "demo-web version 1\n");
}

#[test]
fn a_listener_on_a_port_of_podherds_own_is_refused() {
    let world = World::start();
    let _podherd = world.podherd();
    for port in [8000, 9000] {
        let revision = world.apply("db", &tcp(Image::Web1, port));
        let status = world.wait_condition("db", revision, "Accepted", "False");
        let accepted = condition(&status, "Accepted").expect("Accepted");
        assert_eq!(accepted["reason"], "ListenerReserved");
        let expected = format!("TCP listener {port} is a port of Podherd's own");
        assert!(text(&accepted["message"]).contains(&expected), "{accepted}");
    }
    assert!(world.containers().is_empty());
}

#[test]
fn port_53_is_left_to_the_containers_dns_until_the_proxy_has_an_address() {
    let world = World::start();
    let _podherd = world.podherd();
    let revision = world.apply("dns", &udp("one"));
    let status = world.wait_refused("dns", revision);
    let ready = condition(&status, "Ready").expect("Ready");
    assert_eq!(ready["reason"], "ListenerUnavailable");
    assert!(text(&ready["message"]).contains("--l4-bind"), "{ready}");
    world.assert_only_active(&["dns"]);
}
