//! A policy beside the host's paths as they are now: what a service gets from them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::binds::{Root, is_within};
use super::devices::{Allowed, What};
use super::host::{HostPolicy, PathError};
use super::{Denial, Policy, Rules};
use crate::manifest::{AppName, BindMount, Device, ServiceName, ServiceSpec};

/// Host paths, each with what it is once every symlink is followed.
pub type Paths = BTreeMap<String, Result<String, PathError>>;

/// The rules and the paths that they are applied to.
#[derive(Debug, Clone)]
pub struct Site {
    rules: Arc<Rules>,
    paths: Paths,
}

/// What a service gets of the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grant {
    /// Host paths, without symlinks.
    pub binds: Vec<BindMount>,
    /// Devices, by paths without symlinks.
    pub devices: Vec<Device>,
}

/// What the policy says of a generation that serves or served.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Why its container may not be started again.
    pub start: Option<Denial>,
    /// Why it may not be made again.
    pub rebuild: Option<Denial>,
}

impl Site {
    /// Reads the rules, and looks at the paths that these services and their
    /// containers concern.
    pub async fn look<'s>(
        host: &dyn HostPolicy,
        specs: impl IntoIterator<Item = &'s ServiceSpec>,
        mounted: impl IntoIterator<Item = &'s BindMount>,
    ) -> Self {
        let rules = host.rules().await;
        let mut wanted: BTreeSet<&str> = BTreeSet::new();
        for spec in specs {
            wanted.extend(spec.binds.iter().map(|bind| bind.source.as_str()));
            wanted.extend(spec.devices.iter().filter_map(|device| match device {
                Device::Node { host, .. } => Some(host.as_str()),
                Device::Cdi(_) => None,
            }));
        }
        wanted.extend(mounted.into_iter().map(|bind| bind.source.as_str()));
        if let (false, Rules::Known(policy)) = (wanted.is_empty(), rules.as_ref()) {
            wanted.extend(policy.folders());
        }
        let mut paths = Paths::new();
        for path in wanted {
            paths.insert(path.to_owned(), host.resolve(path).await);
        }
        Self { rules, paths }
    }

    /// The rules.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// What the service gets of the host.
    ///
    /// # Errors
    /// When it asks for something that isn't allowed.
    pub fn grant(
        &self,
        app: &AppName,
        service: &ServiceName,
        spec: &ServiceSpec,
    ) -> Result<Grant, Denial> {
        let asks = !spec.binds.is_empty()
            || !spec.devices.is_empty()
            || !spec.security.cap_add.is_empty()
            || spec.security.userns.is_some();
        if !asks {
            return Ok(Grant::default());
        }
        let policy = self.rules.known()?;
        policy.privileges.permit(app, service, &spec.security)?;
        let to = Asker {
            policy,
            paths: &self.paths,
            app,
            service,
        };
        Ok(Grant {
            binds: spec
                .binds
                .iter()
                .map(|bind| to.bind(bind))
                .collect::<Result<_, _>>()?,
            devices: spec
                .devices
                .iter()
                .map(|device| to.device(device))
                .collect::<Result<_, _>>()?,
        })
    }

    /// Whether a container that has these host paths mounted may be started again: each
    /// is what it was when the container was made, and still allowed.
    ///
    /// # Errors
    /// When one isn't.
    pub fn permit_mounted(
        &self,
        app: &AppName,
        service: &ServiceName,
        mounted: &[BindMount],
    ) -> Result<(), Denial> {
        for bind in mounted {
            let to = Asker {
                policy: self.rules.known()?,
                paths: &self.paths,
                app,
                service,
            };
            if to.bind(bind)?.source != bind.source {
                return Err(bind_denied(
                    &bind.source,
                    "a symlink has come into its path since the container was made: deploy again",
                ));
            }
        }
        Ok(())
    }

    /// The first thing of an app that isn't allowed, with its service.
    pub fn deny<'s>(
        &self,
        app: &AppName,
        services: impl IntoIterator<Item = (&'s ServiceName, &'s ServiceSpec)>,
    ) -> Option<(&'s ServiceName, Denial)> {
        services.into_iter().find_map(|(name, spec)| {
            let image = self.rules.permit_image(&spec.image);
            let denied = image.and_then(|()| self.grant(app, name, spec).map(|_| ()));
            denied.err().map(|denial| (name, denial))
        })
    }

    /// What the policy says of a generation, by its pinned spec and by what its
    /// container has mounted.
    pub fn judge(
        &self,
        app: &AppName,
        service: &ServiceName,
        spec: &ServiceSpec,
        mounted: &[BindMount],
    ) -> Verdict {
        let granted = self.grant(app, service, spec).map(|_| ());
        let start = granted
            .clone()
            .and_then(|()| self.permit_mounted(app, service, mounted));
        let rebuild = granted.and_then(|()| self.rules.permit_pinned(&spec.image));
        Verdict {
            start: start.err(),
            rebuild: rebuild.err(),
        }
    }
}

impl Policy {
    /// The paths that others are compared with.
    fn folders(&self) -> impl Iterator<Item = &str> {
        let roots = self.binds.values().map(|root| root.path.as_str());
        roots.chain(
            self.devices
                .values()
                .filter_map(|allowed| match &allowed.what {
                    What::Path { path, .. } => Some(path.as_str()),
                    What::Cdi(_) => None,
                }),
        )
    }
}

