//! `podherd plan`: what the controller would do now. It has no authority, so
//! nothing that it uses can write or act.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::assemble::World;
use super::connect;
use crate::manifest::AppName;
use crate::plan::{Action, Desired, Next};
use crate::reconcile::{Preview, Unobserved};
use crate::settings::{
    ConfigOption, EtcdOptions, Host, LogOptions, NodeOptions, PodmanOptions, PolicyOptions,
};
use crate::state::Keys;
use crate::store::{EtcdStore, Newest, Store, authority};
use crate::telemetry::{self, Metrics};

/// How much of a container's ID is shown, as Podman does.
const SHORT_ID: usize = 12;

/// Its options.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The apps [default: all]
    #[arg(value_name = "APP")]
    apps: Vec<AppName>,
    #[command(flatten)]
    config: ConfigOption,
    #[command(flatten)]
    etcd: EtcdOptions,
    #[command(flatten)]
    podman: PodmanOptions,
    #[command(flatten)]
    node: NodeOptions,
    #[command(flatten)]
    policy: PolicyOptions,
    #[command(flatten)]
    log: LogOptions,
}

pub(super) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let file = arguments.config.load()?;
    let host = Host::here();
    let etcd = arguments.etcd.resolve(&file)?;
    let podman = arguments.podman.resolve(&file, &host)?;
    let node = arguments.node.resolve(&file, &host)?;
    let policy = arguments.policy.resolve(&file)?;
    let log = arguments.log.resolve(&file);
    telemetry::init(log.format, &log.filter)?;

    // Somebody waits for the answer: what can't be reached now is an error.
    let store: Arc<dyn Store> = Arc::new(EtcdStore::connect(&etcd).await?);
    let runtime = connect::podman(&podman, &Metrics::new()?)?;
    let world = World::new(node, store, runtime, policy, Keys::new(&etcd.prefix));
    let ended = CancellationToken::new();
    let _ends = ended.clone().drop_guard();
    let (_keeper, nobody) = authority();
    // No port is claimed, so the range doesn't matter.
    let reconciler = world.reconciler(
        &nobody,
        Newest::default(),
        1..=1,
        Arc::new(Unobserved),
        &ended,
    );
    let apps = if arguments.apps.is_empty() {
        world.catalog().apps().await?.into_iter().collect()
    } else {
        arguments.apps
    };
    let mut out = std::io::stdout().lock();
    if apps.is_empty() {
        writeln!(out, "no apps in {}", etcd.prefix)?;
    }
    for app in apps {
        let preview = reconciler.preview(&app).await?;
        out.write_all(describe(&app, &preview).as_bytes())?;
    }
    Ok(())
}

/// What would be done for one app, as text.
fn describe(app: &AppName, preview: &Preview) -> String {
    let mut text = format!("{app}: {}\n", first(&preview.next));
    if let Desired::Invalid { message, .. } = &preview.snapshot.desired {
        text.push_str("  the manifest is refused, what is active goes on serving:\n");
        for line in message.lines() {
            line_into(&mut text, format_args!("    {line}"));
        }
    }
    if let Some(denied) = &preview.snapshot.denied {
        let message = denied.message();
        line_into(
            &mut text,
            format_args!("  the manifest isn't allowed here: {message}"),
        );
    }
    for (number, action) in (1..).zip(&preview.actions) {
        line_into(&mut text, format_args!("  {number:>2}. {}", effect(action)));
    }
    for note in &preview.notes {
        line_into(&mut text, format_args!("  note: {note}"));
    }
    text
}

fn line_into(text: &mut String, line: std::fmt::Arguments<'_>) {
    // A string can't refuse.
    _ = writeln!(text, "{line}");
}

fn first(next: &Next) -> String {
    match next {
        Next::Recover(id) => {
            format!("operation {id} was interrupted; it is reconciled before anything else")
        }
        Next::Sweep(_) => "containers that no record names are removed".to_owned(),
        Next::Hold { message, .. } => format!("held until somebody has looked: {message}"),
        Next::Answer(pending, _) => format!("the request at {} is answered", pending.key),
        Next::RollBack(_) => "the failed deployment is rolled back".to_owned(),
        Next::Remove(_) => "remove".to_owned(),
        Next::Forget => {
            "the manifest is gone, and the app owns nothing: forget its status".to_owned()
        }
        Next::Deploy => "deploy".to_owned(),
        Next::Repair(_) => "bring back what is active".to_owned(),
        Next::Wait(time) => format!("nothing for the next {} s", time.as_secs()),
        Next::Settled => "nothing to do".to_owned(),
    }
}

fn effect(action: &Action) -> String {
    let mut text = format!("{:<10}", action.kind().as_str());
    if let Some(service) = action.service() {
        text.push_str(service.as_str());
    }
    if let Some(container) = action.container() {
        let id = container.as_str();
        _ = write!(text, " {}", id.get(..SHORT_ID).unwrap_or(id));
    }
    if let Action::Create { revision, .. } = action {
        _ = write!(text, " from revision {revision}");
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{ContainerId, RevisionNumber};

    #[test]
    fn an_effect_names_its_service_and_its_container_in_short() {
        let withdraw = Action::Withdraw {
            service: "web".parse().unwrap(),
            drain: Some(ContainerId::new("0123456789abcdef")),
        };
        assert_eq!(effect(&withdraw), "withdraw  web 0123456789ab");

        let create = Action::Create {
            service: "web".parse().unwrap(),
            revision: RevisionNumber(4),
        };
        assert_eq!(effect(&create), "create    web from revision 4");
        assert_eq!(effect(&Action::Reclaim), "reclaim");
    }
}
