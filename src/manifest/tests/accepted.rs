//! What a manifest may say, and what it means where it doesn't say.

use super::{accepted, accepted_web, web};
use crate::manifest::{
    Check, Placement, Protocol, PullPolicy, Readiness, RestartPolicy, StatusRange, Strategy,
    Timespan, parse_all,
};

/// Every field of the language at once.
const EVERYTHING: &str = r#"
apiVersion: podherd/v1
kind: App
metadata:
  name: blog
  labels: {team: web, example.com/tier: "front end"}
spec:
  env: {TZ: UTC}
  networks:
    - {name: db-shared, internal: true}
  services:
    db:
      image: registry.example.com:5000/team/db@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
      ports: [{name: pg, container: 5432}]
      tcp: [{listen: 5432, port: pg}]
    web:
      image: registry.example.com/blog/web:1.4.2
      pullPolicy: Always
      command: [/bin/web]
      args: [--verbose]
      workingDir: /srv
      user: "1000:1000"
      env: {PORT: "8080", discovery.type: single-node}
      secrets:
        DATABASE_URL: {podman: blog-database-url}
        API_TOKEN: {app: api-token}
      files:
        - {path: /run/secrets/tls.key, podman: blog-tls-key, mode: "0400"}
        - {path: /run/secrets/token, app: api-token}
      volumes:
        - {name: data, path: /data, readOnly: true}
      binds:
        - {source: /srv/media, path: /media, readOnly: true}
      devices: [/dev/dri/renderD128]
      tmpfs: [{path: /tmp, size: 64Mi}]
      ports:
        - {name: http, container: 8080, protocol: tcp, appProtocol: h2c}
        - {name: dns, container: 5353, protocol: udp}
      http:
        - {host: blog.example.com, path: /, port: http, tls: auto}
      udp: [{listen: 53, port: dns}]
      readiness: {http: {path: "/healthz?full=1", port: http, status: 200-399}, timeout: 60s, interval: 500ms, successes: 1}
      liveness: {tcp: {port: http}, interval: 10s, failures: 3}
      startup: {http: {path: /healthz, port: http}, timeout: 120s}
      update: {strategy: overlap, onFailure: rollback, drain: 30s}
      stopGrace: 10s
      stopSignal: SIGTERM
      restart: OnFailure
      resources: {cpus: "0.5", memory: 256Mi, pids: 200}
      security: {readOnlyRoot: true, capDrop: [ALL], capAdd: [NET_BIND_SERVICE], noNewPrivileges: true, userns: host}
      logging: {driver: k8s-file, maxSize: 10Mi}
      dependsOn: [db]
  deletionProtection: true
  placement: {selector: {zone: a}}
"#;

#[test]
fn the_whole_language_is_understood() {
    let app = accepted(EVERYTHING);
    let web = &app.spec.services["web"];
    assert_eq!(web.update.strategy, Strategy::Overlap);
    assert_eq!(web.ports[1].protocol, Protocol::Udp);
    assert!(matches!(app.spec.placement, Some(Placement::Selector(_))));
    assert!(app.spec.deletion_protection);
}

#[test]
fn json_is_understood_with_all_its_escapes() {
    let value = serde_json::to_value(accepted(EVERYTHING)).unwrap();
    for text in [value.to_string(), format!("\n{value:#}\n")] {
        assert_eq!(accepted(&text), accepted(EVERYTHING));
    }
    let text = "{\t\"apiVersion\": \"podherd\\/v1\", \"kind\": \"App\", \"metadata\": {\"name\": \"blog\"},\n\
                \t\"spec\": {\"services\": {\"web\": {\"image\": \"a\", \"env\": {\"A\": \"\\ud83d\\ude00\"}}}}}";
    assert_eq!(accepted(text).spec.services["web"].env["A"], "😀");
}

#[test]
fn json_is_refused_with_the_place_too() {
    super::assert_refused(
        "{\"apiVersion\": \"podherd/v1\", \"kind\": \"App\", \"metadata\": {\"name\": \"blog\"},\n \
         \"spec\": {\"services\": {\"web\": {\"image\": \"a\",\n   \"user\": «\"\"}}}}",
        &[("spec.services.web.user", "is not a user")],
    );
}

