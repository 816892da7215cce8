#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use bytes::Bytes;
use std::time::Duration;

use serde_json::json;

use super::create;
use super::fault::Fault;
use super::images::digest_of;
use super::inspect::Inspected;
use super::pull::pull_error;
use super::socket::encoded;
use super::streams::Tail;
use super::*;
use crate::runtime::{ContainerSpec, ContainerState};
use crate::state::Digest;

fn inspected(status: &str, ports: &serde_json::Value) -> serde_json::Value {
    json!({
        "Id": "0a1b2c", "Name": "web",
        "State": {"Status": status, "StartedAt": "0001-01-01T00:00:00Z",
                  "FinishedAt": "0001-01-01T00:00:00Z", "ExitCode": 4, "OOMKilled": true},
        "Config": {"Labels": null, "Env": ["TOKEN=canary"]},
        "NetworkSettings": {"Ports": ports},
        "HostConfig": {"PortBindings": {"80/tcp": [{"HostIp": "127.0.0.1", "HostPort": "20000"}]}},
    })
}

fn container(value: serde_json::Value) -> Container {
    let inspected: Inspected = serde_json::from_value(value).unwrap();
    inspected.into_container().unwrap()
}

#[test]
fn every_state_of_podman_s_is_known_and_an_unknown_one_may_run() {
    use ContainerState::{Created, Exited, Paused, Removing, Running, Stopping, Unknown};
    for (name, state) in [
        ("created", Created),
        ("configured", Created),
        ("initialized", Created),
        ("running", Running),
        ("paused", Paused),
        ("stopping", Stopping),
        ("stopped", Exited),
        ("exited", Exited),
        ("removing", Removing),
        ("dead", Unknown),
    ] {
        let found = container(inspected(name, &json!({})));
        assert_eq!(found.state, state, "{name}");
        assert_eq!(found.exit_code.is_some(), state == Exited, "{name}");
        assert_eq!(found.started_at, None);
    }
    assert!(Unknown.may_run());
}

#[test]
fn ports_come_from_the_network_and_else_from_what_was_asked_for() {
    let given = json!({
        "80/tcp": [{"HostIp": "", "HostPort": "8080"}],
        "53/udp": [{"HostIp": "::1", "HostPort": "5353"}],
        "90/tcp": null,
        "7/sctp": [{"HostIp": "", "HostPort": "7"}],
    });
    let ports = container(inspected("running", &given)).ports;
    let hosts: Vec<_> = ports
        .iter()
        .map(|port| (port.host_ip.to_string(), port.host))
        .collect();
    assert_eq!(
        hosts,
        [("::1".to_owned(), 5353), ("0.0.0.0".to_owned(), 8080)]
    );
    let ports = container(inspected("exited", &json!(null))).ports;
    assert_eq!(ports[0].host, 20_000);
}

#[test]
fn a_start_in_another_time_zone_is_the_same_moment() {
    let mut value = inspected("running", &json!({}));
    value["State"]["StartedAt"] = json!("2026-03-01T12:00:00.000000001+02:00");
    let started_at = container(value).started_at.unwrap();
    assert_eq!(started_at.to_string(), "2026-03-01T10:00:00.000000001Z");
}

#[test]
fn a_fault_is_one_bounded_line_that_tells_its_cause_once() {
    let Fault::Said { message, .. } = Fault::said(500, "no such\n container: gone: gone") else {
        panic!("a refusal");
    };
    assert_eq!(message, "no such container: gone");
    let Fault::Said { message, .. } = Fault::said(500, &"ä".repeat(5_000)) else {
        panic!("a refusal");
    };
    assert_eq!(message.chars().count(), 401);
}

