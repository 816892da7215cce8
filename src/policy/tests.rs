//! What a policy's text allows, and what it says of the host's paths.

use std::sync::Arc;

use super::{Denial, HostPolicy, MemoryPolicy, NodePolicy, PathError, Rules, Site, read};
use crate::manifest::{self, App};

/// The service `web` of the app `blog`, with one more line.
fn blog(line: &str) -> App {
    let text = format!(
        "apiVersion: podherd/v1\nkind: App\nmetadata: {{name: blog}}\nspec:\n  services:\n    \
         web:\n      image: registry.test/web:1\n      {line}\n"
    );
    manifest::parse("blog", text.as_bytes()).unwrap()
}

async fn asked(host: &MemoryPolicy, line: &str) -> Result<super::Grant, Denial> {
    let app = blog(line);
    let (name, spec) = app.spec.services.iter().next().unwrap();
    let site = Site::look(host, [spec], []).await;
    site.grant(&app.name, name, spec)
}

fn host(policy: &str) -> MemoryPolicy {
    let host = MemoryPolicy::default();
    host.set(policy);
    host
}

async fn allows(host: &MemoryPolicy, line: &str) -> super::Grant {
    asked(host, line).await.unwrap()
}

async fn denies(host: &MemoryPolicy, line: &str, says: &str) {
    let message = asked(host, line).await.unwrap_err().to_string();
    assert!(message.contains(says), "{message}");
}

// The text.

#[track_caller]
fn refused(text: &str, line: usize, column: usize, path: &str, says: &str) {
    let error = read(text.as_bytes()).unwrap_err();
    let [problem] = error.problems() else {
        panic!("{error}")
    };
    assert_eq!(
        (problem.line, problem.column, problem.path.as_str()),
        (line, column, path),
        "{error}"
    );
    assert!(problem.message.contains(says), "{error}");
}

#[test]
fn what_is_wrong_is_said_with_path_line_and_column() {
    refused("image: {}\n", 1, 1, "image", "unknown field");
    refused(
        "binds:\n  media:\n    path: /srv\n    apps: [a]\n    apps: [b]\n",
        5,
        5,
        "binds.media.apps",
        "already on line 4",
    );
    refused(
        "binds:\n  media: {path: srv/../x, apps: [a]}\n",
        2,
        17,
        "binds.media.path",
        "plain absolute path",
    );
    refused(
        "binds:\n  media: {path: /srv}\n",
        2,
        3,
        "binds.media",
        "missing field `apps`",
    );
    refused(
        "binds:\n  media: {path: /srv, apps: []}\n",
        2,
        23,
        "binds.media.apps",
        "nobody is named",
    );
    refused(
        "binds:\n  media: {path: /srv, apps: [a/b/c]}\n",
        2,
        30,
        "binds.media.apps[0]",
        "names nobody",
    );
    refused(
        "images: {allowed: [\"https://r.test\"]}\n",
        1,
        20,
        "images.allowed[0]",
        "no registry",
    );
    refused(
        "images: {requireDigest: yes please}\n",
        1,
        25,
        "images.requireDigest",
        "boolean",
    );
    refused(
        "devices:\n  gpu: {apps: [a]}\n",
        2,
        3,
        "devices.gpu",
        "either path or cdi",
    );
    refused(
        "devices:\n  gpu: {path: /srv/gpu, apps: [a]}\n",
        2,
        3,
        "devices.gpu",
        "under /dev",
    );
    refused(
        "privileges: {capAdd: {ROOT: {apps: [a]}}}\n",
        1,
        23,
        "privileges.capAdd.ROOT",
        "not a capability",
    );
}

#[test]
fn the_example_is_a_policy() {
    let text = include_bytes!("../../packaging/policy.yaml");
    let policy = read(text).unwrap();
    assert_ne!(policy, super::Policy::default());
}

#[test]
fn an_empty_file_is_no_file() {
    assert_eq!(read(b"# nothing\n").unwrap(), super::Policy::default());
}

// Images.

#[track_caller]
fn image(policy: &str, image: &str) -> bool {
    let rules = Rules::Known(read(policy.as_bytes()).unwrap());
    let named = rules.permit_image(image);
    if let Err(denial) = &named {
        assert_eq!(denial.reason(), "PolicyDenied");
    }
    named.is_ok()
}

