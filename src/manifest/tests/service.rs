//! Services of the right shape that can't be.

use super::{assert_refused, refusals, web};

const PORTS: &str =
    "ports: [{name: http, container: 80}, {name: dns, container: 53, protocol: udp}]";

refusals! { web, "spec.services.web.":
    an_empty_image_is_refused:
        ["image: «\"\""] at "image" says "name an image";
    an_upper_case_image_is_refused:
        ["image: «registry.example.com/Team/web"] at "image" says "lower-case letters and digits";
    an_image_with_an_empty_tag_is_refused:
        ["image: «\"web:\""] at "image" says "the tag must be";
    an_image_with_a_short_digest_is_refused:
        ["image: «web@sha256:abc"] at "image" says "sha256: and 64 digits";
    an_image_with_a_bad_registry_is_refused:
        ["image: «registry.example.com:port/web"] at "image" says "the registry must be";
    an_image_with_an_empty_part_is_refused:
        ["image: «registry.example.com//web"] at "image" says "each part of the path";
    a_url_is_no_image:
        ["image: «https://registry.example.com/web"] at "image" says "is not an image reference";

    an_empty_command_is_refused:
        ["«command: []"] at "command" says "name a program first";
    a_nul_in_an_argument_is_refused:
        ["args: [a, «\"b\\0\"]"] at "args[1]" says "contains a NUL";
    a_relative_working_directory_is_refused:
        ["workingDir: «srv"] at "workingDir" says "is not a plain absolute path: start with '/'";
    a_working_directory_with_dots_is_refused:
        ["workingDir: «/srv/../etc"] at "workingDir" says "leave out '.', '..'";
    a_user_that_is_none_is_refused:
        ["user: «\"1000:\""] at "user" says "is not a user: write name, uid, name:group or uid:gid";
    a_variable_that_starts_with_a_digit_is_refused:
        ["env: {«1A: x}"] at "env.1A" says "a variable's name is";
    a_nul_in_a_variable_is_refused:
        ["env: {A: «\"\\0\"}"] at "env.A" says "contains a NUL";
    a_secret_under_a_bad_variable_is_refused:
        ["secrets: {«A=B: {podman: a}}"] at "secrets[\"A=B\"]" says "a variable's name is";
    a_secret_and_a_value_for_one_variable_are_refused:
        ["env: {A: x}", "secrets: {«A: {podman: a}}"] at "secrets.A" says "is also in `env`";
    a_secret_without_a_name_is_refused:
        ["secrets: {A: {podman: «\"\"}}"] at "secrets.A.podman" says "is not the name of a Podman secret";
    a_secret_of_both_kinds_is_refused:
        ["secrets: {«A: {podman: a, app: b}}"] at "secrets.A" says "exactly one of podman or app";
    a_secret_of_no_kind_is_refused:
        ["files: [«{path: /key}]"] at "files[0]" says "exactly one of podman or app";
    a_secret_that_belongs_to_some_app_is_refused_by_its_name_in_podman:
        ["secrets: {A: {podman: «podherd-shop-1a2b3c4d-key}}"] at "secrets.A.podman" says "write `app`";
    an_unknown_signal_is_refused:
        ["stopSignal: «SIGSTOPP"] at "stopSignal" says "write one such as SIGTERM or INT";
    a_signal_by_number_is_refused:
        ["stopSignal: «\"15\""] at "stopSignal" says "is not a signal's name";
    a_real_time_signal_out_of_range_is_refused:
        ["stopSignal: «RTMIN+31"] at "stopSignal" says "is not a signal's name";

    a_volume_mounted_twice_is_refused:
        ["volumes: [{name: data, path: /a}, {name: «data, path: /b}]"] at "volumes[1].name"
        says "volume `data` is already mounted here";
    a_relative_mount_path_is_refused:
        ["volumes: [{name: data, path: «data}]"] at "volumes[0].path" says "is not a plain absolute path";
    a_mount_path_with_dots_is_refused:
        ["tmpfs: [{path: «/tmp/../etc}]"] at "tmpfs[0].path" says "is not a plain absolute path";
    a_mount_path_with_a_slash_at_its_end_is_refused:
        ["tmpfs: [{path: «/tmp/}]"] at "tmpfs[0].path" says "is not a plain absolute path";
    a_mount_over_everything_is_refused:
        ["volumes: [{name: data, path: «/}]"] at "volumes[0].path" says "all of the container";
    a_relative_bind_source_is_refused:
        ["binds: [{source: «media, path: /media}]"] at "binds[0].source" says "is not a plain absolute";
    two_mounts_at_one_path_are_refused:
        ["volumes: [{name: data, path: /data}]", "binds: [{source: /srv, path: «/data}]"]
        at "binds[0].path" says "already mounted by spec.services.web.volumes[0].path";
    a_mount_inside_another_is_refused:
        ["tmpfs: [{path: /run}]", "files: [{path: «/run/secrets/key, podman: key}]"]
        at "files[0].path" says "is inside /run, mounted by spec.services.web.tmpfs[0].path";
    a_tmpfs_of_no_size_is_refused:
        ["tmpfs: [{path: /tmp, size: «0}]"] at "tmpfs[0].size" says "must be more than zero";
    a_file_mode_that_is_not_octal_is_refused:
        ["files: [{path: /key, podman: key, mode: «\"0800\"}]"] at "files[0].mode"
        says "three octal digits";
    a_device_outside_dev_is_refused:
        ["devices: [«/etc/passwd]"] at "devices[0]" says "write its path under /dev";
    a_device_that_climbs_out_of_dev_is_refused:
        ["devices: [«/dev/../etc/passwd]"] at "devices[0]" says "write its path under /dev";
    a_device_listed_twice_is_refused:
        ["devices: [/dev/fuse, «/dev/fuse]"] at "devices[1]" says "already listed";

    a_port_name_used_twice_is_refused:
        ["ports: [{name: a, container: 1}, {name: «a, container: 2}]"] at "ports[1].name"
        says "port name `a` is already used";
    a_container_port_declared_twice_is_refused:
        ["ports: [{name: a, container: 1}, {name: b, container: «1}]"] at "ports[1].container"
        says "1/tcp is already declared as `a`";
    a_container_port_of_zero_is_refused:
        ["ports: [{name: a, container: «0}]"] at "ports[0].container" says "from 1 to 65535";
    a_host_port_of_zero_is_refused:
        ["ports: [{name: a, container: 1, host: «0}]"] at "ports[0].host" says "from 1 to 65535";
    an_application_protocol_on_udp_is_refused:
        ["ports: [{name: a, container: 1, protocol: udp, appProtocol: «h2c}]"]
        at "ports[0].appProtocol" says "only a tcp port has one";

    a_route_to_an_undeclared_port_is_refused:
        ["http: [{host: a.example.com, port: «http}]"] at "http[0].port"
        says "port `http` is not declared: add a tcp port under `ports`";
    a_route_to_a_misspelled_port_is_refused_with_the_ones_there_are:
        [PORTS, "http: [{host: a.example.com, port: «htp}]"] at "http[0].port"
        says "port `htp` is not declared: use `http`";
    an_http_route_to_an_udp_port_is_refused:
        [PORTS, "http: [{host: a.example.com, port: «dns}]"] at "http[0].port"
        says "port `dns` is udp: a tcp port is needed here";
    a_tcp_route_to_an_udp_port_is_refused:
        [PORTS, "tcp: [{listen: 53, port: «dns}]"] at "tcp[0].port" says "a tcp port is needed";
    an_udp_route_to_a_tcp_port_is_refused:
        [PORTS, "udp: [{listen: 80, port: «http}]", "readiness: {none: {}}"] at "udp[0].port"
        says "port `http` is tcp: a udp port is needed here";
    a_listener_on_port_zero_is_refused:
        [PORTS, "tcp: [{listen: «0, port: http}]"] at "tcp[0].listen" says "from 1 to 65535";
    an_upper_case_host_is_refused:
        [PORTS, "http: [{host: «Blog.example.com, port: http}]"] at "http[0].host"
        says "write a lower-case DNS name without a port";
    a_host_with_a_port_is_refused:
        [PORTS, "http: [{host: «\"blog.example.com:80\", port: http}]"]
        at "http[0].host" says "without a port";
    an_address_as_a_host_is_refused:
        [PORTS, "http: [{host: «127.0.0.1, port: http}]"] at "http[0].host" says "is not a host name";
    a_host_with_an_empty_label_is_refused:
        [PORTS, "http: [{host: «blog..example.com, port: http}]"] at "http[0].host" says "is not a host";
    a_route_path_without_a_slash_is_refused:
        [PORTS, "http: [{host: a.example.com, path: «blog, port: http}]"] at "http[0].path"
        says "must start with '/'";
    a_route_path_with_dots_is_refused:
        [PORTS, "http: [{host: a.example.com, path: «/a/../b, port: http}]"] at "http[0].path"
        says "'.' and '..'";
    a_route_path_with_a_query_is_refused:
        [PORTS, "http: [{host: a.example.com, path: «\"/a?b\", port: http}]"] at "http[0].path"
        says "without spaces, '?'";

    an_http_check_of_an_undeclared_port_is_refused:
        [PORTS, "readiness: {http: {path: /healthz, port: «web}}"] at "readiness.http.port"
        says "port `web` is not declared: use `http` or add it";
    an_http_check_of_an_udp_port_is_refused:
        [PORTS, "readiness: {http: {path: /healthz, port: «dns}}"] at "readiness.http.port"
        says "port `dns` is udp";
    a_tcp_check_of_an_undeclared_port_is_refused:
        [PORTS, "liveness: {tcp: {port: «pg}}"] at "liveness.tcp.port" says "is not declared";
    an_http_check_of_a_relative_path_is_refused:
        [PORTS, "startup: {http: {path: «healthz, port: http}}"] at "startup.http.path"
        says "must start with '/'";
    an_exec_check_without_a_program_is_refused:
        ["readiness: {exec: {«command: []}}"] at "readiness.exec.command" says "name a program first";
    a_log_check_for_nothing_is_refused:
        ["readiness: {log: {contains: «\"\"}}"] at "readiness.log.contains" says "write what to look for";
    a_delay_of_zero_is_refused:
        ["readiness: {delay: «0s}"] at "readiness.delay" says "must be longer than zero";
    a_delay_that_outlasts_its_timeout_is_refused:
        ["readiness: {delay: «1m}"] at "readiness.delay" says "1m is longer than the timeout of 30s";
    a_readiness_timeout_of_zero_is_refused:
        ["readiness: {none: {}, timeout: «0ms}"] at "readiness.timeout" says "must be longer than zero";
    a_readiness_interval_of_days_is_refused:
        ["readiness: {none: {}, interval: «25h}"] at "readiness.interval"
        says "25h is longer than 24h, the longest allowed";
    no_success_in_a_row_is_refused:
        ["readiness: {none: {}, successes: «0}"] at "readiness.successes" says "from 1 to 1000";
    a_liveness_interval_of_zero_is_refused:
        ["liveness: {health: {}, interval: «0s}"] at "liveness.interval" says "longer than zero";
    a_single_failed_try_says_nothing:
        ["liveness: {health: {}, failures: «1}"] at "liveness.failures" says "from 2 to 1000";
    a_liveness_timeout_of_zero_is_refused:
        ["liveness: {health: {}, timeout: «0s}"] at "liveness.timeout" says "longer than zero";
    a_liveness_that_looks_at_the_log_is_refused:
        ["liveness: {«log: {contains: up}}"] at "liveness.log" says "nothing about a running service";
    a_startup_timeout_of_zero_is_refused:
        ["startup: {health: {}, timeout: «0s}"] at "startup.timeout" says "longer than zero";
    a_startup_that_waits_for_nothing_is_refused:
        ["startup: {«none: {}}"] at "startup.none" says "leave `startup` out";
    an_udp_only_service_must_state_its_readiness:
        [PORTS, "«udp: [{listen: 53, port: dns}]"] at "udp" says "must state its readiness";

    a_stop_grace_of_days_is_refused:
        ["stopGrace: «24h1ms"] at "stopGrace" says "is longer than 24h";
    a_drain_of_days_is_refused:
        ["update: {drain: «48h}"] at "update.drain" says "is longer than 24h";
    an_overlap_with_a_writable_volume_is_refused:
        ["volumes: [{name: data, path: /data}]", "update: {strategy: «overlap}"] at "update.strategy"
        says "would give writable volume `data` to two generations at once";
    an_overlap_with_a_writable_host_path_is_refused:
        ["binds: [{source: /srv, path: /data}]", "update: {strategy: «overlap}"] at "update.strategy"
        says "would give writable path \"/srv\"";
    an_overlap_with_a_fixed_host_port_is_refused:
        ["ports: [{name: a, container: 1, host: 53}]", "update: {strategy: «overlap}"]
        at "update.strategy" says "would give host port 53 to two generations at once";

    no_cpu_is_refused:
        ["resources: {cpus: «\"0\"}"] at "resources.cpus" says "must be more than zero";
    too_little_memory_is_refused:
        ["resources: {memory: «1Mi}"] at "resources.memory" says "must be at least 6Mi";
    more_memory_than_a_runtime_can_be_told_is_refused:
        ["resources: {memory: «16000000Ti}"] at "resources.memory" says "more than any machine has";
    no_process_is_refused:
        ["resources: {pids: «0}"] at "resources.pids" says "must be more than zero";
    a_log_of_no_size_is_refused:
        ["logging: {driver: k8s-file, maxSize: «0}"] at "logging.maxSize" says "more than zero";
    a_log_without_a_file_has_no_size:
        ["logging: {driver: journald, «maxSize: 1Mi}"] at "logging.maxSize"
        says "the driver `journald` has no file";
    a_log_probe_without_a_log_is_refused:
        ["logging: {driver: none}", "readiness: {«log: {contains: ready}}"]
        at "readiness.log" says "keeps no log";
    a_startup_log_probe_without_a_log_is_refused:
        ["logging: {driver: none}", "startup: {«log: {contains: ready}}"]
        at "startup.log" says "keeps no log";
    a_volume_with_other_users_each_time_is_refused:
        ["volumes: [{name: data, path: /data}]", "security: {userns: «auto}"]
        at "security.userns" says "the files of volume `data`";
    an_unknown_capability_is_refused:
        ["security: {capAdd: [«NET_BIND]}"] at "security.capAdd[0]" says "is not a capability";
    adding_all_capabilities_is_refused:
        ["security: {capAdd: [«ALL]}"] at "security.capAdd[0]" says "is not a capability";
    an_unknown_capability_to_drop_is_refused:
        ["security: {capDrop: [«EVERYTHING]}"] at "security.capDrop[0]" says "or ALL";
    a_capability_both_given_and_taken_is_refused:
        ["security: {capDrop: [CHOWN], capAdd: [«CAP_CHOWN]}"] at "security.capAdd[0]"
        says "is also in `capDrop`";
    a_capability_listed_twice_is_refused:
        ["security: {capDrop: [CHOWN, «CAP_CHOWN]}"] at "security.capDrop[1]" says "already listed";
}

#[test]
fn all_problems_of_a_service_are_found_at_once() {
    let lines = [
        "image: «Web",
        "env: {«A B: x}",
        PORTS,
        "http:",
        "  - host: «BLOG",
        "    port: «pg",
        "readiness: {tcp: {port: «dns}, timeout: «0s}",
    ];
    assert_refused(
        &web(&lines),
        &[
            ("spec.services.web.image", "is not an image reference"),
            ("spec.services.web.env[\"A B\"]", "a variable's name"),
            ("spec.services.web.http[0].host", "is not a host name"),
            ("spec.services.web.http[0].port", "is not declared"),
            ("spec.services.web.readiness.tcp.port", "is udp"),
            ("spec.services.web.readiness.timeout", "longer than zero"),
        ],
    );
}
