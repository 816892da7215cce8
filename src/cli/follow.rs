//! Following an operation, step by step, as its journal is written.

use std::time::Duration;

use tokio::signal;

use super::advice::advice;
use super::client::{Client, read};
use super::get::condition;
use super::live::{Live, News};
use super::progress::Progress;
use super::span;
use super::{FAILED, INTERRUPTED, TIMEOUT, WELL};
use crate::manifest::{AppName, Timespan};
use crate::state::{
    ConditionType, Event, Operation, OperationId, OutcomeKind, Status, Step, StepState, Verb,
};
use crate::store::{Change, Entry};

/// The reason of the event about a request that led to nothing.
const DROPPED: &str = "RequestDropped";
/// No limit.
const EVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// Which operation.
#[derive(Debug)]
pub(super) struct Followed<'f> {
    pub app: &'f AppName,
    pub id: &'f OperationId,
    pub verb: Verb,
    /// How somebody looks at it again.
    pub again: &'f str,
}

/// How it ended.
enum End {
    /// With this record.
    Done(Box<Operation>),
    /// Nothing was done, and why.
    Dropped(String),
    /// The app is gone, and its journal with it.
    Gone,
}

impl Followed<'_> {
    /// Shows what is done until it ends. Answers the exit code.
    pub(super) async fn follow(
        &self,
        client: &Client,
        limit: Option<Timespan>,
    ) -> anyhow::Result<u8> {
        let limit = limit.map_or(EVER, Timespan::get);
        let again = self.again;
        tokio::select! {
            biased;
            interrupted = signal::ctrl_c() => {
                interrupted?;
                super::note(&format!("the operation goes on; look again with {again}"));
                Ok(INTERRUPTED)
            }
            ended = tokio::time::timeout(limit, self.watch(client)) => {
                let Ok(ended) = ended else {
                    super::note(&format!(
                        "it hasn't ended in time, and goes on; look again with {again}"
                    ));
                    return Ok(TIMEOUT);
                };
                self.tell(ended?)
            }
        }
    }

    async fn watch(&self, client: &Client) -> anyhow::Result<End> {
        let (keys, mut progress) = (&client.keys, Progress::new());
        let prefixes = vec![
            keys.operations(self.app),
            keys.requests_of(self.app),
            keys.status(self.app),
        ];
        let request = keys.request(self.app, self.id);
        let mut live = Live::new(client, prefixes);
        let mut steps = Steps::default();
        loop {
            let gone = match live.next().await? {
                News::Listed(entries) => {
                    for entry in &entries {
                        self.show(client, entry, &mut steps, &mut progress)?;
                    }
                    !entries.iter().any(|entry| entry.key == request)
                }
                News::Changed(Change::Put(entry)) => {
                    self.show(client, &entry, &mut steps, &mut progress)?;
                    false
                }
                News::Changed(Change::Delete { key, .. }) => key == request,
            };
            if let Some(operation) = steps.seen.take_if(|seen| !seen.in_flight()) {
                return Ok(End::Done(Box::new(operation)));
            }
            if gone && let Some(end) = self.look(client).await? {
                if let End::Done(operation) = &end {
                    // Its last steps may not have come by the watch yet.
                    self.lines(&mut steps, operation, &progress)?;
                }
                return Ok(end);
            }
        }
    }

    /// The request is gone: how did that end? `None` when it is still worked on.
    async fn look(&self, client: &Client) -> anyhow::Result<Option<End>> {
        let keys = &client.keys;
        let operation = client
            .one::<Operation>(keys.operation(self.app, self.id))
            .await?;
        if let Some(kept) = operation {
            let ended = (!kept.record.in_flight()).then(|| Box::new(kept.record));
            return Ok(ended.map(End::Done));
        }
        let records = client.records().load(self.app).await?;
        if self.verb == Verb::Remove && records.ownership.is_none() {
            return Ok(Some(End::Gone));
        }
        let events = client.list::<Event>(keys.events_of(self.app)).await?;
        let mut dropped = events.into_iter().map(|found| found.record);
        let dropped = dropped.rfind(|event| event.reason == DROPPED);
        let why = dropped.map(|event| event.message);
        Ok(Some(End::Dropped(why.unwrap_or_else(|| {
            format!("nothing says why; see podherd events {}", self.app)
        }))))
    }

    fn show(
        &self,
        client: &Client,
        entry: &Entry,
        steps: &mut Steps,
        progress: &mut Progress,
    ) -> anyhow::Result<()> {
        let keys = &client.keys;
        if entry.key == keys.operation(self.app, self.id) {
            if let Some(operation) = read::<Operation>(entry) {
                self.lines(steps, &operation, progress)?;
                if let Some(now) = now(&operation) {
                    progress.now(&now);
                }
                steps.seen = Some(operation);
            }
        } else if steps.seen.is_none() && entry.key == keys.status(self.app) {
            let status = read::<Status>(entry);
            let progressing = status
                .as_ref()
                .and_then(|status| condition(status, ConditionType::Progressing));
            if let Some(progressing) = progressing {
                progress.now(&format!("waits to begin: {}", progressing.message));
            }
        }
        Ok(())
    }

    fn lines(
        &self,
        steps: &mut Steps,
        operation: &Operation,
        progress: &Progress,
    ) -> anyhow::Result<()> {
        if steps.states.is_empty() {
            let (verb, app, id) = (operation.request.verb.as_str(), self.app, self.id);
            progress.line(&format!("{verb} {app}: operation {id}"))?;
        }
        for line in steps.ended(operation) {
            progress.line(&line)?;
        }
        Ok(())
    }

    fn tell(&self, end: End) -> anyhow::Result<u8> {
        let (app, verb) = (self.app, self.verb.as_str());
        match end {
            End::Gone => {
                super::say(&format!("{verb} {app}: done, the app is gone"))?;
                Ok(WELL)
            }
            End::Dropped(why) => {
                super::note(&format!("{verb} {app}: nothing was done: {why}"));
                Ok(FAILED)
            }
            End::Done(operation) => {
                for warning in &operation.warnings {
                    super::note(&format!("{} is left: {}", warning.leftover, warning.detail));
                }
                let Some(outcome) = &operation.outcome else {
                    return Ok(FAILED);
                };
                let (result, message) = (outcome.result.as_str(), &outcome.message);
                super::say(&format!("{verb} {app}: {result}: {message}"))?;
                if outcome.result == OutcomeKind::Success {
                    return Ok(WELL);
                }
                if let Some(next) = advice(&outcome.reason, app) {
                    super::note(&format!("{}: {next}", outcome.reason));
                }
                Ok(FAILED)
            }
        }
    }
}