/// A service that asks for something of the host.
struct Asker<'a> {
    policy: &'a Policy,
    paths: &'a Paths,
    app: &'a AppName,
    service: &'a ServiceName,
}

impl Asker<'_> {
    /// The path without symlinks; `None` when it can't be followed.
    fn real(&self, path: &str) -> Option<&str> {
        self.paths.get(path)?.as_deref().ok()
    }

    /// Whether a real path is in this folder of the policy.
    fn is_in(&self, real: &str, folder: &str) -> bool {
        self.real(folder)
            .is_some_and(|folder| is_within(real, folder))
    }

    fn bind(&self, bind: &BindMount) -> Result<BindMount, Denial> {
        let denied = |problem: &str| bind_denied(&bind.source, problem);
        let roots = &self.policy.binds;
        let Some(real) = self.real(&bind.source) else {
            let named = roots
                .values()
                .any(|root| is_within(&bind.source, root.path.as_str()));
            return Err(denied(self.unfollowed(&bind.source, named, NO_ROOT)));
        };
        let holding: Vec<(&String, &Root)> = roots
            .iter()
            .filter(|(_, root)| self.is_in(real, root.path.as_str()))
            .collect();
        if holding.is_empty() {
            let named = roots
                .iter()
                .find(|(_, root)| is_within(&bind.source, root.path.as_str()));
            return Err(named.map_or_else(
                || denied(NO_ROOT),
                |(name, _)| denied(&format!("it leads out of the root {name} by a symlink")),
            ));
        }
        let mut read_only = holding.iter().filter(|(_, root)| root.read_only);
        if let (false, Some((name, _))) = (bind.read_only, read_only.next()) {
            return Err(denied(&format!(
                "the root {name} is read-only by the node's policy: say readOnly: true"
            )));
        }
        let mut inside = roots.iter().filter(|(_, root)| {
            let folder = self.real(root.path.as_str());
            root.read_only && folder.is_some_and(|folder| is_within(folder, real))
        });
        if let (false, Some((name, _))) = (bind.read_only, inside.next()) {
            return Err(denied(&format!(
                "the read-only root {name} is in it: say readOnly: true, or bind less"
            )));
        }
        if !holding
            .iter()
            .any(|(_, root)| root.apps.covers(self.app, self.service))
        {
            let names: Vec<&str> = holding.iter().map(|(name, _)| name.as_str()).collect();
            return Err(denied(&format!(
                "the root {} isn't for this service: add it to the root's apps in the node's policy",
                names.join(", ")
            )));
        }
        Ok(BindMount {
            source: real.to_owned(),
            path: bind.path.clone(),
            read_only: bind.read_only,
        })
    }

    fn device(&self, device: &Device) -> Result<Device, Denial> {
        let denied = |problem: &str| Denial::Device {
            device: device.to_string(),
            problem: problem.to_owned(),
        };
        let mine = |allowed: &&Allowed| allowed.apps.covers(self.app, self.service);
        let devices = self.policy.devices.values();
        let (host, container, access) = match device {
            Device::Cdi(name) => {
                let is_it =
                    |allowed: &Allowed| matches!(&allowed.what, What::Cdi(its) if its == name);
                return if devices.filter(mine).any(is_it) {
                    Ok(device.clone())
                } else {
                    Err(denied(NO_DEVICE))
                };
            }
            Device::Node {
                host,
                container,
                access,
            } => (host, container, *access),
        };
        let paths = devices
            .filter(mine)
            .filter_map(|allowed| match &allowed.what {
                What::Path { path, access } => Some((path.as_str(), *access)),
                What::Cdi(_) => None,
            });
        let paths: Vec<_> = paths.collect();
        let Some(real) = self.real(host) else {
            let named = paths.iter().any(|(path, _)| is_within(host, path));
            return Err(denied(self.unfollowed(host, named, NO_DEVICE)));
        };
        let mut holding = paths
            .iter()
            .filter(|(path, _)| self.is_in(real, path))
            .peekable();
        if holding.peek().is_none() {
            return Err(denied(NO_DEVICE));
        }
        if !holding.any(|(_, allowed)| access.is_within(*allowed)) {
            return Err(denied(
                "the node's policy allows less access to it: ask for less, as in /dev/fuse:r",
            ));
        }
        Ok(Device::Node {
            host: real.to_owned(),
            container: container.clone(),
            access,
        })
    }

    /// What is said of a path that can't be followed. One outside of all that is named
    /// in the policy isn't even said to be there or not.
    fn unfollowed(&self, path: &str, named: bool, unnamed: &'static str) -> &'static str {
        match self.paths.get(path) {
            Some(Err(PathError::Missing)) if named => "it doesn't exist on the node: create it",
            _ if named => "it can't be followed on the node: check its path there",
            _ => unnamed,
        }
    }
}

const NO_ROOT: &str = "it is in no root of the node's policy: add one there, or leave it out";
const NO_DEVICE: &str =
    "it isn't allowed to this service by the node's policy: add it there, or leave it out";

fn bind_denied(source: &str, problem: &str) -> Denial {
    Denial::Bind {
        source_path: source.to_owned(),
        problem: problem.to_owned(),
    }
}
