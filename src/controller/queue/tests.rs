//! The queue under a paused clock: what runs when, and beside what.

use super::*;
use crate::telemetry::{Health, Metrics};

/// How long each piece of work takes unless told otherwise.
const WORK: Duration = Duration::from_millis(100);

fn app(name: &str) -> AppName {
    name.parse().unwrap()
}

/// Work that takes a while, answers as told, and remembers when it ran.
#[derive(Debug)]
struct Recorder {
    began: Instant,
    runs: Mutex<Vec<(String, u64)>>,
    running: Mutex<BTreeMap<String, usize>>,
    most: Mutex<usize>,
    takes: Mutex<BTreeMap<String, Duration>>,
    answers: Mutex<BTreeMap<String, VecDeque<Next>>>,
    heeds_cancel: bool,
}

impl Recorder {
    fn new(heeds_cancel: bool) -> Self {
        Self {
            began: Instant::now(),
            runs: Mutex::default(),
            running: Mutex::default(),
            most: Mutex::default(),
            takes: Mutex::default(),
            answers: Mutex::default(),
            heeds_cancel,
        }
    }

    fn answer(&self, app: &str, answers: impl IntoIterator<Item = Next>) {
        self.answers
            .lock()
            .unwrap()
            .insert(app.to_owned(), answers.into_iter().collect());
    }

    fn takes(&self, app: &str, time: Duration) {
        self.takes.lock().unwrap().insert(app.to_owned(), time);
    }

    /// Milliseconds since the beginning at which work on the app began.
    fn times(&self, app: &str) -> Vec<u64> {
        let runs = self.runs.lock().unwrap();
        runs.iter()
            .filter(|(name, _)| name == app)
            .map(|(_, at)| *at)
            .collect()
    }

    fn order(&self) -> Vec<String> {
        let runs = self.runs.lock().unwrap();
        runs.iter().map(|(name, _)| name.clone()).collect()
    }
}

#[async_trait]
impl Work for Recorder {
    async fn run(&self, app: &AppName, cancel: CancellationToken) -> Next {
        let name = app.to_string();
        let at = u64::try_from(self.began.elapsed().as_millis()).unwrap();
        self.runs.lock().unwrap().push((name.clone(), at));
        {
            let mut running = self.running.lock().unwrap();
            *running.entry(name.clone()).or_default() += 1;
            assert_eq!(running[&name], 1, "two at once for {name}");
            let mut most = self.most.lock().unwrap();
            *most = (*most).max(running.values().sum());
        }
        let takes = self.takes.lock().unwrap().get(&name).copied();
        let work = tokio::time::sleep(takes.unwrap_or(WORK));
        if self.heeds_cancel {
            tokio::select! {
                biased;
                () = cancel.cancelled() => {}
                () = work => {}
            }
        } else {
            work.await;
        }
        *self.running.lock().unwrap().get_mut(&name).unwrap() -= 1;
        let mut answers = self.answers.lock().unwrap();
        answers
            .get_mut(&name)
            .and_then(VecDeque::pop_front)
            .unwrap_or(Next::Done)
    }
}

