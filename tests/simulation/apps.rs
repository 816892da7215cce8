//! What random apps look like.

use std::fmt;

use crate::chance::Chance;
use crate::doubles::manifest::{Manifest, app};

/// The images of the world, with how their containers behave: see `world`.
pub const GOOD: [&str; 4] = ["web:1", "web:2", "web:slow", "web:lingers"];
/// Images whose containers never get ready, and one that doesn't exist.
pub const BAD: [&str; 3] = ["web:never", "web:exits", "web:absent"];

/// One service of a random app.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    pub name: &'static str,
    pub image: &'static str,
    pub volume: bool,
    pub fixed: bool,
    pub overlap: bool,
    pub rollback: bool,
    pub liveness: bool,
    pub depends: bool,
}

/// A random app.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct App {
    pub name: &'static str,
    pub services: Vec<Service>,
    /// Differs for manifests that are otherwise the same.
    pub variant: u32,
}

impl Service {
    fn random(name: &'static str, chance: &mut Chance) -> Self {
        let volume = chance.one_in(3);
        let fixed = chance.one_in(5);
        Self {
            name,
            image: if chance.one_in(5) {
                chance.pick(&BAD)
            } else {
                chance.pick(&GOOD)
            },
            volume,
            fixed,
            overlap: !volume && !fixed && chance.one_in(2),
            rollback: chance.one_in(4),
            liveness: chance.one_in(3),
            depends: false,
        }
    }

    fn is_good(&self) -> bool {
        GOOD.contains(&self.image)
    }
}

impl App {
    pub fn random(name: &'static str, chance: &mut Chance) -> Self {
        let mut services = vec![Service::random("web", chance)];
        if chance.one_in(2) {
            services.push(Service::random("db", chance));
            services[0].depends = chance.one_in(2);
        }
        Self {
            name,
            services,
            variant: chance.below(1000),
        }
    }

    /// One that can serve.
    pub fn plain(name: &'static str) -> Self {
        let chance = &mut Chance::new(0);
        Self::random(name, chance).mended()
    }

    /// Whether it can serve.
    pub fn is_good(&self) -> bool {
        self.services.iter().all(Service::is_good)
    }

    /// The same with images that can serve.
    pub fn mended(&self) -> Self {
        let mut app = self.clone();
        for service in &mut app.services {
            if !service.is_good() {
                service.image = GOOD[0];
            }
        }
        app.variant += 1000;
        app
    }

    /// Its manifest.
    pub fn manifest(&self) -> Manifest {
        let mut manifest = app(self.name).spec(&format!("env: {{VARIANT: \"{}\"}}", self.variant));
        for service in &self.services {
            let name = service.name;
            manifest = if name == "web" {
                manifest.web(service.image)
            } else {
                manifest.service(name, service.image)
            };
            let readiness = "readiness: {http: {path: /healthz, port: http}, timeout: 8s}";
            manifest = manifest
                .with(name, readiness)
                .with(name, "stopGrace: 3s")
                .with(name, &self.update(service));
            if service.volume {
                manifest = manifest.volume(name, &format!("{name}-data"));
            }
            if service.fixed {
                let port = port_of(self.name, name);
                let ports = format!("ports: [{{name: http, container: 8080, host: {port}}}]");
                manifest = manifest.with(name, &ports);
            }
            if service.liveness {
                let liveness = "liveness: {http: {path: /, port: http}, interval: 10s}";
                manifest = manifest.with(name, liveness);
            }
            if service.depends {
                manifest = manifest.with(name, "dependsOn: [db]");
            }
        }
        manifest
    }

    fn update(&self, service: &Service) -> String {
        let strategy = if service.overlap {
            "overlap"
        } else {
            "sequential"
        };
        let failure = if service.rollback { "rollback" } else { "halt" };
        format!("update: {{strategy: {strategy}, onFailure: {failure}, drain: 2s}}")
    }
}

/// A fixed host port that no other service of the world wants.
fn port_of(app: &str, service: &str) -> u16 {
    let app = NAMES.iter().position(|name| *name == app).unwrap_or(0);
    let service = usize::from(service == "web");
    u16::try_from(30_000 + app * 10 + service).unwrap_or(30_000)
}

/// The apps of the world.
pub const NAMES: [&str; 3] = ["blog", "shop", "wiki"];

impl fmt::Display for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} #{}", self.name, self.variant)?;
        for service in &self.services {
            write!(f, " {}({}", service.name, service.image)?;
            for (is, word) in [
                (service.volume, "volume"),
                (service.fixed, "fixed port"),
                (service.overlap, "overlap"),
                (service.rollback, "rollback"),
                (service.liveness, "liveness"),
                (service.depends, "depends"),
            ] {
                if is {
                    write!(f, ", {word}")?;
                }
            }
            write!(f, ")")?;
        }
        Ok(())
    }
}
