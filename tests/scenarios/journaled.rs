//! The journal comes first, says what was made, and answers for what was done.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use podherd::runtime::{Behaviour, Call};
use podherd::state::{Operation, OutcomeKind, Step, StepKind, StepState};
use podherd::store::{Store, Txn};
use tokio_util::sync::CancellationToken;

use crate::failing::refuses;
use crate::support::{Cut, Manifest, World, blog, name};

const VERBS: [&str; 6] = [
    "verb: stop",
    "verb: start",
    "verb: restart",
    "verb: remove",
    "verb: deploy",
    "{verb: rollback, revision: 1}",
];

fn stateful(image: &str) -> Manifest {
    blog(image).volume("web", "data")
}

async fn serving() -> World {
    let slow = Behaviour::SlowReady(Duration::from_secs(20));
    let world = World::new()
        .await
        .images(&["web:1", "web:2"])
        .image("web:slow", slow)
        .image("web:sick", Behaviour::NeverReady);
    world.deploy(&stateful("web:1")).await;
    world.deploy(&stateful("web:2")).await;
    world.effects();
    world
}

fn operation(world: &World, id: &str) -> Option<Operation> {
    let mut operations = world.operations("blog").into_iter();
    operations.find(|operation| operation.id.as_str() == id)
}

/// Up to the write that claims the operation, and with it, everything is as it was but
/// for what is durable; so whoever can't write does nothing.
#[tokio::test(start_paused = true)]
async fn a_verb_is_claimed_with_its_first_step_before_it_has_an_effect() {
    for asked in VERBS {
        for number in 0.. {
            let world = serving().await;
            world.request("blog", "r-1", asked).await;
            let before = (world.runtime.containers(), world.routes("blog"));
            assert!(world.pass_cut("blog", number, Cut::After).await);
            let after = (world.runtime.containers(), world.routes("blog"));
            assert_eq!(after, before, "{asked}, {number}");
            let effects = world.effects();
            let durable = |it: &String| it.starts_with("intend") || it.starts_with("inhibit");
            assert!(effects.iter().all(durable), "{asked}: {effects:?}");
            if let Some(claimed) = operation(&world, "r-1") {
                assert!(claimed.in_flight(), "{asked}");
                assert_eq!(claimed.steps[0].state, StepState::Running, "{asked}");
                break;
            }
        }
    }
}

