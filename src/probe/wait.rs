//! Trying a check until it passes, the time is over, or the container ends.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::attempt::{Answer, Attempt, NotPublished, Subject};
use super::failure::{Account, ProbeFailure, Purpose};
use crate::manifest::{Check, Readiness, Startup};
use crate::runtime::ContainerState;

/// Pause after the first try that didn't pass; doubled up to the manifest's interval.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// Longest look at the container.
const LOOK: Duration = Duration::from_secs(2);
/// Probing that takes longer than this also holds a wait for the container's end.
/// Most containers are ready before, and the wait costs the runtime some work.
const PATIENCE: Duration = Duration::from_millis(150);

/// Waits until this execution of the container passes its readiness check.
///
/// The container must still run, by that execution, after the last pass; one that
/// ends before fails at once.
pub async fn wait_ready(subject: Subject<'_>, readiness: &Readiness) -> Result<(), ProbeFailure> {
    wait(Purpose::Readiness, subject, readiness).await
}

/// Waits until this execution of the container passes its startup check: only then
/// does its readiness begin to count.
pub async fn wait_started(subject: Subject<'_>, startup: &Startup) -> Result<(), ProbeFailure> {
    let once = Readiness {
        timeout: startup.timeout,
        ..Readiness::of(startup.check.clone())
    };
    wait(Purpose::Startup, subject, &once).await
}

async fn wait(
    purpose: Purpose,
    subject: Subject<'_>,
    until: &Readiness,
) -> Result<(), ProbeFailure> {
    let mut probing = Probing {
        subject,
        deadline: Instant::now() + until.timeout.get(),
        account: Account::of(purpose, &until.check),
    };
    probing.run(until).await
}

struct Probing<'a> {
    subject: Subject<'a>,
    deadline: Instant,
    account: Account,
}

impl Probing<'_> {
    async fn run(&mut self, until: &Readiness) -> Result<(), ProbeFailure> {
        let attempt = Attempt::of(&until.check, self.subject.binds)
            .map_err(|NotPublished| self.account.impossible("the port isn't published"))?;
        let mut successes = until.successes.max(1);
        if let Check::Delay(pause) = &until.check {
            // The pause is what was asked for: the timeout doesn't cut it short.
            let end = Instant::now() + pause.get();
            self.deadline += pause.get();
            while Instant::now() < end {
                self.unless_ended(sleep_until(end)).await;
                self.still_runs().await?;
            }
        }
        if matches!(attempt, Attempt::Running) {
            successes = 1;
        }
        let interval = until.interval.get().max(FIRST_PAUSE);
        let mut pause = FIRST_PAUSE;
        let mut passed = 0;
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            let cut_short = left < attempt.limit();
            match self.unless_ended(self.attempt(attempt)).await {
                Some(Answer::Passed) => passed += 1,
                Some(Answer::Failed(answer) | Answer::Unknown(answer)) => {
                    passed = 0;
                    // That the last try had too little time says less than the one before.
                    if !(cut_short && self.account.has_answers()) {
                        self.account.note(answer);
                    }
                }
                None => passed = 0,
            }
            // A passed check counts only for the execution that it was meant for.
            let runs = self.still_runs().await?;
            if passed >= successes && runs {
                return Ok(());
            }
            if Instant::now() >= self.deadline {
                return Err(self.account.timed_out());
            }
            let next = if passed > 0 && runs {
                interval
            } else {
                let next = pause;
                pause = (pause * 2).min(interval);
                next
            };
            let next = (Instant::now() + next).min(self.deadline);
            self.unless_ended(sleep_until(next)).await;
        }
    }

    /// One bounded try.
    async fn attempt(&self, attempt: Attempt<'_>) -> Answer {
        let left = self.deadline.saturating_duration_since(Instant::now());
        // Even a try that begins at the very end gets a moment.
        let limit = left.min(attempt.limit()).max(FIRST_PAUSE);
        self.subject.ask(attempt, limit).await
    }

    /// Does something as long as the container runs; `None` when it ended meanwhile.
    async fn unless_ended<T>(&self, act: impl Future<Output = T>) -> Option<T> {
        let ended = async {
            sleep(PATIENCE).await;
            let left = self.deadline.saturating_duration_since(Instant::now());
            // An error or `false` says nothing.
            if !matches!(
                self.subject
                    .runtime
                    .wait_stopped(self.subject.container, left)
                    .await,
                Ok(true)
            ) {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            biased;
            done = act => Some(done),
            () = ended => None,
        }
    }

    /// Fails when this execution is over for sure; `false` when nobody can tell, or
    /// the process is frozen or on its way out.
    async fn still_runs(&mut self) -> Result<bool, ProbeFailure> {
        let subject = self.subject;
        let inspect = subject.runtime.inspect(subject.container.as_str());
        let seen = timeout(LOOK, inspect).await;
        let container = match seen {
            Ok(Ok(Some(container))) => container,
            Ok(Ok(None)) => return Err(self.account.gone()),
            Ok(Err(_)) | Err(_) => {
                self.account
                    .note("the container can't be inspected".to_owned());
                return Ok(false);
            }
        };
        if !container.state.may_run() {
            return Err(self
                .account
                .exited(container.exit_code, container.oom_killed));
        }
        if container.started_at != self.subject.started_at {
            return Err(self.account.restarted());
        }
        let runs = container.state == ContainerState::Running;
        if !runs {
            self.account
                .note("the container is frozen or stopping".to_owned());
        }
        Ok(runs)
    }
}
