//! `podherd wait`: until apps are as they should be, or never will be.

use std::collections::BTreeMap;

use anyhow::bail;

use super::client::{Client, Reach};
use super::waiting::{USUAL, Wanted, wait_all, warn_without_controller};
use crate::manifest::{AppName, Timespan};
use crate::state::{ConditionType, Truth};

/// Its options.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The apps
    #[arg(value_name = "APP", required = true)]
    apps: Vec<AppName>,
    /// What for: a condition, as in Ready or Degraded=False, or Deleted
    #[arg(long, value_name = "CONDITION", default_value = "Ready", value_parser = parse)]
    r#for: For,
    /// For how long at most
    #[arg(long, value_name = "TIME", default_value = USUAL)]
    timeout: Timespan,
    #[command(flatten)]
    reach: Reach,
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum For {
    Condition(ConditionType, Truth),
    Deleted,
}

fn parse(text: &str) -> Result<For, String> {
    if text.eq_ignore_ascii_case("deleted") || text.eq_ignore_ascii_case("delete") {
        return Ok(For::Deleted);
    }
    let text = text.strip_prefix("condition=").unwrap_or(text);
    let (name, status) = text.split_once('=').unwrap_or((text, "True"));
    let kinds = [
        ConditionType::Accepted,
        ConditionType::Progressing,
        ConditionType::Ready,
        ConditionType::Degraded,
        ConditionType::Inhibited,
        ConditionType::Outdated,
    ];
    let kind = kinds
        .into_iter()
        .find(|kind| kind.as_str().eq_ignore_ascii_case(name));
    let truth = match status.to_ascii_lowercase().as_str() {
        "true" => Some(Truth::True),
        "false" => Some(Truth::False),
        "unknown" => Some(Truth::Unknown),
        _ => None,
    };
    match (kind, truth) {
        (Some(kind), Some(truth)) => Ok(For::Condition(kind, truth)),
        (None, _) => Err(format!(
            "there is no condition {name}: say Deleted or one of {}",
            kinds.map(ConditionType::as_str).join(", ")
        )),
        (_, None) => Err(format!("{status} isn't True, False or Unknown")),
    }
}

pub(super) async fn run(arguments: Arguments) -> anyhow::Result<u8> {
    let client = arguments.reach.connect().await?;
    let mut wanted = BTreeMap::new();
    for app in arguments.apps {
        let goal = match arguments.r#for {
            For::Deleted => Wanted::Deleted,
            For::Condition(kind, truth) => {
                let revision = manifest(&client, &app).await?;
                Wanted::Condition(kind, truth, revision)
            }
        };
        _ = wanted.insert(app, goal);
    }
    warn_without_controller(&client).await?;
    wait_all(&client, &wanted, arguments.timeout).await
}

/// The revision of the app's manifest.
async fn manifest(client: &Client, app: &AppName) -> anyhow::Result<i64> {
    client.must_know(app).await?;
    match client.records().manifest(app).await? {
        Some(entry) => Ok(entry.mod_revision),
        None => bail!("app {app} has no manifest any more: wait --for=Deleted instead"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_named_with_or_without_its_status() {
        let ready = For::Condition(ConditionType::Ready, Truth::True);
        for text in ["Ready", "ready", "condition=Ready", "Ready=True"] {
            assert_eq!(parse(text), Ok(ready));
        }
        let degraded = For::Condition(ConditionType::Degraded, Truth::False);
        assert_eq!(parse("Degraded=false"), Ok(degraded));
        assert_eq!(parse("deleted"), Ok(For::Deleted));
        assert!(parse("Redy").unwrap_err().contains("Ready"));
        assert!(parse("Ready=Yes").is_err());
    }
}
