//! While one service is probed, which may take minutes, the others of its app may die.

use std::collections::BTreeSet;
use std::convert::Infallible;

use tokio::time::sleep;

use crate::manifest::ServiceName;
use crate::runtime::ContainerState;

use super::preflight::LOOK;
use super::run::Run;

impl Run<'_> {
    /// Takes out of the graph, into `dead`, every other service whose container isn't
    /// the verified execution any more. What can't be seen or written now is tried again.
    pub(super) async fn watch_siblings(
        &self,
        probed: &ServiceName,
        dead: &mut BTreeSet<ServiceName>,
    ) -> Infallible {
        loop {
            sleep(LOOK).await;
            let mut found = dead.clone();
            for (name, active) in &self.active.services {
                let serves = active.verified.is_some() && name != probed;
                if !serves || found.contains(name) {
                    continue;
                }
                let Ok(container) = self.ctx.runtime.inspect(active.container.as_str()).await
                else {
                    continue;
                };
                let same = container.is_some_and(|it| {
                    it.state == ContainerState::Running && it.started_at == active.verified
                });
                if !same {
                    found.insert(name.clone());
                }
            }
            if found != *dead && self.narrow_graph(|of, _| !found.contains(of)).await.is_ok() {
                *dead = found;
            }
        }
    }

    /// What was taken out isn't verified any more, and isn't published with the next graph.
    pub(super) fn forget_binds(&mut self, dead: &BTreeSet<ServiceName>) {
        for name in dead {
            tracing::warn!(service = %name, "withdrawn: its container isn't as it was verified");
            if let Some(active) = self.active.services.get_mut(name) {
                active.verified = None;
                active.binds.clear();
            }
        }
    }
}
