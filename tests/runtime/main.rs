//! The in-memory runtime does what a runtime must do, and what only a double can.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod contract;

use std::sync::Arc;
use std::time::Duration;

use contract::Host;
use podherd::clock::SystemClock;
use podherd::manifest::PullPolicy;
use podherd::runtime::{
    Behaviour, Call, ContainerSpec, ContainerState, EffectLog, Labels, MemoryImage, MemoryRuntime,
    Network, Runtime, RuntimeError, VolumeAttachment,
};
use tokio::time::Instant;

fn runtime() -> MemoryRuntime {
    MemoryRuntime::new(Arc::new(SystemClock), EffectLog::new())
}

/// A local image `localhost/web` and a spec of a container made from it.
async fn spec(runtime: &MemoryRuntime, name: &str) -> ContainerSpec {
    runtime.load_image("localhost/web", MemoryImage::new("web"));
    let image = runtime
        .ensure_image("localhost/web", PullPolicy::Never)
        .await
        .unwrap();
    ContainerSpec {
        name: name.to_owned(),
        image_id: image.id,
        ..ContainerSpec::default()
    }
}

#[tokio::test(start_paused = true)]
async fn it_does_what_a_runtime_must_do() {
    let runtime = runtime();
    let web = MemoryImage::new("web").prints("serving 1");
    let images = [
        ("localhost/web", web.clone()),
        (
            "localhost/stubborn",
            MemoryImage::new("stubborn").behaves(Behaviour::IgnoresTerm),
        ),
        (
            "localhost/exits",
            MemoryImage::new("exits").behaves(Behaviour::ExitsAtOnce(3)),
        ),
        (
            "localhost/volume",
            MemoryImage::new("volume").volume("/data"),
        ),
        ("localhost/health", MemoryImage::new("health").healthcheck()),
    ];
    for (reference, image) in images {
        runtime.load_image(reference, image);
    }
    contract::check_all(&Host {
        runtime: Arc::new(runtime),
        web: "localhost/web",
        stubborn: "localhost/stubborn",
        exits: "localhost/exits",
        with_volume: "localhost/volume",
        with_healthcheck: "localhost/health",
    })
    .await;
}

#[tokio::test]
async fn effects_are_recorded_in_their_order_by_the_label_that_was_chosen() {
    let effects = EffectLog::new();
    let runtime = MemoryRuntime::new(Arc::new(SystemClock), effects.clone()).named_by("service");
    let mut spec = spec(&runtime, "podherd-blog-web-1").await;
    spec.labels = Labels::from([("service".to_owned(), "web".to_owned())]);
    runtime
        .create_network("blog", &Network::default())
        .await
        .unwrap();
    let id = runtime.create(&spec).await.unwrap();
    runtime.start(&id).await.unwrap();
    runtime.start(&id).await.unwrap();
    effects.push("publish blog");
    runtime.signal(&id, "SIGTERM").await.unwrap();
    runtime.signal(&id, "SIGTERM").await.unwrap();
    runtime.remove(&id, false).await.unwrap();
    runtime.remove(&id, false).await.unwrap();
    assert_eq!(
        effects.take(),
        [
            "create-network blog",
            "create web",
            "start web",
            "publish blog",
            "signal web SIGTERM",
            "remove web",
        ]
    );
    assert!(effects.is_empty());
}

#[tokio::test]
async fn a_scripted_failure_has_no_effect_and_a_lost_reply_has() {
    let runtime = runtime();
    let spec = spec(&runtime, "web").await;
    let refused = RuntimeError::Refused {
        call: "create",
        message: "no locks left".to_owned(),
    };
    runtime.fail_next(Call::Create, refused);
    runtime.lose_reply_of_next(Call::Create);
    let error = runtime.create(&spec).await.unwrap_err();
    assert!(!error.is_ambiguous());
    assert!(runtime.containers().is_empty());
    let error = runtime.create(&spec).await.unwrap_err();
    assert!(error.is_ambiguous());
    assert_eq!(runtime.containers().len(), 1);
    assert_eq!(runtime.effects().all(), ["create web"]);
}

#[tokio::test]
async fn a_rule_fails_the_calls_about_one_container_until_it_is_cleared() {
    let runtime = runtime();
    let mut ids = Vec::new();
    for name in ["web", "db"] {
        ids.push(runtime.create(&spec(&runtime, name).await).await.unwrap());
    }
    runtime.fail_when(Call::Remove, |name| {
        (name == "web").then(|| RuntimeError::Refused {
            call: "remove",
            message: "device busy".to_owned(),
        })
    });
    for _ in 0..2 {
        assert!(runtime.remove(&ids[0], true).await.is_err());
    }
    runtime.remove(&ids[1], true).await.unwrap();
    runtime.clear_faults();
    runtime.remove(&ids[0], true).await.unwrap();
}

