//! The controller dies at each step of each verb, and starts again: no orphan, no second
//! writer, nothing in flight, and the app where it was going.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::crash::double_writers;
use crate::support::{
    Image, Options, Podherd, World, condition, manifest, until, with, with_volume,
};

/// Of these steps nothing is between their beginning and their effect that isn't met at
/// another one's: they are writes, or begin with one.
const WRITES: [&str; 4] = ["publish", "traffic", "outcome", "end"];

/// The steps by which a generation that writes is ended.
const ENDED: [&str; 3] = ["withdraw", "inhibit", "retire"];
/// The steps by which one is made.
const MADE: [&str; 6] = [
    "provision",
    "create",
    "start",
    "probe",
    "publish",
    "traffic",
];

/// A Podherd that dies where it is told to.
struct Mortal {
    world: World,
    podherd: Podherd,
    point: PathBuf,
}

impl Mortal {
    fn start() -> Self {
        let world = World::start();
        let point = world.sandbox.dir().join("failpoint");
        let options = Options {
            environment: vec![("PODHERD_FAILPOINT".to_owned(), point.display().to_string())],
            ..Options::default()
        };
        let mut podherd = Podherd::start(&world, options);
        podherd.wait_serving(&world);
        Self {
            world,
            podherd,
            point,
        }
    }

    fn request(&self, id: &str, asked: &str) {
        let key = format!("/podherd/requests/blog/{id}");
        self.world
            .etcd
            .put(&self.world.sandbox, &key, asked.as_bytes());
    }

    fn answered(&self, id: &str) {
        until(&format!("{id} is answered"), || {
            let record = self.world.record(&format!("state/operations/blog/{id}"));
            record.is_some_and(|it| it["outcome"].is_object())
        });
    }

    /// Asks for a verb and waits for the answer.
    fn ask(&self, id: &str, asked: &str) {
        self.request(id, asked);
        self.answered(id);
    }

    /// Dies at the point that `begin` leads to, and is started again.
    fn die_at(&mut self, point: &str, begin: impl FnOnce(&Self)) {
        println!("{point}");
        fs::write(&self.point, point).expect("the failpoint");
        begin(self);
        let ended = self.podherd.wait_end_by_signal(Duration::from_secs(30));
        assert!(ended, "{point} is never reached");
        fs::remove_file(&self.point).expect("the failpoint");
        self.podherd
            .start_again(&self.world)
            .wait_serving(&self.world);
    }

    /// Dies at each point of a replacement, by one of these images and the other in turn.
    fn replace_at(
        &mut self,
        points: &[String],
        images: [(Image, u8); 2],
        text: impl Fn(Image) -> String,
    ) {
        for (point, (image, version)) in points.iter().zip(images.into_iter().cycle()) {
            self.die_at(point, |it| {
                it.world.apply("blog", &text(image));
            });
            self.serves(version, point);
        }
    }

    /// What must hold after every crash, once the app has come to rest.
    fn check(&self, point: &str) {
        let world = &self.world;
        for operation in world.operations("blog") {
            let outcome = &operation["outcome"]["result"];
            assert!(outcome.is_string(), "{point}: in flight: {operation}");
            let steps = operation["steps"].as_array().expect("steps");
            let whole = steps.iter().all(|step| step["state"] == "succeeded");
            assert!(outcome != "success" || whole, "{point}: {operation}");
        }
        let left = world.records("requests/");
        assert!(left.is_empty(), "{point}: {left:?}");
        for volume in world.podman.volumes(&world.sandbox) {
            let log = world.podman.volume_dir(&world.sandbox, &volume).join("log");
            let written = fs::read_to_string(log).unwrap_or_default();
            assert_eq!(double_writers(&written), [""; 0], "{point}");
        }
    }

    /// The app serves this version, from one container.
    fn serves(&self, version: u8, point: &str) {
        let body = format!("demo-web version {version}\n");
        until(&format!("{point}: version {version} answers"), || {
            self.podherd.get(&self.world, "blog.test", "/").body == body
        });
        until(&format!("{point}: nothing is inhibited"), || {
            self.world.records("state/inhibitions/").is_empty()
        });
        until(&format!("{point}: everything has an outcome"), || {
            let operations = self.world.operations("blog");
            operations.iter().all(|it| it["outcome"].is_object())
        });
        self.world.assert_only_active(&["blog"]);
        self.check(point);
    }
}

/// The points of these steps of a verb.
fn points(verb: &str, steps: &[&str]) -> Vec<String> {
    let of = |step: &&str| {
        let after = format!("{verb}/{step}:after");
        let begun = format!("{verb}/{step}:begun");
        if WRITES.contains(step) {
            vec![after]
        } else {
            vec![begun, after]
        }
    };
    let mut points: Vec<String> = steps.iter().flat_map(of).collect();
    points.push(format!("{verb}/outcome:after"));
    points
}

#[test]
fn a_first_deployment() {
    let mut mortal = Mortal::start();
    for point in points("deploy", &MADE) {
        mortal.die_at(&point, |it| {
            it.world.apply("blog", &manifest("blog", Image::Web1));
        });
        mortal.serves(1, &point);
        mortal.world.delete("blog");
        until("it is gone", || mortal.world.containers().is_empty());
        until("the name is free", || {
            mortal.world.record("state/ownership/blog").is_none()
        });
    }
}