/// What was shown of the steps.
#[derive(Debug, Default)]
struct Steps {
    states: Vec<StepState>,
    seen: Option<Operation>,
}

impl Steps {
    /// A line for each step that has ended since.
    fn ended(&mut self, operation: &Operation) -> Vec<String> {
        let total = operation.steps.len();
        let mut lines = Vec::new();
        for (index, step) in operation.steps.iter().enumerate() {
            let before = self.states.get(index).copied();
            let ended = matches!(step.state, StepState::Succeeded | StepState::Failed);
            if ended && before != Some(step.state) {
                lines.push(format!("{:>3}/{total}  {}", index + 1, ended_step(step)));
            }
        }
        self.states = operation.steps.iter().map(|step| step.state).collect();
        lines
    }
}

fn ended_step(step: &Step) -> String {
    let took = match (step.started_at, step.finished_at) {
        (Some(from), Some(to)) => format!(" in {}", span::took(from, to)),
        _ => String::new(),
    };
    let (what, error) = (
        named(step),
        step.error.as_deref().unwrap_or("see the journal"),
    );
    match step.state {
        StepState::Failed => format!("{what}  failed{took}: {error}"),
        StepState::Pending | StepState::Running | StepState::Succeeded => {
            format!("{what}  done{took}")
        }
    }
}

fn named(step: &Step) -> String {
    let service = step.service.as_ref().map_or("", |service| service.as_str());
    format!("{:<9}  {service:<12}", step.kind.as_str())
}

/// The step that is at work.
fn now(operation: &Operation) -> Option<String> {
    let mut steps = operation.steps.iter().enumerate();
    let (index, step) = steps.find(|(_, step)| step.state == StepState::Running)?;
    let (total, what) = (operation.steps.len(), named(step));
    Some(format!("{:>3}/{total}  {}", index + 1, what.trim_end()))
}

#[cfg(test)]
mod tests {
    use jiff::{Timestamp, ToSpan as _};

    use super::*;
    use crate::state::{Incarnation, Request, StepKind};

    fn operation(states: &[StepState]) -> Operation {
        let started = Timestamp::UNIX_EPOCH;
        let steps = states.iter().map(|state| Step {
            kind: StepKind::Probe,
            service: "web".parse().ok(),
            state: *state,
            before: None,
            after: None,
            started_at: Some(started),
            finished_at: Some(started + 120.milliseconds()),
            error: (*state == StepState::Failed).then(|| "not ready".to_owned()),
            diagnostics: None,
        });
        Operation {
            id: OperationId::new("restart-1"),
            request: Request {
                verb: Verb::Restart,
                revision: None,
                service: None,
                container: None,
                note: None,
            },
            incarnation: Incarnation(uuid::Uuid::nil()),
            source: 1,
            asked: true,
            attempt: 1,
            started_at: started,
            finished_at: None,
            steps: steps.collect(),
            outcome: None,
            warnings: Vec::new(),
        }
    }

    #[test]
    fn each_step_is_told_once_when_it_ends() {
        use StepState::{Failed, Pending, Running, Succeeded};
        let mut steps = Steps::default();
        assert!(steps.ended(&operation(&[Running, Pending])).is_empty());
        let said = steps.ended(&operation(&[Succeeded, Running]));
        assert_eq!(said, ["  1/2  probe      web           done in 120ms"]);
        let said = steps.ended(&operation(&[Succeeded, Failed]));
        assert_eq!(said.len(), 1);
        assert!(said[0].ends_with("failed in 120ms: not ready"), "{said:?}");
        assert!(steps.ended(&operation(&[Succeeded, Failed])).is_empty());
    }

    #[test]
    fn the_step_at_work_is_named() {
        use StepState::{Pending, Running, Succeeded};
        let at_work = now(&operation(&[Succeeded, Running, Pending]));
        assert_eq!(at_work.as_deref(), Some("  2/3  probe      web"));
        assert_eq!(now(&operation(&[Succeeded])), None);
    }
}
