//! The commands that need this host's Podman: logs, commands in containers, their use.

use crate::support::{Image, World, ask, cli, manifest, until};

/// An app of two services, of which each says who it is every so often.
fn talkative() -> String {
    let second = manifest("blog", Image::Web1);
    let (_, web) = second.split_once("    web:\n").expect("a service");
    let mut text = format!("{}    side:\n{web}", manifest("blog", Image::Web1));
    for (from, name) in [(0, "web"), (1, "side")] {
        let marker = "      stopGrace: 2s\n";
        let at = text.match_indices(marker).nth(from).expect("its end").0;
        let command = format!(
            "      command: [/bin/sh, -c, 'echo {name} begins; echo {name} errs >&2; exec /bin/demo web 1']\n"
        );
        text.insert_str(at, &command);
    }
    let at = text.rfind("host: blog.test").expect("a route");
    text.replace_range(at..at + "host: blog.test".len(), "host: side.test");
    text
}

#[test]
fn logs_are_read_whole_or_by_service() {
    let world = World::start();
    let _podherd = world.podherd();
    world.deploy("blog", &talkative());

    let (code, out, err) = cli(&world, &["logs", "blog/web"], "");
    assert_eq!(code, 0, "{err}");
    assert!(out.starts_with("web begins\n"), "{out}");
    assert!(err.contains("web errs\n"), "{err}");
    let (code, out, err) = cli(&world, &["logs", "blog"], "");
    assert_eq!(code, 0, "{err}");
    assert!(
        out.contains("web: web begins\n") && out.contains("side: side begins\n"),
        "{out}"
    );
    let (code, _, err) = cli(&world, &["logs", "blog/none"], "");
    assert_eq!(code, 1);
    assert!(err.contains("there are side, web"), "{err}");
}

#[test]
fn a_followed_log_ends_with_its_container() {
    let world = World::start();
    let _podherd = world.podherd();
    world.deploy("blog", &manifest("blog", Image::Web1));
    let etcd = world.etcd.url();
    let podman = world.podman.url();
    let mut command = world.sandbox.command(env!("CARGO_BIN_EXE_podherd"));
    command.args(["logs", "blog", "-f", "--etcd", &etcd, "--podman", &podman]);
    let mut child = command.spawn().expect("podherd starts");
    ask(&world, &["stop", "blog"]);
    until(
        "the log has ended",
        || matches!(child.try_wait(), Ok(Some(status)) if status.success()),
    );
}

#[test]
fn a_command_runs_in_a_container_with_its_input_and_exit_code() {
    let world = World::start();
    let _podherd = world.podherd();
    world.deploy("blog", &manifest("blog", Image::Web1));

    let said = ask(&world, &["exec", "blog", "--", "cat", "/www/1/index.html"]);
    assert_eq!(said, "demo-web version 1\n");
    let fails = ["exec", "blog/web", "--", "sh", "-c", "echo why >&2; exit 7"];
    let (code, out, err) = cli(&world, &fails, "");
    assert_eq!((code, out.as_str(), err.as_str()), (7, "", "why\n"));
    let (code, out, _) = cli(&world, &["exec", "-i", "blog", "--", "cat"], "through\n");
    assert_eq!((code, out.as_str()), (0, "through\n"));
    let (code, _, err) = cli(&world, &["exec", "-t", "blog", "--", "cat"], "");
    assert_eq!(code, 1);
    assert!(err.contains("leave out -t"), "{err}");
}

#[test]
fn top_names_every_container() {
    let world = World::start();
    let _podherd = world.podherd();
    world.deploy("blog", &manifest("blog", Image::Web1));
    let said = ask(&world, &["top"]);
    let container = &world.active("blog")["web"];
    assert!(said.contains(&container[..12]), "{said}");
}
