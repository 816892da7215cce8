#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::VecDeque;
use std::net::SocketAddr;

use async_trait::async_trait;
use tokio::time::advance;

use super::*;
use crate::clock::SystemClock;
use crate::manifest::{Check, Protocol, StatusRange, Timespan};
use crate::probe::NoAnswer;
use crate::runtime::{EffectLog, MemoryRuntime};

type Reply = Result<u16, NoAnswer>;

/// Gives the answers that it was told to, in this order, and the last one for ever.
#[derive(Debug, Default)]
struct Script {
    replies: Mutex<VecDeque<Reply>>,
    /// When it was asked.
    asked: Mutex<Vec<Instant>>,
    /// How long each answer takes.
    takes: Duration,
}

#[async_trait]
impl Prober for Script {
    async fn http(&self, _: SocketAddr, _: &str) -> Reply {
        self.asked.lock().unwrap().push(Instant::now());
        sleep(self.takes).await;
        let mut replies = self.replies.lock().unwrap();
        match replies.len() {
            0 => Ok(200),
            1 => replies[0].clone(),
            _ => replies.pop_front().unwrap(),
        }
    }

    async fn tcp(&self, _: SocketAddr) -> Result<(), NoAnswer> {
        Ok(())
    }
}

const SICK: Reply = Ok(503);

fn ours() -> Reply {
    Err(NoAnswer::Ours("too many open files".to_owned()))
}

struct World {
    script: Arc<Script>,
    vitals: Vitals,
}

fn world_of(script: Script) -> World {
    let script = Arc::new(script);
    let runtime = MemoryRuntime::new(Arc::new(SystemClock), EffectLog::new());
    let vitals = Vitals::new(
        script.clone(),
        Arc::new(runtime),
        Arc::new(Entropy::from_seed(7)),
    );
    World { script, vitals }
}

fn world(replies: impl IntoIterator<Item = Reply>) -> World {
    world_of(Script {
        replies: Mutex::new(replies.into_iter().collect()),
        ..Script::default()
    })
}

impl World {
    fn follow(&self, watched: Option<Watched>) {
        let web = "web".parse().unwrap();
        self.vitals
            .follow(&blog(), BTreeMap::from([(web, watched)]));
    }

    /// Lets a time pass, in steps that give every task its turn.
    async fn pass(&self, seconds: u64) {
        for _ in 0..seconds * 10 {
            advance(Duration::from_millis(100)).await;
            for _ in 0..4 {
                tokio::task::yield_now().await;
            }
        }
    }

    fn asked(&self) -> Vec<Instant> {
        self.script.asked.lock().unwrap().clone()
    }

    fn dead(&self) -> Vec<Unhealthy> {
        self.vitals.unhealthy(&blog())
    }
}

fn blog() -> AppName {
    "blog".parse().unwrap()
}

