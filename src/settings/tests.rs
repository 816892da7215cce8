//! Which setting wins, and what a wrong one is told.

use std::ffi::OsString;
use std::time::Duration;

use clap::Parser;

use super::*;
use crate::telemetry::LogFormat;

/// All options of `podherd run`.
#[derive(Debug, Parser)]
struct All {
    #[command(flatten)]
    config: ConfigOption,
    #[command(flatten)]
    etcd: EtcdOptions,
    #[command(flatten)]
    local: LocalEtcdOptions,
    #[command(flatten)]
    podman: PodmanOptions,
    #[command(flatten)]
    node: NodeOptions,
    #[command(flatten)]
    controller: ControllerOptions,
    #[command(flatten)]
    proxy: ProxyOptions,
    #[command(flatten)]
    log: LogOptions,
    #[command(flatten)]
    listen: ListenOptions,
}

fn parse(arguments: &[&str]) -> All {
    let program = std::iter::once("podherd");
    All::try_parse_from(program.chain(arguments.iter().copied())).unwrap()
}

fn written(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

fn load(text: &str) -> Result<File, SettingsError> {
    File::read(written(text).path())
}

fn root() -> Host {
    Host {
        name: "Host-A.example.com".to_owned(),
        ..Host::default()
    }
}

fn user() -> Host {
    Host {
        uid: 1000,
        home: Some("/home/ada".into()),
        ..root()
    }
}

#[test]
fn a_flag_wins_over_the_file_and_the_file_over_the_default() {
    let file =
        load("{etcd: 'http://file:2379', workers: 8, http: [127.0.0.1:80], log: debug}").unwrap();
    let all = parse(&[
        "--etcd",
        "http://flag:2379,http://flag2:2379",
        "--resync",
        "1m",
    ]);

    let etcd = all.etcd.resolve(&file).unwrap();
    let controller = all.controller.resolve(&file, &root()).unwrap();

    assert_eq!(etcd.endpoints, ["http://flag:2379", "http://flag2:2379"]);
    assert_eq!(controller.workers, 8);
    assert_eq!(controller.resync, Duration::from_secs(60));
    assert_eq!(controller.ports, 20_000..=29_999);
    assert_eq!(
        all.proxy.resolve(&file).unwrap().http,
        ["127.0.0.1:80".parse().unwrap()]
    );
    assert_eq!(all.log.resolve(&file).filter, "debug");
}

/// The environment belongs to the whole process, so another one is asked.
#[test]
fn each_flag_has_its_variable_and_its_key_in_the_file() {
    let command = <All as clap::CommandFactory>::command();
    for argument in command
        .get_arguments()
        .filter(|argument| argument.get_id() != "help")
    {
        let flag = argument.get_long().unwrap();
        let variable = format!("PODHERD_{}", flag.to_uppercase().replace('-', "_"));
        assert_eq!(
            argument.get_env(),
            Some(OsString::from(variable).as_os_str()),
            "{flag}"
        );
        assert!(argument.get_help().is_some(), "{flag}");
        if matches!(flag, "config" | "adopt") {
            continue;
        }
        let error = load(&format!("{flag}: {{x: {{y: z}}}}"))
            .unwrap_err()
            .to_string();
        assert!(!error.contains("unknown field"), "{flag}: {error}");
    }
}

#[test]
fn an_unknown_key_is_refused_with_its_place() {
    let file = written("prefix: /podherd\nworker: 4\n");
    let error = File::read(file.path()).unwrap_err().to_string();

    assert!(
        error.contains(&format!(
            "{}:2:1: unknown field `worker`",
            file.path().display()
        )),
        "{error}"
    );
}

#[test]
fn a_key_given_twice_and_a_wrong_value_are_refused() {
    for text in [
        "workers: 4\nworkers: 5\n",
        "workers: many\n",
        "resync: 5\n",
        "port-range: 30000-20000\n",
        "http: [nowhere]\n",
        "node: Host_A\n",
        "log-format: xml\n",
        "- a list\n",
    ] {
        assert!(load(text).is_err(), "{text}");
    }
}

#[test]
fn an_empty_file_says_nothing() {
    assert_eq!(load("").unwrap(), File::default());
    assert_eq!(load("# nothing yet\n\n").unwrap(), File::default());
}

#[test]
fn the_whole_file_is_understood() {
    let file = load(
        "etcd: [http://a:2379, http://b:2379]\nlocal-etcd: false\netcd-user: podherd\n\
         etcd-password-file: /p\netcd-ca: /ca\netcd-cert: /c\netcd-key: /k\nprefix: /x\n\
         podman: unix:///p.sock\nauth-file: /a\npull-timeout: 1h\npull-stall: 5m\nnode: host-a\nstate-dir: /s\netcd-binary: /e\nlocal-etcd-port: 2400\n\
         port-range: 21000-22000\nworkers: 2\nresync: 1m\nhttp: 0.0.0.0:80,127.0.0.1:81\n\
         l4-bind: 192.0.2.1\nproxy-name: p\nlisten: 0.0.0.0:9\nlog: warn\nlog-format: json\n",
    )
    .unwrap();

    assert_eq!(file.http.as_ref().unwrap().len(), 2);
    assert_eq!(
        parse(&[]).proxy.resolve(&file).unwrap().l4_bind,
        "192.0.2.1".parse::<std::net::IpAddr>().unwrap()
    );
    assert_eq!(file.log_format, Some(LogFormat::Json));
    let controller = parse(&[]).controller.resolve(&file, &root()).unwrap();
    assert_eq!(controller.ports, 21_000..=22_000);
    let podman = parse(&["--pull-stall", "10s"]).podman;
    let podman = podman.resolve(&file, &root()).unwrap();
    assert_eq!(podman.auth_file.as_deref(), Some(Path::new("/a")));
    assert_eq!(podman.pull_timeout, Duration::from_secs(3600));
    assert_eq!(podman.pull_stall, Duration::from_secs(10));
}

#[test]
fn without_an_etcd_it_is_said_what_to_do() {
    let all = parse(&[]);
    let error = all
        .etcd
        .clone()
        .resolve(&File::default())
        .unwrap_err()
        .to_string();
    assert!(error.contains("--etcd http://127.0.0.1:2379"), "{error}");

    let error = all
        .etcd
        .resolve_or_local(all.local.clone(), &File::default())
        .unwrap_err();
    assert!(error.to_string().contains("--local-etcd"), "{error}");
}

#[test]
fn an_etcd_of_our_own_and_another_one_exclude_each_other() {
    let all = parse(&["--local-etcd"]);
    let local = all
        .etcd
        .clone()
        .resolve_or_local(all.local.clone(), &File::default())
        .unwrap();
    assert!(matches!(local, EtcdChoice::Local(_)));

    let file = load("etcd: http://a:2379").unwrap();
    let error = all
        .etcd
        .resolve_or_local(all.local.clone(), &file)
        .unwrap_err();
    assert!(error.to_string().contains("choose one"), "{error}");
}

#[test]
fn an_address_without_scheme_or_port_is_refused_and_not_shown() {
    for address in [
        "localhost:2379",
        "http://localhost",
        "http://u:hunter2@host:2379",
        "ftp://a:1",
        "",
    ] {
        let all = parse(&["--etcd", address]);
        let error = all.etcd.resolve(&File::default()).unwrap_err().to_string();
        assert!(
            error.contains("http://host:2379") && !error.contains("hunter2"),
            "{error}"
        );
    }
}

#[test]
fn the_password_comes_from_the_first_line_of_its_file_and_is_never_shown() {
    let password = written("hunter2\nand more\n");
    let path = password.path().display().to_string();
    let all = parse(&[
        "--etcd",
        "http://a:2379",
        "--etcd-user",
        "podherd",
        "--etcd-password-file",
        &path,
    ]);

    let settings = all.etcd.resolve(&File::default()).unwrap();

    assert!(!format!("{settings:?}").contains("hunter2"));
    assert_eq!(settings.password.as_deref(), Some("hunter2"));
}

#[test]
fn a_user_and_a_password_belong_together() {
    for arguments in [
        &["--etcd", "http://a:2379", "--etcd-user", "podherd"][..],
        &[
            "--etcd",
            "http://a:2379",
            "--etcd-user",
            "podherd",
            "--etcd-password-file",
            "/does/not/exist",
        ],
    ] {
        let error = parse(arguments).etcd.resolve(&File::default()).unwrap_err();
        assert!(
            error.to_string().contains("--etcd-password-file"),
            "{error}"
        );
    }
}

#[test]
fn a_prefix_begins_with_a_slash_and_has_no_empty_part() {
    for (said, prefix) in [
        ("/podherd/", Some("/podherd")),
        ("/a/b", Some("/a/b")),
        ("podherd", None),
        ("/", None),
        ("/a//b", None),
        ("", None),
    ] {
        let all = parse(&["--etcd", "http://a:2379", "--prefix", said]);
        let resolved = all
            .etcd
            .resolve(&File::default())
            .ok()
            .map(|settings| settings.prefix);
        assert_eq!(resolved.as_deref(), prefix, "{said}");
    }
}

#[test]
fn defaults_follow_the_user() {
    let file = File::default();
    let socket = |host: &Host| parse(&[]).podman.resolve(&file, host).unwrap().socket;
    let state = |host: &Host| {
        parse(&[])
            .controller
            .resolve(&file, host)
            .unwrap()
            .state_dir
    };

    assert_eq!(socket(&root()), Path::new("/run/podman/podman.sock"));
    assert_eq!(
        socket(&user()),
        Path::new("/run/user/1000/podman/podman.sock")
    );
    assert_eq!(state(&root()), Path::new("/var/lib/podherd"));
    assert_eq!(state(&user()), Path::new("/home/ada/.local/state/podherd"));
    let homeless = Host {
        home: None,
        ..user()
    };
    let error = parse(&[]).controller.resolve(&file, &homeless).unwrap_err();
    assert!(error.to_string().contains("--state-dir DIR"), "{error}");
}

#[test]
fn the_host_is_called_by_the_first_part_of_its_name() {
    let file = File::default();
    let node = parse(&[]).node.resolve(&file, &root()).unwrap();
    assert_eq!(node.as_str(), "host-a");

    let odd = Host {
        name: "my_host".to_owned(),
        ..root()
    };
    let error = parse(&[])
        .node
        .resolve(&file, &odd)
        .unwrap_err()
        .to_string();
    assert!(error.contains("say --node NAME"), "{error}");
}

#[test]
fn another_hosts_podman_is_refused() {
    let error = parse(&["--podman", "tcp://host:8080"])
        .podman
        .resolve(&File::default(), &root());
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("its own host's Podman")
    );
}

