//! Manifests from files into etcd, and waiting for what comes of them.

use std::fs;

use crate::support::{Image, World, ask, cli, manifest, until};

/// A folder of the world with these files in it.
fn folder(world: &World, files: &[(&str, String)]) -> String {
    let folder = world.sandbox.dir().join("manifests");
    fs::create_dir_all(&folder).expect("a folder");
    for (name, text) in files {
        fs::write(folder.join(name), text).expect("a file");
    }
    folder.display().to_string()
}

fn labelled(app: &str, label: &str) -> String {
    manifest(app, Image::Web1).replace("metadata:\n", &format!("metadata:\n  labels: {label}\n"))
}

#[test]
fn a_folder_is_applied_waited_for_compared_and_pruned() {
    let world = World::start();
    let _podherd = world.podherd();
    let web = "{team: web}";
    let two = format!("{}---\n{}", labelled("blog", web), labelled("shop", web));
    let path = folder(&world, &[("all.yaml", two), ("notes.txt", "no".to_owned())]);

    let said = ask(&world, &["apply", "-f", &path, "--dry-run"]);
    assert_eq!(said, "blog created (dry run)\nshop created (dry run)\n");
    assert!(world.records("apps/").is_empty());
    let said = ask(&world, &["apply", "-f", &path, "--wait"]);
    assert!(said.starts_with("blog created\nshop created\n"), "{said}");
    for app in ["blog", "shop"] {
        assert!(
            said.contains(&format!("{app}: Ready=True (Serving)")),
            "{said}"
        );
    }
    world.assert_only_active(&["blog", "shop"]);

    let revision = world.etcd.revision(&world.sandbox);
    let said = ask(&world, &["apply", "-f", &path, "--wait"]);
    assert!(
        said.starts_with("blog unchanged\nshop unchanged\n"),
        "{said}"
    );
    assert_eq!(world.etcd.revision(&world.sandbox), revision, "not written");
    assert_eq!(cli(&world, &["diff", "-f", &path], "").0, 0);

    let other = labelled("other", "{team: db}");
    let (code, _, err) = cli(&world, &["apply", "-f", "-", "--wait"], &other);
    assert_eq!(code, 0, "{err}");
    let path = folder(
        &world,
        &[("all.yaml", labelled("blog", web).replace("10s", "11s"))],
    );
    let (code, said, _) = cli(&world, &["diff", "-f", &path], "");
    assert_eq!(code, 1);
    assert!(
        said.contains("\n-") && said.contains("timeout: 11s"),
        "{said}"
    );
    let prune = ["apply", "-f", &path, "--wait", "--prune", "-l", "team=web"];
    let said = ask(&world, &prune);
    assert!(said.starts_with("blog changed\nshop deleted\n"), "{said}");
    assert!(said.contains("shop: gone"), "{said}");
    world.assert_only_active(&["blog", "other"]);

    let said = ask(&world, &["delete", "blog", "other", "--wait"]);
    assert!(said.contains("blog: gone"), "{said}");
    assert!(world.containers().is_empty());
}

#[test]
fn one_wrong_manifest_and_nothing_is_applied() {
    let world = World::start();
    let wrong = manifest("shop", Image::Web1).replace("stopGrace", "stopGrase");
    let files = [("a.yaml", manifest("blog", Image::Web1)), ("b.yaml", wrong)];
    let path = folder(&world, &files);
    for command in ["apply", "diff"] {
        let (code, out, err) = cli(&world, &[command, "-f", &path], "");
        assert_ne!(code, 0);
        assert_eq!(out, "");
        assert!(
            err.contains("b.yaml:13:") && err.contains("nothing was done"),
            "{err}"
        );
    }
    assert!(world.records("apps/").is_empty());
    let (code, _, err) = cli(&world, &["apply", "-f", "/does/not/exist"], "");
    assert_eq!(code, 2, "{err}");
}

#[test]
fn a_wait_ends_at_once_when_it_is_in_vain_and_at_its_limit_otherwise() {
    let world = World::start();
    let mut podherd = world.podherd();
    world.deploy("shop", &manifest("shop", Image::Web1));
    let conflict = manifest("blog", Image::Web1).replace("blog.test", "shop.test");
    let apply = ["apply", "-f", "-", "--wait"];
    let (code, out, err) = cli(&world, &apply, &conflict);
    assert_eq!(code, 1, "{out}{err}");
    assert!(
        out.contains("RouteConflict") && out.contains("podherd describe blog"),
        "{out}"
    );

    let sick = manifest("blog", Image::NeverReady);
    let limited = ["apply", "-f", "-", "--wait", "--timeout", "1s"];
    let (code, _, err) = cli(&world, &limited, &sick);
    assert_eq!(code, 3, "{err}");
    ask(&world, &["delete", "blog"]);
    ask(&world, &["wait", "blog", "--for=Deleted"]);

    assert_eq!(podherd.term(), Some(0));
    until("nobody leads", || world.records("leader/").is_empty());
    let (code, _, err) = cli(&world, &limited, &sick);
    assert_eq!(code, 3);
    assert!(err.contains("no controller leads"), "{err}");
}

#[test]
fn a_protected_app_is_not_deleted_by_mistake() {
    let world = World::start();
    let _podherd = world.podherd();
    let protected =
        manifest("blog", Image::Web1).replace("spec:\n", "spec:\n  deletionProtection: true\n");
    world.deploy("blog", &protected);
    let (code, _, err) = cli(&world, &["delete", "blog", "--wait"], "");
    assert_eq!(code, 1);
    assert!(err.contains("--force"), "{err}");
    world.assert_only_active(&["blog"]);
}
