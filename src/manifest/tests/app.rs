//! Apps whose parts don't go together.

use super::{assert_refused, refusals, web};
use crate::manifest::parse_all;

refusals! { app, "spec.":
    a_bad_variable_for_all_services_is_refused:
        ["env: {«A B: x}", "services: {web: {image: a}}"] at "env[\"A B\"]" says "a variable's name is";
    a_network_listed_twice_is_refused:
        ["networks: [{name: a}, {name: «a}]", "services: {web: {image: a}}"] at "networks[1].name"
        says "network `a` is already listed";
    a_network_called_like_one_of_podman_s_own_is_refused:
        ["networks: [{name: «podman}]", "services: {web: {image: a}}"] at "networks[0].name"
        says "a word of Podman's own";
    a_host_name_that_is_too_long_for_a_shared_network_is_refused:
        ["networks: [{name: a}]", "services: {«web-0123456789012345678901234567890123456789012345678901234567: {image: a}}"]
        at "services.web-0123456789012345678901234567890123456789012345678901234567"
        says "64 characters are the longest";
    an_empty_selector_is_refused:
        ["placement: {«selector: {}}", "services: {web: {image: a}}"] at "placement.selector"
        says "chooses nothing";
    a_selector_with_a_bad_label_is_refused:
        ["placement: {selector: {«a b: c}}", "services: {web: {image: a}}"]
        at "placement.selector[\"a b\"]" says "a label's key is";
    a_dependency_on_an_unknown_service_is_refused:
        ["services: {web: {image: a, dependsOn: [«db]}}"] at "services.web.dependsOn[0]"
        says "no service `db`: add it, or correct the name";
    a_dependency_listed_twice_is_refused:
        ["services: {db: {image: a}, web: {image: a, dependsOn: [db, «db]}}"]
        at "services.web.dependsOn[1]" says "already listed";
    a_service_that_waits_for_itself_is_refused:
        ["services: {web: {image: a, dependsOn: [«web]}}"] at "services.web.dependsOn[0]"
        says "web → web wait for each other";
    services_that_wait_for_each_other_are_refused:
        ["services:", "  a: {image: a, dependsOn: [b]}", "  b: {image: a, dependsOn: [c]}",
         "  c: {image: a, dependsOn: [«a]}"]
        at "services.c.dependsOn[0]" says "a → b → c → a wait for each other";
    a_host_port_taken_by_another_service_is_refused:
        ["services:", "  a: {image: a, ports: [{name: a, container: 1, host: 53}]}",
         "  b: {image: a, ports: [{name: a, container: 1, host: «53}]}"]
        at "services.b.ports[0].host"
        says "host port 53/tcp is already taken by spec.services.a.ports[0].host";
    a_listener_on_a_fixed_host_port_is_refused:
        ["services:", "  a: {image: a, ports: [{name: a, container: 1, host: 5432}]}",
         "  b: {image: a, ports: [{name: a, container: 1}], tcp: [{listen: «5432, port: a}]}"]
        at "services.b.tcp[0].listen" says "host port 5432/tcp is already taken";
    a_volume_with_two_writers_is_refused:
        ["services:", "  a: {image: a, volumes: [{name: data, path: /data}]}",
         "  b: {image: a, volumes: [«{name: data, path: /data}]}"]
        at "services.b.volumes[0]" says "is written by service `a` already";
    a_host_path_with_two_writers_is_refused:
        ["services:", "  a: {image: a, binds: [{source: /srv/data, path: /data}]}",
         "  b: {image: a, binds: [«{source: /srv/data/deep, path: /data}]}"]
        at "services.b.binds[0]" says "is written by service `a` already";
    a_host_and_path_routed_twice_are_refused:
        ["services:", "  a: {image: a, ports: [{name: p, container: 1}], http: [{host: h.example.com, path: /x, port: p}]}",
         "  b: {image: a, ports: [{name: p, container: 1}], http: [«{host: h.example.com, path: /x/, port: p}]}"]
        at "services.b.http[0]" says "h.example.com/x/ is already routed by spec.services.a.http[0]";
}

#[test]
fn a_host_path_may_have_one_writer_and_readers() {
    let text = web(&["binds: [{source: /srv/data, path: /data}]"])
        + "    reader: {image: a, binds: [{source: /srv/data, path: /data, readOnly: true}]}\n"
        + "    beside: {image: a, binds: [{source: /srv/database, path: /data}]}\n";
    super::accepted(&text);
}

#[test]
fn a_volume_may_have_one_writer_and_readers() {
    let text = web(&["volumes: [{name: data, path: /data}]"])
        + "    reader: {image: a, volumes: [{name: data, path: /data, readOnly: true}]}\n";
    super::accepted(&text);
}

#[test]
fn an_app_too_large_for_a_transaction_is_refused() {
    let services = |count: usize, more: &str| -> String {
        let service = |number| format!("    s{number}: {{image: a, {more}}}\n");
        let head =
            "apiVersion: podherd/v1\nkind: App\nmetadata: {name: blog}\nspec:\n  services:\n";
        head.to_owned() + &(0..count).map(service).collect::<String>()
    };
    let port = "ports: [{name: a, container: 1}, {name: b, container: 2}]";
    super::accepted(&services(50, "env: {}"));
    super::accepted(&services(32, port));
    for (text, says) in [
        (services(51, "env: {}"), "51 services"),
        (services(33, port), "66 ports"),
    ] {
        let error = super::refusal(&text).to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn one_host_port_serves_tcp_and_udp() {
    let ports = "ports: [{name: a, container: 53, host: 53}, {name: b, container: 53, host: 53, protocol: udp}]";
    super::accepted(&web(&[ports]));
}

#[test]
fn a_name_that_differs_from_its_key_is_refused() {
    let error = parse_all("shop", web(&[]).as_bytes()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "line 3, column 18: metadata.name: the name is `blog` and the key's last part `shop`: \
         make them equal"
    );
}

#[test]
fn a_key_that_can_be_no_name_is_refused() {
    for key in ["", "blog/web", "BLOG", "\n", "blog "] {
        let error = parse_all(key, web(&[]).as_bytes()).unwrap_err();
        assert_eq!(error.problems().len(), 1);
        assert_eq!(error.problems()[0].path, "metadata.name");
    }
}

#[test]
fn bad_labels_are_refused() {
    let long = "x".repeat(257);
    let metadata = format!(
        "metadata:\n  name: blog\n  labels:\n    team: web\n    example.com/tier: a b\n    «-a: x\n    \
         «Example.com/a: x\n    «io.podherd.app: x\n    long: «{long}\n    two: «\"a\\nb\"\n"
    );
    let text = web(&[]).replace("metadata: {name: blog}\n", &metadata);
    assert_refused(
        &text,
        &[
            ("metadata.labels.-a", "a label's key is"),
            ("metadata.labels[\"Example.com/a\"]", "a label's key is"),
            (
                "metadata.labels[\"io.podherd.app\"]",
                "labels of podherd are its own",
            ),
            ("metadata.labels.long", "at most 256 characters"),
            ("metadata.labels.two", "without control characters"),
        ],
    );
}

#[test]
fn a_problem_prints_its_place_its_path_and_what_to_do() {
    let error = super::refusal(&web(&["ports: [{name: a, container: 0}]"]));
    assert_eq!(
        error.to_string(),
        "line 8, column 36: spec.services.web.ports[0].container: a port is a number from 1 to 65535"
    );
}
