//! Trying a check until it passes, the time is over, or the container ends.

use std::net::SocketAddr;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::Prober;
use super::failure::{Account, ProbeFailure};
use crate::manifest::{Check, PortName, Protocol, Readiness};
use crate::runtime::{ContainerState, Runtime};
use crate::state::{Bind, ContainerId};

/// Pause after the first try that didn't pass; doubled up to the manifest's interval.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// Longest single try: while a container is replaced, connections hang as well as fail.
const TRY: Duration = Duration::from_secs(2);
/// Probing that takes longer than this also holds a wait for the container's end.
/// Most containers are ready before, and the wait costs the runtime some work.
const PATIENCE: Duration = Duration::from_millis(150);
/// How much of the log is searched at each try.
const LOG_LINES: usize = 10_000;

/// Waits until this execution of the container passes its readiness check.
///
/// `started_at` tells the execution apart from a later one of the same container;
/// `binds` are as inspected after that start. The container must still run, by that
/// execution, after the last pass; one that ends before fails at once.
pub async fn wait_ready(
    prober: &dyn Prober,
    runtime: &dyn Runtime,
    container: &ContainerId,
    started_at: Option<Timestamp>,
    readiness: &Readiness,
    binds: &[Bind],
) -> Result<(), ProbeFailure> {
    let mut probing = Probing {
        prober,
        runtime,
        container,
        started_at,
        deadline: Instant::now() + readiness.timeout.get(),
        account: Account::of(&readiness.check),
    };
    probing.run(readiness, binds).await
}

struct Probing<'a> {
    prober: &'a dyn Prober,
    runtime: &'a dyn Runtime,
    container: &'a ContainerId,
    started_at: Option<Timestamp>,
    deadline: Instant,
    account: Account,
}

/// A check that is tried, with its address looked up.
enum Try<'a> {
    Http(&'a str, crate::manifest::StatusRange, SocketAddr),
    Tcp(SocketAddr),
    Exec(&'a [String]),
    Log(&'a str),
    /// Nothing to ask: that it runs is enough.
    Running,
}

impl Probing<'_> {
    async fn run(&mut self, readiness: &Readiness, binds: &[Bind]) -> Result<(), ProbeFailure> {
        let mut successes = readiness.successes.max(1);
        let attempt = match &readiness.check {
            Check::Http { path, port, status } => {
                Try::Http(path, *status, self.address(port, binds)?)
            }
            Check::Tcp { port } => Try::Tcp(self.address(port, binds)?),
            Check::Exec { command } => Try::Exec(command),
            Check::Log { contains } => Try::Log(contains),
            Check::Health => return Err(self.account.impossible("not supported yet")),
            Check::Delay(pause) => {
                // The pause is what was asked for: the timeout doesn't cut it short.
                let end = Instant::now() + pause.get();
                self.deadline += pause.get();
                while Instant::now() < end {
                    self.unless_ended(sleep_until(end)).await;
                    self.still_runs().await?;
                }
                successes = 1;
                Try::Running
            }
            Check::None => {
                successes = 1;
                Try::Running
            }
        };
        let interval = readiness.interval.get().max(FIRST_PAUSE);
        let mut pause = FIRST_PAUSE;
        let mut passed = 0;
        loop {
            match self.unless_ended(self.attempt(&attempt)).await {
                Some(Ok(())) => passed += 1,
                Some(Err(answer)) => {
                    passed = 0;
                    self.account.note(answer);
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

    /// Where this host reaches a declared TCP port.
    fn address(&self, port: &PortName, binds: &[Bind]) -> Result<SocketAddr, ProbeFailure> {
        let bind = binds
            .iter()
            .find(|bind| bind.port == *port && bind.protocol == Protocol::Tcp);
        bind.map(Bind::address)
            .ok_or_else(|| self.account.impossible("the port isn't published"))
    }

    /// One bounded try; an error is its answer in a few words.
    async fn attempt(&self, attempt: &Try<'_>) -> Result<(), String> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        // Even a try that begins at the very end gets a moment.
        let limit = left.clamp(FIRST_PAUSE, TRY);
        match timeout(limit, self.ask(attempt, limit)).await {
            Ok(answer) => answer,
            Err(_) => Err("no answer in time".to_owned()),
        }
    }

    async fn ask(&self, attempt: &Try<'_>, limit: Duration) -> Result<(), String> {
        match attempt {
            Try::Http(path, accepted, address) => {
                let code = self.prober.http(*address, path).await?;
                if accepted.contains(code) {
                    Ok(())
                } else {
                    Err(format!("HTTP status {code}, not {accepted}"))
                }
            }
            Try::Tcp(address) => self.prober.tcp(*address).await,
            Try::Exec(command) => {
                let code = self.runtime.exec(self.container, command, limit).await;
                match code {
                    Ok(0) => Ok(()),
                    Ok(code) => Err(format!("exit code {code}")),
                    // What Podman says may quote the command's arguments.
                    Err(error) if error.is_ambiguous() => Err("no answer in time".to_owned()),
                    Err(_) => Err("the command can't be run".to_owned()),
                }
            }
            Try::Log(text) => {
                let lines = self
                    .runtime
                    .logs(self.container, LOG_LINES, self.started_at)
                    .await;
                let lines = lines.map_err(|_| "the log can't be read".to_owned())?;
                if lines.iter().any(|line| line.contains(text)) {
                    Ok(())
                } else {
                    Err("the text isn't in the log".to_owned())
                }
            }
            Try::Running => Ok(()),
        }
    }

    /// Does something as long as the container runs; `None` when it ended meanwhile.
    async fn unless_ended<T>(&self, act: impl Future<Output = T>) -> Option<T> {
        let ended = async {
            sleep(PATIENCE).await;
            let left = self.deadline.saturating_duration_since(Instant::now());
            // An error or `false` says nothing.
            if !matches!(
                self.runtime.wait_stopped(self.container, left).await,
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
        let seen = timeout(TRY, self.runtime.inspect(self.container.as_str())).await;
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
        if container.started_at != self.started_at {
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