#[test]
fn a_relative_file_of_credentials_and_a_pull_without_time_are_refused() {
    for arguments in [
        ["--auth-file", "auth.json"],
        ["--pull-timeout", "0s"],
        ["--pull-stall", "100ms"],
    ] {
        let result = parse(&arguments).podman.resolve(&File::default(), &root());
        assert!(result.unwrap_err().to_string().contains(arguments[0]));
    }
}

#[test]
fn numbers_out_of_bounds_are_refused() {
    for arguments in [["--workers", "0"], ["--workers", "65"], ["--resync", "1s"]] {
        let result = parse(&arguments)
            .controller
            .resolve(&File::default(), &root());
        assert!(result.is_err(), "{arguments:?}");
    }
    assert!(All::try_parse_from(["podherd", "--port-range", "80-90"]).is_err());
}

#[test]
fn a_listener_given_twice_and_a_name_that_is_no_key_are_refused() {
    for arguments in [
        &["--http", "127.0.0.1:80", "--http", "127.0.0.1:80"][..],
        &["--proxy-name", "a/b"],
        &["--proxy-name", ""],
    ] {
        assert!(
            parse(arguments).proxy.resolve(&File::default()).is_err(),
            "{arguments:?}"
        );
    }
}

#[test]
fn a_proxy_is_called_by_its_first_address() {
    let all = parse(&["--http", "127.0.0.1:81,[::1]:82"]);
    assert_eq!(
        all.proxy.resolve(&File::default()).unwrap().name,
        "127.0.0.1:81"
    );
}

#[test]
fn a_policy_is_read_before_anything_begins() {
    for (text, accepted) in [
        ("# later\n", true),
        ("binds: {media: {path: /srv, apps: [blog]}}\n", true),
        ("binds: [/srv]\n", false),
    ] {
        let policy = written(text);
        let path = policy.path().display().to_string();
        let result = parse(&["--policy", &path])
            .controller
            .resolve(&File::default(), &root());
        assert_eq!(result.is_ok(), accepted, "{text}");
    }
}
