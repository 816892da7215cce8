//! The command line: one file a command.
//!
//! Commands take settings apart, put the parts of Podherd together, and show
//! what came of it.
//!
//! - `process` is what those that stay have in common, `assemble` how the reconciler and
//!   the controller are put together, `connect` how these reach etcd and Podman.
//! - `client` is etcd as the commands of people see it, `holdings` what apps own there
//!   and in Podman.
//! - `manifests` are those in files, `desired` those in etcd beside them.
//! - `waiting` is until an app is as it is wanted, `progress` what is shown meanwhile.
//! - `request` asks for a verb, `follow` shows the operation that comes of it.
//! - `containers` are those of an app on this host, for what needs Podman itself.
//! - `live` is records from watches, `advice` what a person can do about a reason.
//! - `output`, `page`, `table` and `span` are how things are shown.

// The comments of options are what `--help` shows: plain text.
#![allow(clippy::doc_markdown)]

mod advice;
mod apply;
mod assemble;
mod client;
mod connect;
mod containers;
mod controller;
mod delete;
mod describe;
mod desired;
mod diff;
mod doctor;
mod events;
mod exec;
mod follow;
mod generate;
mod get;
mod history;
mod holdings;
mod inhibitions;
mod live;
mod logs;
mod manifests;
mod output;
mod page;
mod plan;
mod process;
mod progress;
mod proxy;
mod purge;
mod request;
mod run;
mod schema;
mod secret;
mod span;
mod status;
mod table;
mod top;
mod validate;
mod verbs;
mod volumes;
mod wait;
mod waiting;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::settings::SettingsError;
use crate::state::AskedVerb;

/// All is well.
const WELL: u8 = 0;
/// It was tried and failed: a manifest is wrong, etcd refuses, a port is taken.
const FAILED: u8 = 1;
/// It couldn't be tried: wrong settings, or a file that can't be read.
const USAGE: u8 = 2;
/// It has neither come nor failed within the time that was given.
const TIMEOUT: u8 = 3;
/// Somebody pressed Ctrl-C; what was asked for goes on.
const INTERRUPTED: u8 = 130;

const EXIT_CODES: &str = "Exit codes: 0 all is well; 1 it failed, or a manifest is wrong; \
                          2 wrong usage or settings, or a file that can't be read.";
const WAIT_CODES: &str = "Exit codes: 0 all is well; 1 it failed, or without a change it won't come; \
                          2 wrong usage or settings, or a file that can't be read; 3 it has neither \
                          come nor failed within --timeout.";
const VERB_CODES: &str = "The operation is followed step by step, and goes on when this command ends.\n\n\
                          Exit codes: 0 it succeeded; 1 it failed, was done in part, or was refused; \
                          2 wrong usage or settings; 3 it hasn't ended within --timeout; 130 Ctrl-C.";
const EXEC_CODES: &str =
    "Exit codes: those of the command; else 1 it couldn't be run, 2 wrong usage or settings.";
const DOCTOR_CODES: &str = "Options are those of podherd run: say the same, so that the same is looked at.\n\n\
                            Exit codes: 0 nothing is wrong; 1 something is; 2 wrong usage.";
const DIFF_CODES: &str =
    "Exit codes: 0 nothing differs; 1 something does; 2 it couldn't be compared.";
const SETTINGS: &str = "Each option can also be set by the environment variable shown with it, and in \
                        the YAML file of --config under its name without the dashes. A flag wins over \
                        the environment, the environment over the file.\n\n\
                        Exit codes: 0 it was told to stop and did; 1 it failed; 2 wrong usage or settings.";