/// An execution, asked each 10 s; three failures in a row are its end.
fn execution(second: i64) -> Watched {
    Watched {
        container: ContainerId::new("c-1"),
        started_at: Timestamp::from_second(second).unwrap(),
        binds: vec![Bind {
            port: "http".parse().unwrap(),
            container: 8080,
            protocol: Protocol::Tcp,
            host_ip: std::net::Ipv4Addr::LOCALHOST.into(),
            host: 20_001,
        }],
        liveness: Liveness {
            check: Check::Http {
                path: "/live?key=hidden".to_owned(),
                port: "http".parse().unwrap(),
                status: StatusRange::default(),
            },
            interval: Timespan::from_secs(10),
            timeout: Timespan::from_secs(2),
            failures: 3,
        },
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_asked_once_an_interval_and_never_more_often() {
    let world = world([]);
    world.follow(Some(execution(1)));
    let began = Instant::now();
    world.pass(100).await;
    let asked = world.asked();
    assert!(asked[0] - began < Duration::from_secs(10));
    assert_eq!(asked.len(), 10);
    for pair in asked.windows(2) {
        assert!(pair[1] - pair[0] >= Duration::from_secs(10));
    }
}

#[tokio::test(start_paused = true)]
async fn failing_twice_and_recovering_says_nothing() {
    let world = world([SICK, SICK, Ok(200), SICK, SICK, Ok(200)]);
    world.follow(Some(execution(1)));
    world.pass(200).await;
    assert_eq!(world.dead(), []);
}

#[tokio::test(start_paused = true)]
async fn failing_often_enough_in_a_row_is_told_once_and_asked_no_more() {
    let world = world([Ok(200), SICK]);
    world.follow(Some(execution(1)));
    world.pass(200).await;
    assert_eq!(world.asked().len(), 4);
    let [dead] = &world.dead()[..] else {
        panic!("{:?}", world.dead())
    };
    assert_eq!(
        dead.message,
        "liveness probe http /live on port http failed 3 times in a row: HTTP status 503, not \
         200-399"
    );
    assert_eq!(dead.answers.len(), 3);
    assert_eq!(world.vitals.changed().await, blog());
    let more = tokio::time::timeout(Duration::from_secs(100), world.vitals.changed());
    more.await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn what_this_host_is_to_blame_for_neither_counts_nor_forgives() {
    let blamed = world([ours()]);
    blamed.follow(Some(execution(1)));
    blamed.pass(300).await;
    assert_eq!(blamed.dead(), []);

    let between = world([SICK, ours(), SICK, ours(), SICK]);
    between.follow(Some(execution(1)));
    between.pass(100).await;
    assert_eq!(between.dead().len(), 1);
    assert_eq!(between.asked().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn no_answer_in_time_is_a_failure() {
    let world = world_of(Script {
        takes: Duration::from_secs(60),
        ..Script::default()
    });
    world.follow(Some(execution(1)));
    world.pass(60).await;
    assert!(world.dead()[0].message.ends_with("no answer in time"));
}

#[tokio::test(start_paused = true)]
async fn a_process_that_slept_through_the_tries_blames_nobody() {
    let world = world_of(Script {
        takes: Duration::from_secs(60),
        ..Script::default()
    });
    world.follow(Some(execution(1)));
    // The host is suspended in the middle of each try.
    for _ in 0..20 {
        advance(Duration::from_secs(30)).await;
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
    }
    assert!(world.asked().len() > 10, "{}", world.asked().len());
    assert_eq!(world.dead(), []);
}

#[tokio::test(start_paused = true)]
async fn an_execution_is_followed_as_long_as_it_is_published() {
    let world = world([]);
    world.follow(Some(execution(1)));
    world.pass(20).await;
    world.follow(None);
    assert_eq!(world.vitals.followed(), 0);
    let asked = world.asked().len();
    world.pass(100).await;
    assert_eq!(world.asked().len(), asked);

    world.follow(Some(execution(1)));
    world.pass(20).await;
    world.vitals.follow(&blog(), BTreeMap::new());
    let asked = world.asked().len();
    world.pass(100).await;
    assert_eq!(world.asked().len(), asked);
}

#[tokio::test(start_paused = true)]
async fn following_the_same_again_does_not_begin_anew() {
    let world = world([SICK]);
    for _ in 0..50 {
        world.follow(Some(execution(1)));
        world.pass(1).await;
    }
    assert_eq!(world.dead().len(), 1);
    assert_eq!(world.asked().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_dead_execution_stays_dead_until_another_one_is_followed() {
    let world = world([SICK, SICK, SICK, Ok(200)]);
    world.follow(Some(execution(1)));
    world.pass(40).await;
    assert_eq!(world.dead().len(), 1);
    // Withdrawn; then a stale look at what was published.
    world.follow(None);
    world.follow(Some(execution(1)));
    world.pass(40).await;
    assert_eq!(world.dead().len(), 1);
    assert_eq!(world.vitals.followed(), 0);
    world.follow(Some(execution(2)));
    assert_eq!(world.dead(), []);
    world.pass(40).await;
    assert_eq!((world.dead().len(), world.vitals.followed()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_about_an_execution_that_is_not_followed_any_more_is_dropped() {
    let world = world([SICK]);
    world.follow(Some(execution(1)));
    let dead = Unhealthy {
        container: ContainerId::new("c-1"),
        started_at: Timestamp::from_second(0).unwrap(),
        message: String::new(),
        answers: Vec::new(),
    };
    world
        .vitals
        .0
        .report(&blog(), &"web".parse().unwrap(), dead);
    assert_eq!(world.dead(), []);
}

#[tokio::test(start_paused = true)]
async fn nothing_goes_on_once_it_is_forgotten_or_dropped() {
    for forgotten in [true, false] {
        let World { script, vitals } = world([]);
        let web = "web".parse().unwrap();
        vitals.follow(&blog(), BTreeMap::from([(web, Some(execution(1)))]));
        if forgotten {
            vitals.forget();
        }
        let kept = forgotten.then_some(vitals);
        sleep(Duration::from_secs(100)).await;
        assert_eq!(script.asked.lock().unwrap().len(), 0);
        drop(kept);
    }
}