#[test]
fn images_come_from_allowed_registries_and_paths() {
    let policy = "images: {allowed: [r.test:5000/team, localhost, docker.io/library]}";
    for (reference, allowed) in [
        ("r.test:5000/team/web:1", true),
        ("r.test:5000/team/deep/web", true),
        ("R.test:5000/team/web", true),
        ("r.test:5000/teamster/web:1", false),
        ("r.test:5000/web:1", false),
        ("r.test/team/web:1", false),
        ("r.test:5000.evil.test/team/web", false),
        ("localhost/web", true),
        ("localhost.evil.test/web", false),
        ("docker.io/library/nginx", true),
        ("docker.io/nginx", true),
        ("docker.io/somebody/nginx", false),
        // Whoever configured the host chooses the registry of a short name.
        ("nginx", false),
        ("team/web", false),
    ] {
        assert_eq!(image(policy, reference), allowed, "{reference}");
    }
    assert!(!image("images: {allowed: []}", "r.test/web"));
    for reference in ["nginx", "r.test/web"] {
        assert!(image("", reference), "without a list all are allowed");
    }
}

#[test]
fn a_digest_may_be_required_of_manifests_and_a_pin_has_one() {
    let policy = "images: {requireDigest: true}";
    let digest = format!("r.test/web:1@sha256:{}", "0".repeat(64));
    assert!(image(policy, &digest));
    assert!(!image(policy, "r.test/web:1"));
    let rules = Rules::Known(read(policy.as_bytes()).unwrap());
    rules.permit_pinned("r.test/web:1").unwrap();
}

// Host paths.

const MEDIA: &str = "binds:\n  media: {path: /srv/media, apps: [blog]}\n  \
                     shop: {path: /srv/shop, apps: [shop, blog/db]}\n  \
                     fixed: {path: /srv/media/fixed, readOnly: true, apps: [shop]}\n";

#[tokio::test]
async fn without_a_policy_nothing_of_the_host_is_given() {
    let host = MemoryPolicy::default();
    denies(&host, "binds: [{source: /srv, path: /srv}]", "in no root").await;
    denies(&host, "devices: [/dev/fuse]", "isn't allowed").await;
    denies(&host, "devices: [vendor.com/class=one]", "isn't allowed").await;
    denies(
        &host,
        "security: {capAdd: [NET_ADMIN]}",
        "capability NET_ADMIN",
    )
    .await;
    allows(
        &host,
        "security: {capDrop: [ALL], capAdd: [CAP_NET_BIND_SERVICE]}",
    )
    .await;
}

#[tokio::test]
async fn a_bind_is_in_a_root_that_is_for_its_service() {
    let host = host(MEDIA);
    allows(&host, "binds: [{source: /srv/media/a/b, path: /m}]").await;
    allows(
        &host,
        "binds: [{source: /srv/media, path: /m, readOnly: true}]",
    )
    .await;
    for (source, says) in [
        ("/srv", "in no root"),
        ("/srv/media", "the read-only root fixed is in it"),
        ("/srv/mediator", "in no root"),
        ("/etc", "in no root"),
        ("/srv/shop/a", "root shop isn't for this service"),
    ] {
        denies(
            &host,
            &format!("binds: [{{source: {source}, path: /m}}]"),
            says,
        )
        .await;
    }
}

#[tokio::test]
async fn a_read_only_root_wins_over_every_other() {
    let host = host(MEDIA);
    let source = "source: /srv/media/fixed/a, path: /m";
    let says = "root fixed is read-only by the node's policy: say readOnly: true";
    denies(&host, &format!("binds: [{{{source}}}]"), says).await;
    let grant = allows(&host, &format!("binds: [{{{source}, readOnly: true}}]")).await;
    assert!(grant.binds[0].read_only);
}

#[tokio::test]
async fn symlinks_are_followed_before_the_roots_are_asked() {
    let host = host(MEDIA);
    host.link("/srv/media/in", "/srv/media/real");
    host.link("/srv/media/out", "/etc");
    host.link("/srv/media/near", "/srv/mediator");
    host.link("/tmp/media", "/srv/media/real");
    let grant = allows(&host, "binds: [{source: /srv/media/in, path: /m}]").await;
    assert_eq!(grant.binds[0].source, "/srv/media/real");
    allows(&host, "binds: [{source: /tmp/media, path: /m}]").await;
    for source in ["out", "near"] {
        let line = format!("binds: [{{source: /srv/media/{source}, path: /m}}]");
        denies(&host, &line, "leads out of the root media by a symlink").await;
    }
    // A root that is a symlink itself holds what it leads to.
    host.link("/srv/media", "/data/media");
    host.link("/srv/media/a", "/data/media/a");
    allows(&host, "binds: [{source: /srv/media/a, path: /m}]").await;
}

#[tokio::test]
async fn a_path_that_does_not_exist_is_told_of_inside_of_roots_only() {
    let host = host(MEDIA);
    host.lose("/srv/media/gone");
    host.lose("/root/.ssh/id");
    denies(
        &host,
        "binds: [{source: /srv/media/gone, path: /m}]",
        "doesn't exist",
    )
    .await;
    denies(
        &host,
        "binds: [{source: /root/.ssh/id, path: /m}]",
        "in no root",
    )
    .await;
}