#[test]
fn a_replacement_of_a_writer() {
    let mut mortal = Mortal::start();
    mortal
        .world
        .deploy("blog", &with_volume("blog", Image::Writer1));
    mortal.replace_at(
        &points("deploy", &[&ENDED[..], &MADE].concat()),
        [(Image::Writer2, 2), (Image::Writer1, 1)],
        |image| with_volume("blog", image),
    );
}

#[test]
fn an_overlapping_replacement() {
    let mut mortal = Mortal::start();
    let steps = [
        "provision",
        "create",
        "start",
        "probe",
        "inhibit",
        "publish",
        "traffic",
        "drain",
        "retire",
    ];
    let text = |image: Image| with("blog", image.reference(), "update: {strategy: overlap}");
    mortal.world.deploy("blog", &text(Image::Web1));
    mortal.replace_at(
        &points("deploy", &steps),
        [(Image::Web2, 2), (Image::Web1, 1)],
        text,
    );
}

#[test]
fn a_stop_and_a_start() {
    let mut mortal = Mortal::start();
    mortal
        .world
        .deploy("blog", &with_volume("blog", Image::Writer1));
    for (round, point) in points("stop", &["intent", "withdraw", "retire"])
        .iter()
        .enumerate()
    {
        let id = format!("stop-{round}");
        mortal.die_at(point, |it| it.request(&id, "verb: stop"));
        mortal.answered(&id);
        until("it is stopped", || mortal.world.containers().is_empty());
        mortal.check(point);
        mortal.ask(&format!("{id}-start"), "verb: start");
        mortal.serves(1, point);
    }
    let steps = [
        "intent",
        "withdraw",
        "provision",
        "create",
        "start",
        "probe",
        "publish",
        "traffic",
    ];
    for (round, point) in points("start", &steps).iter().enumerate() {
        let id = format!("start-{round}");
        mortal.ask(&format!("{id}-stop"), "verb: stop");
        mortal.die_at(point, |it| it.request(&id, "verb: start"));
        mortal.answered(&id);
        mortal.serves(1, point);
    }
}

#[test]
fn a_restart() {
    let mut mortal = Mortal::start();
    mortal
        .world
        .deploy("blog", &with_volume("blog", Image::Writer1));
    let steps = ["withdraw", "stop", "start", "probe", "publish", "traffic"];
    for (round, point) in points("restart", &steps).iter().enumerate() {
        let id = format!("restart-{round}");
        mortal.die_at(point, |it| it.request(&id, "verb: restart"));
        mortal.answered(&id);
        mortal.serves(1, point);
    }
}

#[test]
fn a_removal() {
    let mut mortal = Mortal::start();
    let steps = ["intent", "withdraw", "retire", "reclaim", "end"];
    for (round, point) in points("remove", &steps).iter().enumerate() {
        mortal
            .world
            .deploy("blog", &with_volume("blog", Image::Writer1));
        mortal.die_at(point, |it| {
            it.request(&format!("remove-{round}"), "verb: remove");
        });
        until("the name is free", || {
            mortal.world.record("state/ownership/blog").is_none()
        });
        until("the request is answered", || {
            mortal.world.records("requests/").is_empty()
        });
        assert!(mortal.world.containers().is_empty(), "{point}");
        assert!(mortal.world.records("apps/").is_empty(), "{point}");
        mortal.check(point);
    }
}

#[test]
fn a_rollback() {
    let mut mortal = Mortal::start();
    for (round, point) in points("rollback", &[&ENDED[..], &MADE].concat())
        .iter()
        .enumerate()
    {
        mortal
            .world
            .deploy("blog", &with_volume("blog", Image::Writer1));
        let to = mortal.world.record("state/active/blog").expect("ACTIVE");
        let to = to["services"]["web"]["revision"].clone();
        mortal
            .world
            .deploy("blog", &with_volume("blog", Image::Writer2));
        let id = format!("rollback-{round}");
        let asked = format!("{{verb: rollback, revision: {to}}}");
        mortal.die_at(point, |it| it.request(&id, &asked));
        mortal.answered(&id);
        // One that was cut off gives way to the manifest: only at rest it can be told which
        // of the two serves.
        until(&format!("{point}: it is at rest"), || {
            let status = mortal.world.status("blog").unwrap_or_default();
            condition(&status, "Progressing").is_some_and(|it| it["status"] == "False")
        });
        let version = |it: &Mortal| it.podherd.get(&it.world, "blog.test", "/").body;
        until("one of the two answers", || {
            version(&mortal).starts_with("demo-web version")
        });
        let version = if version(&mortal).ends_with("1\n") {
            1
        } else {
            2
        };
        mortal.serves(version, point);
    }
}

#[test]
fn a_recovery() {
    let mut mortal = Mortal::start();
    mortal
        .world
        .deploy("blog", &with_volume("blog", Image::Writer1));
    for point in points(
        "recover",
        &["withdraw", "start", "probe", "publish", "traffic"],
    ) {
        mortal.die_at(&point, |it| {
            let running = it.world.running();
            it.world
                .podman
                .run(&it.world.sandbox, &["kill", &running[0]]);
        });
        mortal.serves(1, &point);
    }
}
