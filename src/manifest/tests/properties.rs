//! Any bytes are refused calmly, and any app survives being written and read.

use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::parse_all;
use crate::manifest::{
    App, AppProtocol, AppSpec, Bytes, Check, Cpus, HttpRoute, Liveness, OnFailure, Placement, Port,
    PortName, Protocol, PullPolicy, Readiness, Resources, RestartPolicy, Security, ServiceName,
    ServiceSpec, StatusRange, Strategy as Replacement, Timespan, Tls, Tmpfs, Update, VolumeMount,
};

const EXAMPLES: [&str; 2] = [
    include_str!("../../../manifests/blog.yaml"),
    include_str!("../../../manifests/notes.yaml"),
];

/// Pieces that mean something to YAML or JSON.
const PIECES: [&str; 40] = [
    ": ",
    "- ",
    "[",
    "]",
    "{",
    "}",
    "&a ",
    "*a",
    "|\n",
    ">-\n",
    "\"",
    "'",
    "\n",
    "\n  ",
    "\n    ",
    "? ",
    "!t ",
    "!!str ",
    "%YAML 1.2\n",
    "---\n",
    "...\n",
    "\t",
    " #",
    "a",
    "b: ",
    ", ",
    "\\u",
    "\r",
    "\u{feff}",
    "\u{85}",
    "é",
    "0",
    "~",
    "<<: ",
    "1: ",
    "|2\n",
    "\0",
    "@",
    "`",
    "\u{2028}",
];