/// A Kubernetes-style reconciling controller for Podman
#[derive(Debug, Parser)]
#[command(name = "podherd", version, after_help = EXIT_CODES, disable_help_subcommand = false)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Controller and proxy in one process: all that a single host needs
    #[command(after_help = SETTINGS)]
    Run(run::Arguments),
    /// Make this host's containers look like the manifests in etcd
    #[command(after_help = SETTINGS)]
    Controller(controller::Arguments),
    /// Serve the published routes over HTTP
    #[command(after_help = SETTINGS)]
    Proxy(proxy::Arguments),
    /// Say what the controller would do now, and touch nothing
    #[command(after_help = SETTINGS)]
    Plan(plan::Arguments),
    /// Put manifests into etcd, all or nothing
    #[command(after_help = WAIT_CODES)]
    Apply(apply::Arguments),
    /// Say what applying manifests would change
    #[command(after_help = DIFF_CODES)]
    Diff(diff::Arguments),
    /// Take manifests out of etcd: their apps are removed
    #[command(after_help = WAIT_CODES)]
    Delete(delete::Arguments),
    /// Wait until apps are ready, or never will be
    #[command(after_help = WAIT_CODES)]
    Wait(wait::Arguments),
    /// Resolve the images anew and deploy the manifest
    #[command(after_help = VERB_CODES)]
    Deploy(verbs::OfService),
    /// Stop an app; it stays stopped until it is started
    #[command(after_help = VERB_CODES)]
    Stop(verbs::OfApp),
    /// Start a stopped app
    #[command(after_help = VERB_CODES)]
    Start(verbs::OfApp),
    /// Restart containers in place
    #[command(after_help = VERB_CODES)]
    Restart(verbs::OfService),
    /// Make an older revision serve
    #[command(after_help = VERB_CODES)]
    Rollback(verbs::Rollback),
    /// End an app and delete its manifest
    #[command(after_help = VERB_CODES)]
    Remove(verbs::Remove),
    /// Let a container be started again that may not
    #[command(after_help = VERB_CODES)]
    Inhibitions(inhibitions::Arguments),
    /// Print what the containers of an app say
    #[command(after_help = EXIT_CODES)]
    Logs(logs::Arguments),
    /// Run a command in a service's container
    #[command(after_help = EXEC_CODES)]
    Exec(exec::Arguments),
    /// Show what containers use
    #[command(after_help = EXIT_CODES)]
    Top(top::Arguments),
    /// List apps, services, operations, revisions, inhibitions, routes or nodes
    #[command(after_help = EXIT_CODES)]
    Get(get::Arguments),
    /// Say everything about an app, why it isn't ready, and what to do next
    #[command(after_help = EXIT_CODES)]
    Describe(describe::Arguments),
    /// Say how the apps are, at a glance
    #[command(after_help = EXIT_CODES)]
    Status(status::Arguments),
    /// List the revisions of an app, what each changed, and what was done
    #[command(after_help = EXIT_CODES)]
    History(history::Arguments),
    /// List what happened lately
    #[command(after_help = EXIT_CODES)]
    Events(events::Arguments),
    /// Check manifests offline, as the controller would
    #[command(after_help = EXIT_CODES)]
    Validate(validate::Arguments),
    /// Set, list and delete the secrets that belong to an app
    #[command(after_help = EXIT_CODES)]
    Secret(secret::Arguments),
    /// List the volumes of live and of removed apps
    #[command(after_help = EXIT_CODES)]
    Volumes(volumes::Arguments),
    /// Delete for good one volume or secret that a removed app left
    #[command(after_help = EXIT_CODES)]
    Purge(purge::Arguments),
    /// Check that this host has what Podherd needs, and say how to mend what it lacks
    #[command(after_help = DOCTOR_CODES)]
    Doctor(doctor::Arguments),
    /// Print a completion script for a shell
    Completion(generate::Completion),
    /// Print the manual page
    Man(generate::Man),
    /// Print the manifest's JSON Schema, for editors
    Schema,
    /// Print the version
    Version,
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    // Wrong usage ends here, with clap's message and code 2.
    let Cli { command } = Cli::parse();
    // As `diff` itself: 1 is a difference.
    let failed = if matches!(command, Command::Diff(_)) {
        USAGE
    } else {
        FAILED
    };
    let result = match command {
        Command::Run(arguments) => wait_for(run::run(arguments)),
        Command::Controller(arguments) => wait_for(controller::run(arguments)),
        Command::Proxy(arguments) => wait_for(proxy::run(arguments)),
        Command::Plan(arguments) => wait_for(plan::run(arguments)),
        Command::Apply(arguments) => code_of(apply::run(arguments)),
        Command::Diff(arguments) => code_of(diff::run(arguments)),
        Command::Delete(arguments) => code_of(delete::run(arguments)),
        Command::Wait(arguments) => code_of(wait::run(arguments)),
        Command::Deploy(arguments) => code_of(verbs::of_service(AskedVerb::Deploy, arguments)),
        Command::Stop(arguments) => code_of(verbs::of_app(AskedVerb::Stop, arguments)),
        Command::Start(arguments) => code_of(verbs::of_app(AskedVerb::Start, arguments)),
        Command::Restart(arguments) => code_of(verbs::of_service(AskedVerb::Restart, arguments)),
        Command::Rollback(arguments) => code_of(verbs::rollback(arguments)),
        Command::Remove(arguments) => code_of(verbs::remove(arguments)),
        Command::Inhibitions(arguments) => code_of(inhibitions::run(arguments)),
        Command::Logs(arguments) => wait_for(logs::run(arguments)),
        Command::Exec(arguments) => code_of(exec::run(arguments)),
        Command::Top(arguments) => wait_for(top::run(arguments)),
        Command::Get(arguments) => wait_for(get::run(arguments)),
        Command::Describe(arguments) => wait_for(describe::run(arguments)),
        Command::Status(arguments) => wait_for(status::run(arguments)),
        Command::History(arguments) => wait_for(history::run(arguments)),
        Command::Events(arguments) => wait_for(events::run(arguments)),
        Command::Validate(arguments) => validate::run(&arguments, &mut io::stdout().lock()),
        Command::Secret(arguments) => wait_for(secret::run(arguments)),
        Command::Volumes(arguments) => wait_for(volumes::run(arguments)),
        Command::Purge(arguments) => wait_for(purge::run(arguments)),
        Command::Doctor(arguments) => code_of(doctor::run(arguments)),
        Command::Completion(arguments) => {
            generate::completion(&arguments, &mut io::stdout().lock()).map(|()| WELL)
        }
        Command::Man(arguments) => {
            generate::man(&arguments, &mut io::stdout().lock()).map(|()| WELL)
        }
        Command::Schema => schema::run(&mut io::stdout().lock()).map(|()| WELL),
        Command::Version => say(&format!("podherd {}", env!("CARGO_PKG_VERSION"))).map(|()| WELL),
    };
    ExitCode::from(result.unwrap_or_else(|error| explain(&error, failed)))
}