#[tokio::test]
async fn a_mounted_path_into_which_a_symlink_has_come_is_not_started_again() {
    let host = host(MEDIA);
    let app = blog("binds: [{source: /srv/media/a, path: /m}]");
    let (name, spec) = app.spec.services.iter().next().unwrap();
    let mounted = spec.binds.clone();
    let judge = async || {
        let site = Site::look(&host, [spec], &mounted).await;
        site.judge(&app.name, name, spec, &mounted)
    };
    assert_eq!(judge().await, super::Verdict::default());

    host.link("/srv/media/a", "/srv/media/b");
    let verdict = judge().await;
    assert_eq!(verdict.rebuild, None);
    let start = verdict.start.unwrap().to_string();
    assert!(start.contains("deploy again"), "{start}");
}

// Devices and privileges.

#[tokio::test]
async fn a_device_is_named_or_in_a_named_folder_with_no_more_access() {
    let host = host(
        "devices:\n  gpu: {path: /dev/dri, access: rw, apps: [\"*\"]}\n  \
         card: {cdi: vendor.com/card=one, apps: [blog/web]}\n  \
         other: {path: /dev/fuse, apps: [shop]}\n",
    );
    host.link("/dev/gpu", "/dev/dri/renderD128");
    host.link("/dev/dri/out", "/dev/mem");
    let grant = allows(&host, "devices: [/dev/gpu:rw, vendor.com/card=one]").await;
    let given: Vec<String> = grant.devices.iter().map(ToString::to_string).collect();
    assert_eq!(
        given,
        ["/dev/dri/renderD128:/dev/gpu:rw", "vendor.com/card=one"]
    );
    denies(&host, "devices: [/dev/gpu]", "allows less access").await;
    for device in [
        "/dev/dri/out:r",
        "/dev/drift:r",
        "/dev/fuse",
        "vendor.com/card=two",
    ] {
        denies(&host, &format!("devices: [{device}]"), "isn't allowed").await;
    }
}

#[tokio::test]
async fn a_capability_is_given_to_whom_it_is_for() {
    let host =
        host("privileges: {capAdd: {CAP_NET_ADMIN: {apps: [blog/web]}, SYS_TIME: {apps: [shop]}}}");
    allows(&host, "security: {capAdd: [NET_ADMIN]}").await;
    allows(&host, "security: {capAdd: [CAP_NET_ADMIN]}").await;
    denies(
        &host,
        "security: {capAdd: [SYS_TIME]}",
        "SYS_TIME isn't allowed",
    )
    .await;
}

// The file.

async fn blog_is_given_media(host: &NodePolicy, dir: &std::path::Path) -> bool {
    let source = dir.join("media");
    let app = blog(&format!(
        "binds: [{{source: {}, path: /m}}]",
        source.display()
    ));
    let (name, spec) = app.spec.services.iter().next().unwrap();
    let site = Site::look(host, [spec], []).await;
    site.grant(&app.name, name, spec).is_ok()
}

#[tokio::test]
async fn a_changed_file_is_read_again_and_a_broken_one_allows_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let real = dir.path().canonicalize().unwrap();
    std::fs::create_dir(real.join("media")).unwrap();
    let file = real.join("policy.yaml");
    let good = format!(
        "binds: {{media: {{path: {}, apps: [blog]}}}}",
        real.display()
    );
    std::fs::write(&file, &good).unwrap();
    let host = NodePolicy::new(Some(file.clone()));
    assert!(blog_is_given_media(&host, &real).await);
    // Nothing changed: the same rules are handed out.
    assert!(Arc::ptr_eq(&host.rules().await, &host.rules().await));

    std::fs::write(&file, good.replace("[blog]", "[shop]")).unwrap();
    assert!(!blog_is_given_media(&host, &real).await);

    for broken in ["binds: {media: {", "images: {allow: []}"] {
        std::fs::write(&file, broken).unwrap();
        assert!(!blog_is_given_media(&host, &real).await, "{broken}");
        let denial = host.rules().await.permit_image("r.test/web").unwrap_err();
        assert_eq!(denial.reason(), "PolicyUnreadable");
        assert!(denial.to_string().contains("line "), "{denial}");
    }
    std::fs::remove_file(&file).unwrap();
    assert!(!blog_is_given_media(&host, &real).await);

    std::fs::write(&file, &good).unwrap();
    assert!(blog_is_given_media(&host, &real).await);
}

#[tokio::test]
async fn paths_of_the_host_are_followed() {
    let dir = tempfile::tempdir().unwrap();
    let real = dir.path().canonicalize().unwrap();
    let real = real.to_str().unwrap();
    std::os::unix::fs::symlink("/etc", format!("{real}/out")).unwrap();
    let host = NodePolicy::new(None);
    assert_eq!(host.resolve(&format!("{real}/out")).await.unwrap(), "/etc");
    let gone = host.resolve(&format!("{real}/gone")).await;
    assert_eq!(gone, Err(PathError::Missing));
}
