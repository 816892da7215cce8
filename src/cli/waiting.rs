//! Waiting until apps are as they are wanted. It ends at once when they never will be.

use std::collections::BTreeMap;

use super::client::{Client, read};
use super::get::{condition, truth};
use super::live::{Live, News};
use super::progress::Progress;
use super::{FAILED, TIMEOUT, WELL};
use crate::manifest::{AppName, Timespan};
use crate::state::{ConditionType, Status, Truth};
use crate::store::{Change, Entry};

/// Reasons of `Ready` that Podherd mends by itself, with nothing in flight meanwhile.
const PASSING: [&str; 3] = ["Deploying", "ServiceNotVerified", "CrashLoopBackOff"];

/// How long is waited, where nothing else is said.
pub(super) const USUAL: &str = "5m";

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// A condition, of the manifest at this revision or a later one.
    Condition(ConditionType, Truth, i64),
    /// The app is gone.
    Deleted,
}

/// What an app looks like.
#[derive(Debug, Default)]
struct Seen {
    manifest: Option<i64>,
    status: Option<Status>,
}

/// How far an app is.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// It may still come.
    Waits(String),
    /// It has come.
    Reached(String),
    /// Without a change it won't come.
    Never(String),
}

/// Waits for all of these apps. Answers the exit code.
pub(super) async fn wait_all(
    client: &Client,
    wanted: &BTreeMap<AppName, Wanted>,
    limit: Timespan,
) -> anyhow::Result<u8> {
    let mut progress = Progress::new();
    let all = watch(client, wanted, &mut progress);
    if let Ok(code) = tokio::time::timeout(limit.get(), all).await {
        return code;
    }
    drop(progress);
    super::note(&format!(
        "not within {limit}; it may still come: podherd status --watch, or podherd describe APP"
    ));
    Ok(TIMEOUT)
}

async fn watch(
    client: &Client,
    wanted: &BTreeMap<AppName, Wanted>,
    progress: &mut Progress,
) -> anyhow::Result<u8> {
    let keys = &client.keys;
    let mut live = Live::new(client, vec![keys.apps(), keys.statuses()]);
    let mut seen: BTreeMap<&AppName, Seen> =
        wanted.keys().map(|app| (app, Seen::default())).collect();
    let mut said: BTreeMap<&AppName, String> = BTreeMap::new();
    let mut ended: BTreeMap<&AppName, bool> = BTreeMap::new();
    while ended.len() < wanted.len() {
        let news = live.next().await?;
        if let News::Listed(_) = &news {
            for seen in seen.values_mut() {
                *seen = Seen::default();
            }
        }
        for (app, seen) in &mut seen {
            seen.learn(client, app, &news);
        }
        for (app, wanted) in wanted
            .iter()
            .filter(|(app, _)| !ended.contains_key(app))
            .collect::<Vec<_>>()
        {
            let verdict = seen.get(app).map(|seen| verdict(*wanted, seen));
            let text = match verdict {
                None => continue,
                Some(Verdict::Waits(why)) => why,
                Some(Verdict::Reached(how)) => {
                    _ = ended.insert(app, true);
                    how
                }
                Some(Verdict::Never(why)) => {
                    _ = ended.insert(app, false);
                    format!("{why}; podherd describe {app} says more")
                }
            };
            if said.get(app) != Some(&text) {
                progress.line(&format!("{app}: {text}"))?;
                _ = said.insert(app, text);
            }
        }
        let rest = wanted.keys().filter(|app| !ended.contains_key(app));
        let rest: Vec<_> = rest.map(AppName::as_str).collect();
        progress.now(&format!("waiting for {}", rest.join(", ")));
    }
    let well = ended.values().all(|well| *well);
    Ok(if well { WELL } else { FAILED })
}

impl Seen {
    fn learn(&mut self, client: &Client, app: &AppName, news: &News) {
        let (manifest, status) = (client.keys.app(app), client.keys.status(app));
        let mut put = |entry: &Entry| {
            if entry.key == manifest {
                self.manifest = Some(entry.mod_revision);
            } else if entry.key == status {
                self.status = read(entry);
            }
        };
        match news {
            News::Listed(entries) => entries.iter().for_each(put),
            News::Changed(Change::Put(entry)) => put(entry),
            News::Changed(Change::Delete { key, .. }) if *key == manifest => self.manifest = None,
            News::Changed(Change::Delete { key, .. }) if *key == status => self.status = None,
            News::Changed(Change::Delete { .. }) => {}
        }
    }
}

fn verdict(wanted: Wanted, seen: &Seen) -> Verdict {
    match wanted {
        Wanted::Deleted => deleted(seen),
        Wanted::Condition(..) if seen.manifest.is_none() => {
            Verdict::Never("its manifest was deleted".to_owned())
        }
        Wanted::Condition(kind, wanted, revision) => {
            let status = seen.status.as_ref();
            match status.filter(|status| status.observed_revision >= revision) {
                Some(status) => reached(kind, wanted, status),
                None => Verdict::Waits("the manifest waits to be looked at".to_owned()),
            }
        }
    }
}