fn wait_for(command: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<u8> {
    code_of(async { command.await.map(|()| WELL) })
}

/// Runs a command that chooses its exit code.
fn code_of(command: impl Future<Output = anyhow::Result<u8>>) -> anyhow::Result<u8> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let code = runtime.block_on(command);
    // Somebody may still read standard input; nobody waits for that.
    runtime.shutdown_background();
    code
}

/// Says what went wrong, and with which code that ends.
fn explain(error: &anyhow::Error, failed: u8) -> u8 {
    if is_broken_pipe(error) {
        // Whoever read this has read enough.
        return WELL;
    }
    // Where standard error is closed, the code still says it.
    _ = writeln!(io::stderr(), "podherd: {}", in_full(error));
    if error.is::<SettingsError>() {
        USAGE
    } else {
        failed
    }
}

/// The error with its causes, without those that it says itself.
fn in_full(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Tells a person, beside what the command prints.
fn note(text: &str) {
    tell(&format!("podherd: {text}"));
}

/// The same without saying who tells it.
fn tell(text: &str) {
    // Where standard error is closed, nobody wants to know.
    _ = writeln!(io::stderr(), "{text}");
}

fn say(line: &str) -> anyhow::Result<()> {
    Ok(writeln!(io::stdout(), "{line}")?)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_option_of_every_command_is_documented() {
        for command in Cli::command().get_subcommands() {
            assert!(command.get_about().is_some(), "{}", command.get_name());
            for argument in command.get_arguments() {
                let name = argument.get_id();
                assert!(
                    argument.get_help().is_some() || name == "help",
                    "{} {name}",
                    command.get_name()
                );
            }
        }
    }

    #[test]
    fn a_cause_is_said_once() {
        let inner = io::Error::other("no such thing");
        let said = SettingsError::Unreadable {
            setting: "--config",
            path: "/x".into(),
            source: io::Error::other("no such thing"),
        };
        assert_eq!(
            in_full(&said.into()),
            "--config: /x can't be read: no such thing"
        );
        let context = anyhow::Error::from(inner).context("--listen");
        assert_eq!(in_full(&context), "--listen: no such thing");
    }

    #[test]
    fn wrong_settings_and_failures_end_with_different_codes() {
        let settings = SettingsError::Wrong {
            setting: "--etcd",
            problem: "no etcd is given".to_owned(),
        };
        assert_eq!(explain(&settings.into(), FAILED), USAGE);
        assert_eq!(explain(&anyhow::anyhow!("etcd refused"), FAILED), FAILED);
        let pipe = io::Error::from(io::ErrorKind::BrokenPipe);
        assert_eq!(explain(&pipe.into(), FAILED), WELL);
    }
}
