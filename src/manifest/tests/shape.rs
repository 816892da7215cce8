//! Documents of the wrong shape: unknown, missing and mistyped fields.

use super::{app, assert_refused, refusals, web};

refusals! { web, "spec.services.web":
    an_unknown_field_is_refused_with_the_known_ones:
        ["«enviroment: {A: b}"] at ".enviroment"
        says "unknown field `enviroment`, expected one of `image`, `pullPolicy`";
    an_unknown_field_of_a_probe_is_refused:
        ["readiness: {none: {}, «period: 1s}"] at ".readiness.period" says "unknown field `period`";
    an_unknown_field_of_a_check_is_refused:
        ["readiness: {http: {port: http, «scheme: https}}"] at ".readiness.http.scheme"
        says "unknown field `scheme`";
    a_setting_for_a_check_that_has_none_is_refused:
        ["readiness: {health: {«port: http}}"] at ".readiness.health.port" says "unknown field";
    two_checks_in_one_probe_are_refused:
        ["«readiness: {tcp: {port: http}, delay: 1s}"] at ".readiness"
        says "say exactly one of http, tcp, exec, log, health, delay or none (here are tcp and delay)";
    a_probe_without_a_check_is_refused:
        ["«liveness: {interval: 1s}"] at ".liveness" says "(there is none here)";
    a_check_left_empty_is_refused:
        ["«readiness: {none: }"] at ".readiness" says "written `health: {}` and `none: {}`";
    a_check_without_its_port_is_refused:
        ["readiness: {«tcp: {}}"] at ".readiness.tcp" says "missing field `port`";
    a_number_as_an_environment_variable_is_refused:
        ["env: {PORT: «8080}"] at ".env.PORT"
        says "invalid type: integer `8080`, expected a string: put it in quotes";
    a_port_number_that_is_too_high_is_refused:
        ["ports: [{name: http, container: «70000}]"] at ".ports[0].container"
        says "expected a port number from 1 to 65535";
    a_port_number_in_quotes_is_refused:
        ["ports: [{name: http, container: «\"80\"}]"] at ".ports[0].container"
        says "expected a port number";
    a_port_name_that_is_no_dns_label_is_refused:
        ["ports: [{name: «HTTP, container: 80}]"] at ".ports[0].name" says "is not a DNS label";
    a_duration_without_a_unit_is_refused:
        ["stopGrace: «10"] at ".stopGrace" says "expected a duration: write whole numbers with units";
    a_duration_that_does_not_parse_is_refused:
        ["stopGrace: «ten seconds"] at ".stopGrace" says "\"ten seconds\" is not a duration";
    a_quantity_that_does_not_parse_is_refused:
        ["resources: {memory: «64MB}"] at ".resources.memory" says "\"64MB\" is not a number of bytes";
    cpus_that_do_not_parse_are_refused:
        ["resources: {cpus: «half}"] at ".resources.cpus" says "\"half\" is not CPU time";
    a_negative_number_of_cpus_is_refused:
        ["resources: {cpus: «-1}"] at ".resources.cpus" says "expected CPU time";
    a_range_of_status_codes_that_does_not_parse_is_refused:
        ["readiness: {http: {port: http, status: «2xx}}"] at ".readiness.http.status"
        says "write 200 or 200-399";
    an_unknown_pull_policy_is_refused:
        ["pullPolicy: «Sometimes"] at ".pullPolicy"
        says "unknown variant `Sometimes`, expected one of `Always`, `IfNotPresent`";
    a_list_where_a_map_is_needed_is_refused:
        ["«env: [A=b]"] at ".env" says "invalid type: list, expected a map";
    nothing_where_a_list_is_needed_is_refused:
        ["ports«:"] at ".ports" says "invalid type: nothing, expected a list";
}