fn calmly(text: &[u8]) {
    if let Err(error) = parse_all("blog", text) {
        assert!(!error.problems().is_empty());
        for problem in error.problems() {
            assert!(problem.line > 0 && problem.column > 0 && !problem.message.is_empty());
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_calmly(text in vec(any::<u8>(), 0..300)) {
        calmly(&text);
    }

    #[test]
    fn any_pieces_of_yaml_are_read_calmly(pieces in vec(select(&PIECES[..]), 0..60)) {
        calmly(pieces.concat().as_bytes());
    }

    #[test]
    fn any_change_of_a_manifest_is_read_calmly(
        example in select(&EXAMPLES[..]),
        changes in vec((any::<Index>(), any::<Index>(), select(&PIECES[..])), 1..6),
    ) {
        let mut text = example.as_bytes().to_vec();
        for (from, length, piece) in changes {
            let from = from.index(text.len() + 1);
            let to = (from + length.index(20)).min(text.len());
            text.splice(from..to, piece.bytes());
        }
        calmly(&text);
    }

    #[test]
    fn any_app_survives_json_and_yaml(app in any_app()) {
        let json = serde_json::to_string(&app).unwrap();
        prop_assert_eq!(&parse_all(app.name.as_str(), json.as_bytes()).unwrap(), &app);
        let yaml = serde_yaml::to_string(&app).unwrap();
        prop_assert_eq!(&parse_all(app.name.as_str(), yaml.as_bytes()).unwrap(), &app);
        // As it is kept in a record.
        let spec: AppSpec = serde_json::from_value(serde_json::to_value(&app.spec).unwrap()).unwrap();
        prop_assert_eq!(spec, app.spec);
    }

    #[test]
    fn any_duration_survives(millis in any::<u32>()) {
        let span = Timespan::from_millis(millis.into());
        prop_assert_eq!(span.to_string().parse::<Timespan>().unwrap(), span);
    }

    #[test]
    fn any_quantity_survives(bytes in any::<u64>(), millis in any::<u32>()) {
        let (bytes, cpus) = (Bytes::new(bytes), Cpus::from_millis(millis));
        prop_assert_eq!(bytes.to_string().parse::<Bytes>().unwrap(), bytes);
        prop_assert_eq!(cpus.to_string().parse::<Cpus>().unwrap(), cpus);
    }
}

fn any_app() -> impl Strategy<Value = App> {
    let labels = || btree_map("[a-z][a-z0-9]{0,8}", any_line(), 0..3);
    let placement = prop_oneof![
        "[a-z]{1,8}".prop_map(|node| Placement::Node(node.parse().unwrap())),
        btree_map("[a-z]{1,8}", any_line(), 1..3).prop_map(Placement::Selector),
    ];
    let services = vec(any_service(), 1..4);
    (
        "[a-z][a-z0-9]{0,10}",
        labels(),
        services,
        any_env(),
        any::<bool>(),
        option::of(placement),
    )
        .prop_map(
            |(name, labels, services, env, deletion_protection, placement)| {
                let services = number(services);
                let spec = AppSpec {
                    env,
                    networks: Vec::new(),
                    services,
                    deletion_protection,
                    placement,
                };
                App {
                    name: name.parse().unwrap(),
                    labels,
                    spec,
                }
            },
        )
}

/// Names the services, and lets each depend on the one before it and read what the first
/// one writes.
fn number(services: Vec<ServiceSpec>) -> BTreeMap<ServiceName, ServiceSpec> {
    let name = |index: usize| -> ServiceName { format!("s{index}").parse().unwrap() };
    let named = services
        .into_iter()
        .enumerate()
        .map(|(index, mut service)| {
            for volume in &mut service.volumes {
                volume.read_only |= index > 0;
            }
            service.depends_on = index.checked_sub(1).map(name).into_iter().collect();
            for route in &mut service.http {
                route.host = format!("s{index}.{}", route.host);
            }
            (name(index), service)
        });
    named.collect()
}

fn any_line() -> impl Strategy<Value = String> {
    r"\PC{0,12}"
}

fn any_env() -> impl Strategy<Value = BTreeMap<String, String>> {
    btree_map("[A-Z_][A-Z0-9_]{0,6}", r"(\PC|[\n\t]){0,12}", 0..4)
}

fn any_span() -> impl Strategy<Value = Timespan> {
    (1_u64..86_400_000).prop_map(Timespan::from_millis)
}

fn http_port() -> PortName {
    "http".parse().unwrap()
}

fn any_check() -> impl Strategy<Value = Check> {
    prop_oneof![
        ("/[a-z?=]{0,8}", 100_u16..400, 0_u16..200).prop_map(|(path, from, more)| Check::Http {
            path,
            port: http_port(),
            status: StatusRange {
                from,
                to: from + more
            },
        }),
        Just(Check::Tcp { port: http_port() }),
        vec(r"\PC{1,8}", 1..4).prop_map(|command| Check::Exec { command }),
        Just(Check::Health),
    ]
}

fn any_readiness() -> impl Strategy<Value = Readiness> {
    let check = prop_oneof![
        any_check(),
        Just(Check::None),
        r"\PC{1,8}".prop_map(|contains| Check::Log { contains }),
    ];
    (check, any_span(), any_span(), 1_u32..1_000).prop_map(
        |(check, timeout, interval, successes)| Readiness {
            check,
            timeout,
            interval,
            successes,
        },
    )
}

fn any_liveness() -> impl Strategy<Value = Liveness> {
    (any_check(), any_span(), any_span(), 2_u32..1_000).prop_map(
        |(check, interval, timeout, failures)| Liveness {
            check,
            interval,
            timeout,
            failures,
        },
    )
}

fn any_update() -> impl Strategy<Value = Update> {
    let on_failure = prop_oneof![Just(OnFailure::Halt), Just(OnFailure::Rollback)];
    (on_failure, any_span()).prop_map(|(on_failure, drain)| Update {
        strategy: Replacement::Sequential,
        on_failure,
        drain,
    })
}

fn any_resources() -> impl Strategy<Value = Resources> {
    let cpus = option::of((1_u32..).prop_map(Cpus::from_millis));
    let memory = option::of((6_u64 << 20..1 << 60).prop_map(Bytes::new));
    (cpus, memory, option::of(1_u32..)).prop_map(|(cpus, memory, pids)| Resources {
        cpus,
        memory,
        pids,
    })
}

fn any_service() -> impl Strategy<Value = ServiceSpec> {
    let words = || option::of(vec(r"\PC{1,8}", 1..4));
    let texts = (
        words(),
        words(),
        any_env(),
        option::of(Just("1000:1000".to_owned())),
    );
    let probes = (
        option::of(any_readiness()),
        option::of(any_liveness()),
        any_update(),
        any_span(),
    );
    let choices = (
        select(vec![
            PullPolicy::Always,
            PullPolicy::IfNotPresent,
            PullPolicy::IfTagChanged,
        ]),
        select(vec![
            RestartPolicy::Always,
            RestartPolicy::OnFailure,
            RestartPolicy::Never,
        ]),
        any::<[bool; 3]>(),
        option::of((0_u64 << 10..1 << 40).prop_map(|more| Bytes::new(more + 1))),
    );
    (texts, probes, choices, any_resources()).prop_map(
        |(
            (command, args, env, user),
            (readiness, liveness, update, stop_grace),
            choices,
            resources,
        )| {
            let (pull_policy, restart, [read_only, routed, protect], size) = choices;
            ServiceSpec {
                image: "registry.example.com/team/web:1".to_owned(),
                pull_policy,
                command,
                args,
                working_dir: None,
                user,
                env,
                secrets: BTreeMap::new(),
                files: Vec::new(),
                volumes: vec![VolumeMount {
                    name: "data".parse().unwrap(),
                    path: "/data".to_owned(),
                    read_only,
                }],
                binds: Vec::new(),
                devices: Vec::new(),
                tmpfs: vec![Tmpfs {
                    path: "/tmp".to_owned(),
                    size,
                }],
                ports: vec![Port {
                    name: http_port(),
                    container: 8080,
                    protocol: Protocol::Tcp,
                    host: None,
                    app_protocol: AppProtocol::H2c,
                }],
                http: Vec::from_iter(routed.then(|| HttpRoute {
                    host: "example.com".to_owned(),
                    path: "/".to_owned(),
                    port: http_port(),
                    tls: Tls::Auto,
                })),
                tcp: Vec::new(),
                udp: Vec::new(),
                readiness,
                liveness,
                startup: None,
                update,
                stop_grace,
                stop_signal: None,
                restart,
                resources,
                security: Security {
                    no_new_privileges: protect,
                    ..Security::default()
                },
                logging: None,
                depends_on: Vec::new(),
            }
        },
    )
}