#[test]
fn the_shortest_service_gets_the_defaults() {
    let web = accepted_web(&[]);
    assert_eq!(web.pull_policy, PullPolicy::IfTagChanged);
    assert_eq!(web.restart, RestartPolicy::Always);
    assert_eq!(web.stop_grace, Timespan::from_secs(10));
    assert_eq!(web.update.drain, Timespan::from_secs(10));
    assert_eq!(web.update.strategy, Strategy::Sequential);
}

#[test]
fn a_service_that_leaves_at_once_is_accepted() {
    let web = accepted_web(&["stopGrace: 0s", "update: {drain: 0s}"]);
    assert!(web.stop_grace.is_zero() && web.update.drain.is_zero());
}

#[test]
fn images_are_named_in_many_ways() {
    let digest = format!("sha256:{}", "0a".repeat(32));
    for image in [
        "alpine",
        "alpine:3",
        "localhost/demo-web:1",
        "localhost:5000/a",
        "registry.example.com/a/b_c/d__e/f--g.h:V1.2-rc_3",
        "REGISTRY.example.com/a",
        "team/app",
        "127.0.0.1:5000/a",
        &format!("alpine@{digest}"),
        &format!("registry.example.com:443/a:1@{digest}"),
    ] {
        assert_eq!(accepted_web(&[&format!("image: {image}")]).image, image);
    }
}

#[test]
fn users_and_signals_are_named_in_many_ways() {
    for user in [
        "root",
        "1000",
        "1000:1000",
        "_apt",
        "www-data:www-data",
        "app:0",
    ] {
        accepted_web(&[&format!("user: \"{user}\"")]);
    }
    for signal in ["SIGTERM", "TERM", "SIGRTMIN+3", "RTMIN", "RTMAX-1", "QUIT"] {
        accepted_web(&[&format!("stopSignal: {signal}")]);
    }
}

#[test]
fn each_check_is_understood() {
    let port: crate::manifest::PortName = "http".parse().unwrap();
    let range = StatusRange { from: 200, to: 200 };
    for (text, check) in [
        (
            "http: {port: http, status: 200}",
            Check::Http {
                path: "/".into(),
                port: port.clone(),
                status: range,
            },
        ),
        ("tcp: {port: http}", Check::Tcp { port }),
        (
            "exec: {command: [/bin/true]}",
            Check::Exec {
                command: vec!["/bin/true".into()],
            },
        ),
        (
            "log: {contains: ready}",
            Check::Log {
                contains: "ready".into(),
            },
        ),
        ("health: {}", Check::Health),
        ("delay: 5s", Check::Delay(Timespan::from_secs(5))),
        ("none: {}", Check::None),
    ] {
        let lines = [
            "ports: [{name: http, container: 80}]",
            &format!("readiness: {{{text}}}"),
        ];
        let readiness = accepted_web(&lines).readiness.unwrap();
        assert_eq!(readiness, Readiness::of(check.clone()), "{text}");
        let written = serde_json::to_string(&check).unwrap();
        assert_eq!(
            serde_json::from_str::<Check>(&written).unwrap(),
            check,
            "{written}"
        );
    }
}

#[test]
fn readiness_follows_from_the_routes() {
    const PORTS: &str = "ports: [{name: a, container: 1}, {name: b, container: 2}]";
    const HTTP: &str = "http: [{host: a.example.com, port: b}, {host: b.example.com, port: a}]";
    const TCP: &str = "tcp: [{listen: 1, port: a}]";
    let readiness = |lines: &[&str]| accepted_web(lines).effective_readiness();

    let get = Check::Http {
        path: "/".into(),
        port: "b".parse().unwrap(),
        status: StatusRange { from: 200, to: 399 },
    };
    assert_eq!(readiness(&[PORTS, HTTP, TCP]), Readiness::of(get));
    assert_eq!(
        readiness(&[PORTS, TCP]).check,
        Check::Tcp {
            port: "a".parse().unwrap()
        }
    );
    assert_eq!(readiness(&[PORTS]).check, Check::None);
    assert_eq!(
        readiness(&[PORTS, HTTP, "readiness: {none: {}}"]).check,
        Check::None
    );
}

#[test]
fn a_text_that_ends_with_the_end_of_its_document_is_accepted() {
    parse_all("blog", format!("---\n{}...\n", web(&[])).as_bytes()).unwrap();
}