refusals! { app, "spec":
    a_service_name_that_is_no_dns_label_is_refused:
        ["services: {«Web: {image: a}}"] at ".services.Web" says "\"Web\" is not a DNS label";
    a_service_without_an_image_is_refused:
        ["services: {«web: {}}"] at ".services.web" says "missing field `image`";
    a_placement_by_both_is_refused:
        ["services: {web: {image: a}}", "«placement: {node: a, selector: {b: c}}"] at ".placement"
        says "say exactly one of node or selector";
}

#[test]
fn another_version_or_kind_is_all_that_is_said() {
    assert_refused(
        "apiVersion: «apps/v1\nkind: «Deployment\nmetadata: {namespace: a}\nspec: {replicas: 3}\n",
        &[
            ("apiVersion", "known here is `podherd/v1`"),
            ("kind", "known here is `App`"),
        ],
    );
}

#[test]
fn a_document_without_its_parts_is_refused() {
    assert_refused(
        "«kind: App\n",
        &[(
            "",
            "missing field `apiVersion`: write `apiVersion: podherd/v1`",
        )],
    );
    assert_refused(
        "«apiVersion: podherd/v1\nkind: App\nmetadata: {name: blog}\n«status: {}\n",
        &[
            ("", "missing field `spec`"),
            ("status", "unknown field `status`"),
        ],
    );
}

#[test]
fn an_app_without_services_is_refused() {
    assert_refused(
        &app(&["env: {}"]).replace("spec:", "«spec:"),
        &[("spec", "missing field `services`")],
    );
    assert_refused(
        &app(&["«services: {}"]),
        &[("spec.services", "at least one service")],
    );
}

#[test]
fn all_errors_of_shape_are_found_at_once() {
    assert_refused(
        "apiVersion: podherd/v1\n\
         kind: App\n\
         metadata: {name: «Blog}\n\
         spec:\n  \
           services:\n    \
             db: {image: a, stopGrace: «1}\n    \
             web:\n      \
               image: a\n      \
               «colour: red\n      \
               ports: [{name: a, container: 1}, {name: «B, container: «x}, {name: c, container: «y}]\n",
        &[
            ("metadata.name", "is not a DNS label"),
            ("spec.services.db.stopGrace", "expected a duration"),
            ("spec.services.web.colour", "unknown field"),
            ("spec.services.web.ports[1].name", "is not a DNS label"),
            (
                "spec.services.web.ports[1].container",
                "expected a port number",
            ),
            (
                "spec.services.web.ports[2].container",
                "expected a port number",
            ),
        ],
    );
}

#[test]
fn a_field_that_was_refused_is_not_also_called_missing() {
    let lines = [
        "readiness: {tcp: {port: «HTTP}}",
        "volumes: [{name: «D, path: /data}]",
    ];
    assert_refused(
        &web(&lines),
        &[
            ("spec.services.web.readiness.tcp.port", "is not a DNS label"),
            ("spec.services.web.volumes[0].name", "is not a DNS label"),
        ],
    );
}

#[test]
fn a_service_of_the_wrong_shape_does_not_hide_the_others() {
    let spec = [
        "services:",
        "  db: {image: a, stopGrace: «1, dependsOn: [nobody]}",
        "  web: {image: «B, dependsOn: [db]}",
    ];
    assert_refused(
        &app(&spec),
        &[
            ("spec.services.db.stopGrace", "expected a duration"),
            ("spec.services.web.image", "is not an image reference"),
        ],
    );
}

#[test]
fn a_field_of_the_wrong_shape_does_not_hide_the_rest_of_its_service() {
    let lines = [
        "image: «Web",
        "«enviroment: {A: b}",
        "ports: [{name: http, container: «\"80\"}]",
        "http: [{host: «Blog, port: http}]",
    ];
    // That `http` is not declared would only follow from the port that is left out.
    assert_refused(
        &web(&lines),
        &[
            ("spec.services.web.image", "is not an image reference"),
            ("spec.services.web.enviroment", "unknown field"),
            (
                "spec.services.web.ports[0].container",
                "expected a port number",
            ),
            ("spec.services.web.http[0].host", "is not a host name"),
        ],
    );
}
