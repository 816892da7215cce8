//! The verbs: each is asked for, followed, and ends with the operation's outcome.

use std::process::Stdio;

use rustix::process::Signal;

use crate::support::{Image, World, ask, cli, manifest, until, with_volume};

/// The kinds of the steps that were shown, in order.
fn steps(said: &str) -> Vec<&str> {
    let lines = said.lines().filter(|line| line.contains("  done"));
    lines
        .filter_map(|line| line.split_whitespace().nth(1))
        .collect()
}

#[test]
fn each_verb_is_followed_to_its_outcome() {
    let world = World::start();
    let podherd = world.podherd();
    world.deploy("blog", &manifest("blog", Image::Web1));
    world.deploy("blog", &manifest("blog", Image::Web2));
    let body = || podherd.get(&world, "blog.test", "/").body;

    let said = ask(&world, &["restart", "blog", "--service", "web"]);
    let shown = steps(&said);
    let order = ["withdraw", "stop", "start", "probe", "publish", "traffic"];
    let positions: Vec<_> = order
        .iter()
        .map(|kind| shown.iter().position(|it| it == kind))
        .collect();
    assert!(
        positions.iter().all(Option::is_some) && positions.is_sorted(),
        "{said}"
    );
    assert!(
        said.lines()
            .last()
            .unwrap_or_default()
            .starts_with("restart blog: success"),
        "{said}"
    );

    let said = ask(&world, &["rollback", "blog", "--to", "1"]);
    assert!(said.contains("rollback blog: success"), "{said}");
    assert_eq!(body(), "demo-web version 1\n");
    let said = ask(&world, &["deploy", "blog"]);
    assert!(said.contains("deploy blog: success"), "{said}");
    assert_eq!(body(), "demo-web version 2\n");

    ask(&world, &["stop", "blog"]);
    assert!(world.containers().is_empty());
    let (code, out, err) = cli(&world, &["restart", "blog"], "");
    assert_eq!(code, 1, "{out}");
    assert!(
        out.contains("restart blog: failed") && err.contains("podherd start blog"),
        "{out}{err}"
    );
    ask(&world, &["start", "blog"]);
    assert_eq!(body(), "demo-web version 2\n");

    let said = ask(&world, &["remove", "blog"]);
    assert!(said.contains("remove blog:"), "{said}");
    assert!(world.containers().is_empty());
    assert_eq!(world.record("apps/blog"), None);
}

#[test]
fn the_same_id_is_done_once_and_followed_again() {
    let world = World::start();
    let _podherd = world.podherd();
    world.deploy("blog", &manifest("blog", Image::Web1));

    let restart = ["restart", "blog", "--id", "r-1"];
    ask(&world, &restart);
    let count = world.operations("blog").len();
    let said = ask(&world, &restart);
    assert!(said.contains("restart blog: success"), "{said}");
    assert_eq!(world.operations("blog").len(), count);
    let (code, _, err) = cli(&world, &["stop", "blog", "--id", "r-1"], "");
    assert_eq!(code, 1);
    assert!(err.contains("another request"), "{err}");
    let (code, _, _) = cli(&world, &["restart", "blog", "--id", "no/id"], "");
    assert_eq!(code, 2);
}

#[test]
fn what_cannot_be_done_says_why() {
    let world = World::start();
    let _podherd = world.podherd();
    let protected =
        manifest("blog", Image::Web1).replace("spec:\n", "spec:\n  deletionProtection: true\n");
    world.deploy("blog", &protected);

    let (code, _, err) = cli(&world, &["rollback", "blog", "--to", "9"], "");
    assert_eq!(code, 1);
    assert!(err.contains("podherd history blog"), "{err}");
    let (code, _, err) = cli(&world, &["remove", "blog"], "");
    assert_eq!(code, 1);
    assert!(err.contains("--force"), "{err}");
    world.assert_only_active(&["blog"]);
    ask(&world, &["remove", "blog", "--force"]);
    assert!(world.containers().is_empty());
    let (code, _, err) = cli(&world, &["stop", "blog"], "");
    assert_eq!(code, 1);
    assert!(err.contains("there is no app blog"), "{err}");
}

#[test]
fn an_interrupt_leaves_the_operation_going_and_says_how_to_look_again() {
    let world = World::start();
    let _podherd = world.podherd();
    world.deploy(
        "blog",
        &with_volume("blog", Image::IgnoresTerm).replace("2s", "4s"),
    );

    let mut command = world.sandbox.command(env!("CARGO_BIN_EXE_podherd"));
    command.args(["stop", "blog", "--id", "s-1", "--etcd", &world.etcd.url()]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("podherd starts");
    until("it is at work", || {
        world.record("state/operations/blog/s-1").is_some()
    });
    let pid = rustix::process::Pid::from_child(&child);
    interrupt(pid);
    let output = child.wait_with_output().expect("its output");

    assert_eq!(output.status.code(), Some(130));
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(err.contains("podherd stop blog --id s-1"), "{err}");
    let said = ask(&world, &["stop", "blog", "--id", "s-1"]);
    assert!(said.contains("stop blog: success"), "{said}");
    assert!(world.containers().is_empty());
}

/// Sends SIGINT to what runs inside the world.
fn interrupt(pid: rustix::process::Pid) {
    // The sandbox's `nsenter` may stand before the program.
    let children = format!("/proc/{0}/task/{0}/children", pid.as_raw_nonzero());
    let children = std::fs::read_to_string(children).unwrap_or_default();
    let child = children
        .split_whitespace()
        .next()
        .and_then(|it| it.parse().ok());
    let target = child
        .and_then(rustix::process::Pid::from_raw)
        .unwrap_or(pid);
    rustix::process::kill_process(target, Signal::INT).expect("it can be interrupted");
}

#[test]
fn without_waiting_only_the_id_is_said() {
    let world = World::start();
    let _podherd = world.podherd();
    world.deploy("blog", &manifest("blog", Image::Web1));
    let id = ask(&world, &["restart", "blog", "--no-wait"]);
    let key = format!("state/operations/blog/{}", id.trim());
    until("it is answered", || {
        world
            .record(&key)
            .is_some_and(|it| it["outcome"]["result"] == "success")
    });
}
