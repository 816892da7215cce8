//! What runs in a container and as whom: command, environment, user, signal.

use std::collections::BTreeMap;

use super::mounts::absolute;
use crate::manifest::error::Report;
use crate::manifest::path::Path;
use crate::manifest::secret::SecretRef;
use crate::manifest::signal::signal_number;
use crate::manifest::spec::ServiceSpec;

const MAX_SECRET_NAME: usize = 253;
/// How the names of the secrets begin that belong to apps.
const RESERVED_SECRETS: &str = "podherd-";

pub(super) fn check(service: &ServiceSpec, at: &Path, report: &mut Report<'_>) {
    if let Some(words) = &service.command {
        command(words, &at.key("command"), report);
    }
    for (index, word) in service.args.iter().flatten().enumerate() {
        without_nul(word, &at.key("args").index(index), report);
    }
    if let Some(dir) = &service.working_dir {
        absolute(dir, &at.key("workingDir"), report);
    }
    if let Some(user) = &service.user
        && !is_user(user)
    {
        let message = format!("{user:?} is not a user: write name, uid, name:group or uid:gid");
        report.at(&at.key("user"), message);
    }
    environment(&service.env, &at.key("env"), report);
    for (name, secret) in &service.secrets {
        let at = at.key("secrets").key(name);
        env_name(name, &at, report);
        if service.env.contains_key(name) {
            report.at_key(
                &at,
                format!("`{name}` is also in `env`: keep one of the two"),
            );
        }
        self::secret(secret, &at, report);
    }
    if let Some(signal) = &service.stop_signal
        && signal_number(signal).is_none()
    {
        let message =
            format!("{signal:?} is not a signal's name: write one such as SIGTERM or INT");
        report.at(&at.key("stopSignal"), message);
    }
}

/// A program and its arguments.
pub(super) fn command(words: &[String], at: &Path, report: &mut Report<'_>) {
    if words.first().is_none_or(String::is_empty) {
        report.at(at, "name a program first");
    }
    for (index, word) in words.iter().enumerate() {
        without_nul(word, &at.index(index), report);
    }
}

pub(super) fn environment(env: &BTreeMap<String, String>, at: &Path, report: &mut Report<'_>) {
    for (name, value) in env {
        env_name(name, &at.key(name), report);
        if value.contains('\0') {
            without_nul(value, &at.key(name), report);
        }
    }
}

/// Names a shell can't set (`discovery.type`) are common in images, and allowed.
fn env_name(name: &str, at: &Path, report: &mut Report<'_>) {
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    if !starts_well || !name.bytes().all(plain) {
        let message =
            "a variable's name is letters, digits, '_', '.' and '-', not starting with a digit";
        report.at_key(at, message);
    }
}

/// Refuses what can't be the name of a Podman secret, and what is some app's own:
/// another app would take what it was never given.
pub(super) fn secret(secret: &SecretRef, at: &Path, report: &mut Report<'_>) {
    let SecretRef::Podman(name) = secret else {
        return;
    };
    let at = &at.key("podman");
    let alphanumeric = |c: char| c.is_ascii_alphanumeric();
    let good = (1..=MAX_SECRET_NAME).contains(&name.len())
        && name.starts_with(alphanumeric)
        && name.ends_with(alphanumeric)
        && name
            .chars()
            .all(|c| alphanumeric(c) || matches!(c, '-' | '_' | '.'));
    if !good {
        report.at(at, format!("{name:?} is not the name of a Podman secret"));
    } else if name.starts_with(RESERVED_SECRETS) {
        let message = format!(
            "secrets whose names begin with {RESERVED_SECRETS} are apps' own: write `app` and \
             the name that `podherd secret set` was given"
        );
        report.at(at, message);
    }
}

fn without_nul(text: &str, at: &Path, report: &mut Report<'_>) {
    if text.contains('\0') {
        report.at(
            at,
            "contains a NUL character, which no process can be given",
        );
    }
}

fn is_user(user: &str) -> bool {
    let is_account = |text: &str| {
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            // The highest number is the kernel's "no such ID".
            return text.parse::<u32>().is_ok_and(|id| id < u32::MAX);
        }
        text.len() <= 32
            && text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
    };
    match user.split_once(':') {
        Some((user, group)) => is_account(user) && is_account(group),
        None => is_account(user),
    }
}
