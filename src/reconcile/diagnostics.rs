//! What the journal keeps of a container that failed, so that a person finds out why.

use crate::manifest::ServiceName;
use crate::state::{ContainerId, Diagnostics};

use super::redact::Redaction;
use super::run::Run;

/// Lines of a container's log that are kept.
const LINES: usize = 50;
/// Longest line that is kept, in bytes.
const LINE: usize = 1024;
/// All lines together: an operation is one record, and a record has to fit into etcd.
const LOG: usize = 16 * 1024;

/// Stands for the log of a container with secrets.
const WITHHELD: &str = "(the service has secrets, which its log may show: it isn't kept here; \
                        follow `podman logs` on the host at the next try)";

impl Run<'_> {
    /// The end of the container's log, how it ended, and what its probe answered last.
    /// What can't be had is left out.
    pub(super) async fn diagnostics(
        &self,
        service: &ServiceName,
        container: &ContainerId,
        probe_answers: Vec<String>,
    ) -> Diagnostics {
        let found = self.ctx.runtime.inspect(container.as_str()).await;
        let found = found.ok().flatten();
        Diagnostics {
            log_tail: self.log_tail(service, container).await,
            exit_code: found.as_ref().and_then(|found| found.exit_code),
            oom_killed: found.as_ref().is_some_and(|found| found.oom_killed),
            probe_answers,
        }
    }

    /// The log of one with secrets stays on the host: it may show them, and the journal
    /// is in etcd.
    async fn log_tail(&self, service: &ServiceName, container: &ContainerId) -> Vec<String> {
        if self.has_secrets(service) {
            return vec![WITHHELD.to_owned()];
        }
        let log = self.ctx.runtime.logs(container, LINES, None).await;
        tail(&self.redaction(service), &log.unwrap_or_default())
    }

    /// What a log of the service may not show: of the generation that is being made,
    /// and of the one that serves.
    fn redaction(&self, service: &ServiceName) -> Redaction {
        let candidate = self.candidates.get(service);
        let candidate = candidate.map(|candidate| candidate.revision);
        let active = self.active.services.get(service);
        let revisions = candidate.into_iter().chain(active.map(|it| it.revision));
        let specs = revisions.filter_map(|revision| self.pinned_at(service, revision).ok());
        Redaction::of(specs.flat_map(|pinned| &pinned.spec.env))
    }
}

/// The newest lines that fit, oldest first.
fn tail(redaction: &Redaction, lines: &[String]) -> Vec<String> {
    let mut left = LOG;
    let newest = lines.iter().rev().take(LINES);
    let mut kept: Vec<String> = newest
        .map(|line| shortened(redaction.apply(line)))
        .take_while(|line| {
            let fits = line.len() <= left;
            left = left.saturating_sub(line.len());
            fits
        })
        .collect();
    kept.reverse();
    kept
}

fn shortened(mut line: String) -> String {
    if line.len() > LINE {
        let fits = |end: &usize| line.is_char_boundary(*end);
        line.truncate((0..=LINE).rev().find(fits).unwrap_or(0));
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_lines_are_kept_as_far_as_they_fit() {
        let none = Redaction::of([]);
        let numbered: Vec<String> = (0..80).map(|number| number.to_string()).collect();
        assert_eq!(tail(&none, &numbered), numbered[30..]);

        let long = vec!["é".repeat(3 * LINE); 40];
        let kept = tail(&none, &long);
        assert!(kept.iter().map(String::len).sum::<usize>() <= LOG);
        assert_eq!(kept.len(), 15);
        assert!(kept.iter().all(|line| line.ends_with('…')));
    }

    #[test]
    fn a_secret_at_the_end_of_a_long_line_is_not_cut_in_half_and_shown() {
        let env = [("API_TOKEN".to_owned(), "tok-0123456789".to_owned())];
        let redaction = Redaction::of(env.iter().map(|(key, value)| (key, value)));
        let line = format!("{}tok-0123456789", "x".repeat(LINE - 8));
        let [kept] = &tail(&redaction, &[line])[..] else {
            panic!("one line")
        };
        assert!(!kept.contains("tok"), "{kept}");
    }
}