#[tokio::test]
async fn two_writers_of_one_volume_are_a_violation_and_a_reader_is_none() {
    let runtime = runtime();
    for (name, read_only) in [("old", false), ("reader", true), ("new", false)] {
        let mut spec = spec(&runtime, name).await;
        spec.volumes = vec![VolumeAttachment {
            name: "data".to_owned(),
            path: "/data".to_owned(),
            read_only,
        }];
        let id = runtime.create(&spec).await.unwrap();
        if name == "new" {
            assert!(runtime.violations().is_empty());
        }
        runtime.start(&id).await.unwrap();
    }
    assert_eq!(
        runtime.violations(),
        ["old and new both write the volume data"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_container_that_is_slow_to_leave_is_waited_for_just_as_long() {
    let runtime = runtime();
    let spec = spec(&runtime, "web").await;
    let id = runtime.create(&spec).await.unwrap();
    runtime.start(&id).await.unwrap();
    runtime.set_behaviour("web", Behaviour::SlowToLeave(Duration::from_secs(4)));
    runtime.signal(&id, "SIGTERM").await.unwrap();
    let start = Instant::now();
    assert!(
        !runtime
            .wait_stopped(&id, Duration::from_secs(3))
            .await
            .unwrap()
    );
    assert!(
        runtime
            .wait_stopped(&id, Duration::from_secs(3))
            .await
            .unwrap()
    );
    assert_eq!(start.elapsed(), Duration::from_secs(4));
}

#[tokio::test]
async fn what_others_do_is_seen_and_is_no_effect() {
    let runtime = runtime();
    let mut spec = spec(&runtime, "web").await;
    spec.ports = vec![podherd::runtime::PortMapping {
        container: 80,
        protocol: podherd::manifest::Protocol::Tcp,
        host_ip: [127, 0, 0, 1].into(),
        host: 20_000,
    }];
    let id = runtime.run_by_hand(&spec);
    let first = runtime.container("web").unwrap();
    runtime.restart_by_hand("web", Some(20_007));
    let second = runtime.container("web").unwrap();
    assert_eq!(second.id, id);
    assert_ne!(second.started_at, first.started_at);
    assert_eq!(second.ports[0].host, 20_007);
    runtime.crash("web", 9);
    let third = runtime.container("web").unwrap();
    assert_eq!(
        (third.state, third.exit_code),
        (ContainerState::Exited, Some(9))
    );
    runtime.remove_by_hand("web");
    assert!(runtime.containers().is_empty());
    assert!(runtime.effects().is_empty());
}

#[tokio::test]
async fn an_image_is_pulled_as_its_policy_says() {
    use PullPolicy::{Always, IfNotPresent, IfTagChanged, Never};
    let runtime = runtime();
    let name = "registry.example.com/web:1";
    let digest = async |policy| runtime.ensure_image(name, policy).await.map(|it| it.digest);
    runtime.push_image(name, MemoryImage::new("one"));
    assert!(matches!(
        digest(Never).await,
        Err(RuntimeError::ImageAbsent { .. })
    ));
    let one = digest(IfNotPresent).await.unwrap();
    runtime.push_image(name, MemoryImage::new("two"));
    assert_eq!(digest(IfNotPresent).await.unwrap(), one);
    let two = digest(IfTagChanged).await.unwrap();
    assert_ne!(two, one);
    runtime.set_registry_down(true);
    assert_eq!(digest(IfTagChanged).await.unwrap(), two);
    assert!(matches!(
        digest(Always).await,
        Err(RuntimeError::PullFailed { .. })
    ));
    runtime.set_registry_down(false);
    runtime.prune_image(name);
    assert_eq!(runtime.ensure_pinned(name, &one).await.unwrap().digest, one);
    runtime.prune_image(name);
    runtime.deny_image(name);
    assert!(matches!(
        digest(Always).await,
        Err(RuntimeError::ImageDenied { .. })
    ));
    let error = runtime
        .ensure_image("registry.example.com/nobody:1", Always)
        .await;
    assert!(matches!(error, Err(RuntimeError::ImageUnknown { .. })));
}

#[tokio::test]
async fn an_event_stream_ends_with_an_error_when_the_service_does() {
    use futures::StreamExt;
    let runtime = runtime();
    let mut events = runtime.events("service").await.unwrap();
    runtime.set_down(true);
    assert!(events.next().await.unwrap().unwrap_err().is_ambiguous());
    assert!(events.next().await.is_none());
    assert!(runtime.ping().await.unwrap_err().is_ambiguous());
    runtime.set_down(false);
    runtime.ping().await.unwrap();
}