#[test]
fn a_pull_s_failure_is_sure_only_when_the_registry_says_so() {
    let kind = |error: &str| match pull_error("r/web:1", error) {
        RuntimeError::ImageUnknown { .. } => "unknown",
        RuntimeError::ImageDenied { .. } => "denied",
        RuntimeError::ImageAbsent { .. } => "absent",
        RuntimeError::PullFailed { .. } => "failed",
        other => panic!("{other}"),
    };
    for (error, expected) in [
        ("reading manifest 9 in r/web: manifest unknown", "unknown"),
        ("reading manifest 9 in r/web: name unknown", "unknown"),
        (
            "reading manifest 9 in r/web: StatusCode: 404, {}",
            "unknown",
        ),
        ("reading manifest 9 in r/web: unauthorized", "denied"),
        ("reading manifest 9 in r/web: denied", "denied"),
        (
            "r/web: requested access to the resource is denied",
            "denied",
        ),
        (
            "source docker://denied/r/web:1: connection refused",
            "failed",
        ),
        ("r/web:1: image not known", "absent"),
        ("pinging container registry r: connection refused", "failed"),
        ("dial tcp: lookup r on 10.0.0.1:53: no such host", "failed"),
        (
            "received unexpected HTTP status: 503 Service Unavailable",
            "failed",
        ),
        (
            "toomanyrequests: you have reached your pull rate limit",
            "failed",
        ),
        ("writing blob: no space left on device", "failed"),
        ("open /var/lib/containers/x: permission denied", "failed"),
    ] {
        assert_eq!(kind(error), expected, "{error}");
    }
}

#[test]
fn the_digest_to_pin_is_one_that_the_reference_s_repository_knows() {
    let digest = |hex: &str| format!("sha256:{}", hex.repeat(64));
    let all = [
        format!("a/web@{}", digest("1")),
        format!("b/web@{}", digest("2")),
    ];
    let of = |reference: &str, main: &str| digest_of(reference, Some(digest(main)), &all).unwrap();
    assert_eq!(of("a/web:1", "1"), Digest::new(digest("1")));
    assert_eq!(of("b/web:1", "1"), Digest::new(digest("2")));
    // A short name, resolved by Podman's own rules.
    assert_eq!(of("web", "1"), Digest::new(digest("1")));
    assert_eq!(digest_of("web", None, &[]), None);
}

fn framed(stream: u8, text: &[u8]) -> Vec<u8> {
    let mut frame = vec![stream, 0, 0, 0];
    frame.extend_from_slice(&u32::try_from(text.len()).unwrap().to_be_bytes());
    frame.extend_from_slice(text);
    frame
}

#[test]
fn log_frames_become_lines_however_they_are_cut() {
    let log = [
        framed(1, b"one\ntwo"),
        framed(2, b""),
        framed(2, b" and a half\n"),
        framed(1, b"caf\xe9\n"),
        framed(1, b"no end"),
    ]
    .concat();
    for size in 1..log.len() {
        let mut tail = Tail::new(3);
        for piece in log.chunks(size) {
            tail.read(Bytes::copy_from_slice(piece));
        }
        assert_eq!(
            tail.into_lines(),
            ["two and a half", "caf\u{fffd}", "no end"]
        );
    }
}

#[test]
fn a_log_without_line_ends_stays_bounded() {
    let mut tail = Tail::new(10);
    for _ in 0..100 {
        tail.read(framed(1, &[b'a'; 8192]).into());
    }
    let lines = tail.into_lines();
    assert_eq!(lines.iter().map(String::len).sum::<usize>(), 64 * 1024);
}

#[test]
fn what_podman_must_not_decide_is_said_in_the_body() {
    let mut spec = ContainerSpec {
        name: "web".to_owned(),
        stop_signal: Some("SIGRTMIN+3".to_owned()),
        stop_timeout: Duration::from_secs(7),
        ..ContainerSpec::default()
    };
    spec.security.no_new_privileges = true;
    let body = create::body(&spec).unwrap();
    assert_eq!(body["restart_policy"], "no");
    assert_eq!(body["image_volume_mode"], "ignore");
    assert_eq!(body["no_new_privileges"], true);
    assert_eq!(
        (&body["stop_signal"], &body["stop_timeout"]),
        (&json!(37), &json!(7))
    );
    for (name, number) in [("TERM", 15), ("SIGINT", 2), ("RTMIN", 34)] {
        spec.stop_signal = Some(name.to_owned());
        assert_eq!(create::body(&spec).unwrap()["stop_signal"], number);
    }
    spec.stop_signal = Some("SIGNOTHING".to_owned());
    assert!(create::body(&spec).is_err());
}

#[test]
fn what_goes_into_a_path_can_t_leave_it() {
    assert_eq!(encoded("a/b?c=d%e é"), "a%2Fb%3Fc%3Dd%25e%20%C3%A9");
}