struct World {
    queue: Queue,
    work: Arc<Recorder>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl World {
    fn start(workers: usize) -> Self {
        Self::with(workers, Recorder::new(false))
    }

    fn with(workers: usize, work: Recorder) -> Self {
        let entropy = Arc::new(Entropy::from_seed(1));
        let queue = Queue::new(workers, entropy, Metrics::new().unwrap().queue);
        let work = Arc::new(work);
        let stop = CancellationToken::new();
        let pulse = Health::default().pulse("queue", Duration::from_secs(30));
        let task = tokio::spawn({
            let (queue, work, stop) = (queue.clone(), Arc::clone(&work), stop.clone());
            async move { queue.run(work, stop, pulse).await }
        });
        Self {
            queue,
            work,
            stop,
            task,
        }
    }

    fn enqueue(&self, names: &[&str], why: Why) {
        for name in names {
            self.queue.enqueue(&app(name), why);
        }
    }

    async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_app_put_in_twice_is_worked_on_once() {
    let world = World::start(1);
    world.enqueue(&["blog", "blog", "blog"], Why::Manifest);

    world.pass(Duration::from_secs(1)).await;

    assert_eq!(world.work.times("blog"), [0]);
}

#[tokio::test(start_paused = true)]
async fn changes_during_the_work_cause_one_more_run_afterwards() {
    let world = World::start(4);
    world.enqueue(&["blog"], Why::Manifest);
    world.pass(WORK / 2).await;
    world.enqueue(&["blog", "blog"], Why::Manifest);

    world.pass(Duration::from_secs(1)).await;

    assert_eq!(world.work.times("blog"), [0, 100]);
}

#[tokio::test(start_paused = true)]
async fn no_more_apps_than_workers_are_worked_on_at_once() {
    let world = World::start(3);
    world.enqueue(&["a", "b", "c", "d", "e", "f", "g"], Why::Boot);

    world.pass(Duration::from_secs(1)).await;

    assert_eq!(world.work.order(), ["a", "b", "c", "d", "e", "f", "g"]);
    assert_eq!(*world.work.most.lock().unwrap(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_app_that_always_comes_again_does_not_starve_the_others() {
    let world = World::start(1);
    world.work.answer("busy", [Next::After(Duration::ZERO); 50]);
    world.enqueue(&["busy", "a", "b"], Why::Manifest);

    world.pass(WORK * 4).await;

    assert_eq!(world.work.order()[..4], ["busy", "a", "b", "busy"]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_app_does_not_hold_up_others() {
    let world = World::start(2);
    world.work.takes("slow", Duration::from_secs(600));
    world.enqueue(&["slow", "a", "b", "c"], Why::Manifest);

    world.pass(Duration::from_secs(1)).await;

    assert_eq!(world.work.times("c"), [200]);
}

#[tokio::test(start_paused = true)]
async fn the_earliest_of_several_times_counts() {
    let world = World::start(1);
    let blog = app("blog");
    world.queue.enqueue_after(&blog, Duration::from_secs(9));
    world.queue.enqueue_after(&blog, Duration::from_secs(2));
    world.queue.enqueue_after(&blog, Duration::from_secs(5));

    world.pass(Duration::from_secs(60)).await;

    assert_eq!(world.work.times("blog"), [2_000]);
}

#[tokio::test(start_paused = true)]
async fn work_that_wants_to_come_again_does() {
    let world = World::start(1);
    world
        .work
        .answer("blog", [Next::After(Duration::from_secs(10))]);
    world.enqueue(&["blog"], Why::Manifest);

    world.pass(Duration::from_secs(60)).await;

    assert_eq!(world.work.times("blog"), [0, 10_100]);
}

#[tokio::test(start_paused = true)]
async fn failures_come_again_after_pauses_that_grow() {
    let world = World::start(1);
    world.work.answer("blog", [Next::Failed; 5]);
    world.enqueue(&["blog"], Why::Manifest);

    world.pass(Duration::from_secs(120)).await;

    let times = world.work.times("blog");
    let pauses: Vec<u64> = times
        .windows(2)
        .map(|pair| pair[1] - pair[0] - 100)
        .collect();
    assert_eq!(pauses.len(), 5, "no more after the success: {times:?}");
    for (pause, whole) in pauses.iter().zip([1_000, 2_000, 4_000, 8_000, 16_000]) {
        assert!(
            (whole * 8 / 10..=whole * 12 / 10 + 1).contains(pause),
            "{pauses:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_success_begins_the_pauses_anew() {
    let world = World::start(1);
    let failed = Next::Failed;
    let again = Next::After(Duration::from_secs(1));
    world.work.answer("blog", [failed, failed, again, failed]);
    world.enqueue(&["blog"], Why::Manifest);

    world.pass(Duration::from_secs(60)).await;

    let times = world.work.times("blog");
    assert!(times[4] - times[3] <= 1_301, "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn a_changed_manifest_does_not_wait_out_a_pause() {
    let world = World::start(1);
    world.work.answer("blog", [Next::Failed; 20]);
    world.enqueue(&["blog"], Why::Manifest);
    world.pass(Duration::from_secs(40)).await;
    let before = world.work.times("blog").len();

    world.enqueue(&["blog"], Why::Manifest);
    world.pass(Duration::from_millis(1_500)).await;

    let times = world.work.times("blog");
    assert_eq!(times[before], 40_000);
    assert!(times[before + 1] <= 41_301, "pauses began anew: {times:?}");
}

#[tokio::test(start_paused = true)]
async fn a_hint_shortens_a_pause_but_not_to_nothing() {
    let world = World::start(1);
    world.work.answer("blog", [Next::Failed; 20]);
    world.enqueue(&["blog"], Why::Manifest);
    world.pass(Duration::from_secs(40)).await;
    let before = world.work.times("blog").len();

    world.enqueue(&["blog"], Why::Runtime);
    world.pass(WORK / 2).await;
    world.enqueue(&["blog"], Why::Runtime);
    world.pass(Duration::from_secs(2)).await;

    let times = world.work.times("blog");
    assert_eq!(times[before], 40_000, "long after the failure, at once");
    assert_eq!(times[before + 1], 41_100, "right after a failure, a second");
    assert_eq!(times.len(), before + 2, "the pause still grows: {times:?}");
}

#[tokio::test(start_paused = true)]
async fn failed_apps_are_tried_again_when_what_they_need_is_back() {
    let world = World::start(2);
    world.work.answer("blog", [Next::Failed; 7]);
    world.enqueue(&["blog", "shop"], Why::Boot);
    world.pass(Duration::from_secs(70)).await;
    let before = world.work.times("blog").len();

    world.queue.retry_failed();
    world.pass(Duration::from_millis(500)).await;

    assert_eq!(world.work.times("blog")[before], 70_000);
    assert_eq!(world.work.times("shop"), [0], "shop had not failed");
}

#[derive(Debug)]
struct Panicking;

#[async_trait]
impl Work for Panicking {
    async fn run(&self, app: &AppName, _: CancellationToken) -> Next {
        assert_ne!(app.as_str(), "broken", "a defect");
        Next::Done
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_work_on_one_app_is_a_failure_of_that_app() {
    let metrics = Metrics::new().unwrap().queue;
    let queue = Queue::new(1, Arc::new(Entropy::from_seed(1)), metrics.clone());
    let stop = CancellationToken::new();
    let pulse = Health::default().pulse("queue", Duration::from_secs(30));
    let task = tokio::spawn({
        let (queue, stop) = (queue.clone(), stop.clone());
        async move { queue.run(Arc::new(Panicking), stop, pulse).await }
    });
    queue.enqueue(&app("broken"), Why::Manifest);
    queue.enqueue(&app("blog"), Why::Manifest);

    tokio::time::sleep(Duration::from_millis(10)).await;

    assert_eq!(metrics.wait_seconds.get_sample_count(), 2);
    assert_eq!(metrics.running.get(), 0);
    stop.cancel();
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_hands_out_nothing_more_and_waits_for_what_runs() {
    let world = World::start(1);
    world.work.takes("a", Duration::from_secs(3));
    world.enqueue(&["a", "b"], Why::Manifest);
    world.pass(Duration::from_secs(1)).await;

    world.stop.cancel();
    let began = Instant::now();
    world.task.await.unwrap();

    assert_eq!(began.elapsed(), Duration::from_secs(2));
    assert_eq!(world.work.order(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn work_that_runs_learns_of_a_shutdown() {
    let world = World::with(1, Recorder::new(true));
    world.work.takes("a", Duration::from_secs(600));
    world.enqueue(&["a"], Why::Manifest);
    world.pass(Duration::from_secs(1)).await;

    world.stop.cancel();
    let began = Instant::now();
    world.task.await.unwrap();

    assert!(began.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn an_app_without_work_to_come_takes_no_memory() {
    let world = World::start(2);
    world.work.answer("c", [Next::Failed]);
    world.enqueue(&["a", "b", "c"], Why::Manifest);

    world.pass(Duration::from_secs(60)).await;

    assert!(world.queue.line().apps.is_empty());
    assert!(world.queue.line().timers.is_empty());
}