/// A candidate that can't be removed may still write.
#[tokio::test(start_paused = true)]
async fn every_verb_waits_for_an_interrupted_operation_that_can_not_be_reconciled() {
    for asked in VERBS {
        let mut world = serving().await;
        world.put(&stateful("web:slow")).await;
        let cancel = CancellationToken::new();
        let cancels = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            cancel.cancel();
        };
        let (ended, ()) = tokio::join!(world.pass_until("blog", &cancel), cancels);
        ended.unwrap_err();
        let interrupted = world.last("blog").id;
        world.restart().await;
        world.effects();
        world.runtime.fail_when(Call::Remove, |_| Some(refuses()));
        world.request("blog", "r-1", asked).await;
        world.pass("blog").await.unwrap_err();
        assert_eq!(world.effects(), Vec::<String>::new(), "{asked}");
        assert_eq!(operation(&world, "r-1"), None, "{asked}");
        assert!(operation(&world, interrupted.as_str()).unwrap().in_flight());

        world.runtime.clear_faults();
        world.settle("blog").await;
        assert!(!operation(&world, "r-1").unwrap().in_flight(), "{asked}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_is_asked_for_again_is_answered_with_itself() {
    let world = serving().await;
    world.runtime.fail_next(Call::Start, refuses());
    world.request("blog", "r-1", "verb: restart").await;
    world.settle("blog").await;
    let failed = operation(&world, "r-1").unwrap();
    let outcome = failed.outcome.as_ref().unwrap();
    assert_eq!(outcome.result, OutcomeKind::Failed);
    world.effects();
    world.request("blog", "r-1", "verb: restart").await;
    world.settle("blog").await;
    assert_eq!(world.effects(), Vec::<String>::new());
    assert_eq!(operation(&world, "r-1"), Some(failed));
    assert_eq!(world.keys_with("/requests/"), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_removal_that_is_asked_for_again_spares_who_uses_the_name_now() {
    let world = serving().await;
    world.request("blog", "r-1", "verb: remove").await;
    world.settle("blog").await;
    world.assert_gone("blog");
    world.deploy(&blog("web:1")).await;
    world.effects();
    world.request("blog", "r-1", "verb: remove").await;
    world.settle("blog").await;
    assert_eq!(world.effects(), Vec::<String>::new());
    world.assert_serves("blog", &["web"]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_deployment_still_names_its_candidate() {
    let world = serving().await;
    world.put(&stateful("web:sick")).await;
    let mut candidate = None;
    let look = async || candidate = Some(world.container("web").id);
    world.pass_while("blog", Duration::from_secs(1), look).await;
    assert_eq!(world.containers("web"), []);
    let failed = world.last_deploy("blog");
    let step = |kind| failed.steps.iter().find(|it| it.kind == kind).unwrap();
    assert_eq!(step(StepKind::Probe).state, StepState::Failed);
    assert!(candidate.is_some());
    assert_eq!(step(StepKind::Create).after, candidate);
    let retired = &step(StepKind::Retire).before;
    assert_eq!(
        retired.as_ref(),
        Some(&world.serving("blog", "web").container)
    );
}

#[tokio::test(start_paused = true)]
async fn what_fails_for_no_single_service_is_a_failed_step_of_a_failed_operation() {
    let world = serving().await;
    world.traffic.set_stuck(true);
    world.request("blog", "r-1", "verb: remove").await;
    let _ = world.pass("blog").await;
    let removal = operation(&world, "r-1").unwrap();
    let failed = |step: &&Step| step.state == StepState::Failed;
    let failed: Vec<_> = removal.steps.iter().filter(failed).collect();
    assert_eq!(failed.len(), 1);
    assert_eq!(
        (failed[0].kind, &failed[0].service),
        (StepKind::Withdraw, &None)
    );
    assert!(failed[0].error.is_some());
    assert_eq!(removal.outcome.unwrap().result, OutcomeKind::Failed);
}

/// Nobody can tell which containers may be started.
#[tokio::test(start_paused = true)]
async fn an_inhibition_that_can_not_be_read_forbids_every_verb() {
    for asked in VERBS {
        let world = serving().await;
        let container = world.container("web").id;
        let service = "web".parse().unwrap();
        let key = world.keys.inhibition(&name("blog"), &service, &container);
        let damage = Txn::default().put(key.clone(), b"{".to_vec());
        world.store.commit(damage).await.unwrap();
        world.request("blog", "r-1", asked).await;
        let error = world.pass("blog").await.unwrap_err();
        assert!(error.to_string().contains(&key), "{error}");
        assert_eq!(world.effects(), Vec::<String>::new(), "{asked}");
        let left = world.keys_with("/requests/").len();
        assert_eq!(left, 1, "{asked} waits");
    }
}

#[derive(Clone, Default)]
struct Printed(Arc<Mutex<Vec<u8>>>);

impl Write for Printed {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_logged_meanwhile_names_the_app_the_operation_and_its_verb() {
    let printed = Printed::default();
    let sink = printed.clone();
    let logs = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || sink.clone())
        .finish();
    let world = serving().await;
    let guard = tracing::subscriber::set_default(logs);
    let text = || String::from_utf8(printed.0.lock().unwrap().clone()).unwrap();
    // Another test may just be the first to come by there, in which case tracing doesn't
    // know yet that this one listens.
    for number in 0..100 {
        tracing::callsite::rebuild_interest_cache();
        let id = format!("r-{number}");
        world.request("blog", &id, "verb: restart").await;
        world.settle("blog").await;
        let text = text();
        if let Some(began) = text.lines().find(|line| line.contains("began")) {
            for part in ["app=blog", &format!("operation={id}"), "verb=\"restart\""] {
                assert!(began.contains(part), "{part} in {began}");
            }
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(guard);
    assert!(text().contains("began"), "nothing was logged");
}
