//! For whom something is allowed.

use serde::Deserialize;

use crate::manifest::{AppName, ServiceName};

/// Apps (`blog`), services (`blog/web`), or `*` for all; never empty.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<Target>")]
pub(super) struct Scope(Vec<Target>);

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
enum Target {
    All,
    App(AppName),
    Service(AppName, ServiceName),
}

impl Scope {
    pub(super) fn covers(&self, app: &AppName, service: &ServiceName) -> bool {
        self.0.iter().any(|target| match target {
            Target::All => true,
            Target::App(named) => named == app,
            Target::Service(named, of_it) => named == app && of_it == service,
        })
    }
}

impl TryFrom<Vec<Target>> for Scope {
    type Error = &'static str;

    fn try_from(targets: Vec<Target>) -> Result<Self, Self::Error> {
        if targets.is_empty() {
            return Err(
                "nobody is named: write apps such as blog, services such as blog/web, or \"*\" for all",
            );
        }
        Ok(Self(targets))
    }
}

impl TryFrom<String> for Target {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let target = match text.split_once('/') {
            _ if text == "*" => Some(Self::All),
            Some((app, service)) => app
                .parse()
                .ok()
                .zip(service.parse().ok())
                .map(|(app, service)| Self::Service(app, service)),
            None => text.parse().ok().map(Self::App),
        };
        target.ok_or_else(|| {
            format!("{text:?} names nobody: write an app such as blog, a service such as blog/web, or \"*\" for all")
        })
    }
}
