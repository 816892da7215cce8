//! A manifest becomes a service that serves, and a changed one replaces it.

use podherd::state::{ConditionType, OutcomeKind, StepState, Truth, labels};

use crate::support::{World, app, blog};

#[tokio::test(start_paused = true)]
async fn a_first_deployment_creates_probes_and_publishes_and_withdraws_nothing() {
    let world = World::new().await.images(&["web:1"]);
    world.deploy(&blog("web:1")).await;
    assert_eq!(
        world.effects(),
        [
            "create-network blog",
            "create web",
            "start web",
            "probe web",
            "publish-active",
            "traffic web",
        ]
    );
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_first_deployment_takes_at_most_eleven_writes() {
    let world = World::new().await.images(&["web:1"]);
    world.deploy(&blog("web:1")).await;
    // The graph's own write comes on top of these; one of them tells of the pull.
    assert!(world.writes() <= 10, "{} writes", world.writes());
}

#[tokio::test(start_paused = true)]
async fn a_replacement_is_sequential_and_the_old_generation_is_gone_before_the_new_is_created() {
    let world = World::new().await.images(&["web:1", "web:2"]);
    world.deploy(&blog("web:1")).await;
    world.effects();
    world.deploy(&blog("web:2")).await;
    assert_eq!(
        world.effects(),
        [
            "withdraw web",
            "signal web SIGTERM",
            "remove web",
            "create web",
            "start web",
            "probe web",
            "publish-active",
            "traffic web",
        ]
    );
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn an_unchanged_manifest_does_nothing_at_all() {
    let world = World::new().await.images(&["web:1"]);
    world.deploy(&blog("web:1")).await;
    let (writes, container) = (world.writes(), world.container("web").id);
    world.effects();
    world.settle("blog").await;
    assert_eq!(world.effects(), Vec::<String>::new());
    assert_eq!(world.writes(), writes);
    assert_eq!(world.container("web").id, container);
}

#[tokio::test(start_paused = true)]
async fn a_touched_manifest_of_the_same_content_touches_no_container() {
    let world = World::new().await.images(&["web:1"]);
    world.deploy(&blog("web:1")).await;
    let container = world.container("web").id;
    world.effects();
    let revision = world.put(&blog("web:1")).await;
    world.settle("blog").await;
    assert_eq!(world.effects(), Vec::<String>::new());
    assert_eq!(world.container("web").id, container);
    assert_eq!(world.status("blog").unwrap().observed_revision, revision);
    assert_eq!(world.revisions("blog").len(), 1);
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn only_the_service_that_changed_is_replaced() {
    let world = World::new().await.images(&["web:1", "web:2", "db:1"]);
    world.deploy(&blog("web:1").service("db", "db:1")).await;
    let db = world.container("db").id;
    world.deploy(&blog("web:2").service("db", "db:1")).await;
    assert_eq!(world.container("db").id, db);
    assert_eq!(world.active_revision("blog", "db"), 1);
    assert_eq!(world.active_revision("blog", "web"), 2);
    world.assert_serves("blog", &["db", "web"]);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_the_manifest_no_longer_names_is_removed_first() {
    let world = World::new().await.images(&["web:1", "web:2", "zoo:1"]);
    let zoo = "http: [{host: zoo.test, path: /, port: http}]";
    world
        .deploy(&blog("web:1").service("zoo", "zoo:1").with("zoo", zoo))
        .await;
    world.effects();
    world.deploy(&blog("web:2")).await;
    assert_eq!(
        world.effects()[..6],
        [
            "withdraw zoo",
            "inhibit zoo",
            "signal zoo SIGTERM",
            "remove zoo",
            "clear-inhibition zoo",
            "withdraw web",
        ]
    );
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn services_come_in_the_order_of_their_dependencies() {
    let world = World::new().await.images(&["a:1", "b:1", "z:1"]);
    let manifest = app("blog")
        .service("a", "a:1")
        .service("b", "b:1")
        .service("z", "z:1");
    world.deploy(&manifest.with("a", "dependsOn: [z]")).await;
    let created = world
        .effects()
        .into_iter()
        .filter(|effect| effect.starts_with("create "));
    assert_eq!(
        created.collect::<Vec<_>>(),
        ["create b", "create z", "create a"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_container_carries_what_finds_it_again_and_what_the_manifest_says() {
    let world = World::new().await.images(&["web:1"]);
    let manifest = blog("web:1")
        .label("team: web")
        .spec("env: {TZ: UTC, LANG: C}")
        .with("web", "env: {LANG: de}");
    world.deploy(&manifest).await;
    let container = world.container("web");
    let spec = world.runtime.spec(container.id.as_str()).unwrap();
    assert_eq!(spec.env["TZ"], "UTC");
    assert_eq!(spec.env["LANG"], "de", "a service's own value wins");
    let incarnation = world.ownership("blog").unwrap().incarnation.to_string();
    let operation = world.last("blog").id.to_string();
    for (label, value) in [
        (labels::APP, "blog"),
        (labels::SERVICE, "web"),
        (labels::REVISION, "1"),
        (labels::INCARNATION, incarnation.as_str()),
        (labels::OPERATION, operation.as_str()),
        ("team", "web"),
    ] {
        assert_eq!(spec.labels[label], value, "{label}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_successful_deployment_is_told_in_journal_status_and_events() {
    let world = World::new().await.images(&["web:1"]);
    let revision = world.put(&blog("web:1")).await;
    world.settle("blog").await;
    let operation = world.last("blog");
    assert_eq!(operation.outcome.unwrap().result, OutcomeKind::Success);
    assert!(
        operation
            .steps
            .iter()
            .all(|step| step.state == StepState::Succeeded)
    );
    assert!(operation.steps.iter().all(|step| step.started_at.is_some()));
    let status = world.status("blog").unwrap();
    assert_eq!(status.observed_revision, revision);
    assert_eq!(status.operation, Some(operation.id));
    assert!(status.services.values().all(|service| service.ready));
    for (condition, truth) in [
        (ConditionType::Accepted, Truth::True),
        (ConditionType::Progressing, Truth::False),
        (ConditionType::Ready, Truth::True),
        (ConditionType::Degraded, Truth::False),
        (ConditionType::Inhibited, Truth::False),
        (ConditionType::Outdated, Truth::False),
    ] {
        assert_eq!(
            world.condition("blog", condition).status,
            truth,
            "{condition:?}"
        );
    }
    let events = world.events("blog");
    assert_eq!(events.len(), 2);
    assert_eq!(
        (events[0].reason.as_str(), events[0].message.as_str()),
        ("Pulled", "pulled registry.test/web:1 in 0.0 s")
    );
    assert_eq!(
        events[1].message,
        "deploy ended as success: every step succeeded"
    );
}

#[tokio::test(start_paused = true)]
async fn requests_in_flight_are_waited_for_and_then_cut_off_with_a_warning() {
    let world = World::new().await.images(&["web:1", "web:2"]);
    world.deploy(&blog("web:1")).await;
    world.traffic.set_in_flight(&world.container("web").id, 3);
    world.effects();
    world
        .deploy(&blog("web:2").with("web", "update: {drain: 7s}"))
        .await;
    let effects = world.effects();
    assert_eq!(
        effects[..3],
        ["withdraw web", "drain", "signal web SIGTERM"]
    );
    let warnings = world.last("blog").warnings;
    assert_eq!(warnings[0].leftover, "3 requests in flight");
    // The drain of the generation that is drained, not of the one that comes.
    assert_eq!(
        warnings[0].detail,
        "not drained within 10 s; they are cut off"
    );
}
