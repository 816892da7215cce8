//! A crash before and after each single effect and write of every kind of operation. What
//! chance may miss is met here, in each run.

use std::time::Duration;

use crate::apps::{App, Service};
use crate::doubles::cut::Cut;
use crate::history::{Event, History, What, When};
use crate::report::{Summary, sweep};
use crate::run::run;

/// One kind of operation: what is there before, and what begins it.
struct Stop {
    name: &'static str,
    before: Vec<What>,
    begins: What,
}

fn service(name: &'static str, image: &'static str) -> Service {
    Service {
        name,
        image,
        volume: false,
        fixed: false,
        overlap: false,
        rollback: false,
        liveness: false,
        depends: false,
    }
}

fn blog(services: Vec<Service>, variant: u32) -> App {
    App {
        name: "blog",
        services,
        variant,
    }
}

fn plain(image: &'static str) -> What {
    What::Put(blog(vec![service("web", image)], 1))
}

fn with(image: &'static str, change: impl Fn(&mut Service)) -> What {
    let mut web = service("web", image);
    change(&mut web);
    What::Put(blog(vec![web], 1))
}

fn ask(id: u32, what: &str) -> What {
    What::Request("blog", id, what.to_owned())
}

fn stops() -> Vec<Stop> {
    let stop = |name, before, begins| Stop {
        name,
        before,
        begins,
    };
    let writes = |image| with(image, |web| web.volume = true);
    let both = |image| {
        let services = vec![service("db", image), service("web", image)];
        What::Put(blog(services, 1))
    };
    vec![
        stop("first", vec![], writes("web:1")),
        stop("two services", vec![], both("web:1")),
        stop("writer", vec![writes("web:1")], writes("web:2")),
        stop(
            "overlap",
            vec![plain("web:1")],
            with("web:2", |web| web.overlap = true),
        ),
        stop("dropped", vec![both("web:1")], plain("web:1")),
        stop(
            "rolled back",
            vec![plain("web:1")],
            with("web:exits", |web| web.rollback = true),
        ),
        stop(
            "rollback",
            vec![plain("web:1"), plain("web:2")],
            ask(1, "{verb: rollback, revision: 1}"),
        ),
        stop("restart", vec![plain("web:1")], ask(1, "verb: restart")),
        stop("stop", vec![writes("web:1")], ask(1, "verb: stop")),
        stop(
            "start",
            vec![plain("web:1"), ask(1, "verb: stop")],
            ask(2, "verb: start"),
        ),
        stop("remove", vec![writes("web:1")], ask(1, "verb: remove")),
        stop("delete", vec![both("web:1")], What::Delete("blog")),
        stop("dies", vec![plain("web:1")], What::Dies(0, 1)),
        stop("removed", vec![plain("web:1")], What::Removed(0)),
        stop("moved", vec![plain("web:1")], What::Restarted(0, true)),
        stop(
            "sickens",
            vec![with("web:1", |web| web.liveness = true)],
            What::Sickens(0),
        ),
    ]
}

impl Stop {
    /// What is there before it.
    fn prelude(&self) -> History {
        let mut prelude = self.history(None);
        prelude.events.pop();
        prelude
    }

    /// How many effects and writes it has.
    fn effects(&self) -> usize {
        let whole = run(&self.history(None)).effects;
        whole.saturating_sub(run(&self.prelude()).effects)
    }

    /// Its history without any fault, or with one.
    fn history(&self, fault: Option<(usize, Cut)>) -> History {
        let apart = When::After(Duration::from_secs(25));
        let calm = |what: &What| Event {
            when: apart,
            what: what.clone(),
        };
        let mut events: Vec<Event> = self.before.iter().map(calm).collect();
        events.push(calm(&self.begins));
        let mut name = format!("tour: {}", self.name);
        if let Some((effect, cut)) = fault {
            name = format!("{name}, {cut:?} {effect}");
            events.push(Event {
                when: When::AtEffect(effect),
                what: What::Cut(cut),
            });
        }
        History {
            name,
            seed: 1,
            events,
            amnesia: None,
        }
    }
}

/// The whole tour: what each operation does when all is well, and with all its crashes.
pub fn tour() -> (Summary, Summary) {
    let stops = stops();
    let calm: Vec<History> = stops.iter().map(|stop| stop.history(None)).collect();
    let mut crashes = Vec::new();
    for stop in &stops {
        for effect in 0..stop.effects() {
            for cut in [Cut::Before, Cut::After] {
                crashes.push(stop.history(Some((effect, cut))));
            }
        }
    }
    (
        sweep(&|index| calm.get(index).cloned()),
        sweep(&|index| crashes.get(index).cloned()),
    )
}