fn reached(kind: ConditionType, wanted: Truth, status: &Status) -> Verdict {
    let said = |kind: ConditionType| {
        condition(status, kind).map(|it| {
            let (name, word) = (kind.as_str(), truth(it.status));
            format!("{name}={word} ({}): {}", it.reason, it.message)
        })
    };
    let is = |kind, wanted| condition(status, kind).is_some_and(|it| it.status == wanted);
    let line = said(kind).unwrap_or_else(|| format!("{} isn't known yet", kind.as_str()));
    if is(kind, wanted) {
        return Verdict::Reached(line);
    }
    if (kind, wanted) != (ConditionType::Ready, Truth::True) {
        return Verdict::Waits(line);
    }
    if is(ConditionType::Accepted, Truth::False) {
        return Verdict::Never(said(ConditionType::Accepted).unwrap_or(line));
    }
    let ready = condition(status, ConditionType::Ready);
    let passes = ready.is_some_and(|ready| PASSING.contains(&ready.reason.as_str()));
    if is(ConditionType::Progressing, Truth::False) && !passes {
        return Verdict::Never(line);
    }
    let retry = condition(status, ConditionType::Progressing)
        .filter(|it| it.status == Truth::True)
        .map(|it| format!("{line}; {}", it.message));
    Verdict::Waits(retry.unwrap_or(line))
}

fn deleted(seen: &Seen) -> Verdict {
    if seen.manifest.is_some() {
        return Verdict::Waits("its manifest is still there".to_owned());
    }
    let Some(status) = &seen.status else {
        return Verdict::Reached("gone".to_owned());
    };
    let progressing = condition(status, ConditionType::Progressing);
    match progressing {
        // What holds a removal up for good has a reason of its own.
        Some(it)
            if it.status == Truth::False
                && status.observed_revision == 0
                && it.reason != "Settled" =>
        {
            Verdict::Never(format!("{}: {}", it.reason, it.message))
        }
        _ => Verdict::Waits("being removed".to_owned()),
    }
}

/// Whether somebody may be waiting in vain, since nobody works.
pub(super) async fn warn_without_controller(client: &Client) -> anyhow::Result<()> {
    if client.leader().await?.is_none() {
        super::note("no controller leads: nothing happens until one runs (podherd run)");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::state::Condition;

    fn seen(observed: i64, conditions: &[(ConditionType, Truth, &str)]) -> Seen {
        let conditions = conditions.iter().map(|(kind, status, reason)| Condition {
            r#type: *kind,
            status: *status,
            reason: (*reason).to_owned(),
            message: String::new(),
            last_transition_time: Timestamp::UNIX_EPOCH,
        });
        Seen {
            manifest: Some(7),
            status: Some(Status {
                observed_revision: observed,
                conditions: conditions.collect(),
                ..Status::default()
            }),
        }
    }

    const READY: Wanted = Wanted::Condition(ConditionType::Ready, Truth::True, 7);

    fn waits(verdict: &Verdict) -> bool {
        matches!(verdict, Verdict::Waits(_))
    }

    fn never(verdict: &Verdict) -> bool {
        matches!(verdict, Verdict::Never(_))
    }

    #[test]
    fn only_a_status_of_this_manifest_counts() {
        use ConditionType::{Accepted, Ready};
        let ready = [(Ready, Truth::True, "Serving")];
        assert!(waits(&verdict(READY, &seen(6, &ready))));
        assert!(matches!(
            verdict(READY, &seen(7, &ready)),
            Verdict::Reached(_)
        ));
        assert!(matches!(
            verdict(READY, &seen(8, &ready)),
            Verdict::Reached(_)
        ));
        let refused = [(Accepted, Truth::False, "InvalidManifest")];
        assert!(waits(&verdict(READY, &seen(6, &refused))));
        assert!(never(&verdict(READY, &seen(7, &refused))));
    }

    #[test]
    fn it_ends_when_nothing_goes_on_any_more_and_not_before() {
        use ConditionType::{Progressing, Ready};
        let settled = |reason| {
            let not_ready = (Ready, Truth::False, reason);
            verdict(
                READY,
                &seen(7, &[not_ready, (Progressing, Truth::False, "Settled")]),
            )
        };
        for reason in ["ImageUnknown", "Stopped", "RolledBack", "Exited"] {
            assert!(never(&settled(reason)), "{reason}");
        }
        for reason in PASSING {
            assert!(waits(&settled(reason)), "{reason}");
        }
        let retried = [
            (Ready, Truth::False, "NotReady"),
            (Progressing, Truth::True, "RetryScheduled"),
        ];
        assert!(waits(&verdict(READY, &seen(7, &retried))));
    }

    #[test]
    fn a_protected_app_is_never_gone() {
        use ConditionType::Progressing;
        let mut held = seen(0, &[(Progressing, Truth::False, "DeletionProtected")]);
        assert!(waits(&verdict(Wanted::Deleted, &held)));
        held.manifest = None;
        assert!(never(&verdict(Wanted::Deleted, &held)));
        assert!(never(&verdict(READY, &held)));
        held.status = None;
        assert_eq!(
            verdict(Wanted::Deleted, &held),
            Verdict::Reached("gone".to_owned())
        );
    }
}