#[tokio::test]
async fn a_reference_that_would_be_another_path_is_no_image() {
    let podman = Podman::connect("unix:///nowhere/podman.sock").unwrap();
    for reference in ["../containers/web", "web?x=y", "a//b", "web#1", "a b", ""] {
        let error = podman
            .image_by_policy(
                reference,
                crate::manifest::PullPolicy::Never,
                &crate::runtime::PullReport::silent(),
            )
            .await;
        assert!(
            matches!(error, Err(RuntimeError::ImageUnknown { .. })),
            "{reference:?}"
        );
    }
}

#[tokio::test]
async fn only_a_unix_socket_is_connected_to_and_one_that_isn_t_there_is_unavailable() {
    for uri in [
        "tcp://127.0.0.1:8080",
        "unix://relative",
        "/run/podman.sock",
        "",
    ] {
        assert!(Podman::connect(uri).is_err(), "{uri:?}");
    }
    let podman = Podman::connect("unix:///nowhere/podman.sock").unwrap();
    for error in [
        podman.look("web").await.unwrap_err(),
        crate::runtime::Runtime::ping(&podman).await.unwrap_err(),
    ] {
        assert!(
            matches!(error, RuntimeError::Unavailable { .. }),
            "{error:?}"
        );
    }
}

#[test]
fn limits_and_privileges_are_read_back() {
    use crate::manifest::{Bytes, Cpus, Resources, Security, Userns};
    let mut value = inspected("running", &json!({}));
    let nothing = container(value.clone()).applied;
    value["BoundingCaps"] = json!(["CAP_CHOWN", "CAP_NET_BIND_SERVICE"]);
    value["HostConfig"] = json!({
        "CpuQuota": 50_000, "CpuPeriod": 100_000, "Memory": 64 << 20, "PidsLimit": 50,
        "ReadonlyRootfs": true, "SecurityOpt": ["no-new-privileges"], "UsernsMode": "private",
    });
    let applied = container(value.clone()).applied;
    let limits = Resources {
        cpus: Some(Cpus::from_millis(500)),
        memory: Some(Bytes::new(64 << 20)),
        pids: Some(50),
    };
    assert_eq!(applied.limits, limits);
    assert_eq!(applied.missing_limits(&limits), Vec::<&str>::new());
    assert_eq!(
        applied.missing_limits(&Resources::default()),
        Vec::<&str>::new()
    );
    assert_eq!(nothing.missing_limits(&limits), ["cpus", "memory", "pids"]);
    let mut asked = Security {
        read_only_root: true,
        cap_drop: vec!["ALL".to_owned()],
        cap_add: vec!["NET_BIND_SERVICE".to_owned(), "CAP_CHOWN".to_owned()],
        no_new_privileges: true,
        userns: Some(Userns::Auto),
    };
    assert_eq!(applied.missing_restrictions(&asked), Vec::<&str>::new());
    assert_eq!(
        nothing.missing_restrictions(&asked),
        ["readOnlyRoot", "noNewPrivileges", "userns"]
    );
    asked.cap_add.pop();
    assert_eq!(applied.missing_restrictions(&asked), ["capDrop"]);
    asked.cap_drop = vec!["CAP_CHOWN".to_owned()];
    assert_eq!(applied.missing_restrictions(&asked), ["capDrop"]);
    asked.cap_drop = vec!["KILL".to_owned()];
    assert_eq!(applied.missing_restrictions(&asked), Vec::<&str>::new());
}

#[test]
fn a_log_driver_and_its_size_are_said_in_podman_s_words() {
    use crate::manifest::{Bytes, LogDriver, Logging};
    let body = |logging: Option<Logging>| {
        create::body(&ContainerSpec {
            logging,
            ..ContainerSpec::default()
        })
        .unwrap()
    };
    assert_eq!(body(None).get("log_configuration"), None);
    let with = body(Some(Logging {
        driver: LogDriver::K8sFile,
        max_size: Some(Bytes::new(1 << 20)),
    }));
    assert_eq!(
        with["log_configuration"],
        json!({"driver": "k8s-file", "size": 1 << 20})
    );
}

#[test]
fn a_range_of_user_ids_is_its_owner_s() {
    use super::userns::has_range;
    assert!(has_range(
        "a:1:2\ncontainers:2147483647:2147483648\n",
        "containers"
    ));
    assert!(!has_range("a:1:2\nmycontainers:1:2\n", "containers"));
    assert!(!has_range("", "containers"));
}
