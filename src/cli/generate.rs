//! `podherd completion` and `podherd man`: what other programs know of the commands.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_complete::Shell;

use super::Cli;

/// Options of `completion`.
#[derive(Debug, clap::Args)]
pub(super) struct Completion {
    /// The shell
    shell: Shell,
}

/// Options of `man`.
#[derive(Debug, clap::Args)]
pub(super) struct Man {
    /// Write a page for each command into this folder, instead of podherd(1) to standard
    /// output
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(super) fn completion(arguments: &Completion, out: &mut impl Write) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "podherd", &mut script);
    Ok(out.write_all(&script)?)
}

pub(super) fn man(arguments: &Man, out: &mut impl Write) -> anyhow::Result<()> {
    match &arguments.dir {
        None => Ok(clap_mangen::Man::new(Cli::command()).render(out)?),
        Some(dir) => clap_mangen::generate_to(Cli::command(), dir)
            .with_context(|| format!("{}: no pages can be written there", dir.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_learns_every_command() {
        for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
            let mut script = Vec::new();
            completion(&Completion { shell }, &mut script).unwrap();
            let script = String::from_utf8(script).unwrap();
            assert!(
                script.contains("rollback") && script.contains("inhibitions"),
                "{shell}"
            );
        }
    }

    #[test]
    fn each_command_has_a_page() {
        let dir = tempfile::tempdir().unwrap();
        let arguments = Man {
            dir: Some(dir.path().to_owned()),
        };
        man(&arguments, &mut Vec::new()).unwrap();
        for page in ["podherd.1", "podherd-apply.1", "podherd-secret-set.1"] {
            assert!(dir.path().join(page).exists(), "{page}");
        }
    }
}
