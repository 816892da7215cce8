//! What a record of routes claims for its app, and who holds it already. Pure.

use std::collections::BTreeSet;
use std::fmt;

use super::{AppRoutes, Listener};
use crate::manifest::AppName;

/// Something that only one app can have.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Claim {
    /// A host and a path prefix.
    Http {
        /// Normalized host.
        host: String,
        /// Normalized path prefix.
        path: String,
    },
    /// A listener.
    Listener(Listener),
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http { host, path } => write!(f, "{host}{path}"),
            Self::Listener(listener) => listener.fmt(f),
        }
    }
}

/// A published record, as far as claims depend on it.
#[derive(Debug)]
pub(crate) struct Published {
    /// Whose it is.
    pub app: AppName,
    /// When the app was first published; the earlier one keeps a claim.
    pub create_revision: i64,
    /// What it says.
    pub routes: AppRoutes,
}

/// The host as it is compared: lower case, without the root's dot.
pub(crate) fn normal_host(host: &str) -> String {
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

/// The path prefix as it is compared: `/api/` is `/api`, and nothing is `/`.
pub(crate) fn normal_path(path: &str) -> String {
    let path = path.trim_end_matches('/');
    if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("/{path}")
    }
}

/// Everything that these routes claim.
pub(crate) fn claims(routes: &AppRoutes) -> BTreeSet<Claim> {
    let http = routes.http.iter().map(|rule| Claim::Http {
        host: normal_host(&rule.host),
        path: normal_path(&rule.path),
    });
    let listeners = routes.listeners();
    http.chain(listeners.map(|(listener, _)| Claim::Listener(listener)))
        .collect()
}

/// The first claim of these routes that another app holds, and that app.
///
/// When both have it published, which only a restored or hand-written store can
/// bring about, the one that was published first holds it. Nobody is kept from taking
/// back what is published, or from leaving it as it is.
pub(crate) fn conflict(
    app: &AppName,
    routes: &AppRoutes,
    published: &[Published],
) -> Option<(Claim, AppName)> {
    let own = published.iter().find(|other| &other.app == app);
    if own.is_some_and(|own| takes_back(routes, &own.routes)) {
        return None;
    }
    let held = own.map(|own| claims(&own.routes)).unwrap_or_default();
    let wanted = claims(routes);
    published
        .iter()
        .filter(|other| &other.app != app)
        .find_map(|other| {
            let first = own.is_none_or(|own| other.create_revision < own.create_revision);
            claims(&other.routes)
                .into_iter()
                .find(|claim| wanted.contains(claim) && (first || !held.contains(claim)))
                .map(|claim| (claim, other.app.clone()))
        })
}

/// Whether the routes have nothing that isn't published.
fn takes_back(routes: &AppRoutes, published: &AppRoutes) -> bool {
    routes.backends().is_subset(&published.backends())
        && claims(routes).is_subset(&claims(published))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{AppProtocol, Tls};
    use crate::state::{ContainerId, Incarnation};
    use crate::traffic::{Backend, HttpRule, StreamRule};

    fn name(text: &str) -> AppName {
        text.parse().unwrap()
    }

    fn http(host: &str, path: &str) -> AppRoutes {
        AppRoutes {
            incarnation: Incarnation(uuid::Uuid::nil()),
            http: vec![HttpRule {
                host: host.to_owned(),
                path: path.to_owned(),
                service: "web".parse().unwrap(),
                tls: Tls::Off,
                protocol: AppProtocol::Http,
                backends: Vec::new(),
            }],
            tcp: Vec::new(),
            udp: Vec::new(),
        }
    }

    fn answered(mut routes: AppRoutes, container: &str) -> AppRoutes {
        routes.http[0].backends.push(Backend {
            container: ContainerId::new(container),
            started_at: jiff::Timestamp::UNIX_EPOCH,
            node: "host-a".parse().unwrap(),
            address: ([127, 0, 0, 1], 20_001).into(),
        });
        routes
    }

    fn published(app: &str, create_revision: i64, routes: AppRoutes) -> Published {
        Published {
            app: name(app),
            create_revision,
            routes,
        }
    }

    #[test]
    fn the_same_host_and_path_in_another_spelling_is_a_conflict() {
        let there = [published("blog", 5, http("blog.test", "/api"))];
        let (claim, holder) =
            conflict(&name("shop"), &http("BLOG.test.", "/api/"), &there).unwrap();
        assert_eq!(claim.to_string(), "blog.test/api");
        assert_eq!(holder, name("blog"));
    }

    #[test]
    fn another_path_of_the_same_host_is_free() {
        let there = [published("blog", 5, http("blog.test", "/"))];
        assert!(conflict(&name("shop"), &http("blog.test", "/shop"), &there).is_none());
    }

    #[test]
    fn a_listener_of_the_other_transport_is_free() {
        let listener = StreamRule {
            listen: 53,
            service: "dns".parse().unwrap(),
            drain: crate::manifest::Timespan::from_secs(1),
            backends: Vec::new(),
        };
        let mut udp = http("a.test", "/");
        udp.udp.push(listener.clone());
        let mut tcp = http("b.test", "/");
        tcp.tcp.push(listener);
        let there = [published("a", 5, udp.clone())];
        assert!(conflict(&name("b"), &tcp, &there).is_none());
        udp.http.clear();
        let (claim, _) = conflict(&name("b"), &udp, &there).unwrap();
        assert_eq!(claim.to_string(), "UDP listener 53");
    }

    #[test]
    fn an_app_never_conflicts_with_itself() {
        let there = [published("blog", 5, http("blog.test", "/"))];
        assert!(conflict(&name("blog"), &http("blog.test", "/"), &there).is_none());
    }

    #[test]
    fn when_both_have_it_the_one_published_first_keeps_it() {
        let there = [
            published("late", 9, http("blog.test", "/")),
            published("soon", 5, http("blog.test", "/")),
        ];
        let wanted = answered(http("blog.test", "/"), "c-1");
        assert!(conflict(&name("soon"), &wanted, &there).is_none());
        let (_, holder) = conflict(&name("late"), &wanted, &there).unwrap();
        assert_eq!(holder, name("soon"));
    }

    #[test]
    fn nobody_is_kept_from_taking_back_what_is_published() {
        let late = answered(answered(http("blog.test", "/"), "c-1"), "c-2");
        let there = [
            published("late", 9, late.clone()),
            published("soon", 5, http("blog.test", "/")),
        ];
        let of_late = |wanted: &AppRoutes| conflict(&name("late"), wanted, &there).is_some();
        assert!(!of_late(&late.clone().only(|_, _| false)));
        assert!(!of_late(&answered(http("blog.test", "/"), "c-1")));
        assert!(!of_late(&late), "it stays as it is");
        assert!(of_late(&answered(http("blog.test", "/"), "c-3")));
    }
}
